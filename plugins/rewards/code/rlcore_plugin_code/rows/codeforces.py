"""Codeforces (`open-r1/codeforces`): the parts of a statement, ``official_tests``, and a ``generated_checker`` if a problem has several
right outputs. The checker is run as ``checker.py input.txt correct_output.txt solution_output.txt``, and prints 1 if the output is right.

https://huggingface.co/datasets/open-r1/codeforces
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.rows.apps import tests_of
from rlcore_plugin_code.rows.reading import has, joined_tests, said, stdin_prompt, text_in, whole

__all__ = ["codeforces_row", "is_codeforces"]

_PARTS = (("input_format", "Input"), ("output_format", "Output"), ("note", "Note"))
_JUDGE = """

import io, sys
from contextlib import redirect_stdout

printed = io.StringIO()
sys.argv = ["checker.py", "input.txt", "expected.txt", "output.txt"]
try:
    with redirect_stdout(printed):
        exec(compile(CHECKER, "checker.py", "exec"), {"__name__": "__main__"})
except SystemExit as ended:
    if ended.code not in (None, 0):
        raise
sys.exit(0 if printed.getvalue().split()[-1:] in (["1"], ["1.0"]) else 1)
"""
"""Runs the text ``CHECKER`` with the files of the reward."""


def is_codeforces(row: Mapping[Any, Any]) -> bool:
    """Return whether the row has its columns."""
    return has(row, "contest_id", "official_tests", "input_mode", "generated_checker") and said(row.get("description"))


def codeforces_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row with its official tests. A program that reads a file or talks to a judge cannot be judged."""
    _refuse_unjudgeable(row)
    try:
        inputs, outputs = joined_tests(row.get("official_tests"))
    except (KeyError, TypeError):
        raise BadRow('"official_tests" must be a list of tests with "input" and "output"') from None
    if not inputs:
        raise BadRow('"official_tests" is empty: this row has no tests')
    tests = tests_of({"inputs": inputs, "outputs": outputs})
    if said(row.get("generated_checker")):
        tests["checker"] = f"CHECKER = {_literal(row['generated_checker'])}{_JUDGE}"
    prompt = [{"role": "user", "content": row["prompt"]}] if said(row.get("prompt")) else stdin_prompt(_statement(row))
    return whole(row, prompt, tests, row.get("id"))


def _literal(source: str) -> str:
    """Return the text as a Python literal that keeps its lines, so that the reward sees which packages a checker imports."""
    escaped = source.replace("\\", "\\\\").replace("'", "\\'")
    return f"'''\\\n{escaped}\n'''"


def _refuse_unjudgeable(row: Mapping[Any, Any]) -> None:
    if row.get("input_mode") != "stdio":
        raise BadRow(f'"input_mode" is {str(row.get("input_mode"))[:20]!r}: the program of this row reads a file; only "stdio" is judged')
    if said(row.get("interaction_format")):
        raise BadRow('the program of this row talks to a judge ("interaction_format"), which the reward does not offer')
    if row.get("language") not in (None, "python"):  # the configuration verifiable-prompts has a row for each language
        raise BadRow(f'"language" is {str(row["language"])[:20]!r}: the prompt of this row asks for it; the format reads "python"')


def _statement(row: Mapping[Any, Any]) -> str:
    """Return the statement as the contest shows it."""
    parts = [text_in(row, "description").strip()]
    parts += [f"{label}\n\n{str(row[name]).strip()}" for name, label in _PARTS[:2] if said(row.get(name))]
    examples = row.get("examples")
    for example in examples if isinstance(examples, list | tuple) else ():
        if isinstance(example, Mapping):
            parts.append(f"Example\n\n```\n{str(example.get('input')).strip()}\n```\n\n```\n{str(example.get('output')).strip()}\n```")
    parts += [f"{label}\n\n{str(row[name]).strip()}" for name, label in _PARTS[2:] if said(row.get(name))]
    return "\n\n".join(parts)
