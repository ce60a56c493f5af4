"""The torch backend keeps the rules of every training backend, on a tiny Qwen2.

RLCORE_TEST_DEVICE=cuda and RLCORE_TEST_DTYPE=bfloat16 run the same rules on a GPU and in another precision.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from exact_backend import ExactBackend
from rlcore_plugin_torch import rlcore_register_training_backends
from rlcore_plugin_torch.options import TorchOptions
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.api import LoraSettings, TrainingBackend, TrainingContext
from rlcore.testing import TrainingBackendSuite, TrainingLayoutSuite
from rlcore.testing.training.checkpoint_rules import CheckpointRules
from rlcore.testing.training.skipped_step_rules import SkippedStepRules
from rlcore.testing.training.trainer_suite import TrainerSuite
from rlcore.testing.training.update_rules import UpdateRules
from tests.tiny_qwen2 import VOCABULARY, tiny_qwen2

DEVICE = os.environ.get("RLCORE_TEST_DEVICE", "cpu")
DTYPE = os.environ.get("RLCORE_TEST_DTYPE", "float32")


class TinyQwen2(TrainerSuite):
    """What both classes of rules are pointed at."""

    spec = rlcore_register_training_backends()[0]
    vocabulary = VOCABULARY
    dtype = DTYPE
    device = DEVICE
    tolerance = {"float32": 1e-4, "bfloat16": 0.05}[DTYPE]

    def model(self) -> str:
        return str(tiny_qwen2())

    def make(self, context: TrainingContext) -> TrainingBackend:
        return ExactBackend(context, TorchOptions(ranks_deadline=60.0))

    @torch.inference_mode()
    def forward(self, model: str, token_ids: np.ndarray) -> np.ndarray:
        loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        return loaded(torch.from_numpy(np.array(token_ids, np.int64))[None]).logits[0].numpy()

    def models(self) -> dict[str, str]:
        return {"tied": self.model(), "untied": str(tiny_qwen2(tied=False))}

    def variants(self) -> dict[str, TorchOptions]:
        return {
            "padded rows": TorchOptions(packing="off", ranks_deadline=60.0),
            "small chunks": TorchOptions(logits_chunk=3, ranks_deadline=60.0),
        }


class TestTorch(TinyQwen2, TrainingBackendSuite):
    layout_marks = (pytest.mark.full,)
    left_out = frozenset({"zero 1, data 2"})  # FSDP2 does the same for 2


@pytest.mark.full
class TestTorchInBfloat16(TinyQwen2, UpdateRules, SkippedStepRules, CheckpointRules):
    """The rules whose numbers depend on the dtype; settings and adapters are checked in float32 whatever it is."""

    dtype = "bfloat16"
    tolerance = 0.05


class TestTorchLora(TinyQwen2, TrainingBackendSuite):
    """Adapters over frozen weights, which leave the trainer merged."""

    learning_rate = 1e-2
    layout_marks = (pytest.mark.nightly,)

    def context(self, **changes: Any) -> TrainingContext:
        return super().context(lora=LoraSettings(rank=4, alpha=16.0), **changes)


@pytest.mark.nightly
class TestTorchOnFourRanks(TinyQwen2, TrainingLayoutSuite):
    rank_counts = (2, 4)
    left_out = frozenset({"zero 1, data 2 x tensor 2"})  # FSDP2 does the same for 2
