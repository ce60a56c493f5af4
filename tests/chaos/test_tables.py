"""The page keeps the rows of schedules that were not run, in the order of the schedules."""

from __future__ import annotations

from tests.chaos.schedule import Row
from tests.chaos.tables import tables


def row(schedule: str, seconds: float) -> Row:
    fault = {"fault": "producer, SIGKILL", "step": 1, "came": "continues", "exit_code": None, "twice": 0, "said": "", "wrong": False}
    return Row(schedule=schedule, without_a_step=seconds, **fault)  # type: ignore[arg-type]


def end(schedule: str, minutes: float) -> dict[str, object]:
    return {"schedule": schedule, "faults": 1, "minutes": minutes, "exit_code": 0, "left": []}


def test_rows_of_other_schedules_stay_and_those_of_this_one_are_replaced() -> None:
    before = tables([row("local", 1.0), row("ray-nodes", 2.0)], [end("local", 1.0), end("ray-nodes", 2.0)])
    after = tables([row("ray-nodes", 3.0), row("ray-head", 4.0)], [end("ray-nodes", 3.0), end("ray-head", 4.0)], before)
    whole = tables(
        [row("local", 1.0), row("ray-nodes", 3.0), row("ray-head", 4.0)], [end("local", 1.0), end("ray-nodes", 3.0), end("ray-head", 4.0)]
    )
    assert after == whole
    assert tables([], [], after) == after, "a page that was written is read back"
