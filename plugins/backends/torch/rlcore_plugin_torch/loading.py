"""Load a model for training, or refuse in one sentence a model that cannot be trained here."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from rlcore.api import ConfigError, TrainingContext
from rlcore_plugin_torch import CAPABILITIES

__all__ = ["check_context", "load_model", "pick_device", "read_outline", "settled"]

_ALIGNMENT = 64
"""Bytes; torch aligns its own tensors on a CPU to this."""
_LONGEST_REASON = 300
"""Characters of a message of transformers."""


def check_context(context: TrainingContext) -> None:
    """Raise ConfigError for a layout or a dtype that this backend does not support."""
    asked = (
        ("tensor", "tensor_parallel_size", context.tensor_parallel, 1),
        ("pipeline", "pipeline_parallel_size", context.pipeline_parallel, 1),
        ("context", "context_parallel_size", context.context_parallel, 1),
        ("expert", "expert_parallel_size", context.expert_parallel, 1),
        ("zero", "zero_stage", context.zero_stage, 0),
    )
    for layout, setting, value, most in asked:
        if value > most and layout not in CAPABILITIES.layouts:
            raise ConfigError(f"training.{setting} {value}: the torch backend divides a model by -tp and -zero only; use {most}")
    if context.dtype not in CAPABILITIES.dtypes:
        offered = " or ".join(sorted(CAPABILITIES.dtypes))
        raise ConfigError(f"training.dtype {context.dtype!r} is not supported by the torch backend; use {offered}")


def pick_device(name: str, rank: int = 0) -> torch.device:
    """Return the device of a rank. ``auto`` is CUDA if there is a CUDA device; the ranks take the devices of this process in rotation.

    Raises ConfigError for a device that is not on this machine.
    """
    kind = name.split(":")[0]
    if kind != "auto" and kind not in CAPABILITIES.devices:
        raise ConfigError(f"training.device {name!r} is not supported by the torch backend; use cpu, cuda or auto")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"training.device {name!r}: torch finds no CUDA device here; use cpu or auto")
    if kind == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    count = torch.cuda.device_count()
    if name == "cuda":
        name = f"cuda:{rank % count}"
    if kind == "cuda" and name not in [f"cuda:{number}" for number in range(count)]:
        raise ConfigError(f"training.device {name!r}: torch finds {count} CUDA devices here, the last is cuda:{count - 1}; use one of them")
    return torch.device("cpu" if kind == "cpu" else name)


def load_model(
    path: str, attention: str, device: torch.device, dtype: torch.dtype = torch.float32, *, trust_remote_code: bool = False
) -> PreTrainedModel:
    """Return the model in ``dtype`` on ``device``, without dropout.

    Raises ConfigError if it cannot be read completely, or needs its own code and ``trust_remote_code`` does not allow it.
    """
    transformers_logging.disable_progress_bar()
    if "TRANSFORMERS_VERBOSITY" not in os.environ:
        transformers_logging.set_verbosity_error()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            attn_implementation=attention,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, with the tensor's name
            trust_remote_code=trust_remote_code,
        )
    except OSError as error:
        raise _unreadable(path, error) from error
    except Exception as error:  # transformers validates little of a config.json, so building from one may raise anything
        read_outline(path, attention, trust_remote_code=trust_remote_code)
        raise _unreadable(path, error) from error
    _check_attention(model, path, attention)
    absent = sorted(report["missing_keys"]) + sorted(str(key[0]) for key in report["mismatched_keys"])
    if absent:
        what = f"tensor {absent[0]!r} is absent or of another shape ({len(absent)} such)"
        raise ConfigError(f"model {path!r} does not hold what its config.json describes: {what}; copy or download the checkpoint again")
    model = settled(model.to(device))
    _check_finite(model, path)
    return model


def settled(model: PreTrainedModel) -> PreTrainedModel:
    """Return the model without dropout, with every row of its embedding trained, and with aligned weights."""
    # Evaluation mode for training too: with dropout, the policy of the loss would differ from the policy that sampled.
    model.eval()
    _train_every_row(model)
    _record_own_head(model)
    _align(model)
    return model


def read_outline(path: str, attention: str, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """Return the model that a ``config.json`` on this machine describes, on torch's device ``meta``: tensors have a shape but no memory.

    Raises ConfigError, with the file and the reason, if transformers cannot build the model. Raises it also if that needs code which
    ``trust_remote_code`` does not allow; the code does not run, and the user is not prompted.
    """
    try:
        shape = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=trust_remote_code)
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                shape, attn_implementation=attention, trust_remote_code=trust_remote_code
            )
    except OSError as error:
        raise _unreadable(path, error) from error
    except Exception as error:  # of any kind: text in place of a number, 0 heads, an unknown name
        raise _unbuildable(path, attention, error, trust_remote_code=trust_remote_code) from error
    _check_attention(model, path, attention)
    return model


def _check_attention(model: PreTrainedModel, path: str, attention: str) -> None:
    """Raise ConfigError for soft-capped scores, which sdpa does not cap. Newer releases of transformers refuse them, 5.17 does not."""
    if attention == "sdpa" and getattr(model.config.get_text_config(decoder=True), "attn_logit_softcapping", None):
        raise _without_sdpa(path)


def _unreadable(path: str, error: Exception) -> ConfigError:
    return ConfigError(f"model {path!r} cannot be loaded: {_reason(error)}")


def _unbuildable(path: str, attention: str, error: Exception, *, trust_remote_code: bool) -> ConfigError:
    if not trust_remote_code and "trust_remote_code" in str(error):
        return ConfigError(
            f"model {path!r} ships its own code (auto_map in its config.json), which rlcore does not run unasked; "
            "read the code and type --trust-remote-code, or name another model"
        )
    if attention == "sdpa" and "scaled_dot_product_attention" in str(error):
        return _without_sdpa(path)
    return ConfigError(
        f"transformers cannot build a model from {Path(path) / 'config.json'}: {_reason(error)}; correct that file, or copy or download "
        "the checkpoint again"
    )


def _without_sdpa(path: str) -> ConfigError:
    return ConfigError(
        f'model {path!r} has no sdpa attention in transformers; set attention = "eager" in [training.options], or name another model'
    )


def _reason(error: Exception) -> str:
    """Return the message of the error in one line. A KeyError's message is only a name."""
    if isinstance(error, KeyError):
        return f"unknown name {error}"
    return " ".join(str(error).split())[:_LONGEST_REASON].rstrip(".") or type(error).__name__


def _train_every_row(model: PreTrainedModel) -> None:
    """Let the row of the padding token train if it also ends a response: torch gives no gradient to the row ``padding_idx``.

    Masks already keep padding out of the loss. The row of a token that only pads stays as it is: it is zero in a new model.
    """
    configs = (model.config.get_text_config(decoder=True), model.generation_config)
    ends = {token for config in configs for token in _token_ids(getattr(config, "eos_token_id", None))}
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding) and module.padding_idx in ends:
            module.padding_idx = None


def _token_ids(given: int | list[int] | None) -> list[int]:
    return given if isinstance(given, list) else [] if given is None else [given]


def _record_own_head(model: PreTrainedModel) -> None:
    """Correct a configuration that says that the head is the embedding, if the files hold two different tensors.

    transformers then loads both, and a saved model must say so, because other programs believe its ``config.json``.
    """
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is None or head.weight is embedding.weight:
        return
    for config in (model.config, model.config.get_text_config(decoder=True)):
        if getattr(config, "tie_word_embeddings", False):
            config.tie_word_embeddings = False


def _align(model: PreTrainedModel) -> None:
    """Copy weights that a memory-mapped file left at unaligned addresses.

    Matrix products on a CPU round differently with the alignment of their inputs, and a model that is read back must compute the same bits.
    """
    for parameter in model.parameters():
        if parameter.device.type == "cpu" and parameter.data_ptr() % _ALIGNMENT:
            parameter.data = parameter.data.clone()


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
