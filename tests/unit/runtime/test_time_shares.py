"""Shares of time: every second is in one category, whatever the activities are called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore.runtime.timing import Category, Timing, by_category
from rlcore.schedule import Role, WorkerTime

ACTIVITIES = (
    "training",
    "log probabilities",
    "generation",
    "evaluation",
    "weights",
    "waiting for data",
    "waiting for weights",
    "scoring",
    "waiting for environments",
    "waiting for tools",
    "back-pressure",
    "idle",
    "something new",
)
SECONDS = st.dictionaries(st.sampled_from(ACTIVITIES), st.floats(0.0, 1e6))
REPORTS = st.lists(st.builds(WorkerTime, worker=st.sampled_from("ab"), role=st.sampled_from(Role), seconds=SECONDS), max_size=6)
TOKENS = st.integers(0, 10**9)


def trainer(seconds: dict[str, float]) -> WorkerTime:
    return WorkerTime(worker="trainer", role=Role.TRAINER, seconds=seconds)


def producer(seconds: dict[str, float]) -> WorkerTime:
    return WorkerTime(worker="p0", role=Role.PRODUCER, seconds=seconds)


def step_figures(reports: list[WorkerTime], generated: int = 0, wasted: int = 0) -> dict[str, float]:
    made = Timing()
    made.saw(reports)
    return made.step(tokens_generated=generated, tokens_wasted=wasted)


def shares_of(reports: list[WorkerTime], generated: int = 0, wasted: int = 0) -> dict[str, float]:
    made = Timing()
    made.saw(reports)
    made.step(tokens_generated=generated, tokens_wasted=wasted)
    return made.shares()


@given(REPORTS, TOKENS, TOKENS)
def test_the_categories_of_a_role_add_up_to_one(reports: list[WorkerTime], generated: int, wasted: int) -> None:
    shares = shares_of(reports, generated, wasted)
    for role, prefix in ((Role.TRAINER, "trainer/"), (Role.PRODUCER, "producers/")):
        of = {name.removeprefix(prefix): share for name, share in shares.items() if name.startswith(prefix)}
        spent = sum(sum(report.seconds.values()) for report in reports if report.role is role)
        assert sum(of.values()) == pytest.approx(1.0 if spent else 0.0)
        assert set(of) == set(Category)
        assert all(share >= 0.0 for share in of.values())


@given(REPORTS, TOKENS, TOKENS)
def test_the_figures_of_a_step_add_up_to_its_seconds(reports: list[WorkerTime], generated: int, wasted: int) -> None:
    figures = step_figures(reports, generated, wasted)
    for role, prefix in ((Role.TRAINER, "time/trainer/"), (Role.PRODUCER, "time/producers/")):
        spent = sum(sum(report.seconds.values()) for report in reports if report.role is role)
        assert sum(value for name, value in figures.items() if name.startswith(prefix)) == pytest.approx(spent)


def test_each_activity_is_where_a_reader_looks_for_it() -> None:
    found = {activity: next(c for c, spent in by_category({activity: 1.0}).items() if spent) for activity in ACTIVITIES}
    assert found == {
        "training": Category.COMPUTE,
        "log probabilities": Category.COMPUTE,
        "generation": Category.COMPUTE,
        "evaluation": Category.COMPUTE,
        "weights": Category.WAITING_FOR_WEIGHTS,
        "waiting for data": Category.WAITING_FOR_DATA,
        "waiting for weights": Category.WAITING_FOR_WEIGHTS,
        "scoring": Category.BLOCKED_BY_REWARDS,
        "waiting for environments": Category.BLOCKED_BY_ENVIRONMENTS,
        "waiting for tools": Category.BLOCKED_BY_TOOLS,
        "back-pressure": Category.BACK_PRESSURE,
        "idle": Category.OTHER,
        "something new": Category.OTHER,
    }


def test_generation_of_what_is_thrown_away_is_wasted_by_its_tokens() -> None:
    shares = shares_of([producer({"generation": 8.0, "evaluation": 1.0, "idle": 1.0})], 400, 100)
    assert shares["producers/wasted"] == 0.2
    assert shares["producers/compute"] == pytest.approx(0.7)
    assert shares["producers_busy"] == pytest.approx(0.9)


def test_more_waste_than_generation_in_a_step_is_all_of_it() -> None:
    figures = step_figures([producer({"generation": 8.0})], 10, 50)
    assert (figures["time/producers/wasted"], figures["time/producers/compute"]) == (8.0, 0.0)


def test_the_bubble_is_the_trainers_wait_for_data_and_weights() -> None:
    shares = shares_of(
        [
            trainer({"training": 6.0, "waiting for data": 2.0, "weights": 1.0, "idle": 1.0}),
            producer({"generation": 1.0, "back-pressure": 3.0}),
        ]
    )
    assert (shares["trainer_busy"], shares["producers_busy"]) == pytest.approx((0.6, 0.25))
    assert shares["bubble"] == pytest.approx(0.3)
    assert shares["producers/back_pressure"] == 0.75


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_wasted_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        by_category({"generation": 1.0}, share)
