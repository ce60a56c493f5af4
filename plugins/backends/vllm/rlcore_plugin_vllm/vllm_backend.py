"""The engine of vLLM, whose own scheduler batches: in the producer's process, whose thread steps it in ``poll``, or as processes of its
own, which go on between two calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlcore_plugin_serving.arriving import ArrivingWeights
from rlcore_plugin_serving.checkpoint import local_folder, read_shapes
from rlcore_plugin_serving.serving_backend import ServingBackend

from rlcore.api import Bucket, ConfigError, InferenceContext, Request, RunError, WeightsKind
from rlcore_plugin_vllm import CAPABILITIES
from rlcore_plugin_vllm.driver import Driver
from rlcore_plugin_vllm.engine_arguments import engine_arguments
from rlcore_plugin_vllm.in_process import InProcess
from rlcore_plugin_vllm.joined_transfer import JoinedTransfer
from rlcore_plugin_vllm.options import VllmOptions
from rlcore_plugin_vllm.policy_adapter import PolicyAdapter
from rlcore_plugin_vllm.sampling_bounds import COLDEST, HOTTEST, unserved
from rlcore_plugin_vllm.vllm_api import AsyncEngineArgs, current_platform

__all__ = ["VllmBackend"]


class VllmBackend(ServingBackend):
    """Inference by vLLM, on CPUs or GPUs.

    After an update requests go on (RESUME): their keys and values are computed again under the new weights, and each token carries the
    version that drew it. New weights are collected on the host beside the old ones, which are served until ``finish_update``.
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
        self._joined: JoinedTransfer | None = None
        self._remote = False

    def unserved(self, request: Request) -> str:
        """See ServingBackend."""
        temperature = request.sampling.temperature
        if not unserved(temperature):
            return ""
        return f"temperature {temperature:g}; vLLM samples at {COLDEST:g} to {HOTTEST:g}, and greedily at 0"

    # --- weights -------------------------------------------------------------------------------------------------------

    def describe(self) -> Mapping[str, Any]:
        """How many workers the engine has, and which tensor its head repeats."""
        return {"ranks": self._driver.ranks, "head_of": self._checkpoint.head_of or ""}

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        """Have the workers join vLLM's own transfer, with the trainer engine that the trainer's side names."""
        if self.capabilities.transfers <= {"host"}:
            super().connect(info, epoch)
        if self._joined is not None:
            self._joined.leave()
            self._joined = None
        self._joined = JoinedTransfer(info, self._driver.collective_rpc)

    def receive(self, bucket: Bucket) -> None:
        """Copy a bucket's tensors; or have the workers take the version from the trainer's side, which tears the old one."""
        arriving = self._under_way()
        if not bucket.info:
            arriving.take(bucket)
            return
        if self._joined is None:
            raise RunError(f"version {bucket.version} comes by vLLM's own transfer, which the engine has not joined: call connect first")
        self._tear(arriving.version)
        self._joined.receive()
        self._remote = True

    def finish_update(self) -> int:
        """See ServingBackend."""
        if self._joined is None or not self._remote:
            return super().finish_update()
        arriving, self._arriving, self._remote = self._under_way(), None, False
        self._joined.finish()
        return self._serve(arriving.version)

    def _load(self, arriving: ArrivingWeights) -> None:
        if self._adapter is not None and arriving.manifest.kind is WeightsKind.ADAPTER:
            self._adapter.take(arriving.version, arriving.whole(), arriving.manifest)
            return
        self._driver.load(arriving)
        if self._adapter is not None:
            self._adapter.leave_out()

    def close(self) -> None:
        """End the engine; requests in flight are forgotten."""
        if self._joined is not None:
            self._joined.close()
        super().close()


def in_processes(arguments: AsyncEngineArgs, options: VllmOptions) -> bool:
    """Whether the engine runs as processes of its own: it does if the model is spread over several, and if that is asked for."""
    several = arguments.tensor_parallel_size * arguments.pipeline_parallel_size > 1
    if several and options.own_process is False:
        raise ConfigError("inference.options.own_process is false, and a model that is split needs processes; leave the option out")
    return several or bool(options.own_process)


def _driver(arguments: AsyncEngineArgs, own: bool, model: str) -> Driver:
    try:
        if not own:
            return InProcess(arguments)
        from rlcore_plugin_vllm.own_process import OwnProcess

        return OwnProcess(arguments)
    except (OSError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"vLLM does not make an engine of model {model!r}: {' '.join(str(error).split())}") from error
