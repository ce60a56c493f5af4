"""The law of staleness, against brute force: a batch may leave exactly where some later schedule still keeps the bound."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.contracts.runtime_interface import Admission
from rlcore.schedule.ages import Ages, must_wait, room
from rlcore.schedule.schedule_records import ScheduleSettings


def ages(versions: list[int]) -> Ages:
    counts = Ages()
    for version in versions:
        counts.add(version)
    return counts


def with_bound(batch: int, staleness: int, **more: int) -> ScheduleSettings:
    return ScheduleSettings(prompts=1000, train_batch_size=batch, n_sampled=1, buffer_limit=1000, max_staleness=staleness, **more)


def schedulable(outstanding: list[int], version: int, batch: int, staleness: int) -> bool:
    """Whether batches of ``batch``, oldest first from ``version`` on, train every group in time."""
    queue = sorted(outstanding)
    return all(version + place // batch - age <= staleness for place, age in enumerate(queue))


def test_ages_count_by_version() -> None:
    counts = ages([3, 1, 3, 2])
    counts.remove(3)
    assert (counts.total, counts.up_to(1), counts.up_to(2), counts.up_to(9)) == (3, 1, 2, 3)
    assert counts.oldest_first() == [(1, 1), (2, 1), (3, 1)]


@settings(max_examples=200, deadline=None)
@given(batch=st.integers(1, 4), staleness=st.integers(0, 4), data=st.data())
def test_a_batch_leaves_exactly_when_those_left_in_flight_can_still_be_trained_in_time(
    batch: int, staleness: int, data: st.DataObject
) -> None:
    version = staleness + data.draw(st.integers(0, 2))
    flying = data.draw(st.lists(st.integers(version - staleness, version), max_size=10))
    left_behind_is_fine = schedulable(flying, version + 1, batch, staleness)
    assert must_wait(with_bound(batch, staleness), version, ages(flying)) == (not left_behind_is_fine)


@settings(max_examples=200, deadline=None)
@given(batch=st.integers(1, 4), staleness=st.integers(0, 4), training=st.booleans(), data=st.data())
def test_as_many_are_asked_for_as_can_be_trained_in_time(batch: int, staleness: int, training: bool, data: st.DataObject) -> None:
    version = staleness + data.draw(st.integers(0, 2))
    versions = range(version + training - staleness, version + 1)
    outstanding = data.draw(st.lists(st.sampled_from(versions), max_size=8)) if versions else []
    serving = data.draw(st.integers(max(0, version - staleness - 1), version))
    while not schedulable(outstanding, version + training, batch, staleness):
        outstanding.pop()
    split = data.draw(st.integers(0, len(outstanding)))
    places, limit = room(
        with_bound(batch, staleness),
        started=version + training,
        version=version,
        serving=serving,
        in_flight=ages(outstanding[:split]),
        ready=ages(outstanding[split:]),
    )
    assert limit is Admission.STALENESS
    granted = max(0, places)
    assert schedulable(outstanding + [serving] * granted, version + training, batch, staleness)
    assert not schedulable(outstanding + [serving] * (granted + 1), version + training, batch, staleness)


def test_room_is_the_admission_formula_for_the_newest_policy() -> None:
    for v, s, flying, ready in [(0, 0, 0, 0), (3, 2, 5, 4), (3, 0, 2, 1), (7, 4, 0, 20)]:
        places, _ = room(with_bound(4, s), started=v, version=v, serving=v, in_flight=ages([v] * flying), ready=ages([v] * ready))
        assert v * 4 + ready + flying + places == (v + s + 1) * 4


def test_max_steps_ends_what_is_asked_for() -> None:
    places, limit = room(with_bound(4, 3, max_steps=2), started=1, version=1, serving=1, in_flight=ages([1]), ready=ages([]))
    assert (places, limit) == (3, Admission.EXHAUSTED)
