"""The engine in the producer's process: the producer's thread steps it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from rlcore_plugin_serving.incoming_weights import IncomingWeights
from rlcore_plugin_serving.partial_completions import NewTokens
from rlcore_plugin_serving.serving_engine import EngineRequest

from rlcore.api import RunError
from rlcore_plugin_vllm.driver import Driver, log_probabilities, sampling_parameters
from rlcore_plugin_vllm.engines import end_engine, make_engine
from rlcore_plugin_vllm.vllm_api import EngineArgs, LoRARequest, ModelConfig, RequestOutput, SamplingParams, TokensPrompt

__all__ = ["InProcessEngine"]


class InProcessEngine(Driver):
    """A driver that runs ``LLMEngine``. It does nothing between two calls."""

    def __init__(self, arguments: EngineArgs) -> None:
        self._engine = make_engine(arguments)
        self._end = weakref.finalize(self, end_engine, self._engine)
        self.model_config: ModelConfig = self._engine.model_config
        self.ranks = self._engine.vllm_config.parallel_config.world_size_across_dp
        self._version = 0
        self._parts: list[NewTokens] = []

    def add(self, asks: Sequence[EngineRequest]) -> None:
        """Add requests to the queue of the scheduler."""
        for ask, parameters in [(ask, sampling_parameters(ask)) for ask in asks]:  # vLLM checks each before any is queued
            self._add(ask.name, ask.token_ids, parameters)

    def take(self, timeout: float) -> list[NewTokens]:
        """Run one step, unless the probe has taken some already: a token for every running request."""
        if not self._parts:
            self._step()
        found, self._parts = self._parts, []
        return found

    def abort(self, names: Iterable[str]) -> list[NewTokens]:
        """Drop requests at once."""
        names = list(names)
        self._engine.abort_request(names)
        found, self._parts = self._parts, []
        return [*found, *(NewTokens(name, finish="abort") for name in names)]

    def whole(self, name: str, token_ids: Sequence[int], parameters: SamplingParams) -> RequestOutput:
        """Run steps until the answer is complete."""
        self._add(name, token_ids, parameters)
        while (output := self._step(name)) is None:
            pass
        return output

    def pause(self) -> None:
        """Do nothing: nothing is computed between two calls."""

    def load(self, incoming: IncomingWeights) -> None:
        """Load the weights; the worker is in this process too."""
        self.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(incoming.whole().items())})

    def add_adapter(self, adapter: LoRARequest) -> None:
        """Add an adapter by the worker in this process."""
        self._engine.add_lora(adapter)

    def serve(self, version: int) -> None:
        """Serve the new version. Raises RunError if the engine keeps keys and values of the old weights."""
        if not self._engine.reset_prefix_cache(reset_running_requests=True):
            raise RunError(f"vLLM did not drop the keys and values of version {self._version}")
        self._version = version

    def collective_rpc(self, method: str, timeout: float | None = None, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[Any]:
        """Call a method of the one worker."""
        return self._engine.collective_rpc(method, timeout, args, kwargs)

    def sleep(self, level: int = 1) -> object:
        """Release the device; no request is in flight."""
        return self._engine.sleep(level)

    def wake_up(self, tags: list[str] | None = None) -> object:
        """Take memory back, part by part."""
        return self._engine.wake_up(tags=tags)

    def end(self) -> None:
        """Mark the engine as ended; it is freed with the last engine of this process."""
        self._end()

    def _add(self, name: str, token_ids: Sequence[int], parameters: SamplingParams) -> None:
        self._engine.add_request(name, TokensPrompt(prompt_token_ids=list(token_ids)), parameters, lora_request=self.adapter)

    def _step(self, wanted: str = "") -> RequestOutput | None:
        found = None
        for output in self._engine.step():
            if output.request_id == wanted:
                found = output
                continue
            self.count(output)
            part = output.outputs[0]
            versions = [self._version] * len(part.token_ids)
            self._parts.append(
                NewTokens(output.request_id, part.token_ids, log_probabilities(part.logprobs), versions, part.finish_reason or "")
            )
        return found
