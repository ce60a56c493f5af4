"""What came of all faults, for a person: two tables, and the page that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.faults import SCHEDULES
from tests.chaos.schedule import Row

__all__ = ["PAGE", "tables", "write"]

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "crashes.md"
_BEGIN, _END = "<!-- chaos: begin -->", "<!-- chaos: end -->"
_LONGEST = 200
_FAULTS = ("| runtime, fault | the run | seconds without a step | updates made twice | it says |", "|---|---|---:|---:|---|")
_RUNS = (
    "| run | minutes | ends with | prompts trained twice, or never | accuracy before and after | processes left |",
    "|---|---:|---:|---:|---:|---:|",
)


def tables(rows: Sequence[Row], ends: Sequence[Mapping[str, Any]], before: str = "") -> str:
    """A row a fault, and a row a run; of schedules that were not run those that stand in ``before``."""
    run = {end["schedule"] for end in ends}
    faults, ended = [_of_fault(row) for row in rows], [_of_run(end) for end in ends]
    for line in before.splitlines():
        name = line.removeprefix("| ").partition(":" if ": " in line.split(" | ")[0] else ",")[0]
        if name in SCHEDULES and name not in run:
            (faults if line.startswith(f"| {name}: ") else ended).append(line)
    return "\n".join([*_FAULTS, *_ordered(faults), "", *_RUNS, *_ordered(ended)])


def _ordered(lines: Sequence[str]) -> list[str]:
    names = list(SCHEDULES)
    return sorted(lines, key=lambda line: max(names.index(name) for name in names if line.startswith((f"| {name}:", f"| {name},"))))


def _of_fault(row: Row) -> str:
    came = row.came + (f", exit code {row.exit_code}" if row.exit_code is not None else "")
    said = row.said.replace("|", "/")
    said = said if len(said) <= _LONGEST else said[:_LONGEST] + " …"
    return f"| {row.schedule}: {row.fault} | {came} | {row.without_a_step:g} | {row.twice} | {said or 'nothing'} |"


def _of_run(end: Mapping[str, Any]) -> str:
    prompts = f"{end['doubled']}, {end['missing']}" if "doubled" in end else "?"
    accuracy = f"{end['accuracy_before']:.2f}, {end['accuracy_after']:.2f}" if "accuracy_after" in end else "?"
    what = f"{end['schedule']}, {end['faults']} fault{'s' * (end['faults'] != 1)}"
    return f"| {what} | {end['minutes']:g} | {end['exit_code']} | {prompts} | {accuracy} | {len(end['left'])} |"


def write(rows: Sequence[Row], ends: Sequence[Mapping[str, Any]]) -> None:
    """Put it into the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, mark, rest = page.partition(_BEGIN)
    assert mark, f"{PAGE} has no {_BEGIN}"
    old, _, after = rest.partition(_END)
    PAGE.write_text(f"{before}{_BEGIN}\n\n{tables(rows, ends, old)}\n\n{_END}{after}", encoding="utf-8")
