"""Trainer ranks as one: what ends one of them ends the run, also while nobody waits for its answer."""

from __future__ import annotations

from typing import Any

import pytest
from ray.exceptions import ActorDiedError
from rlcore_plugin_ray.driver_inbox import DriverInbox
from rlcore_plugin_ray.node_placement import Places
from rlcore_plugin_ray.trainer_ranks import Ranks

from rlcore.api import WeightsError
from rlcore.api.runtime import WorkerLostError
from tests.ray_answers import Actor


class Session:
    """Actors without Ray."""

    def actor(self, cls: type, *args: Any, **named: Any) -> Actor:
        return Actor()


def ranks(inbox: DriverInbox, count: int) -> Ranks:
    places = Places(trainers=("n",) * count, producers=("n",), cpus=0.5, trainer_gpus=0, producer_gpus=0)
    return Ranks(Session(), inbox, None, places, None)  # type: ignore[arg-type]


def test_a_transfer_that_failed_in_the_background_ends_the_run() -> None:
    inbox = DriverInbox()
    ranks(inbox, 1).actors[0].calls["lifetime"][0].fail(WeightsError("the trainer waited 4 s for producer p1"))
    with pytest.raises(WeightsError, match="waited 4 s for producer p1"):
        inbox.drain()


def test_a_death_is_told_while_all_wait_for_groups() -> None:
    inbox = DriverInbox()
    ranks(inbox, 2).actors[1].calls["lifetime"][0].fail(ActorDiedError())
    with pytest.raises(WorkerLostError, match=r"^trainer rank 1 of 2 died, and the run cannot go on without it"):
        inbox.drain()
