"""The SGLang engine in a separate process, whose scheduler forms batches and continues between two calls."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from rlcore_plugin_serving.adapter_rules import adapter_configuration
from rlcore_plugin_serving.checkpoint import is_tied, local_folder, read_shapes
from rlcore_plugin_serving.incoming_weights import IncomingWeights
from rlcore_plugin_serving.serving_backend import ServingBackend

from rlcore.api import InferenceContext, Request, WeightsKind
from rlcore_plugin_sglang import CAPABILITIES
from rlcore_plugin_sglang.engine_arguments import engine_arguments
from rlcore_plugin_sglang.options import SglangOptions
from rlcore_plugin_sglang.sampling_limits import unsupported
from rlcore_plugin_sglang.subprocess_engine import SubprocessEngine

__all__ = ["SglangBackend"]


class SglangBackend(ServingBackend):
    """Inference by SGLang, on CPUs or GPUs.

    After an update, requests in flight continue (RESUME): the engine drops them and every key and value, and then receives the remainder of
    each request.
    """

    capabilities = CAPABILITIES
    who = "the sglang engine"

    def __init__(self, context: InferenceContext, options: SglangOptions | None = None) -> None:
        options = options or SglangOptions()
        cpu = find_spec("sgl_kernel") is None  # SGLang's kernels are for GPUs
        arguments = engine_arguments(context, options, cpu=cpu)
        shapes = read_shapes(local_folder(context.model))
        self._owned = engine = SubprocessEngine(arguments, silence=options.silence_seconds, start=options.start_seconds)
        super().__init__(context, engine, shapes, tied=is_tied(context))
        if cpu:
            self.capabilities = replace(self.capabilities, sleeps=False, sleeps_on=frozenset())
        if not context.adapter_rank:
            self.capabilities = replace(self.capabilities, kinds=frozenset({WeightsKind.FULL}))
        if not options.deterministic:
            self.capabilities = replace(self.capabilities, counter_noise=False)

    def unsupported(self, request: Request) -> str:
        """See ServingBackend."""
        return unsupported(request.sampling, self._owned.vocabulary)

    def _load(self, incoming: IncomingWeights) -> None:
        if incoming.manifest.kind is WeightsKind.ADAPTER:
            self._owned.load_adapter(incoming, adapter_configuration(incoming.version, incoming.manifest))
            return
        self._owned.load(incoming)
        if self._context.adapter_rank:
            self._owned.leave_adapter_out()
