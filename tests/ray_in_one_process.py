"""The Ray runtime without Ray: a session whose actors are objects of this process, each with threads of its own, so that a whole run of the
crew, its loops and its services takes a second. Nothing is pickled, and no process dies; that is for the tests on a cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_ray import node_services, session
from rlcore_plugin_ray.node_placement import Node
from rlcore_plugin_ray.ray_worker import BESIDE, RayWorker
from rlcore_plugin_workers import producer_worker
from rlcore_plugin_workers.producer_worker import ProducerWorker
from rlcore_plugin_workers.workers import Placement

from tests.worker_answers import ToldWorker

__all__ = ["Stage", "ray_in_one_process"]


class Promise:
    """What a remote call returns."""

    def __init__(self) -> None:
        self.of: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.of

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self.of).__await__()

    def keep(self, make: Callable[[], Any]) -> None:
        """Take the value or the error of ``make``; do nothing if the caller was cancelled meanwhile."""
        try:
            value = make()
        except BaseException as error:
            if not self.of.cancelled():
                self.of.set_exception(error)
        else:
            if not self.of.cancelled():
                self.of.set_result(value)


class Call:
    """One method of a handle. ``named``: the options of a call that matter here."""

    def __init__(self, send: Callable[..., Promise], name: str, **named: Any) -> None:
        self._send = send
        self._name = name
        self._named = named

    def options(self, **named: Any) -> Call:
        return Call(self._send, self._name, **named)

    def remote(self, *args: Any) -> Any:
        promise = self._send(self._name, args, self._named.get("concurrency_group", ""))
        return promise if (several := self._named.get("num_returns", 1)) == 1 else _parts(promise, several)


def _parts(whole: Promise, several: int) -> tuple[Promise, ...]:
    parts = tuple(Promise() for _ in range(several))

    def arrived(done: Future[Any]) -> None:
        for number, part in enumerate(parts):
            part.keep(lambda number=number: done.result()[number])  # type: ignore[misc]

    whole.of.add_done_callback(arrived)
    return parts


class Handle:
    """Of an actor or a service: ``handle.method.remote(...)``."""

    def __init__(self, send: Callable[..., Promise], called: str) -> None:
        self.called = called
        self._send = send

    def __getattr__(self, name: str) -> Call:
        if name.startswith("_"):
            raise AttributeError(name)
        return Call(self._send, name)


class ThreadActor:
    """An object and the threads that call it: ``threads`` of them, and one for each concurrency group. ``it``: the object."""

    def __init__(self, make: Callable[[], Any], threads: int) -> None:
        self.it = make()
        self._queues = {group: SimpleQueue[Callable[[], None] | None]() for group in ("", BESIDE)}
        self._threads = [("", number) for number in range(threads)] + [(BESIDE, number) for number in range(4)]
        for group, _ in self._threads:
            threading.Thread(target=self._work, args=(self._queues[group],), daemon=True).start()

    def _work(self, queue: SimpleQueue[Callable[[], None] | None]) -> None:
        while (call := queue.get()) is not None:
            call()

    def send(self, name: str, args: tuple[Any, ...], group: str) -> Promise:
        """Have a thread call it, with the values of what was promised."""
        promise = Promise()

        def call() -> None:
            promise.keep(lambda: getattr(self.it, name)(*(arg.of.result() if isinstance(arg, Promise) else arg for arg in args)))

        self._queues[group].put(call)
        return promise

    def end(self) -> None:
        """Release every thread that waits inside the object, as a kill of its process would."""
        if isinstance(self.it, ProducerWorker):
            self.it._stop()
        for value in vars(self.it).values():
            if isinstance(value, Future):
                value.cancel()
        for group, _ in self._threads:
            self._queues[group].put(None)


class Stage:
    """What a run is played on: its nodes, and what it made. ``made``: actors and services by name."""

    def __init__(self, nodes: int = 1) -> None:
        self.head = ToldWorker("the head of the Ray cluster", lives=lambda: None)
        self._nodes = [Node(node_id=f"node-{number}", address="127.0.0.1", cpus=8.0, gpus=0.0) for number in range(nodes)]
        self._loop = asyncio.new_event_loop()
        self._actors: dict[str, ThreadActor] = {}
        self._handles: dict[str, Handle] = {}
        self.made: dict[str, Any] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._ending = False
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel the calls of services that have not returned, and end the event loop."""
        asyncio.run_coroutine_threadsafe(self._cancel(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel(self) -> None:
        self._ending = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what a crew takes for a RaySession -----------------------------------------------------------------------------

    def __call__(self, address: str | None, settings: Any, say: Callable[[str], None]) -> Stage:
        return self

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: object) -> None:
        for actor in self._actors.values():
            actor.end()

    def nodes(self) -> list[Node]:
        return self._nodes

    def reserve(self, bundles: list[tuple[str, float, float]], seconds: float = 60.0) -> None: ...

    def start(self, host: type, *args: Any, name: str, placement: Placement) -> RayWorker:
        actor = self._actors[name] = ThreadActor(lambda: host(*args), placement.calls)
        self.made[name] = actor.it
        return RayWorker(Handle(actor.send, name), name, self._kill)

    def service(self, cls: type, *args: Any, node: str, called: str, restarts: int = 0, **named: Any) -> Handle:
        service = self.made[called] = cls(*args, **named)

        def send(name: str, args: tuple[Any, ...], group: str) -> Promise:
            promise = Promise()
            with suppress(RuntimeError):  # the event loop is closed, and nobody answers what is left of a run
                self._loop.call_soon_threadsafe(self._begin, promise, partial(getattr(service, name), *args))
            return promise

        handle = self._handles[called] = Handle(send, called)
        return handle

    def _begin(self, promise: Promise, answer: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        if self._ending:
            return
        self._tasks.append(self._loop.create_task(answer()))
        self._tasks[-1].add_done_callback(lambda task: None if task.cancelled() else promise.keep(task.result))

    def home(self, group: Any, bundle: int) -> str:
        return self._nodes[0].node_id

    def _kill(self, handle: Handle) -> None:
        self._actors[handle.called].end()

    def restart(self, handle: Handle) -> None:
        raise AssertionError(f"{handle.called} does not answer")

    def unique(self, called: str) -> str:
        return called

    def found(self, name: str, namespace: str) -> Handle:
        return self._handles[name]


class NoTraceback:
    """In place of faulthandler, whose timer is one for the whole process and ends it."""

    @staticmethod
    def dump_traceback_later(*args: Any, **named: Any) -> None: ...

    @staticmethod
    def cancel_dump_traceback_later() -> None: ...


@contextmanager
def ray_in_one_process(monkeypatch: pytest.MonkeyPatch, nodes: int = 1) -> Iterator[Stage]:
    """Runs of ``--runtime ray`` are played here."""
    stage = Stage(nodes)
    context = SimpleNamespace(namespace="", was_current_actor_reconstructed=False)
    monkeypatch.setattr(session, "RaySession", stage)
    monkeypatch.setattr(node_services, "ray", SimpleNamespace(get_actor=stage.found, get_runtime_context=lambda: context))
    monkeypatch.setattr(producer_worker, "faulthandler", NoTraceback)
    try:
        yield stage
    finally:
        stage.close()
