"""The coordinator by example: each rule of the contract once, in the smallest schedule that shows it."""

from __future__ import annotations

import pickle

import pytest

from rlcore.contracts.lease import Lease
from rlcore.schedule import Admission, Coordinator, Delivery, DeliveryStatus, ScheduleSettings, WaitingFor
from rlcore.schedule.coordinator import NO_ACCURACY


class Watched(Coordinator):
    """Remembers the version of every lease, so that a test need not repeat it on delivery."""

    def lease(self, worker: str, k: int, *, serving: int | None = None) -> list[Lease]:
        granted = super().lease(worker, k, serving=serving)
        self.versions = {**getattr(self, "versions", {}), **{x.lease_id: x.version for x in granted}}
        return granted


def coordinator(**settings: object) -> Watched:
    """100 prompts in file order, batches of 4, on-policy, unless told otherwise."""
    base: dict[str, object] = {"prompts": 100, "train_batch_size": 4, "n_sampled": 8, "buffer_limit": 1000, "shuffle": False}
    return Watched(ScheduleSettings(**{**base, **settings}))  # type: ignore[arg-type]


def lease(c: Watched, k: int = 100, worker: str = "w", **serving: int) -> list[int]:
    return [granted.lease_id for granted in c.lease(worker, k, **serving)]


def arrive(c: Watched, *lease_ids: int, version: int | None = None, accuracy: float | None = 0.5, failed: str = "") -> list[DeliveryStatus]:
    made = [
        Delivery(lease_id=i, version=c.versions[i] if version is None else version, accuracy=accuracy, failed=failed) for i in lease_ids
    ]
    return c.deliver(made)


def train(c: Coordinator) -> tuple[int, ...]:
    order = c.next_batch()
    assert order is not None
    c.updated()
    return order.lease_ids


def test_a_lease_names_what_to_produce() -> None:
    c = coordinator(n_greedy=1, prompts=2, episodes=2, train_batch_size=3)
    leases = c.lease("w", 9)
    assert [(x.lease_id, x.episode, x.prompt_index, x.n_sampled, x.n_greedy, x.version) for x in leases] == [
        (0, 0, 0, 8, 1, 0),
        (1, 0, 1, 8, 1, 0),
        (2, 1, 0, 8, 1, 0),
    ]


def test_on_policy_nothing_is_asked_for_until_the_update_is_done() -> None:
    c = coordinator()
    assert lease(c) == [0, 1, 2, 3]
    assert arrive(c, 3, 1, 0) == [DeliveryStatus.KEPT] * 3
    assert (c.next_batch(), c.waiting_for()) == (None, WaitingFor.GROUPS)
    arrive(c, 2)
    order = c.next_batch()
    assert order is not None
    assert (order.lease_ids, order.versions, order.version) == ((0, 1, 2, 3), (0, 0, 0, 0), 0)
    assert lease(c) == []
    assert (c.status().admission, c.waiting_for()) == (Admission.STALENESS, WaitingFor.UPDATE)
    assert c.updated() == 1
    assert lease(c) == [4, 5, 6, 7]


@pytest.mark.parametrize("staleness", [0, 1, 2, 5])
def test_admission_allows_staleness_plus_one_batches(staleness: int) -> None:
    c = coordinator(max_staleness=staleness)
    assert len(lease(c)) == (staleness + 1) * 4


def test_within_the_bound_nobody_waits_for_a_straggler() -> None:
    c = coordinator(max_staleness=1)
    lease(c)
    arrive(c, 1, 2, 3, 4)
    assert train(c) == (1, 2, 3, 4)


def test_at_the_bound_the_update_waits_for_the_straggler() -> None:
    c = coordinator(max_staleness=1)
    lease(c)
    arrive(c, 1, 2, 3, 4)
    train(c)
    lease(c)
    arrive(c, 5, 6, 7, 8, 9)
    assert c.next_batch() is None
    assert c.status().waiting_for is WaitingFor.STRAGGLERS
    arrive(c, 0)
    assert train(c) == (0, 5, 6, 7)


def test_with_partial_rollouts_no_update_waits_and_the_long_ones_train_first() -> None:
    c = coordinator(max_staleness=1, partial_rollouts=True)
    lease(c)
    arrive(c, 1, 2, 3, 4)
    train(c)
    lease(c)
    arrive(c, 5, 6, 7, 8, 9)
    assert train(c) == (5, 6, 7, 8)  # at version 1, without group 0 of version 0
    lease(c)
    arrive(c, 0, version=0)
    arrive(c, 10, 11, version=2)
    order = c.next_batch()
    assert order is not None
    assert (order.version, order.lease_ids, order.versions) == (2, (0, 9, 10, 11), (0, 1, 2, 2))


def test_the_barrier_looks_ahead_where_stragglers_would_not_fit_into_one_batch() -> None:
    """Bound 2, 8 groups of version 0 in flight after the first update: all 8 cannot be in the batch of version 2."""
    c = coordinator(max_staleness=2)
    assert len(lease(c)) == 12
    arrive(c, 0, 1, 2, 3)
    train(c)
    young = lease(c)
    arrive(c, *young)
    assert (c.next_batch(), c.waiting_for()) == (None, WaitingFor.STRAGGLERS)
    arrive(c, 4, 5, 6, 7)
    assert train(c) == (4, 5, 6, 7)
    assert c.next_batch() is None
    arrive(c, 8, 9, 10, 11)
    assert train(c) == (8, 9, 10, 11)
    assert train(c) == tuple(young)


def test_the_oldest_tokens_train_first_and_the_order_is_canonical() -> None:
    c = coordinator(max_staleness=1, train_batch_size=2)
    lease(c)
    arrive(c, 0, 1)
    train(c)
    lease(c)
    arrive(c, 4, version=1)
    arrive(c, 2, version=1)
    arrive(c, 5, version=1)
    arrive(c, 3, version=0)
    order = c.next_batch()
    assert order is not None
    assert (order.lease_ids, order.versions, order.version) == ((2, 3), (1, 0), 1)


def test_upcoming_are_the_groups_of_the_next_batch_as_far_as_they_are_there() -> None:
    c = coordinator(max_staleness=2)
    assert c.upcoming().lease_ids == ()
    lease(c)
    arrive(c, 5, 1, 9)
    assert set(c.upcoming().lease_ids) == {1, 5, 9}
    arrive(c, 0, 2, 3)
    assert set(c.upcoming().lease_ids) == {0, 1, 2, 3}  # a batch is 4, and the oldest come first
    c.group_lost(2)
    assert set(c.upcoming().lease_ids) <= {0, 1, 3, 5}
    assert len(c.upcoming().lease_ids) >= 3
    order = c.next_batch()
    assert order is not None
    assert order.lease_ids == (0, 1, 3, 5)
    assert c.upcoming().lease_ids == (9,)


def test_upcoming_after_a_void_batch_names_what_is_left_of_it() -> None:
    c = coordinator()
    lease(c)
    arrive(c, 0, 1, 2, 3)
    c.next_batch()
    assert c.upcoming().lease_ids == ()
    c.group_lost(1)
    assert set(c.upcoming().lease_ids) == {0, 2, 3}


def test_the_buffer_bounds_what_is_in_flight_and_ready() -> None:
    c = coordinator(max_staleness=5, buffer_limit=6)
    assert lease(c) == [0, 1, 2, 3, 4, 5]
    assert c.status().admission is Admission.BUFFER
    arrive(c, 0, 1, 2, 3)
    assert lease(c) == []
    c.next_batch()
    assert lease(c) == [6, 7, 8, 9]


def test_a_worker_with_an_older_policy_gets_leases_of_that_version_or_none() -> None:
    c = coordinator(max_staleness=1)
    lease(c)
    arrive(c, 0, 1, 2, 3, 4, 5)
    train(c)
    assert c.lease("w", 9, serving=0) == []
    granted = c.lease("w", 1, serving=7)
    assert [x.version for x in granted] == [1]
    arrive(c, 6, 7)
    train(c)
    assert [x.version for x in c.lease("w", 9, serving=1)] == [1, 1, 1]
    assert [x.version for x in c.lease("w", 9, serving=2)] == [2, 2, 2, 2]


def test_without_dynamic_batching_a_filtered_group_keeps_its_place() -> None:
    c = coordinator(filter_range=(0.1, 0.9))
    lease(c)
    assert arrive(c, 0, 2) == [DeliveryStatus.KEPT] * 2
    assert arrive(c, 1, 3, accuracy=1.0) == [DeliveryStatus.MASKED] * 2
    order = c.next_batch()
    assert order is not None
    assert (order.lease_ids, order.masked) == ((0, 1, 2, 3), {1, 3})
    c.updated()
    assert (c.ledgers[0].trained, c.ledgers[0].filtered) == (2, 2)


def test_with_dynamic_batching_a_filtered_group_is_replaced() -> None:
    c = coordinator(filter_range=(0.1, 0.9), dynamic_batching=True)
    lease(c)
    assert arrive(c, 1, 3, accuracy=0.0) == [DeliveryStatus.FILTERED] * 2
    assert lease(c) == [4, 5]
    arrive(c, 0, 2, 4, 5)
    assert train(c) == (0, 2, 4, 5)
    assert (c.ledgers[0].trained, c.ledgers[0].filtered) == (4, 2)


@pytest.mark.parametrize("bounds", [None, (0.1, 0.9)])
def test_a_group_that_another_filter_emptied_ends_as_one_outside_the_range(bounds: tuple[float, float] | None) -> None:
    empty = Delivery(lease_id=1, version=0, accuracy=0.5, filtered="length")
    c = coordinator(filter_range=bounds)
    lease(c)
    assert c.deliver([empty]) == [DeliveryStatus.MASKED]
    c = coordinator(filter_range=bounds, dynamic_batching=True)
    lease(c)
    assert c.deliver([empty]) == [DeliveryStatus.FILTERED]
    assert lease(c) == [4]
    assert c.ledgers[0].filtered == 1


def test_a_failed_group_is_recorded_with_its_reason_and_replaced() -> None:
    c = coordinator()
    lease(c)
    assert arrive(c, 1, failed="timeout", accuracy=None) == [DeliveryStatus.FAILED]
    assert lease(c) == [4]
    assert c.ledgers[0].episodes[0].failed == {"timeout": 1}


@pytest.mark.parametrize("accuracy", [None, float("nan")])
def test_a_group_that_cannot_be_filtered_failed(accuracy: float | None) -> None:
    c = coordinator(filter_range=(0.1, 0.9))
    lease(c)
    assert arrive(c, 0, accuracy=accuracy) == [DeliveryStatus.FAILED]
    assert c.ledgers[0].episodes[0].failed == {NO_ACCURACY: 1}
    free = coordinator()
    lease(free)
    assert arrive(free, 0, accuracy=accuracy) == [DeliveryStatus.KEPT]


def test_a_lost_worker_s_prompts_go_first_to_somebody_else() -> None:
    c = coordinator()
    assert lease(c, 2, "a") == [0, 1]
    assert lease(c, 2, "b") == [2, 3]
    arrive(c, 0)
    assert c.worker_lost("a") == (1,)
    assert [(x.lease_id, x.prompt_index) for x in c.lease("b", 9)] == [(4, 1)]
    assert c.deliver([Delivery(lease_id=1, version=0)]) == [DeliveryStatus.UNKNOWN]
    arrive(c, 2, 3, 4)
    assert train(c) == (0, 4, 2, 3)
    assert c.ledgers[0].reissued == 1
    assert c.worker_lost("nobody") == ()


def test_a_repeated_delivery_gets_its_first_verdict_while_the_group_is_held() -> None:
    c = coordinator()
    lease(c)
    assert arrive(c, 0, 1, 2, 3) == [DeliveryStatus.KEPT] * 4
    again = [Delivery(lease_id=0, version=0, accuracy=0.5)]
    assert c.deliver(again) == [DeliveryStatus.KEPT]
    assert c.status().buffered == 4
    train(c)
    assert c.deliver(again) == [DeliveryStatus.UNKNOWN]


def test_a_lost_payload_in_the_buffer_opens_its_prompt() -> None:
    c = coordinator()
    lease(c)
    arrive(c, 0, 1, 2, 3)
    assert c.group_lost(2) is False
    assert c.group_lost(2) is False
    assert c.next_batch() is None
    assert [x.prompt_index for x in c.lease("w", 9)] == [2]
    arrive(c, 4)
    assert train(c) == (0, 1, 4, 3)


def test_a_payload_lost_in_training_makes_the_batch_void() -> None:
    c = coordinator(max_staleness=1, buffer_limit=4)
    lease(c)
    arrive(c, 0, 1, 2, 3)
    c.next_batch()
    assert lease(c) == [4, 5, 6, 7]
    arrive(c, 4, 5, 6, 7)
    assert c.group_lost(1) is True
    status = c.status()
    assert (status.taken, status.set_aside, status.buffered, status.given_back) == (0, 3, 4, 1)
    assert c.group_lost(0) is False
    with pytest.raises(ValueError, match="no batch is being trained"):
        c.updated()
    assert train(c) == (2, 3, 4, 5)
    assert (c.status().set_aside, c.status().buffered) == (0, 2)
    assert [x.prompt_index for x in c.lease("w", 2)] == [0, 1]


def test_a_void_batch_does_not_fill_the_buffer() -> None:
    c = coordinator(max_staleness=2, buffer_limit=8)
    lease(c)
    arrive(c, 0, 1, 2, 3)
    c.next_batch()
    c.group_lost(0)
    assert len(lease(c)) == 4


def test_nothing_is_kept_of_what_has_ended() -> None:
    c = coordinator(prompts=1000, max_staleness=1)
    sizes = []
    for step in range(100):
        workers = [lease(c, 3, f"{worker}{step}") for worker in ("a", "b", "c")]
        c.worker_lost(f"b{step}")
        c.group_lost(workers[0][0])
        lease(c)
        c.versions = {i: c.versions[i] for i in range(max(0, max(c.versions) - 20), max(c.versions) + 1)}
        arrive(c, *c.versions)
        train(c)
        sizes.append(len(pickle.dumps(c)))
    assert max(sizes[50:]) < 1.1 * max(sizes[5:20])


def test_a_group_that_arrives_while_its_batch_s_update_is_open_counts_as_of_the_version_before() -> None:
    """Tokens of version 1 exist before the update to it is booked; were they counted as 1, the order would say that nothing is stale."""
    c = coordinator(max_staleness=1)
    lease(c)
    arrive(c, 0, 1, 2, 3)
    c.next_batch()
    arrive(c, 4, version=1)
    c.updated()
    arrive(c, 5, 6, 7)
    order = c.next_batch()
    assert order is not None
    assert order.versions == (0, 0, 0, 0)


def test_a_group_without_an_accuracy_is_not_filtered_where_no_filter_is() -> None:
    c = coordinator(dynamic_batching=True)
    lease(c)
    assert arrive(c, 0, 1, 2, 3, accuracy=None) == [DeliveryStatus.KEPT] * 4
    order = c.next_batch()
    assert order is not None
    assert order.masked == frozenset()


def test_what_is_in_flight_is_waited_for_after_the_last_prompt_was_asked_for() -> None:
    c = coordinator(prompts=4)
    lease(c)
    arrive(c, 0, 1)
    assert c.waiting_for() is WaitingFor.GROUPS
    assert c.next_batch() is None


def test_leases_of_a_lost_worker_end_in_their_order() -> None:
    c = coordinator(train_batch_size=9)
    lease(c, 7, "a")
    assert lease(c, 2, "b") == [7, 8]  # a set of these two begins with 8
    assert c.worker_lost("b") == (7, 8)


def test_stragglers_are_named_oldest_first_whatever_the_order_of_their_leases() -> None:
    c = coordinator(max_staleness=1, train_batch_size=2)
    lease(c)
    arrive(c, 0, 1, 2)
    train(c)
    c.group_lost(2)
    assert (lease(c, 1), lease(c, 1, "v", serving=0), lease(c, 1)) == ([4], [5], [6])
    arrive(c, 3, 6)
    assert c.status().waiting_for is WaitingFor.STRAGGLERS


def test_withdrawing_names_only_what_was_in_flight() -> None:
    c = coordinator(max_staleness=1)
    lease(c)
    arrive(c, 0, 1, 2, 3, 4)
    c.next_batch()
    assert c.withdraw([0, 4, 5, 99]) == (5,)
    assert c.updated() == 1
    assert c.status().buffered == 1


def test_a_group_that_is_lost_on_its_way_is_asked_for_again() -> None:
    c = coordinator()
    lease(c)
    assert c.group_lost(2) is False
    assert [x.prompt_index for x in c.lease("other", 9)] == [2]
    assert (c.status().in_flight, c.ledgers[0].reissued) == (4, 1)


def test_a_group_of_a_void_batch_that_is_lost_too_frees_no_second_place() -> None:
    c = coordinator(max_staleness=1, buffer_limit=4)
    lease(c)
    arrive(c, 0, 1, 2, 3)
    c.next_batch()
    c.group_lost(0)
    c.group_lost(1)
    status = c.status()
    assert (status.set_aside, status.buffered, status.given_back) == (2, 0, 2)


def test_the_last_batch_is_short_and_ends_the_run() -> None:
    c = coordinator(prompts=6)
    lease(c)
    arrive(c, 0, 1, 2, 3)
    train(c)
    assert lease(c) == [4, 5]
    assert c.status().admission is Admission.EXHAUSTED
    arrive(c, 4)
    assert c.next_batch() is None
    arrive(c, 5)
    assert train(c) == (4, 5)
    assert c.finished
    assert c.waiting_for() is WaitingFor.END
    assert c.ledgers[0].episodes[0].ended == c.settings.prompts


def test_a_run_that_filters_everything_ends_without_a_batch() -> None:
    c = coordinator(prompts=3, filter_range=(0.1, 0.9), dynamic_batching=True)
    lease(c)
    arrive(c, 0, 1, 2, accuracy=1.0)
    assert c.finished
    assert (c.next_batch(), c.version, c.ledgers[0].episodes[0].ended == c.settings.prompts) == (None, 0, True)


def test_max_steps_ends_the_run_and_nothing_is_produced_for_later() -> None:
    c = coordinator(max_steps=2, max_staleness=3)
    assert len(lease(c)) == 8
    arrive(c, *range(8))
    train(c)
    assert lease(c) == []
    train(c)
    assert c.finished
    assert (c.version, lease(c)) == (2, [])


@pytest.mark.parametrize("version", [1, 4])
def test_tokens_of_an_impossible_version_are_refused_whole(version: int) -> None:
    c = coordinator(max_staleness=3)
    lease(c)
    arrive(c, 0, 1, 2, 3)
    train(c)
    arrive(c, 4, 5, 6, 7)
    train(c)
    fresh = lease(c)
    with pytest.raises(ValueError, match=f"lease {fresh[1]} .*tokens of version {version}: it may hold versions 2 to 2"):
        c.deliver([Delivery(lease_id=fresh[0], version=2), Delivery(lease_id=fresh[1], version=version)])
    assert c.status().buffered == 0


def test_the_next_version_s_tokens_may_arrive_before_the_update_is_booked() -> None:
    c = coordinator(max_staleness=1)
    lease(c)
    arrive(c, 0, 1, 2, 3)
    c.next_batch()
    assert arrive(c, 4, version=1) == [DeliveryStatus.KEPT]
    with pytest.raises(ValueError, match="versions 0 to 1"):
        arrive(c, 5, version=2)


@pytest.mark.parametrize(("k", "serving"), [(-1, None), (1, -1)])
def test_negative_requests_are_refused(k: int, serving: int | None) -> None:
    with pytest.raises(ValueError, match="must be 0 or more"):
        coordinator().lease("w", k, serving=serving)
