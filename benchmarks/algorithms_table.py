"""Results of `make bench-algorithms`: the file that they are kept in, the verdicts, and the table of docs/algorithms.md."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.algorithms_plan import CONTROL, CORRECTED, LEARNING_RATE, SEEDS, UPDATES, VERSION, Row, key_of
from rlcore.errors import UsageError

BEGIN, END = "<!-- bench-algorithms: begin -->", "<!-- bench-algorithms: end -->"
NEW_PAGE = f"# Algorithms\n\n## How well each learns\n\n{BEGIN}\n{END}\n"
LEAST_GAIN = 0.15
_ROUNDING = 1e-9
Record = Mapping[str, Any]


def read_results(path: Path) -> tuple[list[Record], str]:
    """The records of ``path`` (none where it is absent), the last of a key only, and a note where the last line is torn, else "".

    UsageError, naming the line, where a whole line is not a record.
    """
    if not path.exists():
        return [], ""
    *lines, tail = path.read_text(encoding="utf-8").split("\n")
    records: dict[str, Record] = {}
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            key = key_of(record)
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}, line {number}: not a result of bench-algorithms; remove the line") from error
        records.pop(key, None)
        records[key] = record
    return list(records.values()), f"{path}: its last line is torn and ignored; that run is made again" if tail else ""


def append_result(path: Path, record: Record) -> None:
    """Add one line in one write, flushed to the disk; a torn end is cut off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        file.seek(0)
        old = file.read()
        if not old.endswith(b"\n") and old:
            file.truncate(old.rfind(b"\n") + 1)
        file.write(json.dumps(record, sort_keys=True).encode() + b"\n")
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class Line:
    """A row with its figures: mean over the seeds that are there, and the range of the gain."""

    row: Row
    seeds: int
    learning_rate: float
    base: float
    final: float
    gain: float
    gain_min: float
    gain_max: float
    lag: float
    cpu_seconds: float
    verdict: str

    @property
    def complete(self) -> bool:
        """True where every seed has a result."""
        return self.seeds == len(SEEDS)

    @property
    def passes(self) -> bool:
        """True where all seeds ran and both bars are cleared; the control has none."""
        return self.verdict in ("passes", "control")

    def as_json(self) -> dict[str, Any]:
        """Plain figures, rounded."""
        figures = {name: getattr(self, name) for name in ("base", "final", "gain", "gain_min", "gain_max", "lag", "cpu_seconds")}
        named = {"label": self.row.label, "recipe": self.row.recipe, "staleness": self.row.staleness, "seeds": self.seeds}
        rounded = {name: round(value, 4) for name, value in figures.items()}
        return {**named, "learning_rate": self.learning_rate, **rounded, "verdict": self.verdict}


def lines_of(records: Sequence[Record]) -> list[Line]:
    """One line a row that has a result of this version; the order is that of ``rows``."""
    of_row: dict[Row, dict[int, Record]] = {}
    for record in records:
        row = Row(record["label"], record["recipe"], record["staleness"])
        if record["bench"] == VERSION and record["overrides"] == row.overrides and record["seed"] in SEEDS:
            of_row.setdefault(row, {})[record["seed"]] = record
    control = of_row.get(Row(CONTROL, "grpo"), {})
    bar = mean(record["final"] for record in control.values()) if len(control) == len(SEEDS) else None
    ordered = sorted(of_row, key=lambda row: (row.label == CONTROL, row.label in CORRECTED, row.label, row.staleness))
    return [_line(row, list(of_row[row].values()), bar) for row in ordered]


def _line(row: Row, records: Sequence[Record], bar: float | None) -> Line:
    base, final = (mean(record[name] for record in records) for name in ("base", "final"))
    gains = [record["final"] - record["base"] for record in records]
    return Line(
        row=row,
        seeds=len(records),
        learning_rate=records[0]["learning_rate"],
        base=base,
        final=final,
        gain=mean(gains),
        gain_min=min(gains),
        gain_max=max(gains),
        lag=mean(record["lag"] for record in records),
        cpu_seconds=mean(record["cpu_seconds"] for record in records),
        verdict=_verdict(row, len(records), mean(gains), final, bar),
    )


def _verdict(row: Row, seeds: int, gain: float, final: float, bar: float | None) -> str:
    if seeds < len(SEEDS):
        return f"{seeds} of {len(SEEDS)} seeds"
    if row.label == CONTROL:
        return "control"
    if bar is None:
        return "no control yet"
    under = [f"gain under {LEAST_GAIN}"] if gain < LEAST_GAIN - _ROUNDING else []
    under += ["not above the control"] if final <= bar + _ROUNDING else []
    return " and ".join(under) or "passes"


def table_text(lines: Sequence[Line]) -> str:
    """The markdown between the markers: what was run, the table, and a note for every learning rate of its own."""
    if not lines:
        return "No results yet: `make bench-algorithms`."
    names = ("recipe", "max_staleness", "mean lag", "learning rate", "base", "final", "gain", "gain, min to max", "CPU seconds", "verdict")
    table = ["| " + " | ".join(names) + " |", "|---" + "|---:" * 8 + "|---|"]
    table += [f"| {' | '.join(_cells(line))} |" for line in lines]
    own = [
        f"Learning rate of `{name}`: {LEARNING_RATE[name][1]}." for name in sorted({line.row.recipe for line in lines} & set(LEARNING_RATE))
    ]
    return "\n".join([_CAPTION, "", *table, *(["", *own] if own else [])])


_CAPTION = f"""\
Made by `make bench-algorithms`: the quickstart's model, data and learning rate, {UPDATES} updates, every recipe with its own defaults.
Accuracy is greedy, on 200 held-out problems; figures are means over seeds {", ".join(map(str, SEEDS))}, the range is over these seeds.
*Mean lag*: how many versions old the trained rollouts were. *CPU seconds*: a whole run, start and evaluations included.
A recipe passes where it gains at least {LEAST_GAIN} and ends above *{CONTROL}*: `grpo` paid by a coin and judged by the truth."""


def _cells(line: Line) -> list[str]:
    name = f"*{line.row.label}*" if line.row.label == CONTROL else f"`{line.row.label}`"
    return [
        name,
        str(line.row.staleness),
        f"{line.lag:.1f}",
        f"{line.learning_rate:g}",
        f"{line.base:.3f}",
        f"{line.final:.3f}",
        f"{line.gain:+.3f}",
        f"{line.gain_min:+.3f} to {line.gain_max:+.3f}",
        f"{line.cpu_seconds:.0f}",
        line.verdict,
    ]


def split_page(path: Path) -> tuple[str, str]:
    """What stands before and after the table's place, markers included; of a new page where there is none. UsageError without markers."""
    text = path.read_bytes().decode("utf-8") if path.exists() else NEW_PAGE  # bytes: line ends stay as they are
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise UsageError(f"{path}: the table goes between the lines {BEGIN} and {END}, each once; add them where it should stand")
    return f"{before}{begin}\n", f"{end}{after}"


def write_page(path: Path, table: str) -> None:
    """Put the table into the page, which is made where it is absent; nothing else of it changes."""
    before, after = split_page(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(f"{before}\n{table}\n\n{after}".encode())
