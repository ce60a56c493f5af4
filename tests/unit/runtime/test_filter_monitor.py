"""The group filter's cost, counted group by group: against a count by loops from the definition, and in the words that people read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlcore.contracts.errors import StarvationError
from rlcore.runtime.filter_monitor import FilterMonitor
from rlcore.schedule import Delivery, DeliveryStatus

BOUNDS = (0.1, 0.9)
KEPT, HARD, EASY, MISSING = 0.5, 0.1, 0.9, None  # both ends of the range are outside of it


def watch(**changes: Any) -> FilterMonitor:
    return FilterMonitor(**{"bounds": BOUNDS, "by": "accuracy", "batch_size": 2, "limit": 3, **changes})


def tell(seen: FilterMonitor, *accuracies: float | None, replaces: bool = True) -> FilterMonitor:
    """What the coordinator would say of groups of these accuracies."""
    for accuracy in accuracies:
        taken_out = DeliveryStatus.FILTERED if replaces else DeliveryStatus.MASKED
        verdict = DeliveryStatus.FAILED if accuracy is None else DeliveryStatus.KEPT if BOUNDS[0] < accuracy < BOUNDS[1] else taken_out
        seen.saw(Delivery(lease_id=0, version=0, accuracy=accuracy), verdict)
    return seen


def batches_of(accuracies: list[float | None], size: int, replaces: bool) -> list[list[float | None]]:
    """The groups in order, cut behind every ``size`` that keep a place; the last may be short."""
    found: list[list[float | None]] = [[]]
    for accuracy in accuracies:
        found[-1].append(accuracy)
        places = [one for one in found[-1] if one == KEPT or (one is not None and not replaces)]
        if len(places) == size:
            found.append([])
    return found


def costs_of(batches: list[list[float | None]]) -> list[int]:
    """The groups taken out since the last batch with something to train, after each group."""
    costs, cost = [], 0
    for batch in batches:
        for accuracy in batch:
            cost += accuracy != KEPT
            costs.append(cost)
        if KEPT in batch:
            cost = 0
    return costs


@given(
    accuracies=st.lists(st.sampled_from([KEPT, HARD, EASY, MISSING]), max_size=60),
    size=st.integers(1, 4),
    limit=st.none() | st.integers(1, 4),
    replaces=st.booleans(),
)
def test_it_counts_what_the_definition_says(accuracies: list[float | None], size: int, limit: int | None, replaces: bool) -> None:
    seen = tell(watch(batch_size=size, limit=limit), *accuracies, replaces=replaces)
    batches = batches_of(accuracies, size, replaces)
    for batch in batches:
        figures = seen.next_update()
        assert figures["groups/filtered"] == sum(accuracy != KEPT for accuracy in batch)
        judged = [accuracy for accuracy in batch if accuracy is not None]
        assert figures.get("filter/accuracy") == (pytest.approx(sum(judged) / len(judged)) if judged else None)
        if batch:
            assert figures["filter/too_hard"] == batch.count(HARD) / len(batch)
            assert figures["filter/too_easy"] == batch.count(EASY) / len(batch)
    starved = limit is not None and any(cost > limit * size for cost in costs_of(batches))
    if starved:
        with pytest.raises(StarvationError):
            seen.check()
    else:
        seen.check()
    assert bool(seen.remark()) == (sum(accuracy != KEPT for accuracy in accuracies) > len(accuracies) / 2)


def test_the_limit_itself_is_allowed_and_one_more_is_not() -> None:
    seen = tell(watch(), *[HARD] * 6)
    seen.check()
    tell(seen, HARD)
    with pytest.raises(StarvationError):
        seen.check()
    tell(seen, KEPT, KEPT)  # too late: the producer had run on before anybody asked
    with pytest.raises(StarvationError):
        seen.check()


def test_what_was_filtered_for_batches_that_are_ready_is_no_debt_of_the_next() -> None:
    """A producer that runs ahead of the trainer delivers many batches between two updates."""
    seen = tell(watch(), *[HARD, HARD, HARD, KEPT, HARD, HARD, HARD, KEPT] * 20)
    seen.check()
    assert [seen.next_update()["groups/filtered"] for _ in range(20)] == [6.0] * 20


def test_a_masked_batch_with_nothing_to_train_is_paid_for_by_the_next() -> None:
    seen = tell(watch(), *[HARD] * 6, replaces=False)
    seen.check()
    assert [seen.next_update()["groups/filtered"] for _ in range(3)] == [2.0] * 3
    tell(seen, KEPT, KEPT, *[HARD] * 6, replaces=False)
    seen.check()
    tell(seen, HARD, replaces=False)
    with pytest.raises(StarvationError, match="7 of 7 groups"):
        seen.check()


def test_warnings_are_counted_and_become_rare() -> None:
    seen, said = watch(limit=3), {}
    for update in range(1, 20):
        tell(seen, HARD, HARD)
        assert not seen.take_notes()  # a third of 6 is no warning yet
        tell(seen, HARD, HARD)
        if notes := seen.take_notes():
            said[update] = notes
        tell(seen, KEPT, KEPT)
    assert list(said) == [1, 2, 4, 8, 16]
    assert all(len(notes) == 1 for notes in said.values())
    assert seen.starved_updates == 19
    assert "3 of 3 groups" in said[8][0]
    assert "filter_range 0.1 0.9" in said[8][0]
    assert "beyond 6 (filter_limit 3)" in said[8][0]
    assert "one of 8 updates" in said[8][0]
    assert "the first update" in said[1][0]


def test_without_a_limit_it_warns_as_by_the_usual_one_and_goes_on() -> None:
    seen = tell(watch(limit=None, batch_size=3), *[HARD] * 10)
    assert not seen.take_notes()
    (note,) = tell(seen, *[HARD] * 1000).take_notes()
    assert "11 of 11 groups" in note
    assert "there is no limit" in note
    seen.check()


def test_filters_by_name_are_counted_and_starve_without_a_range() -> None:
    seen = watch(bounds=None, filters=("length", "spread"), batch_size=2, limit=1)
    deliveries = [("length", (("length", 2),)), ("", (("length", 1), ("spread", 1))), ("spread", (("spread", 3),)), ("", ())]
    for filtered, removed in deliveries:
        verdict = DeliveryStatus.FILTERED if filtered else DeliveryStatus.KEPT
        seen.saw(Delivery(lease_id=0, version=0, removed=removed, filtered=filtered), verdict)
    counted = {"length/rollouts": 3.0, "length/groups": 1.0, "spread/rollouts": 4.0, "spread/groups": 1.0}
    assert seen.next_update() == {"groups/filtered": 2.0, **{f"filter/{name}": value for name, value in counted.items()}}
    assert seen.figures() == {**counted, "filtered": 2, "groups": 4, "starved_updates": 1}
    again = watch(bounds=None, filters=("length", "spread"))
    again.restore(json.loads(json.dumps(seen.state())))
    assert again.figures() == seen.figures()
    for _ in range(3):
        seen.saw(Delivery(lease_id=0, version=0, removed=(("length", 4),), filtered="length"), DeliveryStatus.FILTERED)
    with pytest.raises(
        StarvationError, match=r"by the filters length \(3 of the groups\), spread \(0 of the groups\), .*of the filter length"
    ):
        seen.check()


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        (
            [HARD] * 7,
            ["7 of 7 groups", "filter_range 0.1 0.9", "accuracy 0.1 on average", "100 % of the groups too hard", "easier prompts"],
        ),
        ([EASY] * 7, ["accuracy 0.9 on average", "100 % too easy, at or above 0.9", "harder prompts"]),
        (
            [KEPT, HARD, EASY, HARD, EASY, HARD, EASY, HARD, EASY],
            ["7 of 8 groups", "50 % of the groups too hard", "38 % too easy", "easier"],
        ),
        (
            [EASY, HARD, EASY, HARD, EASY, HARD, MISSING],
            ["43 % of the groups too hard", "43 % too easy", "14 % without one", "other prompts"],
        ),
        ([MISSING] * 7, ["accuracy was given for none of 7 groups", "--filter-by", "--filter-range none"]),
    ],
)
def test_the_error_names_the_range_what_was_seen_and_what_to_type(accuracies: list[float | None], words: list[str]) -> None:
    with pytest.raises(StarvationError) as error:
        tell(watch(), *accuracies).check()
    for word in [*words, "filter_limit 3 allows 6", "--filter-limit none"]:
        assert word in str(error.value), error.value
    assert error.value.exit_code == 1


def test_it_names_the_reward_that_the_filter_reads() -> None:
    assert "the accuracy of reward nice 0.1 on average" in tell(watch(by="nice"), HARD).observed()
    assert "the accuracy of reward nice was given for none" in tell(watch(by="nice"), MISSING).observed()


@pytest.mark.parametrize(("accuracies", "said"), [([HARD, KEPT], False), ([HARD, HARD, KEPT], True), ([], False)])
def test_more_than_half_is_remarked_at_the_end(accuracies: list[float | None], said: bool) -> None:
    remark = tell(watch(), *accuracies).remark()
    assert bool(remark) is said
    if said:
        assert "2 of 3 groups were removed by filter_range 0.1 0.9 (accuracy 0.233 on average" in remark


def test_without_a_filter_it_has_nothing_to_say() -> None:
    seen = watch(bounds=None)
    for _ in range(100):
        seen.saw(Delivery(lease_id=0, version=0, accuracy=0.0), DeliveryStatus.KEPT)
    seen.check()
    assert (seen.next_update(), seen.figures(), seen.remark(), seen.take_notes()) == ({}, {}, "", [])


def test_what_failed_for_another_reason_or_is_unknown_never_came_to_the_filter() -> None:
    seen = watch()
    for _ in range(100):
        seen.saw(Delivery(lease_id=0, version=0, failed="timeout"), DeliveryStatus.FAILED)
        seen.saw(Delivery(lease_id=0, version=0, accuracy=HARD), DeliveryStatus.UNKNOWN)
    seen.check()
    assert seen.run.groups == 0


@given(
    before=st.lists(st.sampled_from([KEPT, HARD, EASY, MISSING]), max_size=40),
    after=st.lists(st.sampled_from([KEPT, HARD, EASY, MISSING]), max_size=20),
    replaces=st.booleans(),
)
def test_a_watch_that_goes_on_grants_nothing_anew(before: list[float | None], after: list[float | None], replaces: bool) -> None:
    """Left right after a batch was cut, as an update on-policy leaves it."""
    whole = tell(watch(), *before, replaces=replaces)
    while whole._batch.groups:
        tell(whole, KEPT)
    whole._batches.clear()  # they were trained
    whole.take_notes()
    assume(not whole._error)  # the end of a run
    again = watch()
    again.restore(json.loads(json.dumps(whole.state())))
    for one in (whole, again):
        tell(one, *after, replaces=replaces)
    assert (again.figures(), again.take_notes(), again.next_update()) == (whole.figures(), whole.take_notes(), whole.next_update())
    assert again._error == whole._error
