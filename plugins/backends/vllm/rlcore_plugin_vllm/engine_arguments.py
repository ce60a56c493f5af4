"""Build the engine's arguments from rlcore's context and the user's options. A user may not set arguments that rlcore sets; vllm sets
the rest."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from rlcore_plugin_serving.kv_cache_size import token_bytes

from rlcore.api import ConfigError, InferenceContext
from rlcore_plugin_vllm import CAPABILITIES
from rlcore_plugin_vllm.options import VllmOptions
from rlcore_plugin_vllm.policy_adapter import room_for
from rlcore_plugin_vllm.vllm_api import AsyncEngineArgs, EngineArgs, current_platform

__all__ = ["cache_bytes", "engine_arguments"]

OWN = {
    "model": "--model",
    "tokenizer": "--model",
    "dtype": "--inference-dtype",
    "seed": "--seed",
    "trust_remote_code": "--trust-remote-code",
    "max_model_len": "--max-prompt-tokens and --max-new-tokens",
    "tensor_parallel_size": "--producer-tensor-parallel-size",
    "data_parallel_size": "--num-inferencer, the number of producers that share the requests",
    "worker_extension_cls": "",
    "skip_tokenizer_init": "",
    "logprobs_mode": "",
    "async_scheduling": "",
    "enable_chunked_prefill": "",
    "generation_config": "",
    "disable_log_stats": "",
    "enable_sleep_mode": "",
    "weight_transfer_config": "--transport",
    "enable_lora": "--lora-rank",
    "max_lora_rank": "--lora-rank",
    "max_loras": "",
    "max_cpu_loras": "",
}
"""Arguments that rlcore sets, and the flag that sets them, "" if there is none."""

_BLOCK, _MOST = 128, 4 << 30
# Tokens of a block of the cache on the CPU, and the bytes that vllm itself takes for the cache.


def engine_arguments(context: InferenceContext, options: VllmOptions) -> AsyncEngineArgs:
    """Return the arguments. Raises ConfigError for an unknown option, for one that rlcore sets, and for settings that are not supported
    here."""
    _check_context(context)
    named = options.model_dump(exclude={"engine", "device_memory_gib", "own_process"})
    known = {field.name for field in fields(EngineArgs)}
    for name in options.engine:
        if name in named:
            raise ConfigError(f"inference.options.engine.{name}: write it as inference.options.{name}")
        if name in OWN:
            instead = f"use {OWN[name]}" if OWN[name] else "it cannot be changed"
            raise ConfigError(f"inference.options.engine.{name}: rlcore sets this argument of vLLM itself; {instead}")
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "see vLLM's page of engine arguments"
            raise ConfigError(f"inference.options.engine.{name} is not an argument of the installed vLLM's engine; {hint}")
    arguments: dict[str, Any] = {
        "use_tqdm_on_load": False,
        **named,
        **options.engine,
        "model": context.model,
        "dtype": context.dtype,
        "seed": context.seed,
        "trust_remote_code": context.trust_remote_code,
        "tensor_parallel_size": context.tensor_parallel,
        "max_model_len": context.max_tokens,
        "skip_tokenizer_init": True,  # tokens in, tokens out
        "logprobs_mode": "processed_logprobs",  # of the distribution that was sampled, including temperature
        "async_scheduling": False,  # so that no token of older weights arrives after an update
        "generation_config": "vllm",  # the run sets how to sample, not the model's folder
        "disable_log_stats": True,
        "weight_transfer_config": {"backend": "rlcore"},  # the trainer chooses the transfer: see worker_transfer
    }
    if context.adapter_rank:
        arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": room_for(context.adapter_rank)}
    if not current_platform.is_cpu():
        return AsyncEngineArgs(**arguments, enable_sleep_mode=True)
    arguments["enable_chunked_prefill"] = False  # on the CPU the engine cannot read part of a prompt if its draws have a seed
    if not options.enforce_eager:
        raise ConfigError("inference.options.enforce_eager is false, but this backend does not compile models on the CPU; leave it out")
    if options.pipeline_parallel_size > 1:
        raise ConfigError(
            f"inference.options.pipeline_parallel_size {options.pipeline_parallel_size}: on the CPU vLLM's stages do not pass tensors on; "
            "use 1, or split layers with --producer-tensor-parallel-size"
        )
    if named["kv_cache_memory_bytes"] is None:
        arguments["kv_cache_memory_bytes"] = cache_bytes(context, options.max_num_seqs)
    return AsyncEngineArgs(**arguments)


def cache_bytes(context: InferenceContext, sequences: int) -> int:
    """Return the bytes in each process for keys and values of ``sequences`` sequences of the greatest length, at most the bytes that
    vllm itself takes."""
    tokens = -(-context.max_tokens // _BLOCK) * _BLOCK * (sequences + 1)
    return min(_MOST, max(64 << 20, token_bytes(context) * tokens))


def _check_context(context: InferenceContext) -> None:
    if context.dtype not in CAPABILITIES.dtypes:
        offered = " or ".join(sorted(CAPABILITIES.dtypes))
        raise ConfigError(f"inference.dtype {context.dtype!r} is not supported by the vllm backend; use {offered}")
    kind, _, number = context.device.partition(":")
    if kind not in ("auto", here := "cpu" if current_platform.is_cpu() else "cuda"):
        raise ConfigError(
            f"inference.device {context.device!r}: the vLLM of this environment is built for {here}; type --inference-device {here}"
        )
    if number not in ("", "0"):
        raise ConfigError(
            f"inference.device {context.device!r}: vLLM takes the first device that it sees; type --inference-device {kind}, and name the "
            f"device by CUDA_VISIBLE_DEVICES={number}"
        )
