"""Workers in the process of a test, where it can reach into them."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rlcore_plugin_workers.workers import Launcher, Placement, Worker

__all__ = ["InProcessLauncher", "InProcessWorker"]


class InProcessWorker(Worker):
    """An object. With one call at a time it runs them in one thread, else each call in a thread of its own."""

    def __init__(self, host: Any, name: str, placement: Placement) -> None:
        self.host = host
        self.name = name
        self._one = ThreadPoolExecutor(1, thread_name_prefix=name) if placement.calls == 1 else None

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        answer: Future[Any] = Future()

        def work() -> None:
            try:
                answer.set_result(getattr(self.host, method)(*arguments))
            except BaseException as error:
                answer.set_exception(error)

        if beside or self._one is None:
            threading.Thread(target=work, name=f"{self.name} {method}", daemon=True).start()
        else:
            self._one.submit(work)
        return answer

    def kill(self) -> None:
        """A thread cannot be killed; a host that can be closed is."""
        if self._one is not None:
            self._one.shutdown(wait=False)
        getattr(self.host, "close", lambda: None)()


class InProcessLauncher(Launcher):
    """The last that was started is closed first."""

    def __init__(self) -> None:
        self.workers: list[InProcessWorker] = []

    def start(self, host: type, *arguments: Any, name: str, placement: Placement) -> InProcessWorker:
        self.workers.append(InProcessWorker(host(*arguments), name, placement))
        return self.workers[-1]

    def close(self) -> None:
        while self.workers:
            self.workers.pop().kill()
