"""The coordinator under random schedules: any workers, any order of arrival, losses, failures, filters, resumes.

The machine keeps books of its own (what is in flight, ready, taken; what became of each prompt) and compares after every event.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlcore.contracts.lease import Lease
from rlcore.schedule import Admission, Coordinator, Delivery, DeliveryStatus, ScheduleSettings, TrainOrder, WaitingFor, episode_order

WORKERS = ("a", "b", "c")


@st.composite
def schedules(draw: st.DrawFn, **fixed: object) -> ScheduleSettings:
    batch = draw(st.integers(1, 4))
    drawn = {
        "prompts": draw(st.integers(1, 14)),
        "episodes": draw(st.integers(1, 3)),
        "train_batch_size": batch,
        "n_sampled": 2,
        "n_greedy": draw(st.integers(0, 1)),
        "max_staleness": draw(st.integers(0, 4)),
        "buffer_limit": batch + draw(st.integers(0, 16)),
        "filter_range": draw(st.sampled_from([None, (0.1, 0.9)])),
        "dynamic_batching": draw(st.booleans()),
        "max_steps": draw(st.one_of(st.none(), st.integers(1, 8))),
        "seed": draw(st.integers(0, 3)),
        "shuffle": draw(st.booleans()),
    }
    drawn["partial_rollouts"] = "max_staleness" not in fixed and drawn["max_staleness"] > 0 and draw(st.booleans())
    return ScheduleSettings(**{**drawn, **fixed})  # type: ignore[arg-type]


@dataclass
class Book:
    lease: Lease
    worker: str
    version: int
    state: str = "flying"  # flying, ready, set aside, taken
    masked: bool = False

    @property
    def prompt(self) -> tuple[int, int]:
        return self.lease.episode, self.lease.prompt_index


class CoordinatorMachine(RuleBasedStateMachine):
    @initialize(chosen=schedules())
    def start(self, chosen: ScheduleSettings) -> None:
        self.settings = chosen
        self.coordinator = Coordinator(chosen)
        self.position = {
            (episode, int(prompt)): position
            for episode in range(chosen.episodes)
            for position, prompt in enumerate(episode_order(chosen.prompts, episode, chosen.seed, chosen.shuffle))
        }
        self.books: dict[int, Book] = {}
        self.gone: set[int] = set()
        self.fate: dict[tuple[int, int], str] = {}
        self.given_back: set[tuple[int, int]] = set()
        self.next_new = [0, 0]
        self.version = 0
        self.order: TrainOrder | None = None

    # --- events ------------------------------------------------------------------------------------------------------

    @rule(worker=st.sampled_from(WORKERS), k=st.integers(0, 8), lag=st.sampled_from([0, 0, 0, 1, 2, 5]))
    def lease(self, worker: str, k: int, lag: int) -> None:
        serving = max(0, self.version - lag)
        leases = self.coordinator.lease(worker, k, serving=serving if lag else None)
        assert len(leases) <= k
        for lease in leases:
            assert lease.lease_id not in self.books
            assert lease.lease_id not in self.gone
            assert (lease.n_sampled, lease.n_greedy, lease.version) == (self.settings.n_sampled, self.settings.n_greedy, serving)
            self.comes_in_order((lease.episode, lease.prompt_index))
            self.books[lease.lease_id] = Book(lease, worker, lease.version)

    def comes_in_order(self, prompt: tuple[int, int]) -> None:
        assert prompt not in self.fate, "a prompt that ended is asked for again"
        assert prompt not in {book.prompt for book in self.books.values()}, "a prompt is asked for twice at a time"
        if self.given_back:
            assert prompt == min(self.given_back, key=self.canonical)
            self.given_back.remove(prompt)
            return
        assert self.canonical(prompt) == tuple(self.next_new)
        self.next_new[1] += 1
        if self.next_new[1] == self.settings.prompts:
            self.next_new = [self.next_new[0] + 1, 0]

    def canonical(self, prompt: tuple[int, int]) -> tuple[int, int]:
        return prompt[0], self.position[prompt]

    @precondition(lambda self: self.flying())
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.flying()), unique=True, min_size=1, max_size=6))
        deliveries = [self.draw_delivery(data, lease_id) for lease_id in ids]
        verdicts = self.coordinator.deliver(deliveries)
        assert len(verdicts) == len(deliveries)
        for delivery, verdict in zip(deliveries, verdicts, strict=True):
            self.record(delivery, verdict)
        again = self.coordinator.deliver(deliveries)
        assert again == [verdict if verdict.kept else DeliveryStatus.UNKNOWN for verdict in verdicts]

    def draw_delivery(self, data: st.DataObject, lease_id: int) -> Delivery:
        oldest, newest = self.books[lease_id].version, self.version + (self.order is not None)
        version = data.draw(st.integers(oldest, newest))
        accuracy = data.draw(st.sampled_from([0.0, 0.5, 0.5, 0.5, 1.0, None]))
        return Delivery(
            lease_id=lease_id, version=version, accuracy=accuracy, failed=data.draw(st.sampled_from(["", "", "", "", "timeout"]))
        )

    def record(self, delivery: Delivery, verdict: DeliveryStatus) -> None:
        book = self.books[delivery.lease_id]
        filtering = self.settings.filter_range is not None
        filtered = filtering and delivery.accuracy in (0.0, 1.0)
        if delivery.failed or (filtering and delivery.accuracy is None):
            assert verdict is DeliveryStatus.FAILED
        elif filtered:
            assert verdict is (DeliveryStatus.FILTERED if self.settings.dynamic_batching else DeliveryStatus.MASKED)
        else:
            assert verdict is DeliveryStatus.KEPT
        if verdict.kept:
            book.state, book.version, book.masked = "ready", min(delivery.version, self.version), filtered
        else:
            self.finish(delivery.lease_id, verdict.value)

    def finish(self, lease_id: int, fate: str) -> None:
        book = self.books.pop(lease_id)
        assert book.prompt not in self.fate
        self.fate[book.prompt] = fate
        self.gone.add(lease_id)

    @precondition(lambda self: self.order is None)
    @rule()
    def take(self) -> None:
        waiting = self.coordinator.status().waiting_for
        order = self.coordinator.next_batch()
        assert (order is None) == (waiting is not WaitingFor.NOTHING)
        assert not (self.settings.partial_rollouts and waiting is WaitingFor.STRAGGLERS), "an update waits for long rollouts"
        if order is not None:
            self.order = order
            self.check_order(order)

    def check_order(self, order: TrainOrder) -> None:
        s = self.settings
        assert order.version == self.version
        taken = [self.books[lease_id] for lease_id in order.lease_ids]
        ready = {i: book for i, book in self.books.items() if book.state in ("ready", "set aside")}
        assert set(order.lease_ids) <= set(ready)
        nothing_left = not self.flying() and not self.given_back and self.next_new == [s.episodes, 0]
        assert len(taken) == s.train_batch_size or (0 < len(taken) < s.train_batch_size and nothing_left and len(taken) == len(ready))
        assert order.masked == {i for i in order.lease_ids if self.books[i].masked}
        assert list(order.versions) == [book.version for book in taken]
        assert s.partial_rollouts or self.version - min(order.versions) <= s.max_staleness, "staler than allowed"
        keys = [self.canonical(book.prompt) for book in taken]
        assert keys == sorted(keys)
        left = [(book.version, i) for i, book in ready.items() if i not in order.lease_ids]
        assert not left or max((self.books[i].version, i) for i in order.lease_ids) < min(left), "a younger group went first"
        for i, book in ready.items():
            book.state = "taken" if i in order.lease_ids else "ready"

    @precondition(lambda self: self.order is not None)
    @rule()
    def update(self) -> None:
        assert self.order is not None
        assert self.coordinator.next_batch() is None
        for lease_id in self.order.lease_ids:
            self.finish(lease_id, "filtered" if self.books[lease_id].masked else "trained")
        self.order = None
        self.version += 1
        assert self.coordinator.updated() == self.version

    # --- trouble -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.books or self.gone)
    @rule(data=st.data())
    def trouble(self, data: st.DataObject) -> None:
        """One rule for all of it, so that work gets done in between."""
        kinds = {self.lose_worker: self.flying(), self.withdraw: self.books, self.lose_group: self.books, self.hear_from: self.gone}
        possible = [kind for kind, ids in kinds.items() if ids]
        data.draw(st.sampled_from([*possible, self.resume]))(data)

    def lose_worker(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(WORKERS))
        held = [i for i in self.flying() if self.books[i].worker == worker]
        assert sorted(self.coordinator.worker_lost(worker)) == sorted(held)
        self.reopen(held)

    def withdraw(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.books)), unique=True, max_size=3))
        flying = [i for i in ids if self.books[i].state == "flying"]
        assert self.coordinator.withdraw([*ids, 10**9]) == tuple(flying)
        self.reopen(flying)

    def lose_group(self, data: st.DataObject) -> None:
        in_training = self.order is not None and data.draw(st.booleans())
        lease_id = data.draw(st.sampled_from([i for i, book in sorted(self.books.items()) if not in_training or book.state == "taken"]))
        void = self.books[lease_id].state == "taken"
        assert self.coordinator.group_lost(lease_id) is void
        if void:
            assert self.order is not None
            for other in self.order.lease_ids:
                self.books[other].state = "set aside"
            self.order = None
        self.reopen([lease_id])

    def hear_from(self, data: st.DataObject) -> None:
        lease_id = data.draw(st.sampled_from(sorted(self.gone)))
        assert self.coordinator.deliver([Delivery(lease_id=lease_id, version=0, accuracy=0.5)]) == [DeliveryStatus.UNKNOWN]
        assert self.coordinator.group_lost(lease_id) is False
        assert self.coordinator.withdraw([lease_id]) == ()

    def resume(self, data: st.DataObject) -> None:
        state = json.loads(json.dumps(self.coordinator.state()))
        self.coordinator = Coordinator.restored(self.settings, state)
        assert self.coordinator.state() == state
        self.order = None
        self.reopen(list(self.books))

    def reopen(self, lease_ids: list[int]) -> None:
        for lease_id in lease_ids:
            self.given_back.add(self.books.pop(lease_id).prompt)
            self.gone.add(lease_id)

    # --- what must hold after every event ----------------------------------------------------------------------------

    def flying(self) -> list[int]:
        return [i for i, book in self.books.items() if book.state == "flying"]

    @invariant()
    def the_books_agree(self) -> None:
        status = self.coordinator.status()
        states = Counter(book.state for book in self.books.values())
        assert (status.in_flight, status.buffered, status.set_aside, status.taken, status.given_back) == (
            states["flying"],
            states["ready"],
            states["set aside"],
            states["taken"],
            len(self.given_back),
        )
        fates = Counter(self.fate.values())
        assert (status.trained, status.filtered, status.failed) == (fates["trained"], fates["filtered"], fates["failed"])
        assert status.version == self.version == self.coordinator.version

    @invariant()
    def the_ledger_adds_up(self) -> None:
        ledger = self.coordinator.ledgers[0]
        issued = Counter(episode for episode, _ in self.fate)
        issued.update(episode for episode, _ in [book.prompt for book in self.books.values()])
        issued.update(episode for episode, _ in self.given_back)
        assert {episode: tally.issued for episode, tally in ledger.episodes.items()} == dict(issued)
        for episode, tally in ledger.episodes.items():
            mine = Counter(fate for (e, _), fate in self.fate.items() if e == episode)
            assert (tally.trained, tally.filtered, sum(tally.failed.values())) == (mine["trained"], mine["filtered"], mine["failed"])

    @invariant()
    def nothing_exceeds_its_bound(self) -> None:
        s, status = self.settings, self.coordinator.status()
        assert status.buffered + status.in_flight <= s.buffer_limit
        places = self.version * s.train_batch_size + len(self.books)
        assert places <= (self.version + s.max_staleness + 1) * s.train_batch_size, "admission"
        if s.max_steps is not None:
            assert places <= s.max_steps * s.train_batch_size

    @invariant()
    def nothing_is_stuck(self) -> None:
        s, status = self.settings, self.coordinator.status()
        steps_done = s.max_steps is not None and self.version >= s.max_steps
        assert status.finished == (steps_done or (len(self.fate) == s.episodes * s.prompts))
        if not (status.finished or status.in_flight or status.taken):
            assert status.admission is Admission.OPEN or status.waiting_for is WaitingFor.NOTHING

    def teardown(self) -> None:
        """From wherever it stands, the run can be ended, and then every prompt is accounted for."""
        if not hasattr(self, "coordinator"):
            return
        for _ in range(1000):
            if self.coordinator.finished:
                break
            self.lease("a", 3, 0)
            deliveries = [Delivery(lease_id=i, version=self.books[i].version, accuracy=0.5) for i in self.flying()]
            for delivery, verdict in zip(deliveries, self.coordinator.deliver(deliveries), strict=True):
                self.record(delivery, verdict)
            if self.order is None:
                self.take()
            if self.order is not None:
                self.update()
            self.nothing_exceeds_its_bound()
            self.nothing_is_stuck()
        assert self.coordinator.finished
        assert not self.books
        self.the_ledger_adds_up()
        self.the_books_agree()
        if self.settings.max_steps is None:
            ended = {number: episode.ended for number, episode in self.coordinator.ledgers[0].episodes.items()}
            assert ended == dict.fromkeys(range(self.settings.episodes), self.settings.prompts)


TestCoordinator = CoordinatorMachine.TestCase
TestCoordinator.settings = settings(max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def accuracy_of(episode: int, prompt: int) -> float:
    """Some prompts are too easy, some too hard, and it changes with the episode: a function of the prompt alone."""
    return (0.0, 0.5, 0.5, 1.0, 0.5)[(prompt * 7 + episode * 3) % 5]


def one_after_the_other(s: ScheduleSettings) -> list[list[tuple[int, int]]]:
    """The batches that a single loop over the data would train, prompt by prompt: what staleness 0 must reproduce."""
    batches: list[list[tuple[int, int]]] = []
    batch: list[tuple[int, int]] = []
    for episode in range(s.episodes):
        for prompt in episode_order(s.prompts, episode, s.seed, s.shuffle).tolist():
            if s.dynamic_batching and not s.parts[0].effective(accuracy_of(episode, prompt)):
                continue
            batch.append((episode, prompt))
            if len(batch) == s.train_batch_size:
                batches.append(batch)
                batch = []
    batches += [batch] if batch else []
    return batches[: s.max_steps]


@settings(max_examples=300, deadline=None)
@given(chosen=schedules(max_staleness=0), seed=st.integers(0, 2**32))
def test_at_staleness_0_what_is_trained_does_not_depend_on_timing(chosen: ScheduleSettings, seed: int) -> None:
    random = Random(seed)
    workers = [f"w{i}" for i in range(random.randint(1, 4))]
    coordinator, leases, trained = Coordinator(chosen), {}, []
    flying: list[int] = []
    for _ in range(5000):
        if coordinator.finished:
            break
        for lease in coordinator.lease(random.choice(workers), random.randint(0, 5)):
            leases[lease.lease_id] = (lease.episode, lease.prompt_index)
            flying.append(lease.lease_id)
        random.shuffle(flying)
        arrived, flying = flying[: (n := random.randint(0, len(flying)))], flying[n:]
        coordinator.deliver([Delivery(lease_id=i, version=coordinator.version, accuracy=accuracy_of(*leases[i])) for i in arrived])
        flying = trouble(coordinator, random, workers, flying)
        if random.random() < 0.05:
            coordinator, flying = Coordinator.restored(chosen, coordinator.state()), []
        order = coordinator.next_batch()
        if order is not None and random.random() < 0.1:
            coordinator.group_lost(random.choice(order.lease_ids))
        elif order is not None:
            trained.append([leases[i] for i in order.lease_ids])
            coordinator.updated()
    assert coordinator.finished
    assert trained == one_after_the_other(chosen)


def trouble(coordinator: Coordinator, random: Random, workers: list[str], flying: list[int]) -> list[int]:
    lost: set[int] = set()
    if random.random() < 0.1:
        lost |= set(coordinator.worker_lost(random.choice(workers)))
    if flying and random.random() < 0.1:
        lost |= set(coordinator.withdraw(flying[:1]))
    return [i for i in flying if i not in lost]


@settings(max_examples=300, deadline=None)
@given(chosen=schedules(), seed=st.integers(0, 2**32))
def test_stragglers_of_any_length_never_push_a_group_over_the_bound(chosen: ScheduleSettings, seed: int) -> None:
    """The trainer takes every batch it can get, and groups arrive as late as the barrier lets them."""
    chosen = replace(chosen, buffer_limit=1000, max_steps=None)
    random = Random(seed)
    coordinator, flying = Coordinator(chosen), {}
    while not coordinator.finished:
        flying.update({lease.lease_id: lease for lease in coordinator.lease("w", 100)})
        while (order := coordinator.next_batch()) is not None:
            assert chosen.partial_rollouts or order.version - min(order.versions) <= chosen.max_staleness
            coordinator.updated()
            flying.update({lease.lease_id: lease for lease in coordinator.lease("w", 100)})
        if flying:
            newest_first = sorted(flying, reverse=True)
            lease = flying.pop(newest_first[min(int(random.expovariate(1.0)), len(flying) - 1)])
            coordinator.deliver([Delivery(lease_id=lease.lease_id, version=lease.version, accuracy=0.5)])
    assert coordinator.ledgers[0].trained == chosen.prompts * chosen.episodes
