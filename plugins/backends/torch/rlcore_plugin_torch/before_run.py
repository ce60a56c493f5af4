"""Find the errors that ``setup`` would raise for a run's model before any process starts, on the model without its weights.

The checks are those of ``setup``, so the refusal is the same sentence at either time. This module opens no network connection and does not
run code that a model ships. ``setup`` checks whatever cannot be known under these limits.
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
    """Return the error of ``setup`` for the first setting of the run that its model does not support.

    Returns "" if there is no such setting, if the model is not on this machine, or if the model would have to run its own code.
    """
    if not _known(config.model):
        return ""
    try:
        _try(read_outline(config.model.model, config.training.options["attention"]), config)
    except ConfigError as error:
        return str(error)
    return ""


def _known(model: Any) -> bool:
    """Return whether the model's files are on this machine and name its type, and the user has not allowed code that they ship."""
    try:
        fields, _ = PretrainedConfig.get_config_dict(model.model, local_files_only=True)
    except (OSError, AttributeError):  # AttributeError: the JSON is not a table; rlcore itself refuses the file in both cases
        return False
    return "model_type" in fields and not (model.trust_remote_code and "auto_map" in fields)


def _try(model: PreTrainedModel, config: Any) -> None:
    """Run the checks in the order of ``setup``."""
    training = config.training
    if training.lora_rank:
        from rlcore_plugin_torch.adapters import attach  # imported here so that only runs with adapters import PEFT

        settings = LoraSettings(rank=training.lora_rank, alpha=training.lora_alpha, targets=training.lora_targets)
        attach(model, settings, config.model.model)
    store_activations(model, training.options["activations"])
    layout = Layout(size=training.num_trainers, tensor=training.tensor_parallel_size, zero=training.zero_stage)
    if layout.tensor > 1:
        check_heads(model, layout.tensor)
        planned(model, layout.tensor)
    if layout.sharded:
        decoder_layers(model)
