"""The processes that play episodes: started on demand, watched, and ended with everything that they started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from rlcore.api import RunError
from rlcore.api.sandbox import SandboxError
from rlcore_gateway.worker_lines import BadLineError, EpisodeEnd, parsed
from rlcore_gateway.worker_process import EpisodeWorker, PlainWorker, WorkerCommand

__all__ = ["WorkerPool"]

_FAILED_STARTS = 3


class _NotBegunError(Exception):
    """The process ended before it began the episode, after it had ended others: some programs play one episode each."""


class WorkerPool:
    """Plays episodes in processes. All methods belong to one event loop.

    :param workers: the largest number of processes.
    :param called: returns whether an episode has asked the policy for anything. A process that ends before that was never able to start.
    :param say: shows a warning to the user.
    :param cancel_seconds: a process that does not end a cancelled episode in this time is killed.
    :param start: starts a process.
    """

    def __init__(
        self,
        command: WorkerCommand,
        *,
        workers: int,
        called: Callable[[str], bool],
        say: Callable[[str], None],
        cancel_seconds: float = 5.0,
        start: Callable[[WorkerCommand], Awaitable[EpisodeWorker]] = PlainWorker.start,
    ) -> None:
        self._make = start
        self._command, self._most, self._called, self._say, self._cancel_seconds = command, workers, called, say, cancel_seconds
        self.workers: list[EpisodeWorker] = []
        """The processes that live."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._order, self._changed = asyncio.Lock(), asyncio.Event()
        self._failed_starts, self._proved = 0, False
        self._fatal = ""

    async def play(
        self,
        episode: str,
        line: Mapping[str, Any],
        deadline: float,
        *,
        begun: Callable[[], object] = lambda: None,
        late: Callable[[], object] = lambda: None,
    ) -> EpisodeEnd:
        """Play an episode once a process is free, and return how it ended; the deadline counts from then.

        If the caller is cancelled, the program is told to end the episode.

        :param begun: called when a process is free, before it gets the episode.
        :param late: called at the deadline, before the program is told.
        :raises RunError: no process can be started.
        """
        while True:
            worker, answer = await self._begin(episode)
            begun()
            try:
                return await self._played(worker, answer, {**line, "episode": episode, "deadline": deadline}, late)
            except _NotBegunError:
                continue

    async def _played(
        self, worker: EpisodeWorker, answer: asyncio.Future[EpisodeEnd], line: Mapping[str, Any], late: Callable[[], object]
    ) -> EpisodeEnd:
        episode, deadline = line["episode"], line["deadline"]
        try:
            worker.send(line)
            return await asyncio.wait_for(asyncio.shield(answer), deadline)
        except TimeoutError:
            late()
            end = await self._dismissed(worker, episode, answer)
            return replace(end, outcome="timeout", reason=f"the episode had not ended after {deadline:g} s")
        except asyncio.CancelledError:
            if not answer.done():
                self._spawn(self._dismiss(worker, episode, answer))
            raise

    async def close(self) -> None:
        """End all processes, and wait until they have ended."""
        self._fatal = self._fatal or "the pool of the environment's processes is closed"
        for worker in self.workers:
            for episode in worker.open:
                worker.send({"cancel": episode})
        await asyncio.gather(*(self._end(worker) for worker in list(self.workers)))
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self._cancel_seconds)

    async def _end(self, worker: EpisodeWorker) -> None:
        await worker.leave(min(2.0, self._cancel_seconds))
        await worker.kill()

    async def _begin(self, episode: str) -> tuple[EpisodeWorker, asyncio.Future[EpisodeEnd]]:
        """Return a process that has room, and what to wait for. Callers are served in the order in which they came."""
        async with self._order:
            while True:
                if self._fatal:
                    raise RunError(self._fatal)
                free = [worker for worker in self.workers if worker.room > 0]
                if free or len(self.workers) < self._most:
                    break
                self._changed.clear()
                await self._changed.wait()
            worker = min(free, key=lambda one: len(one.open)) if free else await self._start()
            answer: asyncio.Future[EpisodeEnd] = asyncio.get_running_loop().create_future()
            worker.open[episode] = answer
            return worker, answer

    async def _start(self) -> EpisodeWorker:
        try:
            worker = await self._made()
        except OSError as error:
            what = error.filename or self._command.argv[0]
            self._fatal = f"the environment's program {self._command.argv[0]!r} cannot be started: {error.strerror} ({what})"
            raise RunError(self._fatal) from None
        if self._command.first_line:
            worker.write(self._command.first_line)
        self.workers.append(worker)
        self._spawn(self._watch(worker))
        return worker

    async def _made(self) -> EpisodeWorker:
        """Start a process. A sandbox may fail now and then, for example on a machine that is short of memory."""
        why = ""
        for _ in range(_FAILED_STARTS):
            try:
                return await self._make(self._command)
            except SandboxError as error:
                why = str(error)
        self._fatal = f"no process of the environment can be started in a sandbox: {why}"
        raise RunError(self._fatal)

    async def _watch(self, worker: EpisodeWorker) -> None:
        """Read what a process writes until it ends. Then tell those that wait for its episodes."""
        try:
            while line := await worker.line():
                self._heard(worker, line)
        except BadLineError as error:
            worker.fault = str(error)
        except ValueError as error:
            worker.fault = f"the environment wrote a line that is too long ({error})"
        self.workers.remove(worker)  # from here on, its episodes are played by another one
        await worker.kill()
        self._count_start(worker)
        self._changed.set()
        if worker.fault and not worker.open:
            self._say(f"{worker.fault}; the process is replaced")
        for episode, answer in worker.open.items():
            if not answer.done():
                self._tell(worker, episode, answer)

    def _heard(self, worker: EpisodeWorker, line: bytes) -> None:
        """Take an answer. Raises BadLineError if it is wrong and does not say to which open episode it belongs."""
        try:
            episode, end = parsed(line)
        except BadLineError as error:
            if error.episode not in worker.open:
                raise
            episode, end = error.episode, EpisodeEnd(outcome="environment", reason=str(error))
        answer = worker.open.pop(episode, None)
        if answer is None:
            raise BadLineError(f"the environment answered episode {episode!r}, which is not open in this process; it must answer each once")
        worker.answered = self._proved = True
        if not answer.done():
            answer.set_result(end)
        self._changed.set()

    def _count_start(self, worker: EpisodeWorker) -> None:
        """Note whether a process ended without having done anything. If nothing else ever happened, no process can start."""
        began = worker.answered or worker.killed or worker.fault or any(map(self._called, worker.open))
        if self._proved or began or not worker.open:
            self._failed_starts = 0
            return
        self._failed_starts += 1
        if self._failed_starts >= _FAILED_STARTS:
            who = self._command.title or f"the environment's program {' '.join(self._command.argv)[:200]!r}"
            self._fatal = f"{who}: a process {worker.death()}; {self._failed_starts} processes in a row ended before any call"

    def _tell(self, worker: EpisodeWorker, episode: str, answer: asyncio.Future[EpisodeEnd]) -> None:
        begun = self._called(episode)
        if self._fatal:
            answer.set_exception(RunError(self._fatal))
            answer.exception()  # the caller may be gone
        elif worker.fault:
            answer.set_result(EpisodeEnd(outcome="environment", reason=worker.fault))
        elif worker.unresponsive:
            answer.set_result(EpisodeEnd(outcome="lost", reason="its process was killed because it did not end another episode"))
        elif worker.left and worker.answered and not begun:
            answer.set_exception(_NotBegunError())
            answer.exception()
        elif worker.killed:
            answer.set_result(EpisodeEnd(outcome="lost", reason=f"its process {worker.death()}"))
        else:
            answer.set_result(EpisodeEnd(outcome="crashed", reason=f"the program {worker.death()}, and had not ended the episode"))

    async def _dismiss(self, worker: EpisodeWorker, episode: str, answer: asyncio.Future[EpisodeEnd]) -> None:
        await self._dismissed(worker, episode, answer)

    async def _dismissed(self, worker: EpisodeWorker, episode: str, answer: asyncio.Future[EpisodeEnd]) -> EpisodeEnd:
        """Tell a process to end an episode, and return its answer. Kill the process if there is none."""
        worker.send({"cancel": episode})
        try:
            return await asyncio.wait_for(asyncio.shield(answer), self._cancel_seconds)
        except TimeoutError:
            worker.unresponsive = True
            answer.cancel()
            await worker.kill()
        except (RunError, _NotBegunError):
            pass
        return EpisodeEnd()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
