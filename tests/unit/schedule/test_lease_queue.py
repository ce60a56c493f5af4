"""Dealing leases: in turns, whole waves by name on-policy, else whoever has waited longest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore.contracts.lease import Lease
from rlcore.schedule import Coordinator, Delivery, ScheduleSettings
from rlcore.schedule.lease_queue import LeaseQueue

NEWEST = 2**30
ASKS = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=2), st.integers(0, 6), max_size=6)


def coordinator(*, staleness: int, batch: int = 4) -> Coordinator:
    return Coordinator(
        ScheduleSettings(prompts=200, train_batch_size=batch, n_sampled=1, buffer_limit=batch * (staleness + 1), max_staleness=staleness)
    )


def deliver(of: Coordinator, dealt: dict[str, list[Lease]]) -> None:
    for leases in dealt.values():
        for lease in leases:
            of.deliver([Delivery(lease_id=lease.lease_id, version=lease.version, accuracy=0.5)])


def dealt_to(asks: dict[str, int], places: int, forbidden: frozenset[str] = frozenset()) -> dict[str, list[Lease]]:
    """Return what is dealt if there are ``places`` leases. The workers that are ``forbidden`` have no weights."""
    queue = LeaseQueue(on_policy=False)
    for name, wanted in asks.items():
        queue.wait(name, asks=wanted, serving=-1 if name in forbidden else 0)
    return queue.grant(coordinator(staleness=0, batch=places), alive=len(asks))


@given(ASKS, st.integers(1, 20), st.frozensets(st.sampled_from("abcdefgh"), max_size=2))
def test_nobody_gets_more_than_it_asks_and_all_that_can_be_given_is(asks: dict[str, int], places: int, forbidden: frozenset[str]) -> None:
    dealt = dealt_to(asks, places, forbidden)
    assert all(0 < len(leases) <= asks[name] for name, leases in dealt.items())
    assert not forbidden & dealt.keys()
    wanted = sum(number for name, number in asks.items() if name not in forbidden)
    lease_ids = [lease.lease_id for leases in dealt.values() for lease in leases]
    assert sorted(lease_ids) == list(range(min(places, wanted)))


@given(ASKS, st.integers(1, 20))
def test_those_who_asked_enough_get_numbers_that_differ_by_one_at_most(asks: dict[str, int], places: int) -> None:
    dealt = dealt_to(asks, places)
    counts = {name: len(dealt.get(name, ())) for name in asks}
    most = max(counts.values(), default=0)
    assert all(counts[name] >= min(asks[name], most - 1) for name in asks)
    last_turn = [counts[name] == most for name in asks if asks[name] >= most]
    assert last_turn == sorted(last_turn, reverse=True)  # what is left over goes to those who come first


@given(st.permutations(range(5)), st.permutations(range(5)), st.integers(1, 4), st.integers(1, 12))
def test_on_policy_who_gets_which_prompt_does_not_depend_on_who_asked_first(
    one: list[int], other: list[int], asks: int, batch: int
) -> None:
    made = []
    for arrivals in (one, other):
        queue, schedule = LeaseQueue(on_policy=True), coordinator(staleness=0, batch=batch)
        for number in arrivals:
            assert queue.grant(schedule, alive=5) == {}
            queue.wait(f"p{number}", asks=asks, serving=0)
        made.append(queue.grant(schedule, alive=5))
    assert made[0] == made[1]
    assert sum(len(leases) for leases in made[0].values()) == min(batch, 5 * asks)


def test_on_policy_a_wave_starts_only_once_the_last_of_the_one_before_is_delivered() -> None:
    queue, schedule = LeaseQueue(on_policy=True), coordinator(staleness=0, batch=8)
    for name in ("a", "b"):
        queue.wait(name, asks=2, serving=0)
    first = queue.grant(schedule, alive=2)
    assert {name: len(leases) for name, leases in first.items()} == {"a": 2, "b": 2}
    for name in ("a", "b"):
        queue.wait(name, asks=2, serving=0)
    deliver(schedule, {"a": first["a"]})
    assert queue.grant(schedule, alive=2) == {}
    deliver(schedule, {"b": first["b"]})
    assert queue.grant(schedule, alive=2).keys() == {"a", "b"}


def test_on_policy_all_that_live_must_have_the_newest_weights() -> None:
    queue, schedule = LeaseQueue(on_policy=True), coordinator(staleness=0, batch=2)
    for name in ("a", "b"):
        queue.wait(name, asks=1, serving=0)
    deliver(schedule, queue.grant(schedule, alive=2))
    assert schedule.next_batch() is not None
    schedule.updated()
    queue.wait("a", asks=1, serving=1)
    queue.wait("b", asks=1, serving=0)
    assert queue.grant(schedule, alive=2) == {}
    queue.wait("b", asks=1, serving=1)
    assert queue.grant(schedule, alive=3) == {}, "a third lives and does not wait"
    queue.wait("c", asks=1, serving=-1)
    assert queue.grant(schedule, alive=3) == {}, "the third has no weights yet"
    queue.leave("c")
    assert queue.grant(schedule, alive=2).keys() == {"a", "b"}


def test_places_that_open_one_by_one_go_round() -> None:
    """By hand: three wait, every update opens a place; without turns the first by name would get them all."""
    queue, schedule = LeaseQueue(on_policy=False), coordinator(staleness=1, batch=1)
    got = []
    for name in ("a", "b", "c"):
        queue.wait(name, asks=1, serving=NEWEST)
    for _ in range(9):
        dealt = queue.grant(schedule, alive=3)
        got += list(dealt)
        for name in dealt:
            queue.wait(name, asks=1, serving=NEWEST)
        deliver(schedule, dealt)
        if schedule.next_batch() is not None:
            schedule.updated()
    assert got[:9] == ["a", "b", "c"] * 3


def test_who_asks_again_keeps_its_place_and_who_leaves_loses_it() -> None:
    queue, schedule = LeaseQueue(on_policy=False), coordinator(staleness=0, batch=1)
    for name in ("a", "b"):
        queue.wait(name, asks=1, serving=0)
    queue.wait("a", asks=3, serving=0)
    assert queue.grant(schedule, alive=2).keys() == {"a"}
    queue, schedule = LeaseQueue(on_policy=False), coordinator(staleness=0, batch=1)
    for name in ("a", "b"):
        queue.wait(name, asks=1, serving=0)
    queue.leave("a")
    queue.wait("a", asks=3, serving=0)
    assert queue.grant(schedule, alive=2).keys() == {"b"}


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3)), max_size=6), st.integers(0, 2))
def test_a_refusal_settles_it_for_older_weights_only(workers: list[tuple[int, int]], staleness: int) -> None:
    """The same is dealt as by asking the coordinator for every single one."""
    queue, schedule, plain = LeaseQueue(on_policy=False), *(coordinator(staleness=staleness, batch=3) for _ in range(2))
    for made in (schedule, plain):
        for _ in range(2):
            deliver(made, {"x": made.lease("x", 3)})
            assert made.next_batch() is not None
            made.updated()
    for number, (serving, asks) in enumerate(workers):
        queue.wait(f"w{number}", asks=asks, serving=serving)

    expected: dict[str, list[Lease]] = {}
    for turn in range(3):
        for number, (serving, asks) in enumerate(workers):
            if turn < asks and serving >= 0 and len(expected.get(f"w{number}", ())) == turn:
                for granted in plain.lease(f"w{number}", 1, serving=serving):
                    expected.setdefault(f"w{number}", []).append(granted)
    assert queue.grant(schedule, alive=len(workers)) == expected


@pytest.mark.parametrize(("serving", "hopeless"), [(0, True), (1, False)])
def test_one_with_weights_no_newer_than_a_refused_one_has_nothing_to_hope_for(serving: int, hopeless: bool) -> None:
    queue, schedule = LeaseQueue(on_policy=False), coordinator(staleness=0, batch=1)
    assert not queue.hopeless(serving)
    for name in ("a", "b"):
        queue.wait(name, asks=1, serving=0)
    queue.grant(schedule, alive=2)
    assert queue.hopeless(serving) is hopeless
