"""The vLLM engine, whose own scheduler forms batches. It runs in the producer's process, whose thread steps it in ``poll``, or in
separate processes, which continue between two calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlcore_plugin_serving.checkpoint import local_folder, read_shapes
from rlcore_plugin_serving.incoming_weights import IncomingWeights
from rlcore_plugin_serving.joining_backend import JoiningBackend

from rlcore.api import ConfigError, InferenceContext, Request, WeightsKind
from rlcore_plugin_vllm import CAPABILITIES
from rlcore_plugin_vllm.driver import Driver
from rlcore_plugin_vllm.engine_arguments import engine_arguments
from rlcore_plugin_vllm.in_process import InProcessEngine
from rlcore_plugin_vllm.options import VllmOptions
from rlcore_plugin_vllm.policy_adapter import PolicyAdapter
from rlcore_plugin_vllm.sampling_bounds import COLDEST, HOTTEST, unsupported
from rlcore_plugin_vllm.vllm_api import AsyncEngineArgs, current_platform

__all__ = ["VllmBackend"]


class VllmBackend(JoiningBackend):
    """Inference by vLLM, on CPUs or GPUs.

    After an update, requests in flight continue (RESUME): their keys and values are computed again under the new weights, and each token
    carries the version that drew it. New weights are collected in host memory while the old ones are served until ``finish_update``.
    """

    capabilities = CAPABILITIES
    who = "the vllm engine"

    def __init__(self, context: InferenceContext, options: VllmOptions | None = None) -> None:
        options = options or VllmOptions()
        arguments = engine_arguments(context, options)
        shapes = read_shapes(local_folder(context.model))
        self._driver = driver = _driver(arguments, in_processes(arguments, options), context.model)
        tied = bool(getattr(driver.model_config.hf_text_config, "tie_word_embeddings", False))
        super().__init__(context, driver, shapes, tied=tied)
        if current_platform.is_cpu():
            self.capabilities = replace(CAPABILITIES, sleeps=False, sleeps_on=frozenset(), transfers=frozenset({"host"}))
        if not context.adapter_rank:
            self.capabilities = replace(self.capabilities, kinds=frozenset({WeightsKind.FULL}))
        self._adapter = PolicyAdapter(driver, shapes) if context.adapter_rank else None

    def unsupported(self, request: Request) -> str:
        """See ServingBackend."""
        temperature = request.sampling.temperature
        if not unsupported(temperature):
            return ""
        return f"temperature {temperature:g}; vLLM samples at {COLDEST:g} to {HOTTEST:g}, and greedily at 0"

    def ranks(self) -> int:
        """See JoiningBackend."""
        return self._driver.ranks

    def collective_rpc(self, method: str, *, kwargs: Mapping[str, Any] | None = None) -> Any:
        """See JoiningBackend."""
        return self._driver.collective_rpc(method, kwargs=kwargs)

    def _load(self, incoming: IncomingWeights) -> None:
        if self._adapter is not None and incoming.manifest.kind is WeightsKind.ADAPTER:
            self._adapter.take(incoming.version, incoming.whole(), incoming.manifest)
            return
        self._driver.load(incoming)
        if self._adapter is not None:
            self._adapter.leave_out()


def in_processes(arguments: AsyncEngineArgs, options: VllmOptions) -> bool:
    """Return whether the engine runs in separate processes: if the model is spread over several, or if the options ask for it."""
    several = arguments.tensor_parallel_size * arguments.pipeline_parallel_size > 1
    if several and options.own_process is False:
        raise ConfigError("inference.options.own_process is false, but a model that is split needs processes; leave the option out")
    return several or bool(options.own_process)


def _driver(arguments: AsyncEngineArgs, own: bool, model: str) -> Driver:
    try:
        if not own:
            return InProcessEngine(arguments)
        from rlcore_plugin_vllm.own_process import VllmSubprocess

        return VllmSubprocess(arguments)
    except (OSError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"vLLM cannot create an engine for model {model!r}: {' '.join(str(error).split())}") from error
