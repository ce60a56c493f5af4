"""Model hooks for the tests of the torch backend, and what a rank with one does."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rlcore_plugin_torch.layout import Layout
from starting import started
from torch_layout_bodies import context_of, many_prompts, masters, share_of
from transformers import PreTrainedModel

from rlcore.api import ModelHook, ModelRole
from rlcore.testing.training.fake_model_hook import FakeModelHook
from rlcore.testing.training.plain_objective import PlainObjective

__all__ = ["NewNorms", "frozen"]


class NewNorms(ModelHook):
    """Freezes the embedding, and draws other weights for the norms."""

    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.data += 0.1 * torch.randn_like(weight)
        return FakeModelHook().apply(model)


def frozen(rank: int, size: int, rendezvous: str, layout: Layout, model: str, activations: str = "keep") -> dict[str, Any]:
    """Three steps with the norms of ``NewNorms`` and a frozen embedding; in the third one a place has nothing."""
    context = replace(context_of(model, layout, rank, rendezvous, "float32"), model_hook=NewNorms())
    with closing(started(context, activations=activations)) as backend:
        before = masters(backend)
        metrics = [dict(backend.update(share_of(many_prompts(n), *backend.data_parallel, n), PlainObjective())) for n in range(3)]
        reference = backend.logprobs(many_prompts(0), ModelRole.REFERENCE)
        return {
            "before": before,
            "after": masters(backend),
            "metrics": metrics,
            "reference": np.array(reference),
            "moments": sorted(backend.optimizer.moments()),
        }
