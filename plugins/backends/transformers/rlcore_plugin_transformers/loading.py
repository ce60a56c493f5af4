"""Load a model for this backend, or refuse in one sentence a model that the decode loop does not support."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from rlcore.api import ConfigError, InferenceContext
from rlcore_plugin_transformers import CAPABILITIES
from rlcore_plugin_transformers.attention import use_decode_attention
from rlcore_plugin_transformers.options import TransformersOptions
from rlcore_plugin_transformers.windows import LayerWindows

__all__ = ["load_model", "pick_device"]


def pick_device(name: str) -> torch.device:
    """Return the device; ``auto`` is CUDA if it is available. Raises ConfigError for a device that is not on this machine.

    ``cuda`` is ``cuda:0``: torch sets the current device per thread, and an engine is created in one thread and polled in another.
    """
    name = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"inference.device {name!r} is not a torch device; use cpu, cuda or auto") from error
    if device.type not in CAPABILITIES.devices:
        raise ConfigError(f"inference.device {name!r} is not supported by the transformers backend; use cpu, cuda or auto")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"inference.device {name!r}: torch finds no CUDA device here; use cpu or auto")
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"inference.device {name!r}: torch finds {count} CUDA devices here, the last is cuda:{count - 1}; use one of them"
        )
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def load_model(context: InferenceContext, options: TransformersOptions, device: torch.device) -> PreTrainedModel:
    """Return the model in evaluation mode on ``device``. Raises ConfigError if it cannot be read completely or is of an unsupported
    kind."""
    if context.dtype not in CAPABILITIES.dtypes:
        offered = " or ".join(sorted(CAPABILITIES.dtypes))
        raise ConfigError(f"inference.dtype {context.dtype!r} is not supported by the transformers backend; use {offered}")
    if context.tensor_parallel != 1 and "tensor" not in CAPABILITIES.layouts:
        raise ConfigError(
            f"inference.producer_tensor_parallel_size {context.tensor_parallel}: the transformers backend runs on one device; use 1"
        )
    model, report = _read(context, options)
    absent = sorted(report["missing_keys"]) + sorted(key[0] for key in report["mismatched_keys"])
    if absent:
        what = f"tensor {absent[0]!r} is absent or of another shape ({len(absent)} such)"
        raise ConfigError(
            f"model {context.model!r} does not hold what its config.json describes: {what}; copy or download the checkpoint again"
        )
    _check_served(model, context, options)
    if options.attention == "sdpa" and device.type == "cpu":
        use_decode_attention(model)
    model = model.to(device).eval().requires_grad_(False)
    _check_finite(model, context.model)
    return model


def _check_finite(model: PreTrainedModel, path: str) -> None:
    """Raise ConfigError, with the tensor, for weights that are NaN or infinite: they give no log probability for any prompt."""
    # A sum over NaN or infinity is not finite, so the check passes most tensors without a copy of their size.
    suspects = [(name, weight) for name, weight in model.named_parameters() if not torch.isfinite(weight.detach().sum(dtype=torch.float32))]
    bad = [(name, count) for name, weight in suspects if (count := int((~torch.isfinite(weight)).sum()))]
    if bad:
        (name, count), more = bad[0], f" (and {len(bad) - 1} more such)" if len(bad) > 1 else ""
        raise ConfigError(
            f"model {path!r}: tensor {name!r} holds {count} non-finite value{'s' if count > 1 else ''} (NaN, infinity){more}; "
            "save or download the checkpoint again"
        )


def _read(context: InferenceContext, options: TransformersOptions) -> tuple[PreTrainedModel, dict[str, Any]]:
    try:
        with _quiet(context.model):
            config = AutoConfig.from_pretrained(context.model, trust_remote_code=context.trust_remote_code)
            _check_kind(config, context)
            model, report = AutoModelForCausalLM.from_pretrained(
                context.model,
                dtype=getattr(torch, context.dtype),
                attn_implementation=options.attention,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused by the caller, with the tensor's name
                trust_remote_code=context.trust_remote_code,
            )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        if not context.trust_remote_code and "trust_remote_code" in str(error):
            raise ConfigError(
                f"model {context.model!r} ships its own code (auto_map in its config.json), which rlcore does not run unasked; "
                "read the code and type --trust-remote-code, or name another model"
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if options.attention == "sdpa" and "scaled_dot_product_attention" in reason:
            reason = 'it has no sdpa attention; set attention = "eager" in [inference.options]'
        raise ConfigError(f"model {context.model!r} cannot be loaded: {reason}") from error
    return model, report


@contextmanager
def _quiet(model: str) -> Iterator[None]:
    """Hide the progress bar for reading a local folder, which would break the run's own display; a download keeps its bar."""
    hide = Path(model).is_dir() and logging.is_progress_bar_enabled()
    if hide:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if hide:
            logging.enable_progress_bar()


def _check_kind(config: Any, context: InferenceContext) -> None:
    """Raise ConfigError, before weights are read, for a kind of model that the decode loop does not support."""
    text = config.get_text_config(decoder=True)
    windows = LayerWindows.of(text, context.max_tokens)
    refusal = windows if isinstance(windows, str) else _moving_positions(text, context.max_tokens)
    if refusal is None and getattr(text, "alibi", False):
        refusal = "adds ALiBi biases, which it cannot compute for rows of several lengths; use another model or another backend"
    if refusal is None and type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        refusal = _unserved_arguments(MODEL_FOR_CAUSAL_LM_MAPPING[type(config)])
    if refusal:
        raise ConfigError(f"model {context.model!r} ({getattr(config, 'model_type', '') or type(config).__name__}) {refusal}")


def _moving_positions(config: Any, max_tokens: int) -> str | None:
    """Return why keys in the cache would differ from those of a forward pass over the whole sequence; None if they would not."""
    parameters = getattr(config, "rope_parameters", None) or {}
    for rope in (parameters, *(one for one in parameters.values() if isinstance(one, dict))):
        kind = rope.get("rope_type", "")
        limit = rope.get("original_max_position_embeddings") or getattr(config, "max_position_embeddings", max_tokens)
        if kind in ("dynamic", "longrope") and limit < max_tokens:
            return (
                f"has rotary positions of type {kind}, which change for the whole batch once a sequence has more than {limit} tokens, and "
                f"prompt and response may take {max_tokens} together; lower --max-prompt-tokens or --max-new-tokens, or use another model"
            )
    return None


def _check_served(model: PreTrainedModel, context: InferenceContext, options: TransformersOptions) -> None:
    config = model.config.get_text_config(decoder=True)
    refusal = _unserved_arguments(model)
    if refusal is None and options.attention == "sdpa" and getattr(config, "attn_logit_softcapping", None):
        refusal = 'caps attention logits, which sdpa does not; set attention = "eager" in [inference.options]'
    limit = getattr(config, "max_position_embeddings", None)
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None)
    if refusal is None and limit and not rotary and context.max_tokens > limit:
        refusal = f"has {limit} learned positions, fewer than prompt and response together may have ({context.max_tokens})"
    if refusal:
        raise ConfigError(f"model {context.model!r} ({type(model).__name__}) {refusal}")


def _unserved_arguments(model: PreTrainedModel | type[PreTrainedModel]) -> str | None:
    accepted = inspect.signature(model.forward).parameters
    missing = [name for name in ("position_ids", "past_key_values", "attention_mask", "logits_to_keep") if name not in accepted]
    return f"takes no {missing[0]}, which the decode loop needs; use another model or another backend" if missing else None
