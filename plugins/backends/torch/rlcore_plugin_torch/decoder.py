"""Find the decoder of a causal language model, and its layers."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from rlcore.api import ConfigError

__all__ = ["decoder_layers", "decoder_of"]


def decoder_of(model: PreTrainedModel) -> torch.nn.Module:
    """Return the part of the model that computes hidden states. Raises ConfigError if the model does not name that part."""
    found: object = model.get_decoder()
    # transformers returns the model itself if its base_model_prefix names no attribute, as for Llama4ForCausalLM.
    if found is model:
        found = getattr(model, "model", None)
    if not isinstance(found, torch.nn.Module):
        raise ConfigError(
            f"model {model.config.name_or_path!r} ({type(model).__name__}) does not name its decoder (get_decoder()), so its hidden states "
            "cannot be projected; the torch backend does not train it, name another model"
        )
    return found


def decoder_layers(model: PreTrainedModel) -> list[torch.nn.Module]:
    """Return the layers of the decoder. Raises ConfigError if the decoder has no list of layers."""
    layers = getattr(decoder_of(model), "layers", None)
    if not isinstance(layers, torch.nn.ModuleList):
        raise ConfigError(f"{type(model).__name__} has no list of decoder layers (get_decoder().layers) to divide; type -zero 0 and -tp 1")
    return list(layers)
