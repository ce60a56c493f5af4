"""Figures of rewards from the judges of several nodes: those of one judge that had done all of it, whenever the answers arrive."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from rlcore_plugin_workers.driver_inbox import DriverInbox
from rlcore_plugin_workers.gathering import Gathered

from rlcore.contracts.types import Outcome
from rlcore.rewards.tally import RewardCounts, VerdictCounts
from tests.worker_answers import ToldWorker


def judged(timeouts: int, fine: int, seconds: float) -> VerdictCounts:
    """Verdicts of one reward that took so many seconds each."""
    outcomes = Counter({Outcome.TIMEOUT: timeouts, Outcome.OK: fine})
    return VerdictCounts({"a": RewardCounts(outcomes, (seconds,) * (timeouts + fine))}, outcomes)


class Stage:
    """A driver and the judges of so many nodes, whose answers a test gives."""

    def __init__(self, nodes: int) -> None:
        self.judges = [ToldWorker() for _ in range(nodes)]
        self.inbox = DriverInbox()
        site: Any = SimpleNamespace(judges=lambda: self.judges, schedule=ToldWorker())
        nobody: Any = SimpleNamespace(serving=[], workers=[])
        self.gathered = Gathered(self.inbox, site, nobody, nobody)

    def answer(self, node: int, *said: VerdictCounts) -> None:
        """To the last question."""
        self.judges[node].calls["take_judged"][-1].give(list(said))
        self.inbox.drain()


def test_timeouts_of_nodes_are_added_and_shares_weighted_by_verdicts() -> None:
    stage = Stage(2)
    stage.gathered.ask()
    stage.answer(0, judged(2, 6, 1.0))
    stage.answer(1, judged(1, 1, 5.0))
    figures = stage.gathered.figures()
    assert figures["reward/timeouts"] == 3.0
    assert figures["reward/outcome/timeout"] == 3 / 10  # the mean of the nodes' shares would be 3/8
    assert figures["reward/latency_p50"] == 1.0  # of eight times 1 and twice 5
    assert stage.gathered.figures() == {}, "each verdict is in the figures of one step"


def test_an_answer_that_comes_late_counts_in_the_next_step() -> None:
    stage = Stage(2)
    stage.gathered.ask()
    stage.answer(0, judged(2, 0, 1.0))
    assert stage.gathered.figures()["reward/timeouts"] == 2.0
    stage.answer(1, judged(4, 0, 1.0))
    stage.gathered.ask()
    stage.answer(0, judged(1, 0, 1.0))
    stage.answer(1, judged(1, 0, 1.0))
    assert stage.gathered.figures()["reward/timeouts"] == 6.0


def test_nodes_whose_judge_died_or_never_judged_change_nothing() -> None:
    stage = Stage(3)
    stage.gathered.ask()
    stage.answer(0, judged(2, 0, 1.0))
    stage.answer(1)
    stage.judges[2].calls["take_judged"][-1].fail(stage.judges[2].death)
    stage.inbox.drain()
    assert stage.gathered.figures()["reward/timeouts"] == 2.0
