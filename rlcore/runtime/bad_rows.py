"""Leave out bad rows before a run starts (bad_rows = "drop"), so that every process of the run leaves out the same ones.

Reading finds most bad rows, in every process alike. Whether a reward can score a row is known only to its workers, so they are asked once,
here, and the plan carries the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rlcore.config import Plan
from rlcore.data.left_out import LeftOut, by_reason, left_out_sentences
from rlcore.runtime.factories import make_judge
from rlcore.runtime.loading import GOLD_ANSWERS, counting_rows, load_data, scorable

__all__ = ["BadRows", "leave_out_bad_rows"]


@dataclass(frozen=True, slots=True)
class BadRows:
    """The rows that a run leaves out, by data set.

    ``counts``: data set -> reason -> number of rows. ``remarks``: a sentence for each data set that is not complete."""

    rows: Mapping[str, tuple[LeftOut, ...]] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def as_lines(self) -> str:
        """Return each row as a line of JSON, with its data set, file, row number and reason."""
        records = (
            {"data": name, "file": row.file, "row": row.row, "reason": row.reason} for name, rows in self.rows.items() for row in rows
        )
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def leave_out_bad_rows(plan: Plan, say: Callable[[str], None] = lambda line: None) -> tuple[Plan, BadRows]:
    """Return a plan whose data lacks all bad rows, and these rows. The plan is returned unchanged if bad rows are refused.

    Raises DataError if a data set cannot be read, or has no good row. Raises InfrastructureError if a reward cannot check the rows."""
    if all(part.plan.config.data.bad_rows != "drop" for part in plan.parts):
        return plan, BadRows()
    data, found = load_data(plan), dict[str, dict[str, str]]()
    judge = make_judge(plan)
    try:
        for name, data_set in data.items():
            if plan.of_data(name).config.data.bad_rows == "drop":
                found[name] = judge.unscorable(data_set.prompts, counting_rows(say, GOLD_ANSWERS, data_set))
            else:
                judge.check(data_set.prompts, counting_rows(say, GOLD_ANSWERS, data_set))
    finally:
        judge.close()
    data = {name: scorable(name, data_set, found.get(name, {})) for name, data_set in data.items()}
    rows = {name: data_set.left_out for name, data_set in data.items() if data_set.left_out}
    counts = {name: by_reason(left_out) for name, left_out in rows.items()}
    sizes = {name: len(data_set) for name, data_set in data.items()}
    return replace(plan, unscorable=found), BadRows(rows, counts, tuple(left_out_sentences(counts, sizes)))
