"""Results of `make bench-algorithms`: the file that they are kept in, the verdicts, and the table of docs/explanation/recipes.md."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.algorithms_plan import CONTROL, CORRECTED, LEARNING_RATE, SEEDS, UPDATES, VERSION, Row, key_of
from rlcore.contracts.errors import UsageError

BEGIN, END = "<!-- bench-algorithms: begin -->", "<!-- bench-algorithms: end -->"
NEW_PAGE = f"# Algorithms\n\n## How well each learns\n\n{BEGIN}\n{END}\n"
LEAST_GAIN = 0.15
_ROUNDING = 1e-9
_FIGURES = ("base", "final", "lag", "learning_rate", "cpu_seconds")
_MOST = 1e9
_READ: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("bench", "label", "recipe", "commit", "date"), (str,)),
    **dict.fromkeys(("staleness", "seed"), (int,)),
    **dict.fromkeys(_FIGURES, (int, float)),
    "overrides": (dict,),
    "code": (str, type(None)),
}
"""What is read of a record, and of which kind it must be."""
Record = Mapping[str, Any]


def read_results(path: Path) -> tuple[list[Record], str]:
    """The records of ``path`` (none where it is absent), the last of a key only, and a note where the last line is torn, else "".

    UsageError, naming the line, where a whole line is not a record, and where the file cannot be read.
    """
    if not path.exists():
        return [], ""
    try:
        *lines, tail = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name another file with --results") from error
    records: dict[str, Record] = {}
    for number, line in enumerate(lines, start=1):
        record, wrong = _record_of(line)
        if wrong:
            raise UsageError(f"{path}, line {number}: not a result of bench-algorithms ({wrong}); remove the line")
        key = key_of(record)
        records.pop(key, None)
        records[key] = record
    return list(records.values()), f"{path}: its last line is torn and ignored; that run is made again" if tail else ""


def _record_of(line: bytes) -> tuple[dict[str, Any], str]:
    """The record of a whole line, and what is wrong with it, else ""."""
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}, "no JSON"
    if not isinstance(record, dict):
        return {}, "no JSON object"
    for name, kinds in _READ.items():
        if name not in record:
            return {}, f"no {name}"
        if type(record[name]) not in kinds or (name in _FIGURES and not abs(record[name]) < _MOST):  # NaN and Infinity are not, either
            return {}, f"{name} is {str(record[name])[:20]!r}"
    return record, ""


def stdout_to_stderr(path: Path) -> Path | None:
    """Rename the file of results to one that is kept beside it, whose path is returned; None if there is no file."""
    if not path.exists():
        return None
    number = next(number for number in count(1) if not _aside(path, number).exists())
    return path.rename(_aside(path, number))


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.old-{number}")


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
    commits: tuple[str, ...]
    code: str | None
    dates: tuple[str, ...]
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
        source = {"commits": list(self.commits), "code": self.code}
        return {**named, "learning_rate": self.learning_rate, **rounded, **source, "verdict": self.verdict}


def of_this_table(records: Sequence[Record]) -> list[Record]:
    """The records that stand in the table: of this version, with the row's settings and one of its seeds."""
    return [
        record
        for record in records
        if record["bench"] == VERSION and record["overrides"] == _row(record).overrides and record["seed"] in SEEDS
    ]


def _row(record: Record) -> Row:
    return Row(record["label"], record["recipe"], record["staleness"])


def lines_of(records: Sequence[Record]) -> list[Line]:
    """One line a row that has a result of this version; the order is that of ``rows``."""
    of_row: dict[Row, dict[int, Record]] = {}
    for record in of_this_table(records):
        of_row.setdefault(_row(record), {})[record["seed"]] = record
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
        commits=tuple(dict.fromkeys(record["commit"] for record in records)),
        code=records[0]["code"],
        dates=tuple(sorted({record["date"] for record in records})),
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
    names = (
        "recipe",
        "max_staleness",
        "mean lag",
        "learning rate",
        "base",
        "final",
        "gain",
        "gain, min to max",
        "CPU seconds",
        "verdict",
        "commit",
    )
    table = ["| " + " | ".join(names) + " |", "|---" + "|---:" * 8 + "|---" * 2 + "|"]
    table += [f"| {' | '.join(_cells(line))} |" for line in lines]
    own = [
        f"Learning rate of `{name}`: {LEARNING_RATE[name][1]}." for name in sorted({line.row.recipe for line in lines} & set(LEARNING_RATE))
    ]
    return "\n".join([_CAPTION, _told_code(lines), "", *table, *(["", *own] if own else [])])


_CAPTION = f"""\
Made by `make bench-algorithms`: the quickstart's model, data and learning rate, {UPDATES} updates, every recipe with its own defaults.
Accuracy is greedy, on 200 held-out problems; figures are means over seeds {", ".join(map(str, SEEDS))}, the range is over these seeds.
*Mean lag*: how many versions old the trained rollouts were. *CPU seconds*: a whole run, start and evaluations included.
A recipe passes where it gains at least {LEAST_GAIN} and ends above *{CONTROL}*: `grpo` paid by a coin and judged by the truth."""


def _told_code(lines: Sequence[Line]) -> str:
    """What the last column means, and whether the rows are of one code."""
    code = lines[0].code
    if code is not None:
        return f"*Commit*: what the row was made with. All rows are of one code, whose digest is `{code}`."
    found = len({commit for line in lines for commit in line.commits})
    commits = "1 commit" if found == 1 else f"{found} commits"
    days = sorted({day for line in lines for day in line.dates})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"*Commit*: the first that holds the row's results. The rows are of {commits} of {when}, made before the code was recorded,\n"
        "so they may be of different code."
    )


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
        ", ".join(f"`{commit[:7]}`" for commit in line.commits),
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
