"""What came of all faults, for a person: two tables, and the page that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.schedule import Row

__all__ = ["PAGE", "tables", "write"]

PAGE = Path(__file__).parents[2] / "docs" / "when_things_break.md"
_BEGIN, _END = "<!-- chaos: begin -->", "<!-- chaos: end -->"
_LONGEST = 200


def tables(rows: Sequence[Row], ends: Sequence[Mapping[str, Any]]) -> str:
    """A row a fault, and a row a run."""
    lines = ["| runtime, fault | the run | seconds without a step | updates made twice | it says |", "|---|---|---:|---:|---|"]
    for row in rows:
        came = row.came + (f", exit code {row.exit_code}" if row.exit_code is not None else "")
        said = row.said.replace("|", "/")
        said = said if len(said) <= _LONGEST else said[:_LONGEST] + " …"
        lines.append(f"| {row.schedule}: {row.fault} | {came} | {row.without_a_step:g} | {row.twice} | {said or 'nothing'} |")
    lines += [
        "",
        "| run | minutes | ends with | prompts trained twice, or never | accuracy before and after | processes left |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for end in ends:
        prompts = f"{end['doubled']}, {end['missing']}" if "doubled" in end else "?"
        accuracy = f"{end['accuracy_before']:.2f}, {end['accuracy_after']:.2f}" if "accuracy_after" in end else "?"
        what = f"{end['schedule']}, {end['faults']} fault{'s' * (end['faults'] != 1)}"
        lines.append(f"| {what} | {end['minutes']:g} | {end['exit_code']} | {prompts} | {accuracy} | {len(end['left'])} |")
    return "\n".join(lines)


def write(text: str) -> None:
    """Put it into the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, mark, rest = page.partition(_BEGIN)
    assert mark, f"{PAGE} has no {_BEGIN}"
    PAGE.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{rest.partition(_END)[2]}", encoding="utf-8")
