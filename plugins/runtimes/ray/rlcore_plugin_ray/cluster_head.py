"""The head of the Ray cluster (its GCS) as a worker of the run. The driver asks whether it answers, because Ray ends a driver without a
head."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import ray
from rlcore_plugin_workers.workers import Worker

from rlcore.api.runtime import RuntimeLostError, WorkerLostError

__all__ = ["ClusterHead"]

_AGAIN_SECONDS = 1.0


class ClusterHead(Worker):
    """The head as a worker. ``lost`` is called before the error is raised, because Ray then answers no calls. ``own``: whether the run
    started the head."""

    name = "the head of the Ray cluster"

    def __init__(self, address: str, *, own: bool, lost: Callable[[], object]) -> None:
        self._address, self._own, self._lost = address, own, lost

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        """Ignore the method, and return a future that is done when the head answers a query."""
        answer: Future[Any] = Future()
        threading.Thread(target=self._ask, args=(answer,), name="asks the head of Ray", daemon=True).start()
        return answer

    def _ask(self, answer: Future[Any]) -> None:
        while ray.is_initialized():
            with suppress(Exception):  # of the connection; the next query may succeed
                ray.nodes()
                answer.set_result(None)
                return
            time.sleep(_AGAIN_SECONDS)

    def kill(self) -> None:
        """Raise the error that ends the run: WorkerLostError if the run can start again with its own cluster, else RuntimeLostError."""
        self._lost()
        if self._own:
            raise WorkerLostError(f"{self.name} that the run had started does not answer")
        again = "start a cluster, and type the command again with --resume auto"
        raise RuntimeLostError(f"{self.name} at {self._address} does not answer; {again}")
