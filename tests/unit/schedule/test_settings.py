"""ScheduleSettings refuses what could never run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlcore.schedule.schedule_records import ScheduleSettings

GOOD = ScheduleSettings(prompts=10, train_batch_size=4, n_sampled=8, buffer_limit=4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompts", 0),
        ("train_batch_size", 0),
        ("n_sampled", 0),
        ("n_greedy", -1),
        ("episodes", 0),
        ("max_steps", 0),
        ("max_staleness", -1),
        ("seed", -1),
        ("buffer_limit", 3),
        ("filter_range", (0.5, 0.5)),
        ("filter_range", (0.0, float("inf"))),
        ("filter_range", (float("nan"), 1.0)),
    ],
)
def test_a_number_out_of_range_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^schedule: {name} must be .*"):
        replace(GOOD, **{name: value})


def test_the_horizon_is_max_steps_or_what_the_episodes_hold() -> None:
    assert GOOD.horizon == 3  # ceil(10 / 4)
    assert replace(GOOD, episodes=2).horizon == 5
    assert replace(GOOD, episodes=2, max_steps=7).horizon == 7


def test_the_filter_s_bounds_are_outside() -> None:
    (filtering,) = replace(GOOD, filter_range=(0.25, 0.75)).parts
    assert [filtering.effective(a) for a in (0.25, 0.26, 0.74, 0.75)] == [False, True, True, False]
    assert GOOD.parts[0].effective(0.0)
