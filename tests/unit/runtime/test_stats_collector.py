"""Figures of rewards from the judges of several nodes: those of one judge that had done all of it, whenever the answers arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_workers.stats_collector import StatsCollector

from rlcore.contracts.types import Outcome
from rlcore.rewards.judge_stats import JudgeCounts, RewardCounts
from tests.driver_stage import DriverStage, driver_stage
from tests.worker_answers import ToldWorker


def judged(timeouts: int, fine: int, seconds: float) -> JudgeCounts:
    """Verdicts of one reward that took so many seconds each."""
    outcomes = Counter({Outcome.TIMEOUT: timeouts, Outcome.OK: fine})
    return JudgeCounts({"a": RewardCounts(outcomes, (seconds,) * (timeouts + fine))}, outcomes)


class Stage:
    """A driver and the judges of so many nodes, whose answers a test gives."""

    def __init__(self, driver: DriverStage, nodes: int) -> None:
        self.driver = driver
        self.judges = [ToldWorker() for _ in range(nodes)]
        site: Any = SimpleNamespace(judges=lambda: self.judges, schedule=ToldWorker())
        nobody: Any = SimpleNamespace(serving=[], workers=[])
        self.gathered = driver.make(StatsCollector, driver.driver, site, nobody, nobody)

    def ask(self) -> None:
        self.driver.make(self.gathered.ask)

    def answer(self, node: int, *said: JudgeCounts) -> None:
        """To the last question."""
        self.judges[node].calls["take_judged"][-1].give(list(said))
        self.driver.drain()


@pytest.fixture
def driver() -> Iterator[DriverStage]:
    with driver_stage() as made:
        yield made


def test_timeouts_of_nodes_are_added_and_shares_weighted_by_verdicts(driver: DriverStage) -> None:
    stage = Stage(driver, 2)
    stage.ask()
    stage.answer(0, judged(2, 6, 1.0))
    stage.answer(1, judged(1, 1, 5.0))
    figures = stage.gathered.figures()
    assert figures["reward/timeouts"] == 3.0
    assert figures["reward/outcome/timeout"] == 3 / 10  # the mean of the nodes' shares would be 3/8
    assert figures["reward/latency_p50"] == 1.0  # of eight times 1 and twice 5
    assert stage.gathered.figures() == {}, "each verdict is in the figures of one step"


def test_an_answer_that_comes_late_counts_in_the_next_step(driver: DriverStage) -> None:
    stage = Stage(driver, 2)
    stage.ask()
    stage.answer(0, judged(2, 0, 1.0))
    assert stage.gathered.figures()["reward/timeouts"] == 2.0
    stage.answer(1, judged(4, 0, 1.0))
    stage.ask()
    stage.answer(0, judged(1, 0, 1.0))
    stage.answer(1, judged(1, 0, 1.0))
    assert stage.gathered.figures()["reward/timeouts"] == 6.0


def test_nodes_whose_judge_died_or_never_judged_change_nothing(driver: DriverStage) -> None:
    stage = Stage(driver, 3)
    stage.ask()
    stage.answer(0, judged(2, 0, 1.0))
    stage.answer(1)
    stage.judges[2].calls["take_judged"][-1].fail(stage.judges[2].death)
    driver.drain()
    assert stage.gathered.figures()["reward/timeouts"] == 2.0
