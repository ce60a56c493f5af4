"""The engine as processes of its own: one that schedules, and one for each shard of the model if there are several. A thread of the
producer's process has an event loop in which vLLM's asynchronous engine lives; the producer's own thread gives orders and takes tokens."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
import weakref
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rlcore_plugin_serving.incoming_weights import IncomingWeights
from rlcore_plugin_serving.partial_completions import NewTokens
from rlcore_plugin_serving.serving_engine import EngineRequest

from rlcore.api import RunError
from rlcore_plugin_vllm.driver import Driver, log_probabilities, sampling_parameters
from rlcore_plugin_vllm.vllm_api import (
    AsyncEngineArgs,
    AsyncLLM,
    EngineDeadError,
    LoRARequest,
    ModelConfig,
    RequestOutput,
    RequestOutputCollector,
    SamplingParams,
    TokensPrompt,
    shut_down,
)
from rlcore_plugin_vllm.workers import DependentEngine, DependentMultiprocEngine

__all__ = ["VllmSubprocess", "with_dependent_executors"]

_LOOK = 0.5
"""Seconds after which somebody who waits for a token looks whether the engine is alive."""
_DIED = "vLLM's engine process, or a worker of it, died; its own log above says more"
_CLOSING = 60.0
"""Seconds that the engine's processes may take to end; vLLM itself kills them sooner."""


def with_dependent_executors(arguments: AsyncEngineArgs) -> AsyncEngineArgs:
    """Arguments of an engine whose processes end with the one that started them, and whose workers map the weights that come."""
    if arguments.distributed_executor_backend is None:
        several = arguments.tensor_parallel_size * arguments.pipeline_parallel_size > 1
        arguments.distributed_executor_backend = DependentMultiprocEngine if several else DependentEngine
    arguments.worker_extension_cls = "rlcore_plugin_vllm.workers.MappedWeightsExtension"
    return arguments


class VllmSubprocess(Driver):
    """Runs ``AsyncLLM``. Tokens wait here until they are taken; the engine does not wait for that."""

    def __init__(self, arguments: AsyncEngineArgs) -> None:
        self._parts: queue.SimpleQueue[NewTokens] = queue.SimpleQueue()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._dead = ""
        self._loop = asyncio.new_event_loop()
        # A daemon, since its death is the engine's; `end` stops it, also when the interpreter ends.
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm-engine", daemon=True)
        self._thread.start()
        try:
            self._engine: AsyncLLM = self._wait(_started(with_dependent_executors(arguments)))
        except RuntimeError as error:
            _stop(self._loop, self._thread)
            raise RunError(f"vLLM's engine process did not start: {' '.join(str(error).split())}") from error
        except BaseException:
            _stop(self._loop, self._thread)
            raise
        self.model_config: ModelConfig = self._engine.model_config
        self.ranks = self._engine.vllm_config.parallel_config.world_size_across_dp
        self._end = weakref.finalize(self, _end, self._engine, self._loop, self._thread, self._following)

    def add(self, asks: Sequence[EngineRequest]) -> None:
        """Hand them to the engine and follow them from there."""
        for ask, parameters in [(ask, sampling_parameters(ask)) for ask in asks]:  # vLLM looks at each before any is queued
            self._wait(self._add(ask.name, ask.token_ids, parameters))

    def take(self, timeout: float) -> list[NewTokens]:
        """All that has come. Waits for the first token beyond ``timeout``, as the engine in the producer's process does, too."""
        found = self._taken()
        while not found:
            try:
                found.append(self._parts.get(timeout=_LOOK))
            except queue.Empty:
                self._require_life()
        return found + self._taken()

    def abort(self, names: Iterable[str]) -> list[NewTokens]:
        """Wait until the engine has let go of each."""
        self._wait(self._abort(list(names)))
        return self._taken()

    def whole(self, name: str, token_ids: Sequence[int], parameters: SamplingParams) -> RequestOutput:
        """One output is all that the collector of such a request gets."""
        return self._wait(self._whole(name, token_ids, parameters))

    def pause(self) -> None:
        """The scheduler keeps what is in flight, without keys and values."""
        self._wait(self._engine.pause_generation(mode="keep", clear_cache=True))

    def load(self, incoming: IncomingWeights) -> None:
        """Every worker maps the host's memory and copies its shard out of it."""
        self.collective_rpc("load_mapped", args=(incoming.path, incoming.places()))

    def add_adapter(self, adapter: LoRARequest) -> None:
        """By every worker."""
        self._wait(self._engine.add_lora(adapter))

    def serve(self, version: int) -> None:
        """Tokens that are drawn from here on carry the version."""
        self._wait(self._serve(version))

    def collective_rpc(self, method: str, timeout: float | None = None, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[Any]:
        """In their own processes."""
        found: list[Any] = self._wait(self._engine.collective_rpc(method, timeout, args, kwargs))
        return found

    def sleep(self, level: int = 1) -> object:
        """Every worker."""
        return self._wait(self._engine.sleep(level))

    def wake_up(self, tags: list[str] | None = None) -> object:
        """Every worker."""
        return self._wait(self._engine.wake_up(tags=tags))

    def end(self) -> None:
        """End the processes and the thread."""
        self._end()
        vars(self).pop("_engine", None)  # its destructor would run after the modules that it needs

    # --- in the engine's loop ------------------------------------------------------------------------------------------

    async def _add(self, name: str, token_ids: Sequence[int], parameters: SamplingParams) -> None:
        collector = await self._engine.add_request(
            name, TokensPrompt(prompt_token_ids=list(token_ids)), parameters, lora_request=self.adapter
        )
        self._following[name] = asyncio.create_task(self._follow(name, collector))

    async def _follow(self, name: str, collector: RequestOutputCollector) -> None:
        try:
            finished = False
            while not finished:
                output = collector.get_nowait() or await collector.get()
                finished = output.finished
                self._parts.put(_part(name, output))
        except EngineDeadError:
            self._dead = _DIED
        except Exception as error:  # whatever it is, the producer's thread must hear of it
            self._dead = f"vLLM's engine failed at request {name}: {' '.join(str(error).split()) or type(error).__name__}"
        finally:
            collector.close()
            self._following.pop(name, None)

    async def _abort(self, names: list[str]) -> None:
        tasks = [self._following[name] for name in names if name in self._following]
        await self._engine.abort(names)
        if tasks:
            await asyncio.wait(tasks)

    async def _whole(self, name: str, token_ids: Sequence[int], parameters: SamplingParams) -> RequestOutput:
        collector = await self._engine.add_request(
            name, TokensPrompt(prompt_token_ids=list(token_ids)), parameters, lora_request=self.adapter
        )
        try:
            return await collector.get()
        finally:
            collector.close()

    async def _serve(self, version: int) -> None:
        await self._engine.update_weight_version(str(version))
        await self._engine.resume_generation()

    # --- small parts ---------------------------------------------------------------------------------------------------

    def _taken(self) -> list[NewTokens]:
        found = []
        while not self._parts.empty():
            found.append(self._parts.get())
        return found

    def _wait(self, order: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(order, self._loop).result()
        except EngineDeadError as error:
            self._dead = _DIED
            raise RunError(_DIED) from error

    def _require_life(self) -> None:
        if not self._dead and self._engine.errored:
            self._dead = _DIED
        if self._dead:
            raise RunError(self._dead)


async def _started(arguments: AsyncEngineArgs) -> AsyncLLM:
    """Made in the loop, where its sockets belong. The thread of the loop is the parent of its processes, which divide its threads."""
    with _threads(arguments.tensor_parallel_size * arguments.pipeline_parallel_size):
        engine = AsyncLLM.from_engine_args(arguments)
    await engine.update_weight_version("0")
    return engine


@contextmanager
def _threads(shards: int) -> Iterator[None]:
    """Processes that are started inside have each a share of the threads that rlcore gave this one, which computes nothing meanwhile."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit():
        os.environ["OMP_NUM_THREADS"] = str(max(1, int(given) // shards))
    try:
        yield
    finally:
        if given:
            os.environ["OMP_NUM_THREADS"] = given


def _part(name: str, output: RequestOutput) -> NewTokens:
    part = output.outputs[0]
    versions = [int(span.version) for span in part.weight_versions or () for _ in range(span.start, span.end)]
    return NewTokens(name, part.token_ids, log_probabilities(part.logprobs) if part.token_ids else (), versions, part.finish_reason or "")


def _end(engine: AsyncLLM, loop: asyncio.AbstractEventLoop, thread: threading.Thread, following: dict[str, asyncio.Task[None]]) -> None:
    async def shut() -> None:
        tasks = list(following.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shut_down(engine)

    if thread.is_alive():
        asyncio.run_coroutine_threadsafe(shut(), loop).result(_CLOSING)
        _stop(loop, thread)


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_CLOSING)
    until = time.monotonic() + 1.0
    while loop.is_running() and time.monotonic() < until:
        time.sleep(0.01)
    loop.close()
