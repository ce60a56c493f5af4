"""What a schedule's state says: enough to go on with the same ledger and the same order, open prompts asked for again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rlcore.contracts.errors import ConfigError
from rlcore.schedule import Coordinator, Delivery, DeliveryStatus, ScheduleSettings

SETTINGS = ScheduleSettings(prompts=7, episodes=2, train_batch_size=2, n_sampled=4, buffer_limit=20, max_staleness=1, seed=5)


def under_way() -> Coordinator:
    """Version 1; one prompt failed, one taken batch, one group ready, one in flight, one given back."""
    c = Coordinator(SETTINGS)
    deliver(c, *[lease.lease_id for lease in c.lease("a", 3)])
    c.next_batch()
    c.updated()
    leases = [lease.lease_id for lease in c.lease("a", 1)] + [lease.lease_id for lease in c.lease("b", 2)]
    c.worker_lost("a")
    c.deliver([Delivery(lease_id=leases[1], version=1, failed="timeout")])
    deliver(c, leases[2])
    c.next_batch()
    c.lease("b", 1)
    return c


def deliver(c: Coordinator, *lease_ids: int) -> None:
    assert c.deliver([Delivery(lease_id=i, version=c.version, accuracy=0.5) for i in lease_ids]) == [DeliveryStatus.KEPT] * len(lease_ids)


def written() -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(under_way().state()))
    return state


def test_everything_open_is_asked_for_again_in_order_by_new_leases() -> None:
    before = under_way()
    c = Coordinator.restored(SETTINGS, written())
    assert c.state() == before.state()
    assert (c.version, c.ledgers[0].trained, c.ledgers[0].episodes[0].failed) == (1, 2, {"timeout": 1})
    again = c.lease("c", 9)
    assert len(again) == 4
    expected = [lease.prompt_index for lease in Coordinator(replace(SETTINGS, max_staleness=6)).lease("w", 14)]
    assert [lease.prompt_index for lease in again] == [expected[2], expected[3], expected[5], expected[6]]
    assert min(lease.lease_id for lease in again) == before.state()["next_lease"]


def test_settings_that_keep_the_order_may_change() -> None:
    longer = replace(SETTINGS, episodes=5, max_steps=9, max_staleness=0, buffer_limit=2, n_sampled=16)
    assert not Coordinator.restored(longer, written()).finished
    assert Coordinator.restored(replace(SETTINGS, max_steps=1), written()).finished


def test_a_finished_run_goes_on_with_more_episodes() -> None:
    short = replace(SETTINGS, prompts=3, episodes=1)
    c = Coordinator(short)
    while not c.finished:
        deliver(c, *[lease.lease_id for lease in c.lease("w", 9)])
        while c.next_batch() is not None:
            c.updated()
    assert c.version == 2
    longer = Coordinator.restored(replace(short, episodes=2, max_staleness=0), c.state())
    assert [lease.episode for lease in longer.lease("w", 9)] == [1, 1]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompts": 8}, "prompts was 7 when this run began and is 8 now"),
        ({"train_batch_size": 3}, "train_batch_size was 2"),
        ({"seed": 6}, "seed was 5"),
        ({"shuffle": False}, "the sampler was shuffled when this run began and is sequential now"),
    ],
)
def test_settings_that_change_the_order_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}.*start a new run from the checkpoint's model$"):
        Coordinator.restored(replace(SETTINGS, **changed), written())


def test_a_state_of_another_format_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the checkpoint's schedule has format 1, and this version of rlcore reads 2 and 3"):
        Coordinator.restored(SETTINGS, {**written(), "format": 1})
