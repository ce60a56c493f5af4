"""The suite catches planted bugs of a language model's trainer: each by the rule that is meant for it."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.weights import TorchSource, save_checkpoint
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
    """Rows of several completions are causal and nothing else: each sees those before it."""

    def logprobs(self, micro: MicroBatch, *, entropy: bool = False) -> Any:
        causal = None if micro.mask is None else torch.ones_like(micro.mask, dtype=torch.bool).tril()
        if causal is not None and micro.mask is not None and micro.mask.dtype != torch.bool:
            causal = torch.zeros_like(micro.mask).masked_fill(~causal, torch.finfo(micro.mask.dtype).min)
        return super().logprobs(replace(micro, mask=causal), entropy=entropy)


class LeaksBetweenDocuments(SpoiltPolicy):
    kind = Leaking


class Counting(CausalPolicy):
    """Positions go on from one completion to the next."""

    def logprobs(self, micro: MicroBatch, *, entropy: bool = False) -> Any:
        if micro.mask is not None and micro.position_ids is not None:
            count = torch.arange(micro.input_ids.shape[1]).expand_as(micro.input_ids)
            micro = replace(micro, position_ids=count)
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


class LeavesAdaptersUnmerged(TorchBackend):
    """What trains is not what is handed out and saved: these are the weights of the start."""

    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        self.base = deepcopy(self.policy.model)

    def weight_source(self) -> TorchSource:
        return TorchSource(self.base, self.dtype)

    def save_model(self, folder: Path) -> None:
        save_checkpoint(self.base, folder, self.dtype)


class ForgetsTheTiedHead(TorchBackend):
    """The head of a tied model was untied by loading: it trains apart, and is not among the weights."""

    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        model = self.policy.model
        model.get_output_embeddings().weight = torch.nn.Parameter(model.get_output_embeddings().weight.detach().clone())
        self.optimizer = type(self.optimizer)(model, context.optimizer)

    def tied(self) -> Any:
        model = deepcopy(self.policy.model)
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
        return model

    def weight_source(self) -> TorchSource:
        return TorchSource(self.tied(), self.dtype)

    def save_model(self, folder: Path) -> None:
        save_checkpoint(self.tied(), folder, self.dtype)


ZOO: dict[type[TorchBackend], tuple[str, str]] = {
    LeaksBetweenDocuments: ("test_logprobs_are_those_of_the_probe", "rollout [0-9]: log probabilities"),
    CountsOnOverDocuments: ("test_logprobs_do_not_depend_on_the_cut", "other log probabilities"),
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
