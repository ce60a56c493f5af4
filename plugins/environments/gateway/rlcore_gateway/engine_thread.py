"""Runs an engine of rlcore in a thread, for a gateway without a run."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rlcore.api import Completion, InferenceBackend, Request, RunError, Sampling
from rlcore.api.runtime import Watchdog
from rlcore_gateway.gateway import Ask

__all__ = ["EngineThread"]

_POLL_SECONDS = 0.02


class EngineThread:
    """Owns an engine. Call ``start`` and ``generate`` in the event loop of the gateway.

    :param sampling: how tokens are drawn. Each call sets ``max_new_tokens`` and ``stop``.
    """

    def __init__(self, engine: InferenceBackend, sampling: Sampling, seed: int = 0) -> None:
        self._engine, self._sampling, self._seed = engine, sampling, seed
        self._todo: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._open: dict[str, asyncio.Future[Completion]] = {}
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._watchdog = Watchdog()
        self.failure = ""
        """Why the engine answers no more, "" if it does."""

    @property
    def age(self) -> float:
        """Seconds since the engine made progress; 0 while it has nothing to do."""
        return self._watchdog.age

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def generate(self, ask: Ask, sampling: Sampling | None = None, stream: tuple[int, int, int, int] | None = None) -> Completion:
        """Return the completion of an ask. A cancelled one is cancelled in the engine, too. Raises RunError if the engine has failed.

        :param sampling: how its tokens are drawn, if not as those of all others.
        :param stream: the random stream of its episode, see ``Request.noise``; None: one that all episodes share.
        """
        if self.failure:
            raise RunError(self.failure)
        sampling = replace(sampling or self._sampling, max_new_tokens=ask.max_new_tokens, stop=ask.stop)
        seed, epoch, prompt, rollout = stream or (self._seed, 0, 0, 0)
        noise = (seed, epoch, prompt, rollout + (ask.noise << 32))
        request = Request(request_id=ask.call, token_ids=ask.context_ids, sampling=sampling, noise=noise, group=ask.episode)
        future: asyncio.Future[Completion] = self._loop.create_future()
        self._open[ask.call] = future
        self._todo.put(partial(self._engine.submit, [request]))
        try:
            return await future
        except asyncio.CancelledError:
            self._todo.put(partial(self._engine.cancel, [ask.call]))
            raise
        finally:
            self._open.pop(ask.call, None)

    def stop(self) -> None:
        """Stop the thread, after the current step of the engine."""
        self._todo.put(None)
        self._thread.join()

    def _run(self) -> None:
        flying: set[str] = set()
        try:
            while self._work(flying):
                done = self._engine.poll(_POLL_SECONDS) if flying else []
                for completion in done:
                    flying.discard(completion.request_id)
                    self._loop.call_soon_threadsafe(self._answer, completion)
        except Exception as error:  # the engine is foreign code: every open call must end
            self._loop.call_soon_threadsafe(self._fail, error)

    def _work(self, flying: set[str]) -> bool:
        """Do what is asked; wait for it if the engine has nothing to do. Return False at the end."""
        wait = not flying
        while True:
            try:
                with self._watchdog.resting():
                    task = self._todo.get(block=wait)
            except queue.Empty:
                return True
            if task is None:
                return False
            task()
            if isinstance(task, partial) and task.func == self._engine.submit:
                flying.update(request.request_id for request in task.args[0])
            wait = False

    def _answer(self, completion: Completion) -> None:
        future = self._open.get(completion.request_id)
        if future is not None and not future.done():
            future.set_result(completion)

    def _fail(self, error: BaseException) -> None:
        self.failure = f"the engine has failed: {type(error).__name__}: {error}"
        for future in self._open.values():
            if not future.done():
                future.set_exception(RunError(self.failure))
