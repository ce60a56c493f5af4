"""The files that are sent into the sandbox: modules of ``inside``, compiled here, since otherwise each run would compile them."""

from __future__ import annotations

import codecs
import functools
import importlib.util
import json
import marshal
from collections.abc import Mapping
from importlib.resources import files
from types import CodeType

from rlcore_plugin_code.digits import MOST_DIGITS

__all__ = ["LIMITS", "LOADER", "as_judged", "program_side", "test_side"]

MOST_FRAMES = 550_000
"""The most nested Python calls: LeetCode's limit; LiveCodeBench allows 50,000. The sandbox provides the stack for so many."""

LIMITS = b"""import sys
sys.setrecursionlimit(%d)
sys.set_int_max_str_digits(%d)
del sys
""" % (MOST_FRAMES, MOST_DIGITS)
"""Runs before any Python code that is judged, or that judges. A program may set other limits."""

LOADER = (
    b"""%simport marshal, sys
from types import ModuleType
from _frozen_importlib_external import MAGIC_NUMBER
with open("side.bin", "rb") as file:
    side = file.read()
if side.startswith(MAGIC_NUMBER):
    side = marshal.loads(side[len(MAGIC_NUMBER):])
else:
    import json
    with open("side.json", "rb") as file:
        side = json.load(file)
for name, code in side:
    module = sys.modules[name] = ModuleType(name)
    exec(code, module.__dict__)
"""
    % LIMITS
)
"""The code that runs first: it creates the modules that this Python compiled, or from their source in a sandbox with another Python."""

_INSIDE = "rlcore_plugin_code.inside"


def as_judged(program: bytes) -> bytes:
    """Return source that runs the program, in the same module, with the limits of such judges: one line before the program. If Python must
    find something in the program's first lines, the source is a program that contains it."""
    if program.startswith(codecs.BOM_UTF8) or b"__future__" in program or b"coding" in b"".join(program.splitlines()[:2]):
        return b"%sexec(compile(%r, 'solution.py', 'exec', dont_inherit=True))\n" % (LIMITS, program)
    return b"; ".join(LIMITS.splitlines()) + b"\n" + program


@functools.cache
def program_side() -> Mapping[str, bytes]:
    """Return the files of the program's process."""
    return _packed("serve", "wire", "shared", "program_side")


@functools.cache
def test_side() -> Mapping[str, bytes]:
    """Return the files of the process of the tests."""
    first = ("wire", "shared", "surroundings", "stand_ins", "names_of_tests")
    return _packed("judge", *first, "stand_in_asyncio", "stand_in_pytest", "stand_in_numpy", "test_side")


def _packed(start: str, *names: str) -> Mapping[str, bytes]:
    """Return modules in the order in which they import each other; ``start``: the function of the last one that is then called."""
    folder = files("rlcore_plugin_code") / "inside"
    texts = [(f"{_INSIDE}.{name}", (folder / f"{name}.py").read_text(encoding="utf-8")) for name in names]
    texts.append(("start", f"from {_INSIDE}.{names[-1]} import {start}\n{start}()\n"))
    compiled = [(name, _lean(compile(text, f"{name}.py", "exec", dont_inherit=True, optimize=2))) for name, text in texts]
    return {"side.json": json.dumps(texts).encode(), "side.bin": importlib.util.MAGIC_NUMBER + marshal.dumps(compiled)}


def _lean(code: CodeType) -> CodeType:
    """Return the code without its line numbers, which are a third of the bytes that each run reads."""
    inner = tuple(_lean(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_consts=inner, co_linetable=b"")
