"""A trainer rank as an actor: a consumer, and on rank 0 the end of the weights that publishes."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray

from rlcore.api import ConfigError, Group, WeightsError
from rlcore.api.runtime import (
    Batch,
    Order,
    Role,
    Shipment,
    TimeAccount,
    WorkerTime,
    batch_figures,
    make_consumer,
    make_publisher,
    probe_sequence,
    probe_tolerance,
    profiled,
    rollout_rows,
    schedule_settings,
)
from rlcore.api.weights import Publisher

__all__ = ["Trained", "TrainerHost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a rank says of an update: where its seconds went; rank 0 also the figures, the rows of the rollout log, ``timings``: seconds
    inside the backend since the start, by part, and ``notes``: whom the weights wait for no more."""

    time: WorkerTime
    figures: Mapping[str, float] = field(default_factory=dict)
    rollouts: tuple[Mapping[str, Any], ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class TrainerHost:
    """One rank. Its calls come one after the other, the same on every rank: they are collective."""

    def __init__(self, shipment: Shipment, rank: int) -> None:
        self._shipment = shipment
        self._rank = rank
        self._account = TimeAccount()
        self._closing = ExitStack()
        self._waiting = ExitStack()
        self._publisher: Publisher | None = None
        self._life: Future[None] = Future()
        self._notes: list[str] = []
        self._ahead: deque[Mapping[int, Group]] = deque(maxlen=2)  # of this batch and of the next

    def rendezvous(self, port: int | None) -> str:
        """An address of this node where the ranks can meet. ConfigError where the port that was asked for is taken."""
        host = ray.util.get_node_ip_address()
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
        self._plan = plan = self._shipment.open(f"trainer rank {self._rank}")
        schedule = schedule_settings(plan, prompts)
        self._consumer = make_consumer(plan, schedule, self._account, self._closing, rank=self._rank, rendezvous=rendezvous)
        self._tolerance = probe_tolerance(plan.config.inference.dtype, plan.config.training.dtype)
        if self._rank:
            return None
        self._publisher, address = make_publisher(plan, self._closing, device=self._device(), on_failure=self._transfer_failed)
        self._publisher.on_drop = self._notes.append
        return address

    def start(self, probe_ids: np.ndarray | None, profile: Path | None) -> None:
        """Offer the weights of version 0; from here on it waits for data."""
        self._closing.enter_context(profiled(profile))
        self._publish(0, probe_ids)
        self._wait()

    def _wait(self) -> None:
        self._waiting.enter_context(self._account.span("waiting for data"))

    def _publish(self, version: int, probe_ids: np.ndarray | None) -> None:
        """Offer the weights as they stand."""
        wanted = probe_ids if self._plan.config.weights.probe else None
        self._consumer.publish(self._publisher, version, wanted, self._tolerance)

    def preload(self, *stored: Mapping[int, Group]) -> tuple[int, ...]:
        """Groups of a batch to come, brought while another one is trained; their leases. In a thread of its own."""
        groups = {lease_id: group for of_store in stored for lease_id, group in of_store.items()}
        self._ahead.append(groups)
        return tuple(groups)

    def train(self, order: Order, log_rollouts: bool, *stored: Mapping[int, Group]) -> Trained:
        """One update on the groups of an order, which come by store where they are not preloaded; then publish the new weights."""
        self._waiting.close()
        batch = _batch(order, [*self._ahead, *stored])
        metrics = self._consumer.update(batch.groups, batch.masked, batch.version)
        self._publish(batch.version + 1, probe_sequence(batch))
        self._wait()
        if self._rank:
            return Trained(time=self.report())
        return Trained(
            time=self.report(),
            figures={**batch_figures(batch), **metrics},
            rollouts=tuple(rollout_rows(batch)) if log_rollouts else (),
            timings=dict(self._consumer.timings),
            notes=self._take_notes(),
        )

    def _take_notes(self) -> tuple[str, ...]:
        notes, self._notes[:] = tuple(self._notes), []
        return notes

    def save(self, folder: Path) -> None:
        """``model/`` and ``trainer/`` below a folder that every rank sees."""
        self._waiting.close()
        self._consumer.save(folder).result()
        self._wait()

    def report(self) -> WorkerTime:
        """Where its seconds went since the last report."""
        return self._account.report(f"trainer-{self._rank}", Role.TRAINER)

    def producer_left(self, name: str) -> None:
        """A producer died: no transfer waits for it."""
        if self._publisher is not None:
            self._publisher.left(name)

    def lifetime(self) -> None:
        """Never returns (in a thread of its own); who waits for it learns at once that this process died, or that a transfer failed."""
        self._life.result()

    def _transfer_failed(self, error: WeightsError) -> None:
        if not self._life.done():
            self._life.set_exception(error)

    def _device(self) -> str:
        """That of collectives: with GPUs in the cluster they travel between those."""
        return "cuda" if ray.get_gpu_ids() else "cpu"

    def close(self) -> None:
        """Leave the other ranks and free everything."""
        self._waiting.close()
        self._closing.close()


def _batch(order: Order, stored: Sequence[Mapping[int, Group]]) -> Batch:
    groups = {lease_id: group for of_store in stored for lease_id, group in of_store.items()}
    places = enumerate(order.order.lease_ids)
    return Batch(
        groups=tuple(groups[lease_id] for lease_id in order.order.lease_ids),
        masked=frozenset(place for place, lease_id in places if lease_id in order.order.masked),
        version=order.order.version,
        filtering=order.filtering,
    )
