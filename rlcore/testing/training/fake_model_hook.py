"""A model hook for tests. Importing it loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.contracts.model_hook import ModelHook

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["FakeModelHook"]


class FakeModelHook(ModelHook):
    """Freezes the input embedding."""

    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        """Return the given model; its embedding is not trained."""
        model.get_input_embeddings().requires_grad_(False)
        return model
