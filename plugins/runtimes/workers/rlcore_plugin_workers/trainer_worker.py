"""A trainer rank as a worker: a consumer, and on rank 0 the publisher of the weights."""

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
    """Return the index of the group whose sequence ``probe_sequence`` returns; None if there is none."""
    alone = ((place, replace(batch, groups=(group,))) for place, group in enumerate(batch.groups))
    return next((place for place, one in alone if probe_sequence(one) is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSharing:
    """How a rank shares batches: its ``place`` among ``size`` replicas, and the data that it reads of groups that it does not compute on.
    These are ``logprobs``, or the tokens as well (``whole``)."""

    place: int
    size: int
    logprobs: bool
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """A rank's result of dividing a batch: the leases of the groups that it needs whole, and a ``digest`` of the shares of all ranks."""

    leases: tuple[int, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """A rank's report on an update: how its time was used.

    Rank 0 also reports the figures, the rows of the rollout log, ``timings`` and ``notes``. ``timings`` are seconds inside the backend
    since the start, by part. ``notes`` name the producers that the publisher has dropped, unless their deaths have been reported.
    """

    time: WorkerTime
    figures: Mapping[str, float] = field(default_factory=dict)
    rollouts: tuple[Mapping[str, Any], ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class TrainerWorker:
    """The process of one rank. Its calls are collective: they come one after the other, the same on every rank. ``address``: the address of
    its host. ``device``: the device of collectives with producers."""

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
        self._ahead: deque[Mapping[int, Group]] = deque(maxlen=3)  # for this batch, the next one, and one that came late
        self._plans: deque[tuple[TrainOrder, SharePlan, Mapping[int, Group]]] = deque(maxlen=3)

    def lives(self) -> int:
        """Return the id of the process. The answer shows that it is running."""
        return os.getpid()

    def rendezvous(self, port: int | None) -> str:
        """Return an address of this host at which the ranks can connect to each other. Raise ConfigError if the requested port is taken."""
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

    def prepare(self, prompts: Sequence[int | None], rendezvous: str) -> Any:
        """Load the model and connect to the other ranks. Rank 0 returns the address of its weights."""
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
        """Publish the first weights of the run, and start to wait for data. If the trainer has its own environment, always probe them, also
        far from the start of a sequence: other libraries may read a different model from the same folder."""
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
        """Publish the present weights."""
        self._consumer.publish(self._publisher, version, probe_ids if probed else None, self._tolerance)

    def sharing(self) -> RankSharing:
        """Return the facts that the driver needs to send this rank its share."""
        (place, size), consumer = self._consumer.data_parallel, self._consumer
        return RankSharing(place=place, size=size, logprobs=consumer.reads_logprobs, whole=consumer.reads_tokens)

    def share_out(self, order: BatchOrder, *outlines: Mapping[int, Group]) -> RankShare:
        """Divide a batch of which all ranks have outlines. In any thread."""
        known = {lease_id: group for of_store in outlines for lease_id, group in of_store.items()}
        batch = _batch(order, [known])
        plan = self._consumer.plan(batch.groups, batch.masked, batch.version)
        self._plans.append((order.order, plan, known))
        needed = list(plan.groups)
        if self._consumer.data_parallel[0] == 0 and (probed := _probed_group(batch)) in plan.unassigned:
            needed.append(probed)  # one rank must know the sequence that all ranks probe with
        return RankShare(leases=tuple(order.order.lease_ids[place] for place in needed), digest=plan.shares.digest)

    def preload(self, *stored: Mapping[int, Group]) -> tuple[int, ...]:
        """Store groups of a later batch while another one is trained; return their leases. In a separate thread."""
        groups = {lease_id: group for of_store in stored for lease_id, group in of_store.items()}
        self._ahead.append(groups)
        return tuple(groups)

    def train(self, order: BatchOrder, log_rollouts: bool, *stored: Mapping[int, Group]) -> TrainResult:
        """Make one update on the groups of an order, then publish the new weights. ``stored``: the groups that were not preloaded, by
        store. If the order was planned here, the groups that this rank does not compute on are its outlines."""
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
            figures={**batch_figures(batch, self._plan.source_names), **metrics},
            rollouts=tuple(self._rows(batch)) if log_rollouts else (),
            timings=dict(self._consumer.timings),
            notes=self._take_notes(),
        )

    def control(self, settings: Mapping[str, Any]) -> None:
        """Use other values of settings from the next update on."""
        self._consumer.control(settings)

    def _rows(self, batch: Batch) -> Iterator[dict[str, Any]]:
        config, names = self._plan.config, self._plan.source_names
        return rollout_rows(batch, self._consumer.advantages, share=config.log.rollout_share, seed=config.run.seed, sources=names)

    def _take_notes(self, about: str = "") -> tuple[str, ...]:
        with self._taking:  # other threads only append
            notes = tuple(note for note in self._notes if about in note)
            for note in notes:
                self._notes.remove(note)
            return notes

    def save(self, folder: Path) -> None:
        """Begin to write ``model/`` and ``trainer/`` below a folder that every rank sees. The weights may change after this returns."""
        self._waiting.close()
        self._saving = self._consumer.save(folder)
        self._wait()

    def saved(self) -> None:
        """Wait until the files of ``save`` are written. In a separate thread."""
        self._saving.result()

    def report(self, until: float | None = None) -> WorkerTime:
        """Return how the time since the last report was used, as ``TimeAccount.report`` does."""
        time = self._account.report(f"trainer-{self._rank}", Role.TRAINER, until)
        return replace(time, peak_memory_bytes=peak_memory())

    def producer_left(self, name: str) -> str:
        """Record that a producer died, so that no transfer waits for it. Return the publisher's reason if it ended the producer, else
        ""."""
        if self._publisher is not None:
            self._publisher.left(name)
        return "; ".join(self._take_notes(f"{name} "))

    def producer_to_end(self) -> str | None:
        """Wait for the next producer that the publisher has dropped and whose process still runs. Return its name, or None at ``close``. In
        a separate thread."""
        return self._to_end.get()

    def lifetime(self) -> None:
        """Return at ``close``. The caller learns at once if this process dies or a transfer fails. In a separate thread."""
        self._life.result()

    def _transfer_failed(self, error: WeightsError) -> None:
        if not self._life.done():
            self._life.set_exception(error)

    def close(self) -> None:
        """Disconnect from the other ranks and free all resources."""
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
