"""A model hook with an option."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import ModelHook

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class FrozenLayersOptions(BaseModel):
    """Options of ``acme_frozen_layers``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: int = Field(default=1, ge=0, description="first layers that are not trained")


class FrozenLayers(ModelHook):
    """Freezes the embedding and the layers above it."""

    def __init__(self, options: FrozenLayersOptions) -> None:
        self.layers = options.layers

    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        """Return the given model."""
        for part in (model.get_input_embeddings(), *model.model.layers[: self.layers]):
            part.requires_grad_(False)
        return model
