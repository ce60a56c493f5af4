"""Weights through Ray's object store, across hosts: one object for each version. Each node fetches it once, and all its producers map it.

The trainer keeps the newest object alive, and a receiver the one that it reads. Ray frees an object without references.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import ray
from rlcore_plugin_workers.background import BackgroundPublisher, BackgroundReceiver, HostVersion

from rlcore.api import WeightsError
from rlcore.api.weights import HostLayout, OnFailure, WeightTransfer
from rlcore_plugin_ray.weights_rendezvous import RendezvousAddress, RendezvousClient, make_rendezvous

__all__ = ["StorePublisher", "StoreReceiver", "StoreTransfer"]


class StorePublisher(BackgroundPublisher):
    """A publisher through the object store; see the module."""

    def __init__(self, deadline: float, bucket_bytes: int, on_failure: OnFailure | None = None) -> None:
        self._changed = threading.Condition()
        self._board = make_rendezvous()
        self._ask = RendezvousClient(self._board, "the trainer", deadline)
        self._kept: Any = None
        super().__init__(deadline, bucket_bytes, on_failure)

    def address(self) -> RendezvousAddress:
        """Return the address of the board, which every node can reach."""
        return RendezvousAddress(self._board, f"the trainer (process {os.getpid()} on {os.uname().nodename})")

    def _send(self, held: HostVersion) -> None:
        layout, flat = held.layout, held.memory.flat
        checksums = layout.seal(flat, range(len(layout.offsets)))
        kept = ray.put((layout, checksums, flat[: layout.size]))  # the array is not pickled: it goes straight into the object
        self._ask.now("post", layout.version, [kept])
        self._kept = kept

    def _free(self) -> None:
        self._kept = None
        ray.kill(self._board)


class StoreReceiver(BackgroundReceiver):
    """A receiver through the object store, with read-only views of the object and no copy. See the module."""

    def __init__(self, name: str, address: RendezvousAddress, deadline: float, on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        self._deadline = deadline
        self._trainer = address.trainer
        self._token = uuid.uuid4().hex
        self._seen = -1
        self._ask = RendezvousClient(address.board, f"producer {name}", deadline)
        self._ask.now("join", self._token, name)
        self._start()

    def _fetch(self) -> bool:
        told = self._ask.parked("after", self._token, self._seen)
        if told is None:
            return False  # This end left; or the trainer closed, or died between transfers: other code knows why.
        self._seen, (kept,) = told
        layout, checksums, flat = self._get(kept)
        if layout.version != self._seen:
            raise WeightsError(f"{self._trainer} announced version {self._seen} and sent version {layout.version}")
        self._arrived(layout.verified(flat, checksums))
        return True

    def _get(self, kept: Any) -> tuple[HostLayout, np.ndarray, np.ndarray]:
        try:
            version: tuple[HostLayout, np.ndarray, np.ndarray] = ray.get(kept, timeout=self._deadline)
        except ray.exceptions.GetTimeoutError as error:
            raise WeightsError(
                f"{self._trainer} put version {self._seen} into the object store, and it did not arrive within {self._deadline:g} s; "
                "check the network and the load of both nodes, or raise --weights-deadline"
            ) from error
        except ray.exceptions.ObjectLostError as error:
            raise WeightsError(f"{self._trainer} or its node is gone in the middle of version {self._seen}") from error
        return version

    def _interrupt(self) -> None:
        self._ask.board.leave.remote(self._token)


class StoreTransfer(WeightTransfer):
    """The transfer ``object_store``; publisher and receivers are processes of one Ray cluster."""

    def publisher(self, *, deadline: float, bucket_bytes: int, device: str = "cpu", on_failure: OnFailure | None = None) -> StorePublisher:
        """See WeightTransfer. Objects are in host memory, whatever the trainer's device."""
        return StorePublisher(deadline, bucket_bytes, on_failure)

    def receiver(self, *, name: str, address: RendezvousAddress, deadline: float, on_news: Callable[[], None]) -> StoreReceiver:
        """See WeightTransfer."""
        return StoreReceiver(name, address, deadline, on_news)
