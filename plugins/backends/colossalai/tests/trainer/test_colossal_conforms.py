"""The colossalai backend keeps the rules of every training backend, on a tiny Qwen2; run in its environment (`make test-colossalai`).

The layouts are tried in groups: zero2, tp2 and pp2 in CI, the others by night.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rlcore_plugin_colossalai import rlcore_register_training_backends
from rlcore_plugin_colossalai.colossal_backend import ColossalBackend
from rlcore_plugin_colossalai.options import ColossalOptions
from transformers import AutoModelForCausalLM

from rlcore.api import TrainingBackend, TrainingContext
from rlcore.testing import TrainingBackendSuite, TrainingLayoutSuite
from rlcore.testing.training.checkpoint_rules import CheckpointRules
from rlcore.testing.training.layout_runs import LAYOUTS
from rlcore.testing.training.skipped_step_rules import SkippedStepRules
from rlcore.testing.training.trainer_suite import TrainerSuite
from rlcore.testing.training.update_rules import UpdateRules
from tests.tiny_qwen2 import VOCABULARY, tiny_llama, tiny_qwen2


class TinyQwen2(TrainerSuite):
    """What the classes of rules are pointed at."""

    spec = rlcore_register_training_backends()[0]
    vocabulary = VOCABULARY
    device = "cpu"

    def model(self) -> str:
        return str(tiny_qwen2())

    def make(self, context: TrainingContext) -> TrainingBackend:
        return ColossalBackend(context, ColossalOptions(ranks_deadline=60.0))

    @torch.inference_mode()
    def forward(self, model: str, token_ids: np.ndarray) -> np.ndarray:
        loaded = AutoModelForCausalLM.from_pretrained(model, torch_dtype=torch.float32).eval()
        return loaded(torch.from_numpy(np.array(token_ids, np.int64))[None]).logits[0].numpy()

    def models(self) -> dict[str, str]:
        return {"tied": self.model(), "untied": str(tiny_qwen2(tied=False))}


SPLIT_GATHER = ColossalOptions(sequence_parallel="split_gather", ranks_deadline=60.0)


def all_but(*names: str) -> frozenset[str]:
    known = {layout.name for layout in LAYOUTS}
    assert known.issuperset(names)
    return frozenset(known - set(names))


class TestColossalOneProcess(TinyQwen2, TrainingBackendSuite):
    left_out = all_but("single")
    rank_counts = (1,)


class TestColossalZero2(TinyQwen2, TrainingLayoutSuite):
    left_out = all_but("zero 2, data 2")


class TestColossalTensor(TinyQwen2, TrainingLayoutSuite):
    """A llama too, whose head is padded: of these few entries the second rank has padding alone."""

    left_out = all_but("tensor 2")

    def models(self) -> dict[str, str]:
        return {**super().models(), "llama": str(tiny_llama())}

    def variants(self) -> dict[str, ColossalOptions]:
        return {"split_gather": SPLIT_GATHER}


class TestColossalPipeline(TinyQwen2, TrainingLayoutSuite):
    left_out = all_but("pipeline 2")


@pytest.mark.nightly
class TestColossalData(TinyQwen2, TrainingLayoutSuite):
    left_out = all_but("data 2", "zero 1, data 2")


@pytest.mark.nightly
class TestColossalFourRanks(TinyQwen2, TrainingLayoutSuite):
    rank_counts = (2, 4)
    rank_timeout = 240.0
    left_out = all_but("tensor 2", "pipeline 2", "data 2 x tensor 2", "data 2 x pipeline 2", "tensor 2 x pipeline 2")


class InBfloat16(TinyQwen2):
    """ZeRO computes in bfloat16 and sums gradients in it, so that another order of sums is another rounding, some 0.4 % each.

    ``layout_drift``: of the way that the steps went. Each layout, and one process, is 0.22 of it off what float64 does
    (`make bench-parity`), so two of them may be 0.31 off each other: AdamW makes whole steps of gradients whose sign is but rounding.
    """

    dtype = "bfloat16"
    layout_dtype = "bfloat16"
    tolerance = 0.05
    layout_drift = 0.35


@pytest.mark.nightly
class TestColossalZero2InBfloat16(InBfloat16, TrainingLayoutSuite):
    left_out = all_but("zero 2, data 2")


@pytest.mark.nightly
class TestColossalZeroBesideOthers(InBfloat16, TrainingLayoutSuite):
    """tp2 + zero 1 and pp2 + zero 1, of four processes: with two there is one replica, and ZeRO has nothing to divide."""

    rank_counts = (2, 4)
    rank_timeout = 240.0
    left_out = all_but("tensor 2", "pipeline 2", "zero 1, data 2 x tensor 2", "zero 1, data 2 x pipeline 2")


@pytest.mark.nightly
class TestColossalSequenceBesideZero(InBfloat16, TrainingLayoutSuite):
    rank_counts = (2, 4)
    rank_timeout = 240.0
    left_out = all_but("tensor 2", "zero 1, data 2 x tensor 2")

    def variants(self) -> dict[str, ColossalOptions]:
        return {"split_gather": SPLIT_GATHER}


class TestColossalOneProcessInBfloat16(InBfloat16, UpdateRules, SkippedStepRules, CheckpointRules):
    pass
