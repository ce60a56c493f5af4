"""The suite catches planted bugs of a language model's trainer: each by the rule that is meant for it."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore_plugin_torch.attention import AttentionPlan, Pieces
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.packing import PackedBatch
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.weights import TorchSource
from test_torch_conforms import DTYPE, TinyQwen2

from rlcore.api import TrainingBackend, TrainingContext
from rlcore.learning import MicroBatch
from rlcore.testing import TrainingBackendSuite

pytestmark = pytest.mark.skipif(DTYPE != "float32", reason="tolerances of float32")


class SpoiltPolicy(TorchBackend):
    """A backend with another policy."""

    kind: type[CausalPolicy] = CausalPolicy

    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        self.policy.__class__ = self.kind


class Leaking(CausalPolicy):
    """A packed buffer is one document: each token sees all before it, those of other completions and prompts too."""

    def logprobs(self, micro: MicroBatch, *, entropy: bool = False) -> Any:
        if isinstance(micro, PackedBatch):
            whole = Pieces.of([(0, 0, 0, micro.input_ids.shape[1])])
            micro = replace(micro, attention=AttentionPlan(whole, self.device))
        return super().logprobs(micro, entropy=entropy)


class LeaksBetweenDocuments(SpoiltPolicy):
    kind = Leaking


class Counting(CausalPolicy):
    """Positions go on from one document of a packed buffer to the next."""

    def logprobs(self, micro: MicroBatch, *, entropy: bool = False) -> Any:
        if isinstance(micro, PackedBatch):
            micro = replace(micro, position_ids=torch.arange(micro.input_ids.shape[1])[None])
        return super().logprobs(micro, entropy=entropy)


class CountsOnOverDocuments(SpoiltPolicy):
    kind = Counting


class Rounding(CausalPolicy):
    """Hidden states are rounded to bfloat16 before the head, in the probe too."""

    def _hidden(self, inputs: Any) -> torch.Tensor:
        hidden = super()._hidden(inputs)
        return hidden + (hidden.bfloat16().to(hidden.dtype) - hidden).detach()


class RoundsBeforeTheHead(SpoiltPolicy):
    kind = Rounding


class LeavesWithAnother(TorchBackend):
    """Another model than the one that trains is handed out and saved."""

    def leaving(self) -> Any:
        raise NotImplementedError

    def weight_source(self) -> TorchSource:
        held, self.policy.model = self.policy.model, self.leaving()
        source = super().weight_source()
        self.policy.model = held
        return source

    def save_model(self, folder: Path) -> None:
        held, self.policy.model = self.policy.model, self.leaving()
        super().save_model(folder)
        self.policy.model = held


class LeavesAdaptersUnmerged(LeavesWithAnother):
    """What leaves is the base, without what was trained on top."""

    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        self.base = deepcopy(self.policy.model)

    def leaving(self) -> Any:
        return self.base


class ForgetsTheTiedHead(LeavesWithAnother):
    """The head of a tied model was untied by loading: it trains apart, and is not among the weights."""

    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        head = self.policy.model.get_output_embeddings()
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        self.optimizer = type(self.optimizer)(self.policy.model, context.optimizer, self.ranks)

    def leaving(self) -> Any:
        model = deepcopy(self.policy.model)
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
        return model


ZOO: dict[type[TorchBackend], tuple[str, str]] = {
    LeaksBetweenDocuments: ("test_logprobs_are_those_of_the_probe", "rollout [0-9]: log probabilities"),
    CountsOnOverDocuments: ("test_logprobs_are_those_of_the_probe", "rollout [0-9]: log probabilities"),
    RoundsBeforeTheHead: ("test_logprobs_are_those_of_the_model", "at the start a log probability is off by"),
    LeavesAdaptersUnmerged: ("test_an_update_shows_in_the_next_source", "an update did not change the weights"),
    ForgetsTheTiedHead: ("test_logprobs_are_those_of_the_model", "after two updates a log probability is off by"),
}
"""Bug -> a rule that is there for it, and what it says."""


@pytest.mark.parametrize("bug", ZOO, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(bug: type[TorchBackend]) -> None:
    class Suite(TinyQwen2, TrainingBackendSuite):
        def make(self, context: TrainingContext) -> TrainingBackend:
            return bug(context)

    rule, words = ZOO[bug]
    with pytest.raises(AssertionError) as caught:
        getattr(Suite(), rule)()
    assert re.search(words, str(caught.value))
