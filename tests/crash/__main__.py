"""``make crash-matrix``: kill a short run before each of its events, go on, compare; for some events the second life is killed as well.

Then, at some of their events, a run that a controller, a schedule and a loss with a state steer, one that evaluates only before and after,
one whose producers work beside the trainer (staleness 2), and one whose rollouts are episodes of agents. Before each call of the
coordinator, every prompt that was leased has ended or is open.
``--write`` puts the table into docs/explanation/crashes.md.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tests.crash.matrix import BESIDE, ENDS, EPISODES, SAMPLED, SAMPLED_BESIDE, STEERED, CrashMatrix, Point

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "crashes.md"
BEGIN, END = "<!-- crash-matrix: begin -->", "<!-- crash-matrix: end -->"
_TWICE_EVERY = 4


def main(words: Sequence[str] | None = None) -> int:
    """Run it; the last line is one JSON object. Exit code 1 if a run that went on differs."""
    arguments = _parser().parse_args(words)
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="rlcore-crash-") as name:
        matrix = CrashMatrix(Path(name) / "in-turns")
        with matrix.warmed():
            expected, events = matrix.whole()
            numbers = range(arguments.first, len(events) + 1, arguments.every)
            some = random.Random(arguments.seed)
            again = {number: some.randint(1, len(events)) for number in numbers[::_TWICE_EVERY]}
            found = matrix.points(numbers, expected, twice=lambda number: again.get(number, 0))
            points = list(track(found, "in turns", total=len(numbers), console=console))
        steered = _some("steered", CrashMatrix(Path(name) / "steered", **STEERED), arguments.steered, console)
        sampled = _some("samplers", CrashMatrix(Path(name) / "sampled", **SAMPLED), arguments.sampled, console)
        mixed = CrashMatrix(Path(name) / "sampled-beside", in_order=False, **SAMPLED_BESIDE)
        sampled_late = _some("samplers, staleness 2", mixed, arguments.sampled_beside, console)
        rare = _some("evaluated at the ends", CrashMatrix(Path(name) / "ends", **ENDS), arguments.ends, console)
        late = _some("staleness 2", CrashMatrix(Path(name) / "beside", in_order=False, **BESIDE), arguments.beside, console)
        played = _some("episodes", CrashMatrix(Path(name) / "episodes", in_order=False, **EPISODES), arguments.episodes, console)
    for point in (*points, *steered, *sampled, *sampled_late, *rare, *late, *played):
        if point.differs:
            console.print(f"before event {point.number}, {point.event}: {point.differs}", highlight=False, markup=False)
    table = _table(points, steered, sampled, sampled_late, rare, late, played)
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    print(table)
    wrong = sum(bool(point.differs) for point in (*points, *steered, *sampled, *sampled_late, *rare, *late, *played))
    counts = {"cut_points": len(points), "killed_twice": len(again), "cut_points_ends": len(rare), "cut_points_staleness_2": len(late)}
    counts |= {
        "cut_points_steered": len(steered),
        "cut_points_samplers": len(sampled),
        "cut_points_samplers_staleness_2": len(sampled_late),
    }
    print(json.dumps({**counts, "cut_points_episodes": len(played), "different": wrong}))
    return int(wrong > 0)


def _some(name: str, matrix: CrashMatrix, wanted: int, console: Console) -> list[Point]:
    """So many of its events, at equal distances."""
    if not wanted:
        return []
    with matrix.warmed():
        expected, events = matrix.whole()
        between = len(events) // (wanted + 1)
        numbers = [between * (number + 1) for number in range(wanted)]
        return list(track(matrix.points(numbers, expected), name, total=wanted, console=console))


def _table(
    points: Sequence[Point],
    steered: Sequence[Point],
    sampled: Sequence[Point],
    sampled_late: Sequence[Point],
    rare: Sequence[Point],
    late: Sequence[Point],
    played: Sequence[Point],
) -> str:
    rows = ["| killed before | points | other bits after it resumed |", "|---|---:|---:|"]
    counted = Counter(point.kind for point in points)
    for kind, count in sorted(counted.items()):
        rows.append(f"| {kind} | {count} | {sum(bool(point.differs) for point in points if point.kind == kind)} |")
    wrong = sum(bool(point.differs) for point in steered)
    what = "a controller that stops it, a schedule, a loss with a state, and a reference that moves"
    rows.append(f"| an event of a run with {what} | {len(steered)} | {wrong} |")
    wrong = sum(bool(point.differs) for point in sampled)
    rows.append(f"| an event of a run with two sources with samplers that observe, and a filter | {len(sampled)} | {wrong} |")
    wrong = sum(bool(point.differs) for point in sampled_late)
    rows.append(f"| an event of a run with two sources and samplers, staleness 2, processes | {len(sampled_late)} | {wrong} (prompts) |")
    rows.append(f"| an event of a run that evaluates only before and after | {len(rare)} | {sum(bool(point.differs) for point in rare)} |")
    rows.append(f"| an event of a run with staleness 2, processes | {len(late)} | {sum(bool(point.differs) for point in late)} (prompts) |")
    wrong = sum(bool(point.differs) for point in played)
    rows.append(f"| an event of a run of agents with staleness 2 and episodes in flight | {len(played)} | {wrong} (prompts) |")
    return "\n".join(rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="kill before every N-th event (1: all of them)")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="of them, the first (1)")
    parser.add_argument("--ends", type=int, default=24, metavar="N", help="cut points of a run that evaluates only before and after (24)")
    parser.add_argument("--steered", type=int, default=48, metavar="N", help="cut points of a run that plugins steer (48)")
    parser.add_argument("--sampled", type=int, default=24, metavar="N", help="cut points of a run with two sources and samplers (24)")
    parser.add_argument("--sampled-beside", type=int, default=6, metavar="N", help="the same with staleness 2 (6)")
    parser.add_argument("--beside", type=int, default=24, metavar="N", help="cut points with staleness 2 (24)")
    parser.add_argument("--episodes", type=int, default=24, metavar="N", help="cut points with episodes of agents in flight (24)")
    parser.add_argument("--seed", type=int, default=0, help="of the events before which the second life is killed, too")
    parser.add_argument("--write", action="store_true", help="put the table into docs/explanation/crashes.md")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
