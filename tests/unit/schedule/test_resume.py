"""A schedule written and read back: same ledger, same order, open prompts asked for again; a damaged state is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rlcore.contracts.errors import ConfigError, UsageError
from rlcore.schedule import Coordinator, Delivery, ScheduleSettings, Verdict

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
    assert c.deliver([Delivery(lease_id=i, version=c.version, accuracy=0.5) for i in lease_ids]) == [Verdict.KEPT] * len(lease_ids)


def written() -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(under_way().state()))
    return state


def test_everything_open_is_asked_for_again_in_order_by_new_leases() -> None:
    before = under_way()
    c = Coordinator.restore(SETTINGS, written())
    assert c.state() == before.state()
    assert (c.version, c.ledger.trained, c.ledger.episodes[0].failed) == (1, 2, {"timeout": 1})
    again = c.lease("c", 9)
    assert len(again) == 4
    expected = [lease.prompt_index for lease in Coordinator(replace(SETTINGS, max_staleness=6)).lease("w", 14)]
    assert [lease.prompt_index for lease in again] == [expected[2], expected[3], expected[5], expected[6]]
    assert min(lease.lease_id for lease in again) == before.state()["next_lease"]


def test_settings_that_keep_the_order_may_change() -> None:
    longer = replace(SETTINGS, episodes=5, max_steps=9, max_staleness=0, buffer_limit=2, n_sampled=16)
    assert not Coordinator.restore(longer, written()).finished
    assert Coordinator.restore(replace(SETTINGS, max_steps=1), written()).finished


def test_a_finished_run_goes_on_with_more_episodes() -> None:
    short = replace(SETTINGS, prompts=3, episodes=1)
    c = Coordinator(short)
    while not c.finished:
        deliver(c, *[lease.lease_id for lease in c.lease("w", 9)])
        while c.next_batch() is not None:
            c.updated()
    assert c.version == 2
    longer = Coordinator.restore(replace(short, episodes=2, max_staleness=0), c.state())
    assert [lease.episode for lease in longer.lease("w", 9)] == [1, 1]


@pytest.mark.parametrize(("name", "value"), [("prompts", 8), ("train_batch_size", 3), ("seed", 6), ("shuffle", False)])
def test_a_changed_order_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"with {name} = {value!r}: it was written with"):
        Coordinator.restore(replace(SETTINGS, **{name: value}), written())


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.pop("ledger"),
        lambda s: s.update(format=2),
        lambda s: s.update(version=-1),
        lambda s: s.update(next_lease="x"),
        lambda s: s.update(cursor=[0]),
        lambda s: s.update(cursor=[0, 7]),
        lambda s: s.update(cursor=[0, 5]),
        lambda s: s.update(settings=None),
        lambda s: s["open"].pop(),
        lambda s: s["open"].append(s["open"][0]),
        lambda s: s["open"].__setitem__(1, s["open"][0]),
        lambda s: s["open"].append([1, 3]),
        lambda s: s["open"].append([0, 9]),
        lambda s: s["open"].append(3),
        lambda s: s["ledger"].pop("episodes"),
        lambda s: s["ledger"]["episodes"][0].__setitem__(2, 5),
        lambda s: s["ledger"]["episodes"].__setitem__(0, [0, 5, 1, 0, {"timeout": 1}]),
        lambda s: s["ledger"]["episodes"].append([1, 1, 1, 0, {}]),
    ],
)
def test_a_damaged_state_is_refused_in_one_sentence(damage: Callable[[dict[str, Any]], object]) -> None:
    state = written()
    damage(state)
    with pytest.raises(UsageError, match=r"state in the checkpoint is damaged .*resume from an earlier checkpoint"):
        Coordinator.restore(SETTINGS, state)


def test_a_state_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(UsageError, match="damaged"):
        Coordinator.restore(SETTINGS, [1, 2])  # type: ignore[arg-type]
