"""`make bench-verdicts`: how often math-verify alone and the reward `boxed` judge right, table by table. The last line is one JSON object.

The tables are pairs of a gold answer and an answer with a verdict, taken from the tests of other graders
(`plugins/rewards/math/tests/published/README.md`). A row that needs a tolerance names it; `boxed` is run with it there, and without.
math-verify is asked as its documentation shows: both sides parsed with its defaults, then verified.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from math_verify import parse, verify
from rlcore_plugin_math.options import BoxedOptions
from rlcore_plugin_math.rewards import BoxedReward

from rlcore.api import Outcome, RewardInput

PUBLISHED = Path(__file__).parents[1] / "plugins" / "rewards" / "math" / "tests" / "published"
FILES = ("chosen_here", "chosen_blind")

Row = dict[str, Any]


def tables() -> Iterator[tuple[str, list[Row]]]:
    """(name, rows) of each table: a file's rows of one repository."""
    for name in FILES:
        rows = [json.loads(line) for line in (PUBLISHED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for repository in dict.fromkeys(row["repository"] for row in rows):
            yield f"{name}: {repository}", [row for row in rows if row["repository"] == repository]


def by_math_verify(row: Row) -> bool:
    """math-verify's verdict; False where it raises."""
    try:
        return bool(verify(parse(f"${row['gold']}$"), parse(rf"\boxed{{{row['answer']}}}")))
    except Exception:  # whatever a grader that is called without a guard raises, it has not accepted
        return False


@lru_cache
def _reward(relative_tolerance: float) -> BoxedReward:
    return BoxedReward(BoxedOptions(relative_tolerance=relative_tolerance))


def by_boxed(row: Row) -> bool:
    """The verdict of ``boxed``, with the tolerance that the row names."""
    return _accepts(row, row.get("relative_tolerance", 0.0))


def by_boxed_exactly(row: Row) -> bool:
    """The verdict of ``boxed`` with its default options."""
    return _accepts(row, 0.0)


def _accepts(row: Row, relative_tolerance: float) -> bool:
    item = RewardInput(messages=(), columns={"gt_answer": row["gold"]}, text=rf"so \boxed{{{row['answer']}}}")
    return _reward(relative_tolerance).score(item).outcome is Outcome.OK


GRADERS: dict[str, Callable[[Row], bool]] = {"math_verify": by_math_verify, "boxed": by_boxed, "boxed_exact": by_boxed_exactly}


def mistakes(rows: list[Row], accepts: Callable[[Row], bool]) -> tuple[list[Row], list[Row]]:
    """(rows accepted wrongly, rows refused wrongly)."""
    verdicts = [(row, accepts(row)) for row in rows]
    return [row for row, said in verdicts if said and not row["expected"]], [row for row, said in verdicts if row["expected"] and not said]


def main() -> None:
    """Print a line a table, the rows that ``boxed`` misses, and the totals."""
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    totals = {name: [0, 0] for name in GRADERS}
    count = worse = 0
    missed: list[Row] = []
    print(f"{'table':64} rows  " + "  ".join(f"{name:>14}" for name in GRADERS) + "   (accuracy, wrong acceptances / refusals)")
    for table, rows in tables():
        found = {name: mistakes(rows, accepts) for name, accepts in GRADERS.items()}
        cells = []
        for name, (accepted, refused) in found.items():
            totals[name] = [totals[name][0] + len(accepted), totals[name][1] + len(refused)]
            cells.append(f"{1 - (len(accepted) + len(refused)) / len(rows):8.3f} {len(accepted)}/{len(refused)}")
        print(f"{table:64} {len(rows):4}  " + "  ".join(f"{cell:>14}" for cell in cells))
        count += len(rows)
        worse += len(found["boxed"][1]) > len(found["math_verify"][1])
        missed += found["boxed"][0] + found["boxed"][1]
    for row in missed:
        print(f"missed: gold {row['gold']!r}, answer {row['answer']!r}, expected {row['expected']} ({row['repository']})")
    figures: dict[str, object] = {"pairs": count, "tables_with_more_refusals_than_math_verify": worse}
    for name, (accepted_wrongly, refused_wrongly) in totals.items():
        accuracy = round(1 - (accepted_wrongly + refused_wrongly) / count, 4)
        figures[name] = {"accuracy": accuracy, "wrong_acceptances": accepted_wrongly, "wrong_refusals": refused_wrongly}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
