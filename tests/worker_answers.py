"""Workers without processes: calls whose answers a test gives, and workers that remember what was asked of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rlcore_plugin_workers.workers import Worker, WorkerDiedError

__all__ = ["Answer", "ToldWorker"]


class Answer(Future[Any]):
    """What a call returns; ``give`` and ``fail`` answer it."""

    def give(self, value: Any = None) -> None:
        self.set_result(value)

    def fail(self, error: Exception) -> None:
        self.set_exception(error)


class ToldWorker(Worker):
    """``worker.calls["run"]`` are the answers of its calls of ``run``. ``ready``: methods that answer at once."""

    def __init__(self, name: str = "worker", **ready: Callable[[], Any]) -> None:
        self.name = name
        self.calls: dict[str, list[Answer]] = {}
        self.killed = False
        self._ready = ready

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Answer:
        answer = Answer()
        self.calls.setdefault(method, []).append(answer)
        if method in self._ready:
            answer.give(self._ready[method]())
        return answer

    def kill(self) -> None:
        self.killed = True

    @property
    def death(self) -> WorkerDiedError:
        """What its calls raise once its process is gone."""
        return WorkerDiedError(self.name, f"the process of {self.name} died")
