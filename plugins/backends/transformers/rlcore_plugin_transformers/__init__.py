"""Tokenizers of Hugging Face models, and inference on such a model with rlcore's own decode loop. This module only registers them; torch
and transformers are imported on first use."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import InferenceBackendSpec, InferenceCapabilities, InFlight, hookimpl

rlcore_api = "2.0"

CAPABILITIES = InferenceCapabilities(
    in_flight=InFlight.RESUME,
    sleeps=True,
    scores=True,
    counter_noise=True,
    dtypes=frozenset({"float32", "bfloat16"}),
    devices=frozenset({"cpu", "cuda"}),
    sampling=frozenset({"min_p"}),
    reproducible="bitwise",
    implementation="transformers",
)
"""The capabilities that the spec and the backend class declare, and that its refusals refer to."""


@hookimpl
def rlcore_tokenizer_class() -> str:
    """Offer the tokenizers of Hugging Face models."""
    return "rlcore_plugin_transformers.chat_tokenizer:HuggingFaceTokenizer"


@hookimpl
def rlcore_register_inference_backends() -> Sequence[InferenceBackendSpec]:
    """Offer the backend ``transformers``."""
    return [
        InferenceBackendSpec(
            name="transformers",
            target="rlcore_plugin_transformers.engine:TransformersBackend",
            config="rlcore_plugin_transformers.options:TransformersOptions",
            summary="streaming decode loop on a Hugging Face causal language model, CPU or CUDA, fp32 or bf16",
            requires_module="transformers",
            capabilities=CAPABILITIES,
            aliases=("hf",),
        )
    ]
