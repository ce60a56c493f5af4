"""The trainer's end of a fake transfer: ``publish`` copies a version, and one thread sends the newest one."""

from __future__ import annotations

import threading
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Probe, WeightSource
from rlcore.contracts.weight_transfer import OnFailure, Publisher
from rlcore.weights.host_layout import HostLayout

__all__ = ["FakePublisher", "HeldVersion"]


@dataclass(frozen=True, slots=True, eq=False)
class HeldVersion:
    """A version in its own memory: ``flat`` uint8[layout.size]."""

    layout: HostLayout
    flat: np.ndarray


class FakePublisher(Publisher):
    """Sends one version after the other. A version that is published before the last one was begun replaces it.

    Slow and simple on purpose: each version takes new memory. ``BackgroundPublisher`` of rlcore-plugin-workers uses its buffers again.
    """

    def __init__(self, deadline: float, bucket_bytes: int, on_failure: OnFailure | None = None) -> None:
        super().__init__(on_failure)
        self._deadline, self._bucket_bytes = deadline, bucket_bytes
        self._changed = threading.Condition()
        self._published, self._failure, self._closed = -1, "", False
        self._waiting: HeldVersion | None = None
        self._newest: HeldVersion | None = None
        self._thread = threading.Thread(target=self._send_forever, name="weights-publisher", daemon=True)
        self._thread.start()

    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        """See Publisher."""
        self._check(version)
        layout = HostLayout(version=version, manifest=source.manifest(), probe=probe)
        held = HeldVersion(layout, np.empty(layout.size, np.uint8))
        layout.fill(source, held.flat, self._bucket_bytes)
        with self._changed:
            self._check(version)
            self._published, self._waiting = version, held
            self._changed.notify_all()

    def close(self) -> None:
        """See Publisher."""
        with self._changed:
            self._closed, self._waiting = True, None
            self._changed.notify_all()
        self._interrupt()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._free()
        self._newest = None

    @abstractmethod
    def _send(self, held: HeldVersion) -> None:
        """Send it to all receivers. In the thread, not under ``_changed``."""

    @abstractmethod
    def _interrupt(self) -> None:
        """End a wait of the thread that does not look at ``_closed``."""

    @abstractmethod
    def _free(self) -> None:
        """Free everything of the child; the thread has ended. May be called twice."""

    def _check(self, version: int) -> None:
        if self._failure:
            raise WeightsError(self._failure)
        if self._closed:
            raise WeightsError(f"version {version} was published after the transport was closed")
        if version <= self._published:
            raise WeightsError(f"version {version} was published after {self._published}; versions must rise")

    def _next(self) -> HeldVersion | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting is not None)
            held, self._waiting = self._waiting, None
            self._newest = held or self._newest
            return held

    def _send_forever(self) -> None:
        try:
            while (held := self._next()) is not None:
                self._send(held)
        except Exception as error:  # a thread has nobody above it: publish() says it
            said = isinstance(error, WeightsError)
            self._fail(str(error) if said else f"version {self._published} could not be sent: {type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        with self._changed:
            if self._closed:
                return
            self._failure, self._waiting = self._failure or reason, None
        self.on_failure(WeightsError(reason))
