"""Build the engine's arguments from rlcore's context and the user's options. A user may not set arguments that rlcore sets; sglang sets
the rest."""

from __future__ import annotations

from typing import Any

from rlcore_plugin_serving.kv_cache_size import text_configuration, token_bytes

from rlcore.api import ConfigError, InferenceContext
from rlcore_plugin_sglang import CAPABILITIES
from rlcore_plugin_sglang.options import SglangOptions
from rlcore_plugin_sglang.sampling_limits import KEPT

__all__ = ["ROOM", "engine_arguments"]

OWN = {
    "model_path": "--model",
    "tokenizer_path": "--model",
    "device": "--inference-device",
    "dtype": "--inference-dtype",
    "random_seed": "--seed",
    "trust_remote_code": "--trust-remote-code",
    "context_length": "--max-prompt-tokens and --max-new-tokens",
    "tp_size": "--producer-tensor-parallel-size",
    "enable_lora": "--lora-rank",
    "max_lora_rank": "--lora-rank",
    "lora_target_modules": "--lora-targets",
    "max_loras_per_batch": "",
    "max_loaded_loras": "",
    "skip_tokenizer_init": "",
    "skip_server_warmup": "",
    "enable_memory_saver": "",
    "sampling_mask_max_tokens": "",
    "incremental_streaming_output": "",
    "preferred_sampling_params": "",
    "json_model_override_args": "",
    "speculative_algorithm": "",
    "lora_paths": "--lora-rank",
}
"""Arguments that rlcore sets, and the flag that sets them, "" if there is none."""
ELSEWHERE = {
    "max_running_requests": "max_running_requests",
    "enable_deterministic_inference": "deterministic",
    "dp_size": "data_parallel_size",
}
"""Arguments that are separate options, and their names there."""
ROOM = 16
"""Tokens that the engine needs in addition to those of prompt and response."""
_MOST = 4 << 30
_PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


_BLOCK = 32
"""Columns of a layer that its kernels for CPUs process at a time."""


def engine_arguments(context: InferenceContext, options: SglangOptions, *, cpu: bool) -> dict[str, Any]:
    """Return the arguments. Raises ConfigError for an option that rlcore sets, and for settings that are not supported here.

    The engine checks the others. ``cpu``: this environment's engine computes on the CPU.
    """
    _check_context(context, options, cpu=cpu)
    for name in options.engine:
        if name in ELSEWHERE:
            raise ConfigError(f"inference.options.engine.{name}: write it as inference.options.{ELSEWHERE[name]}")
        if name in OWN:
            instead = f"use {OWN[name]}" if OWN[name] else "it cannot be changed"
            raise ConfigError(f"inference.options.engine.{name}: rlcore sets this argument of SGLang itself; {instead}")
    arguments: dict[str, Any] = {
        "log_level": "error",
        "sleep_on_idle": True,  # otherwise its idle scheduler uses the cores on which the trainer computes
        "max_running_requests": options.max_running_requests,
        **(_of_the_cpu(context, options) if cpu else {"enable_memory_saver": True}),
        **options.engine,
        "model_path": context.model,
        "device": "cpu" if cpu else "cuda",
        "dtype": context.dtype,
        "random_seed": context.seed,
        "trust_remote_code": context.trust_remote_code,
        "tp_size": context.tensor_parallel,
        "dp_size": options.data_parallel_size,
        "context_length": context.max_tokens + ROOM,
        "enable_deterministic_inference": options.deterministic,
        "skip_tokenizer_init": True,  # tokens in, tokens out
        "skip_server_warmup": True,
        "sampling_mask_max_tokens": KEPT,
    }
    if context.adapter_rank:
        arguments |= {
            "enable_lora": True,
            "max_lora_rank": context.adapter_rank,
            "lora_target_modules": _PROJECTIONS,
            "max_loras_per_batch": 2,  # requests use one; without the second, none could be loaded in addition
        }
    return arguments


def _of_the_cpu(context: InferenceContext, options: SglangOptions) -> dict[str, Any]:
    """Return the arguments that the engine needs on a CPU: kernels written in torch, and room for the completions at their greatest
    length."""
    room = context.max_tokens + ROOM
    tokens = min(room * (options.max_running_requests + 1), max(room, _MOST // token_bytes(context)))
    return {
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "lora_backend": "torch_native",
        "disable_cuda_graph": True,
        "disable_overlap_schedule": True,
        "mem_fraction_static": 0.2,  # of the machine's memory, which others take from while it loads; max_total_tokens bounds the cache
        "max_total_tokens": tokens,
    }


def _check_context(context: InferenceContext, options: SglangOptions, *, cpu: bool) -> None:
    if context.dtype not in CAPABILITIES.dtypes:
        offered = " or ".join(sorted(CAPABILITIES.dtypes))
        raise ConfigError(f"inference.dtype {context.dtype!r} is not supported by the sglang backend; use {offered}")
    kind, _, number = context.device.partition(":")
    if kind not in ("auto", here := "cpu" if cpu else "cuda"):
        raise ConfigError(
            f"inference.device {context.device!r}: the SGLang of this environment is for {here}; type --inference-device {here}"
        )
    if number not in ("", "0"):
        raise ConfigError(
            f"inference.device {context.device!r}: SGLang takes the first device that it sees; type --inference-device {kind}, and name "
            f"the device by CUDA_VISIBLE_DEVICES={number}"
        )
    if cpu and not options.deterministic:
        raise ConfigError("inference.options.deterministic is false, which is for SGLang's kernels on GPUs; leave it out")
    if context.adapter_rank and options.data_parallel_size > 1:
        raise ConfigError(
            f"inference.options.data_parallel_size {options.data_parallel_size}: SGLang loads no adapter into several copies of the model; "
            "use 1, and several producers (-i), or leave --lora-rank out"
        )
    if cpu and context.adapter_rank and (padded := _padded(context)):
        smaller = "type a smaller -ptp, or " if context.tensor_parallel > 1 else ""
        raise ConfigError(
            f"inference.producer_tensor_parallel_size {context.tensor_parallel}: on a CPU SGLang pads the model's {padded} until the "
            f"processes can share it, and no adapter of the model fits then; {smaller}leave --lora-rank out"
        )


def _padded(context: InferenceContext) -> str:
    """Return the dimension of this model that SGLang's engine for CPUs pads, "" if there is none."""
    config = text_configuration(context)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if heads % context.tensor_parallel:
        return f"num_key_value_heads {heads}"
    width = int(getattr(config, "intermediate_size", None) or 0)
    return f"intermediate_size {width}" if width % (_BLOCK * context.tensor_parallel) else ""
