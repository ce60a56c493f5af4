"""What ``setup`` would refuse of a run's model, found before any process is started: on the model without its weights.

The checks are those of ``setup``, so a refusal is the same sentence at either time. Nothing here opens the network, or runs code that a
model brings along: what cannot be known so is left to ``setup``.
"""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig, PreTrainedModel

from rlcore.api import ConfigError, LoraSettings
from rlcore_plugin_torch.activation_memory import store_activations
from rlcore_plugin_torch.decoder import decoder_layers
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.loading import read_outline
from rlcore_plugin_torch.tensor_plan import check_heads, planned

__all__ = ["model_problem"]


def model_problem(config: Any) -> str:
    """The sentence of ``setup`` on the first thing that the run of this configuration asks of its model in vain; "" if there is none, or if
    the model is not here, or would have to run code of its own."""
    if not _known(config.model):
        return ""
    try:
        _try(read_outline(config.model.model, config.training.options["attention"]), config)
    except ConfigError as error:
        return str(error)
    return ""


def _known(model: Any) -> bool:
    """Whether the files of the model are on this machine and say what it is, and its user has not allowed code that they bring along."""
    try:
        fields, _ = PretrainedConfig.get_config_dict(model.model, local_files_only=True)
    except (OSError, AttributeError):  # the latter for JSON that is no table; rlcore itself refuses the file in both cases
        return False
    return "model_type" in fields and not (model.trust_remote_code and "auto_map" in fields)


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
