"""A trainer rank as a worker: a consumer, and on rank 0 the end of the weights that publishes."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

import numpy as np

from rlcore.api import ConfigError, Group, WeightsError
from rlcore.api.runtime import (
    Batch,
    Role,
    SharePlan,
    TimeAccount,
    WorkerTime,
    batch_figures,
    first_version,
    make_consumer,
    make_publisher,
    peak_memory,
    probe_sequence,
    probe_tolerance,
    profiled,
    rollout_rows,
    schedule_settings,
)
from rlcore.api.schedule import TrainOrder
from rlcore.api.weights import Publisher
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.schedule_service import BatchOrder

__all__ = ["RankShare", "RankSharing", "TrainResult", "TrainerWorker"]


def _probed_group(batch: Batch) -> int | None:
    """The place of the group that ``probe_sequence`` is of."""
    alone = ((place, replace(batch, groups=(group,))) for place, group in enumerate(batch.groups))
    return next((place for place, one in alone if probe_sequence(one) is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSharing:
    """How a rank shares batches: its ``place`` among ``size`` replicas, and what it reads of groups whose tokens it does not compute on:
    ``logprobs``, or their tokens all the same (``whole``)."""

    place: int
    size: int
    logprobs: bool
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """What a rank says of a batch that it has shared out: the leases of the groups that it needs whole, and ``digest`` of the shares of
    all ranks."""

    leases: tuple[int, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a rank says of an update: where its seconds went; rank 0 also the figures, the rows of the rollout log, ``timings``: seconds
    inside the backend since the start, by part, and ``notes``: whom the weights wait for no more, if no death has told of it."""

    time: WorkerTime
    figures: Mapping[str, float] = field(default_factory=dict)
    rollouts: tuple[Mapping[str, Any], ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class TrainerWorker:
    """One rank. Its calls come one after the other, the same on every rank: they are collective. ``address``: of its host; ``device``: of
    collectives with producers."""

    def __init__(self, plan_bundle: PlanBundle, rank: int, address: str, device: str) -> None:
        self._plan_bundle = plan_bundle
        self._rank = rank
        self._address = address
        self._device = device
        self._account = TimeAccount()
        self._closing = ExitStack()
        self._waiting = ExitStack()
        self._publisher: Publisher | None = None
        self._life: Future[None] = Future()
        self._to_end: SimpleQueue[str | None] = SimpleQueue()
        self._notes: list[str] = []
        self._taking = Lock()
        self._ahead: deque[Mapping[int, Group]] = deque(maxlen=3)  # of this batch, of the next, and of one that came late
        self._plans: deque[tuple[TrainOrder, SharePlan, Mapping[int, Group]]] = deque(maxlen=3)

    def lives(self) -> int:
        """The id of the process, which is there."""
        return os.getpid()

    def rendezvous(self, port: int | None) -> str:
        """An address of this host where the ranks can meet. ConfigError where the port that was asked for is taken."""
        host = self._address
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port or 0))
            except OSError as error:
                raise ConfigError(
                    f"--master_port {port} cannot be used on {host} ({error.strerror}); type another, or leave it out"
                ) from error
            return f"tcp://{host}:{probe.getsockname()[1]}"

    def prepare(self, prompts: int, rendezvous: str) -> Any:
        """Load the model and meet the other ranks. Rank 0 returns the address of its weights."""
        self._plan = plan = self._plan_bundle.open(f"trainer rank {self._rank}")
        schedule = schedule_settings(plan, prompts)
        self._consumer = make_consumer(plan, schedule, self._account, self._closing, rank=self._rank, rendezvous=rendezvous)
        self._tolerance = probe_tolerance(plan.config.inference.dtype, plan.config.training.dtype)
        if self._rank:
            return None
        self._notes += self._consumer.notes
        self._publisher, address = make_publisher(plan, self._closing, device=self._device, on_failure=self._transfer_failed)
        self._publisher.on_drop = self._notes.append
        self._publisher.on_end = self._to_end.put
        return address

    def start(self, probe_ids: np.ndarray | None, profile: Path | None) -> None:
        """Offer the weights that the run begins with; from here on it waits for data. In an environment of its own they are always
        probed, far from the beginning of a sequence too: other libraries may read another model from the same folder."""
        self._closing.enter_context(profiled(profile))
        config = self._plan.config
        apart = config.training.environment is not None
        if apart and probe_ids is not None:
            probe_ids = np.resize(probe_ids, min(256, config.data.max_prompt_tokens + config.sampling.max_new_tokens))
        self._publish(first_version(self._plan), probe_ids, probed=apart or config.weights.probe)
        self._wait()

    def _wait(self) -> None:
        self._waiting.enter_context(self._account.span("waiting for data"))

    def _publish(self, version: int, probe_ids: np.ndarray | None, *, probed: bool) -> None:
        """Offer the weights as they stand."""
        self._consumer.publish(self._publisher, version, probe_ids if probed else None, self._tolerance)

    def sharing(self) -> RankSharing:
        """What the driver must know to bring this rank its share."""
        (place, size), consumer = self._consumer.data_parallel, self._consumer
        return RankSharing(place=place, size=size, logprobs=consumer.reads_logprobs, whole=consumer.reads_tokens)

    def share_out(self, order: BatchOrder, *outlines: Mapping[int, Group]) -> RankShare:
        """Share a batch out, of which all ranks have outlines. In any thread."""
        known = {lease_id: group for of_store in outlines for lease_id, group in of_store.items()}
        batch = _batch(order, [known])
        plan = self._consumer.plan(batch.groups, batch.masked, batch.version)
        self._plans.append((order.order, plan, known))
        needed = list(plan.groups)
        if self._consumer.data_parallel[0] == 0 and (probed := _probed_group(batch)) in plan.unassigned:
            needed.append(probed)  # somebody must know the sequence that all ranks probe with
        return RankShare(leases=tuple(order.order.lease_ids[place] for place in needed), digest=plan.shares.digest)

    def preload(self, *stored: Mapping[int, Group]) -> tuple[int, ...]:
        """Groups of a batch to come, brought while another one is trained; their leases. In a thread of its own."""
        groups = {lease_id: group for of_store in stored for lease_id, group in of_store.items()}
        self._ahead.append(groups)
        return tuple(groups)

    def train(self, order: BatchOrder, log_rollouts: bool, *stored: Mapping[int, Group]) -> TrainResult:
        """One update on the groups of an order, which come by store where they are not preloaded; then publish the new weights. If the
        order was planned here, those that this rank does not compute on are its outlines."""
        self._waiting.close()
        plan, outlines = next(((plan, known) for planned, plan, known in [*self._plans] if planned == order.order), (None, {}))
        batch = _batch(order, [outlines, *self._ahead, *stored])
        metrics = self._consumer.update(batch.groups, batch.masked, batch.version, plan.shares if plan else None)
        probed, probe_ids = self._plan.config.weights.probe, probe_sequence(batch)
        if plan is not None and probed and probe_ids is not None:
            probe_ids = self._consumer.first_available(probe_ids if (probe_ids >= 0).all() else probe_ids[:0])
        self._publish(batch.version + 1, probe_ids, probed=probed)
        self._wait()
        if self._rank:
            return TrainResult(time=self.report())
        return TrainResult(
            time=self.report(),
            figures={**batch_figures(batch), **metrics},
            rollouts=tuple(self._rows(batch)) if log_rollouts else (),
            timings=dict(self._consumer.timings),
            notes=self._take_notes(),
        )

    def _rows(self, batch: Batch) -> Iterator[dict[str, Any]]:
        config = self._plan.config
        return rollout_rows(batch, self._consumer.advantages, share=config.log.rollout_share, seed=config.run.seed)

    def _take_notes(self, about: str = "") -> tuple[str, ...]:
        with self._taking:  # whoever drops a producer only appends
            notes = tuple(note for note in self._notes if about in note)
            for note in notes:
                self._notes.remove(note)
            return notes

    def save(self, folder: Path) -> None:
        """Begin ``model/`` and ``trainer/`` below a folder that every rank sees; the weights may change when it returns."""
        self._waiting.close()
        self._saving = self._consumer.save(folder)
        self._wait()

    def saved(self) -> None:
        """Wait until what ``save`` began is written. In a thread of its own."""
        self._saving.result()

    def report(self, until: float | None = None) -> WorkerTime:
        """Where its seconds went since the last report; ``TimeAccount.report``."""
        time = self._account.report(f"trainer-{self._rank}", Role.TRAINER, until)
        return replace(time, peak_memory_bytes=peak_memory())

    def producer_left(self, name: str) -> str:
        """A producer died: no transfer waits for it. Returns why the publisher ended it, if it did."""
        if self._publisher is not None:
            self._publisher.left(name)
        return "; ".join(self._take_notes(f"{name} "))

    def producer_to_end(self) -> str | None:
        """Wait for the next producer that the weights wait for no more and whose process still runs; return its name, None at ``close``.
        In a thread of its own."""
        return self._to_end.get()

    def lifetime(self) -> None:
        """Return at ``close`` (in a thread of its own); whoever waits for it learns at once that this process died or a transfer failed."""
        self._life.result()

    def _transfer_failed(self, error: WeightsError) -> None:
        if not self._life.done():
            self._life.set_exception(error)

    def close(self) -> None:
        """Leave the other ranks and free everything."""
        self._waiting.close()
        self._closing.close()
        self._to_end.put(None)
        if not self._life.done():
            self._life.set_result(None)


def _batch(order: BatchOrder, stored: Sequence[Mapping[int, Group]]) -> Batch:
    groups = {lease_id: group for of_store in stored for lease_id, group in of_store.items()}
    places = enumerate(order.order.lease_ids)
    return Batch(
        groups=tuple(groups[lease_id] for lease_id in order.order.lease_ids),
        masked=frozenset(place for place, lease_id in places if lease_id in order.order.masked),
        version=order.order.version,
        filtering=order.filtering,
    )
