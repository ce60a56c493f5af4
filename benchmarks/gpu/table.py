"""Results as Markdown, and where they stand in ``docs/maintainers/gpu.md``. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import PARTS
from benchmarks.gpu.refused import Refused

__all__ = ["BEGIN", "END", "NOT_YET", "check_page", "markdown", "put_into"]

BEGIN, END = "<!-- results -->", "<!-- end of results -->"
NOT_YET = "**Not run on a GPU yet.**"
_THROUGHPUT = {
    "shape": "shape",
    "program": "who",
    "generation tokens/s": "generated_tokens_per_second",
    "generation MFU": "generation_mfu",
    "update s": "update_seconds",
    "update tokens/s": "trained_tokens_per_second",
    "update MFU": "update_mfu",
    "peak GB, generation": "generation_peak_gb",
    "peak GB, update": "update_peak_gb",
}
_PEERS = {
    "shape": "shape",
    "program": "who",
    "step s": "step_seconds",
    "of it generation": "generation_seconds",
    "generation tokens/s": "generated_tokens_per_second",
    "step MFU": "step_mfu",
    "peak GB": "step_peak_gb",
    "rollouts a forward": "rows_per_forward",
    "tokens a completion": "mean_length",
}
_TRACE = {"phase": "phase", "operation": "operation", "ms": "ms", "share": "share", "calls": "calls"}


def markdown(lines: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of parts, one of throughput, one of whole steps beside TRL's, one of operations; each part by its own date and card.
    ``NOT_YET`` for no lines."""
    if not lines:
        return NOT_YET
    ordered = [lines[part.name] for part in PARTS if part.name in lines]
    parts = [[line["part"], line["status"], line["said"], line["seconds"], line["date"], line["commit"] or "–"] for line in ordered]
    text = [_machines(ordered), _table(["part", "", "result", "s", "date", "commit"], parts)]
    tables = (("Throughput", _THROUGHPUT, "throughput"), ("Whole steps", _PEERS, "peers"), ("Heaviest operations", _TRACE, "trace"))
    for head, columns, prefix in tables:
        rows = [row for line in ordered if line["part"].startswith(prefix) for row in line["rows"]]
        if rows:
            text.append(f"### {head}\n\n" + _table(list(columns), [[row.get(key) for key in columns.values()] for row in rows]))
    return "\n\n".join(text)


def check_page(file: Path) -> set[str]:
    """The parts that the tables of ``file`` show; Refused where there is no file, or no place in it for tables."""
    shown = _split(file)[1].splitlines()
    return {part.name for part in PARTS if any(row.startswith(f"| {part.name} |") for row in shown)}


def put_into(file: Path, lines: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the tables between the marks of ``file``. Refused, and ``file`` stays as it is, where ``lines`` are none, are not all of full
    runs on a GPU, or lack a part that ``file`` shows."""
    shown = check_page(file)
    if not lines:
        raise Refused(f"there are no results to put into {file}; run the parts first, or name the folder that has results by --folder")
    if foreign := [name for name, line in lines.items() if line["device"] != "cuda" or line["tiny"]]:
        raise Refused(f"part {foreign[0]} ran on a CPU or with tiny models; {file} holds full runs on a GPU only")
    if lacking := [part.name for part in PARTS if part.name in shown - set(lines)]:
        raise Refused(f"{file} shows {', '.join(lacking)}, which these results lack; run these parts too, or take the tables out by hand")
    before, _, after = _split(file)
    file.write_text(f"{before}{BEGIN}\n{markdown(lines)}\n{END}{after}", encoding="utf-8")


def _split(file: Path) -> tuple[str, str, str]:
    """What stands before, between and after the marks."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror}); name a page that has a place for results") from error
    before, found, rest = text.partition(BEGIN)
    between, ended, after = rest.partition(END)
    if not found or not ended:
        raise Refused(f"{file} has no line {END if found else BEGIN}; results are written between {BEGIN} and {END}")
    return before, between, after


def _machines(lines: list[Mapping[str, Any]]) -> str:
    """One sentence for each kind of machine that the lines are of."""
    seen = dict.fromkeys(_machine(line["machine"]) for line in lines if line["machine"])
    return "\n".join(seen) or "No part got as far as naming its machine."


def _machine(machine: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {machine[name]}" for name in ("python", "torch", "cuda", "transformers") if machine.get(name))
    memory = f", {machine['memory_gb']} GB" if "memory_gb" in machine else ""
    return f"{machine['card']}{memory}; {versions}."


def _table(head: list[str], rows: list[list[Any]]) -> str:
    return "\n".join(_row(row) for row in (head, ["---"] * len(head), *rows))


def _row(values: list[Any]) -> str:
    return "| " + " | ".join(_cell(value) for value in values) + " |"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return " ".join(str(value).split()).replace("|", "\\|")
