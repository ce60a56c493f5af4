"""What ``setup`` would refuse of a run's model, found before any process is started: on the model without its weights.

The checks are those of ``setup``, so a refusal is the same sentence at either time. Nothing here opens the network, or runs code that a
model brings along: what cannot be known so is left to ``setup``.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from rlcore.api import ConfigError, LoraSettings
from rlcore_plugin_torch.activation_memory import store_activations
from rlcore_plugin_torch.decoder import decoder_layers
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.tensor_plan import check_heads, planned

__all__ = ["model_problem"]


def model_problem(config: Any) -> str:
    """The sentence of ``setup`` on the first thing that the run of this configuration asks of its model in vain; "" if there is none, or if
    the model is not here."""
    model = _outline(config)
    if model is None:
        return ""
    try:
        _try(model, config)
    except ConfigError as error:
        return str(error)
    return ""


def _outline(config: Any) -> PreTrainedModel | None:
    """The model on torch's device ``meta``, where a tensor has a shape and no memory; None if its files are not on this machine, or if they
    make no model: ``setup`` says why."""
    try:
        shape = AutoConfig.from_pretrained(config.model.model, local_files_only=True)
        if config.model.trust_remote_code and hasattr(shape, "auto_map"):
            return None
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(shape, attn_implementation=config.training.options["attention"])
            return model
    except (OSError, ValueError, KeyError, RuntimeError, ImportError):
        return None


def _try(model: PreTrainedModel, config: Any) -> None:
    """In the order of ``setup``."""
    training = config.training
    if training.lora_rank:
        from rlcore_plugin_torch.adapters import attach  # PEFT is imported by runs that use it

        settings = LoraSettings(rank=training.lora_rank, alpha=training.lora_alpha, targets=training.lora_targets)
        attach(model, settings, config.model.model)
    store_activations(model, training.options["activations"])
    layout = Layout(size=training.num_trainers, tensor=training.tensor_parallel_size, zero=training.zero_stage)
    if layout.tensor > 1:
        check_heads(model, layout.tensor)
        planned(model, layout.tensor)
    if layout.sharded:
        decoder_layers(model)
