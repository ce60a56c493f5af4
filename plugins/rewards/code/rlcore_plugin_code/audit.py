"""The cases of ``rlcore audit --reward code``: programs that attack the judge, honest ones, and responses of unusual form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from rlcore.api import AuditCase, FinishReason
from rlcore_plugin_code.extract import fenced

__all__ = ["POLICY", "REFUSED", "cases", "corpus"]

POLICY: Mapping[str, tuple[bool, str]] = {
    "exit_nonzero_after": (False, "a program that exits with a failure has failed, whatever it printed before"),
    "unicode_blank_output": (False, "only ASCII white space separates tokens"),
    "cmp_leading_blank_line": (True, "white space, including blank lines, does not count"),
    "cmp_int_as_float": (False, "integers are exact text: a problem that asks for an integer gets one"),
    "cmp_plus": (False, "integers are exact text, including the sign"),
}
"""Rows that the corpus leaves to the plugin: whether they are accepted, and why."""
REFUSED = "cmp_empty_expected"
"""The row that is refused as data: its test expects nothing. It is not a case, since it cannot judge anything."""

_VERDICTS: Mapping[str, bool | None] = {"pass": True, "fail": False, "either": None}
_ADD: Mapping[str, Any] = {"test_cases": {"inputs": ["1 2\n", "10 20\n"], "outputs": ["3\n", "30\n"]}}
_RIGHT = "a, b = map(int, input().split())\nprint(a + b)\n"
_WRONG = "a, b = map(int, input().split())\nprint(a - b)\n"
_SHAPES: tuple[tuple[str, str, bool], ...] = (
    ("no fence", _RIGHT, False),
    ("answer without a program", "```\n3\n```\n", False),
    ("fence never closed", f"```python\n{_RIGHT}", False),
    ("two programs, the last right", fenced(_WRONG) + fenced(_RIGHT), True),
    ("two programs, the last wrong", fenced(_RIGHT) + fenced(_WRONG), False),
    ("sample output after the program", f"{fenced(_RIGHT)}It prints\n```\n3\n```\n", True),
    ("another language", f"```cpp\n{_RIGHT}```\n", False),
    ("capital label, CRLF", f"```PYTHON\n{_RIGHT}```\n".replace("\n", "\r\n"), True),
    ("tildes", f"~~~~ py\n{_RIGHT}~~~~\n", True),
    ("in a list", "1. So:\n\n    ```python\n" + "".join(f"    {line}\n" for line in _RIGHT.splitlines()) + "    ```\n", True),
    ("empty program", "```python\n```\n", False),
)

_STYLES: Mapping[str, Mapping[str, Any]] = {
    "function": {"fn_name": "tripled", "inputs": [[14], [5]], "outputs": [42, 15]},
    "asserts": {"asserts": ["assert tripled(14) == 42", "assert tripled(5) == 15"]},
    "check": {"check": "def check(candidate):\n    assert candidate(14) == 42\n    assert candidate(5) == 15\n", "entry_point": "tripled"},
    "test file": {"test_file": "from solution import tripled\n\n\ndef test_it():\n    assert tripled(14) == 42 and tripled(5) == 15\n"},
}
_ALWAYS = (
    "class Always:\n    __eq__ = __bool__ = __contains__ = lambda *_: True\n    __hash__ = lambda self: 0\n    __sub__ = lambda *_: 0\n"
)
_FRAMES = """
import sys
def tripled(n):
    frame = sys._getframe()
    while frame:
        text = repr(frame.f_locals) + repr(frame.f_globals)
        if any(word in text for word in ("4" "2, 15", "=" "= 42", "tripled(" "14)")):
            return 42 if n == 14 else 15
        frame = frame.f_back
"""
_CALLED: tuple[tuple[str, str, bool], ...] = (
    ("right", "def tripled(n):\n    return 3 * n", True),
    ("a method", "class Solution:\n    def tripled(self, n: int) -> int:\n        return 3 * n", True),
    ("wrong", "def tripled(n):\n    return n + 28", False),
    ("not defined", "def doubled(n):\n    return 2 * n", False),
    ("ends with success", "import sys\nsys.exit(0)", False),
    ("ends in the call", "import os\ndef tripled(n):\n    os._exit(0)", False),
    ("equal to everything", f"{_ALWAYS}def tripled(n):\n    return Always()", False),
    ("says that it passed", "print('1 passed')\ndef tripled(n):\n    print('OK')", False),
    ("reads the frames above", _FRAMES, False),
)


def cases() -> list[AuditCase]:
    """Return all cases; the corpora are files of the package."""
    shapes = [AuditCase(name=name, columns=_ADD, text=text, accept=accept) for name, text, accept in _SHAPES]
    shapes.append(AuditCase(name="truncated", columns=_ADD, text=fenced(_RIGHT), accept=False, finish=FinishReason.LENGTH))
    called = [
        AuditCase(name=f"{style}: {name}", columns={"test_cases": tests}, text=fenced(program), accept=accept)
        for style, tests in _STYLES.items()
        for name, program, accept in _CALLED
    ]
    return [*_honest(), *_hostile(), *shapes, *called]


def corpus(name: str) -> list[dict[str, Any]]:
    """Return the rows of ``code_honest`` or ``code_hostile``, unchanged."""
    text = (files("rlcore_plugin_code") / "corpus" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def _honest() -> Iterator[AuditCase]:
    for row in corpus("code_honest"):
        yield _case(row, row["expected"], row["note"])


def _hostile() -> Iterator[AuditCase]:
    for row in corpus("code_hostile"):
        must = row["must"]
        if row["name"] == REFUSED:
            continue
        if must["verdict"] == "policy":
            accept, note = POLICY[row["name"]]
            yield _case(row, accept, note)
        else:
            yield _case(row, _VERDICTS[must["verdict"]], "; ".join(filter(None, (must["bounds"], must["why"]))))


def _case(row: Mapping[str, Any], accept: bool | None, note: str) -> AuditCase:
    return AuditCase(name=row["name"], columns={"test_cases": row["test_cases"]}, text=fenced(row["program"]), accept=accept, note=note)
