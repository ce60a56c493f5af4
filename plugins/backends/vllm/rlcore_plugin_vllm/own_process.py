"""The engine in separate processes: one that schedules, and one for each shard of the model if there are several. vLLM's asynchronous
engine runs in the event loop of a thread in the producer's process. The producer's own thread sends commands and takes tokens."""

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
"""Seconds after which a caller that waits for a token checks whether the engine is alive."""
_DIED = "vLLM's engine process, or a worker of it, died; its own log above says more"
_CLOSING = 60.0
"""Seconds that the engine's processes may take to end; vLLM itself kills them sooner."""


def with_dependent_executors(arguments: AsyncEngineArgs) -> AsyncEngineArgs:
    """Set the arguments so that the engine's processes end with the process that started them, and its workers map incoming weights."""
    if arguments.distributed_executor_backend is None:
        several = arguments.tensor_parallel_size * arguments.pipeline_parallel_size > 1
        arguments.distributed_executor_backend = DependentMultiprocEngine if several else DependentEngine
    arguments.worker_extension_cls = "rlcore_plugin_vllm.workers.MappedWeightsExtension"
    return arguments


class VllmSubprocess(Driver):
    """A driver that runs ``AsyncLLM``. Tokens wait here until they are taken; the engine does not wait for that."""

    def __init__(self, arguments: AsyncEngineArgs) -> None:
        self._parts: queue.SimpleQueue[NewTokens] = queue.SimpleQueue()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._dead = ""
        self._loop = asyncio.new_event_loop()
        # A daemon thread, because the engine ends with it; `end` stops it, also when the interpreter ends.
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
        """Send the requests to the engine and follow their outputs."""
        for ask, parameters in [(ask, sampling_parameters(ask)) for ask in asks]:  # vLLM checks each before any is queued
            self._wait(self._add(ask.name, ask.token_ids, parameters))

    def take(self, timeout: float) -> list[NewTokens]:
        """Return all parts that have come. Waits for the first one, even beyond ``timeout``, like the engine in the producer's process."""
        found = self._taken()
        while not found:
            try:
                found.append(self._parts.get(timeout=_LOOK))
            except queue.Empty:
                self._require_life()
        return found + self._taken()

    def abort(self, names: Iterable[str]) -> list[NewTokens]:
        """Drop the requests, and wait until the engine has dropped each."""
        self._wait(self._abort(list(names)))
        return self._taken()

    def whole(self, name: str, token_ids: Sequence[int], parameters: SamplingParams) -> RequestOutput:
        """Return the answer; the collector of such a request receives only one output."""
        return self._wait(self._whole(name, token_ids, parameters))

    def pause(self) -> None:
        """Pause; the scheduler keeps requests in flight, without keys and values."""
        self._wait(self._engine.pause_generation(mode="keep", clear_cache=True))

    def load(self, incoming: IncomingWeights) -> None:
        """Let every worker map the host memory and copy its shard from it."""
        self.collective_rpc("load_mapped", args=(incoming.path, incoming.places()))

    def add_adapter(self, adapter: LoRARequest) -> None:
        """Add an adapter in every worker."""
        self._wait(self._engine.add_lora(adapter))

    def serve(self, version: int) -> None:
        """Serve the version: tokens that are drawn from now on carry it."""
        self._wait(self._serve(version))

    def collective_rpc(self, method: str, timeout: float | None = None, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[Any]:
        """Call a method of every worker, in its own process."""
        found: list[Any] = self._wait(self._engine.collective_rpc(method, timeout, args, kwargs))
        return found

    def sleep(self, level: int = 1) -> object:
        """Release the device of every worker."""
        return self._wait(self._engine.sleep(level))

    def wake_up(self, tags: list[str] | None = None) -> object:
        """Take memory back in every worker."""
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
                self.count(output)
                self._parts.put(_part(name, output))
        except EngineDeadError:
            self._dead = _DIED
        except Exception as error:  # any error must reach the producer's thread
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
    """Create the engine in the loop, which its sockets belong to.

    The thread of the loop is the parent of the engine's processes, which divide this process's threads.
    """
    with _threads(arguments.tensor_parallel_size * arguments.pipeline_parallel_size):
        engine = AsyncLLM.from_engine_args(arguments)
    await engine.update_weight_version("0")
    return engine


@contextmanager
def _threads(shards: int) -> Iterator[None]:
    """Divide this process's threads between the processes that the body starts; this process computes nothing meanwhile."""
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
