"""The pool that the rest of rlcore uses: any thread submits tasks and receives results. Dispatchers own the processes.

This module does not know the purpose of a reward, or how several are combined.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType

from rlcore.contracts.errors import PluginError, RunError
from rlcore.rewards.async_dispatcher import AsyncDispatcher
from rlcore.rewards.dispatch import Dispatcher
from rlcore.rewards.reward_entry import RewardEntry, Traits
from rlcore.rewards.task_queue import Result, ResultInbox
from rlcore.rewards.worker_protocol import USUAL_LIMITS, Task, WorkerLimits, WorkerSetup, encode

__all__ = ["RewardPool"]


class RewardPool:
    """Worker processes that score. Thread-safe; every process ends with ``close``, the object, or the interpreter.

    Workers are fresh interpreters, so a script needs no ``__main__`` guard, and the pool may start before or after torch and threads. An
    asynchronous reward has its own process in addition to the workers. If all rewards are asynchronous, there are no workers.

    :param entries: the rewards; every worker holds all of them.
    :param workers: the number of processes, at least 1.
    :param limits: the limits at which a worker is replaced.
    :param start_seconds: the longest time for building the rewards.
    :raises PluginError: a reward cannot be built.
    """

    def __init__(
        self, entries: Sequence[RewardEntry], *, workers: int, limits: WorkerLimits = USUAL_LIMITS, start_seconds: float = 180.0
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}; a reward pool needs at least 1")
        setup = WorkerSetup(recipes=tuple(entry.recipe() for entry in entries), limits=limits)
        self._inbox = ResultInbox()
        self._running: list[tuple[Dispatcher, threading.Thread]] = []
        self._finalizer = weakref.finalize(self, _stop, self._running)
        self._common = Dispatcher(encode(setup), workers=workers, inbox=self._inbox, start_seconds=start_seconds, limits=limits)
        self._hosts: dict[int, Dispatcher] = {}
        self.traits: tuple[Traits, ...] = self._begun(self._common)
        for place, traits in enumerate(self.traits):
            if traits.concurrency:
                alone = WorkerSetup(recipes=(setup.recipes[place],), limits=limits, asynchronous=True)
                self._hosts[place] = AsyncDispatcher(
                    encode(alone), concurrency=traits.concurrency, inbox=self._inbox, start_seconds=start_seconds, limits=limits
                )
                self._begun(self._hosts[place])
        if len(self._hosts) == len(entries):
            _stop(self._running[:1])

    def _begun(self, dispatcher: Dispatcher) -> tuple[Traits, ...]:
        """Start the dispatcher and wait until one worker is ready."""
        thread = threading.Thread(target=dispatcher.run, name="rlcore-rewards", daemon=True)
        self._running.append((dispatcher, thread))
        thread.start()
        answer = dispatcher.wait_started()
        if isinstance(answer, str):
            self.close()
            raise PluginError(answer)
        return answer

    def submit(self, tasks: Iterable[Task]) -> None:
        """Queue tasks and return immediately. Raises RunError if the pool is closed or cannot start workers any more."""
        self._check_open()
        shares: dict[Dispatcher, list[tuple[Task, bytes]]] = {}
        for task in tasks:
            shares.setdefault(self._hosts.get(task.reward, self._common), []).append((task, encode(task)[8:]))
        for dispatcher, share in shares.items():
            dispatcher.submit(share)

    def poll(self, timeout: float, seen: int | None = None) -> list[Result]:
        """Return all results since the last call. Wait up to ``timeout`` seconds for one.

        Returns [] after the timeout, or after a nudge since ``nudges`` was ``seen``."""
        results = self._inbox.take(timeout, seen)
        if not results:
            self._check_open()
        return results

    def cancel(self, task_ids: Iterable[int]) -> None:
        """Drop tasks. The result of a running task is discarded. Unknown ids are ignored."""
        dropped = set(task_ids)
        for dispatcher in self._dispatchers:
            dispatcher.cancel(dropped)

    def nudge(self) -> None:
        """Make every waiting ``poll`` return."""
        self._inbox.nudge()

    @property
    def nudges(self) -> int:
        """The number of nudges so far."""
        return self._inbox.nudges

    @property
    def notices(self) -> list[tuple[int, str]]:
        """(index of the reward, its notice about this machine), each once, as reported by the workers that are ready."""
        hosted = [(place, text) for place, host in self._hosts.items() for _, text in list(host.notices)]
        return [*list(self._common.notices), *hosted]

    @property
    def _dispatchers(self) -> list[Dispatcher]:
        return [self._common, *self._hosts.values()]

    def close(self) -> None:
        """Stop all workers and wait until they have ended. Rewards of idle workers are closed first. May be called twice."""
        self._finalizer()

    def __enter__(self) -> RewardPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._inbox.fatal:
            raise RunError(self._inbox.fatal)
        if not self._finalizer.alive:
            raise RunError("the reward pool is closed; make a new one")


def _stop(running: Sequence[tuple[Dispatcher, threading.Thread]]) -> None:
    for dispatcher, _ in running:
        dispatcher.stop()  # in a fork of the owner this stops nothing, because the thread that owns the workers does not exist there
    for _, thread in running:
        if thread is not threading.current_thread():
            thread.join(timeout=30.0)
