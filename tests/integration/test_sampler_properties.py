"""The coordinator with samplers that observe, and with several sources, under any timing, losses and resumes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.contracts.lease import Lease
from rlcore.contracts.sampler import Draw, DrawResult, Sampler
from rlcore.schedule import ChosenSampler, Coordinator, Delivery, ScheduleSettings, SourceSchedule

LEVELS = 3
SHARES = (1.0, 2.5, 0.7)


class Hashes(Sampler):
    """Draws a hash of all that it has drawn and seen, in that order: another order would give other draws."""

    def __init__(self, items: int | None, levels: int) -> None:
        self.items, self.levels, self.hash, self.drawn = items or 50, levels, 1, 0
        self.seen: list[DrawResult] = []

    def next(self) -> Draw:
        self.drawn += 1
        self.hash = (self.hash * 1103515245 + 12345) % 2**31
        return Draw((self.hash >> 8) % self.items, (self.hash >> 4) % self.levels)

    def observe(self, result: DrawResult) -> None:
        self.seen.append(result)
        words = (result.item, result.level, len(result.ended), result.accuracy, result.reward, result.version)
        for word in words:
            self.hash = (self.hash * 31 + (-1 if word is None else round(word * 8))) % 2**31

    def state(self) -> Mapping[str, Any]:
        return {"hash": self.hash, "drawn": self.drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.hash, self.drawn = state["hash"], state["drawn"]


@st.composite
def schedules(draw: st.DrawFn, **fixed: Any) -> ScheduleSettings:
    count, batch = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    sources = tuple(
        SourceSchedule(
            name=f"s{number}" if count > 1 else "",
            prompts=draw(st.one_of(st.none(), st.integers(1, 9))),
            weight=SHARES[number],
            n_sampled=number + 1,
            filter_range=draw(st.sampled_from([None, (0.1, 0.9)])),
        )
        for number in range(count)
    )
    drawn = {
        "episodes": draw(st.integers(1, 3)),
        "train_batch_size": batch,
        "buffer_limit": batch + draw(st.integers(0, 16)),
        "dynamic_batching": draw(st.booleans()),
        "max_staleness": draw(st.integers(0, 3)),
        "max_steps": draw(st.integers(1, 8)),
        "sources": sources,
    }
    return ScheduleSettings(**{**drawn, **fixed})


class Run:
    """A schedule whose samplers are made again, as after a crash, by ``restore``. ``seen`` are the observations of all of them."""

    def __init__(self, chosen: ScheduleSettings, among: bool) -> None:
        self.chosen, self.among, self.seen = chosen, among, list[list[DrawResult]]()
        self.coordinator = Coordinator(chosen, *self.samplers())

    def samplers(self) -> tuple[list[ChosenSampler], ChosenSampler | None]:
        made = [Hashes(source.prompts, LEVELS) for source in self.chosen.parts]
        self.seen += [sampler.seen for sampler in made]
        several = Hashes(len(made), 1)
        chosen = [
            ChosenSampler(sampler, "hashes", "sampler hashes", source.prompts, LEVELS)
            for sampler, source in zip(made, self.chosen.parts, strict=True)
        ]
        return chosen, ChosenSampler(several, "hashes", "sampler hashes", len(made)) if self.among else None

    def restore(self) -> None:
        state = json.loads(json.dumps(self.coordinator.state()))
        self.coordinator = Coordinator.restored(self.chosen, state, *self.samplers())
        assert json.loads(json.dumps(self.coordinator.state())) == state


def delivery(lease: Lease, version: int) -> Delivery:
    """The result of a group depends on its lease alone."""
    word = (lease.prompt_index * 7 + lease.episode * 3 + lease.ordinal * 5 + lease.level + lease.source_index) % 6
    accuracy = (0.0, 0.5, 0.5, 1.0, 0.5, 0.5)[word]
    failed = "timeout" if word == 4 else ""
    return Delivery(lease_id=lease.lease_id, version=version, accuracy=accuracy, reward=accuracy / 2, failed=failed)


def key(lease: Lease) -> tuple[int, ...]:
    return lease.source_index, lease.episode, lease.prompt_index, lease.ordinal, lease.level, lease.n_sampled


def played(run: Run, random: Random, trouble: float) -> list[list[tuple[int, ...]]]:
    """Play a run to its end, and return its batches. ``trouble``: the probability of each kind of loss in each round."""
    leases: dict[int, Lease] = {}
    flying: list[int] = []
    trained = []
    for _ in range(5000):
        if run.coordinator.finished:
            return trained
        granted = run.coordinator.lease(random.choice("ab"), random.randint(0, 5) if trouble else 100)
        leases.update({lease.lease_id: lease for lease in granted})
        flying += [lease.lease_id for lease in granted]
        random.shuffle(flying)
        arrived, flying = flying[: (n := random.randint(0, len(flying)) if trouble else len(flying))], flying[n:]
        run.coordinator.deliver([delivery(leases[i], run.coordinator.version) for i in arrived])
        if random.random() < trouble:
            lost = run.coordinator.worker_lost(random.choice("ab"))
            flying = [i for i in flying if i not in lost]
        if random.random() < trouble:
            run.restore()
            flying = []
        order = run.coordinator.next_batch()
        if order is not None and random.random() < trouble:
            run.coordinator.group_lost(random.choice(order.lease_ids))
        elif order is not None:
            trained.append([key(leases[i]) for i in order.lease_ids])
            run.coordinator.updated()
    raise AssertionError("the run does not end")


@settings(max_examples=150, deadline=None)
@given(chosen=schedules(max_staleness=0), among=st.booleans(), seed=st.integers(0, 2**32))
def test_at_staleness_0_the_draws_do_not_depend_on_timing_or_resumes(chosen: ScheduleSettings, among: bool, seed: int) -> None:
    expected = played(Run(chosen, among), Random(0), trouble=0.0)
    assert played(Run(chosen, among), Random(seed), trouble=0.1) == expected


@settings(max_examples=150, deadline=None)
@given(chosen=schedules(), among=st.booleans(), seed=st.integers(0, 2**32))
def test_every_issue_ends_once_and_is_seen_once(chosen: ScheduleSettings, among: bool, seed: int) -> None:
    run = Run(chosen, among)
    batches = played(run, Random(seed), trouble=0.1)
    of_runs = [key for batch in batches for key in batch]
    assert len(set(of_runs)) == len(of_runs), "an issue trained twice"
    parts = len(chosen.parts)
    for number, ledger in enumerate(run.coordinator.ledgers):
        seen = Counter(result.ended for of_restart in run.seen[number::parts] for result in of_restart)
        last = run.coordinator.state().get("unseen", [])
        seen.update(ended for place, ended, *_ in last if place[1] == number)
        assert seen == +Counter(trained=ledger.trained, filtered=ledger.filtered, failed=ledger.failed)
        assert sum(episode.issued for episode in ledger.episodes.values()) == sum(seen.values()) + sum(
            episode.open for episode in ledger.episodes.values()
        )


@settings(max_examples=100, deadline=None)
@given(chosen=schedules(max_staleness=0, dynamic_batching=False), seed=st.integers(0, 2**32))
def test_shares_of_sources_are_within_one_draw_of_their_weights(chosen: ScheduleSettings, seed: int) -> None:
    run = Run(chosen, among=False)
    played(run, Random(seed), trouble=0.1)
    counts = [sum(episode.issued for episode in ledger.episodes.values()) for ledger in run.coordinator.ledgers]
    whole = sum(SHARES[: len(counts)])
    assert all(abs(count - sum(counts) * share / whole) < 1 + 1e-9 for count, share in zip(counts, SHARES, strict=False))
