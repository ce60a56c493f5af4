"""Trainer ranks as one: what ends one of them ends the run, also while nobody waits for its answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlcore.contracts.errors import WeightsError, WorkerLostError
from rlcore.runtime.driver_inbox import DriverInbox
from rlcore.runtime.trainer_ranks import Ranks
from tests.worker_answers import ToldWorker


def ranks(inbox: DriverInbox, count: int) -> Ranks:
    launcher = SimpleNamespace(start=lambda host, *given, name, seat: ToldWorker(name))
    site: Any = SimpleNamespace(launcher=launcher, address="127.0.0.1", device="cpu", trainer_seat=lambda rank: None)
    return Ranks(site, inbox, None, count)  # type: ignore[arg-type]


def test_a_transfer_that_failed_in_the_background_ends_the_run() -> None:
    inbox = DriverInbox()
    rank: Any = ranks(inbox, 1).workers[0]
    rank.calls["lifetime"][0].fail(WeightsError("the trainer waited 4 s for producer p1"))
    with pytest.raises(WeightsError, match="waited 4 s for producer p1"):
        inbox.drain()


def test_a_death_is_told_while_all_wait_for_groups() -> None:
    inbox = DriverInbox()
    rank: Any = ranks(inbox, 2).workers[1]
    rank.calls["lifetime"][0].fail(rank.death)
    with pytest.raises(WorkerLostError, match=r"^trainer rank 1 of 2 died, and the run cannot go on without it"):
        inbox.drain()
