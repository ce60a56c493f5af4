"""The suite catches planted bugs of a language model's trainer: each by the rule that is meant for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

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
from rlcore.testing.training.adapter_rules import AdapterRules
from rlcore.testing.training.optimizer_rules import OptimizerRules

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


class IgnoresSettings(TorchBackend):
    """A backend that trains with other settings than it was given."""

    optimizer_instead: ClassVar[Mapping[str, Any]] = {}
    lora_instead: ClassVar[Mapping[str, Any]] = {}

    def setup(self, context: TrainingContext) -> None:
        lora = context.lora and replace(context.lora, **self.lora_instead)
        super().setup(replace(context, optimizer=replace(context.optimizer, **self.optimizer_instead), lora=lora))


class NeverClips(IgnoresSettings):
    optimizer_instead: ClassVar = {"max_grad_norm": float("inf")}


class NeverWarmsUp(IgnoresSettings):
    optimizer_instead: ClassVar = {"warmup_steps": 0}


class NeverDecays(IgnoresSettings):
    optimizer_instead: ClassVar = {"weight_decay": 0.0}


class IgnoresBetas(IgnoresSettings):
    optimizer_instead: ClassVar = {"betas": (0.9, 0.999)}


class IgnoresSettingsWithAdapters(IgnoresSettings):
    """Its settings are kept, but for adapters."""

    def setup(self, context: TrainingContext) -> None:
        if context.lora is None:
            TorchBackend.setup(self, context)
        else:
            super().setup(context)


class NeverClipsAdapters(IgnoresSettingsWithAdapters, NeverClips):
    pass


class NeverWarmsAdaptersUp(IgnoresSettingsWithAdapters, NeverWarmsUp):
    pass


class NeverDecaysAdapters(IgnoresSettingsWithAdapters, NeverDecays):
    pass


class IgnoresBetasOfAdapters(IgnoresSettingsWithAdapters):
    optimizer_instead: ClassVar = {"betas": (0.9, 0.999)}


class HalvesTheNorm(TorchBackend):
    """Tells half the norm of a gradient, and clips by it."""

    def setup(self, context: TrainingContext) -> None:
        super().setup(replace(context, optimizer=replace(context.optimizer, max_grad_norm=2 * context.optimizer.max_grad_norm)))

    def update(self, batch: Any, objective: Any) -> dict[str, float]:
        metrics = dict(super().update(batch, objective))
        return {**metrics, "grad_norm": metrics["grad_norm"] / 2}


class HasAnotherEpsilon(TorchBackend):
    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        for group in self.optimizer._optimizers[0].param_groups:
            group["eps"] = 1e-6


class DecaysVectors(TorchBackend):
    """Some vectors decay like matrices."""

    ends: ClassVar[str]

    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        if context.lora is None:
            matrices, vectors = self.optimizer._optimizers[0].param_groups
            chosen = {id(item) for name, item in self.policy.model.named_parameters() if name.endswith(self.ends)}
            matrices["params"] += [item for item in vectors["params"] if id(item) in chosen]
            vectors["params"] = [item for item in vectors["params"] if id(item) not in chosen]


class DecaysBiases(DecaysVectors):
    """Zero at the start in this model, so that the first step shows nothing."""

    ends = "bias"


class DecaysNorms(DecaysVectors):
    ends = "norm.weight"


class TrainsEverything(TorchBackend):
    """Adapters are asked for, and all weights are trained."""

    def setup(self, context: TrainingContext) -> None:
        super().setup(replace(context, lora=None))


class TrainsBiasesToo(TorchBackend):
    """Adapters, and what PEFT calls ``bias="all"``."""

    def setup(self, context: TrainingContext) -> None:
        super().setup(context)
        for parameter in self.policy.model.parameters():
            parameter.requires_grad_(parameter.requires_grad or parameter.ndim == 1)
        self.optimizer = type(self.optimizer)(self.policy.model, context.optimizer, self.ranks)


class HalvesTheRank(IgnoresSettings):
    lora_instead: ClassVar = {"rank": 1}


class DoublesTheRank(IgnoresSettings):
    lora_instead: ClassVar = {"rank": 4}


class IgnoresAlpha(IgnoresSettings):
    lora_instead: ClassVar = {"alpha": 16.0}


class OtherScale(TorchBackend):
    """Adapters count otherwise than by alpha / rank."""

    def times(self, rank: int) -> float:
        raise NotImplementedError

    def setup(self, context: TrainingContext) -> None:
        lora = context.lora and replace(context.lora, alpha=context.lora.alpha * self.times(context.lora.rank))
        super().setup(replace(context, lora=lora))


class ForgetsTheRank(OtherScale):
    def times(self, rank: int) -> float:
        return rank / 2  # as it is due at the rank that other rules try


class DividesByTheRootOfTheRank(OtherScale):
    def times(self, rank: int) -> float:
        return (rank / 2) ** 0.5


class IgnoresTargets(IgnoresSettings):
    lora_instead: ClassVar = {"targets": ()}


ZOO: dict[type[TorchBackend], tuple[str, str]] = {
    LeaksBetweenDocuments: ("test_logprobs_are_those_of_the_probe", "rollout [0-9]: log probabilities"),
    CountsOnOverDocuments: ("test_logprobs_are_those_of_the_probe", "rollout [0-9]: log probabilities"),
    RoundsBeforeTheHead: ("test_logprobs_are_those_of_the_model", "at the start a log probability is off by"),
    LeavesAdaptersUnmerged: ("test_an_update_shows_in_the_next_source", "an update did not change the weights"),
    ForgetsTheTiedHead: ("test_logprobs_are_those_of_the_model", "after two updates a log probability is off by"),
    NeverClips: ("test_gradients_are_clipped_by_their_global_norm", "step 2 moved tensor"),
    NeverClipsAdapters: ("test_gradients_are_clipped_by_their_global_norm", "step 2 moved tensor .*lora_B"),
    NeverWarmsAdaptersUp: ("test_the_rate_follows_the_schedule", "step 1 says that its learning rate is"),
    NeverDecaysAdapters: ("test_matrices_decay_and_vectors_do_not", "took 0 of tensor .*lora_A"),
    IgnoresBetasOfAdapters: ("test_moments_follow_the_betas", "step 2 moved tensor .*lora_B"),
    HalvesTheNorm: ("test_grad_norm_is_the_length_of_the_whole_gradient", r"does \(0\.5 times"),
    HasAnotherEpsilon: ("test_grad_norm_is_the_length_of_the_whole_gradient", r"does \((99|100|1e\+02)"),
    DecaysBiases: ("test_matrices_decay_and_vectors_do_not", r"_proj.bias', of shape .*, and 0 is due"),
    NeverWarmsUp: ("test_the_rate_follows_the_schedule", "step 1 says that its learning rate is"),
    NeverDecays: ("test_matrices_decay_and_vectors_do_not", "took 0 of tensor 'model.embed_tokens.weight'"),
    DecaysNorms: ("test_matrices_decay_and_vectors_do_not", r"norm.weight', of shape \(64,\), and 0 is due"),
    IgnoresBetas: ("test_moments_follow_the_betas", "step 2 moved tensor"),
    TrainsEverything: ("test_adapters_alone_are_trained", r"\(vectors, embedding, head\): {'model.embed_tokens.weight': \(40, 64\)"),
    TrainsBiasesToo: ("test_adapters_alone_are_trained", r"q_proj.bias': \(64,\)"),
    HalvesTheRank: ("test_adapters_alone_are_trained", "by a matrix of rank 1"),
    DoublesTheRank: ("test_adapters_alone_are_trained", "by a matrix of rank 4"),
    IgnoresAlpha: ("test_adapters_have_their_targets_and_scale", "twice the alpha changed .* 1 times as far"),
    ForgetsTheRank: ("test_the_rank_divides_alpha", "rank 8 changed the weights 2.* times as far as rank 2"),
    DividesByTheRootOfTheRank: ("test_the_rank_divides_alpha", "rank 8 changed the weights (0.9|1.).* times as far as rank 2"),
    IgnoresTargets: ("test_adapters_have_their_targets_and_scale", "with targets 'q_proj' these changed"),
}
"""Bug -> the rule that is there for it, and what it says."""
ABOUT_SETTINGS = tuple(name for rules in (OptimizerRules, AdapterRules) for name in vars(rules) if name.startswith("test_"))


def said(bug: type[TorchBackend], rule: str) -> str:
    """What a rule of the suite complains of."""

    class Suite(TinyQwen2, TrainingBackendSuite):
        def make(self, context: TrainingContext) -> TrainingBackend:
            return bug(context)

    try:
        getattr(Suite(), rule)()
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("bug", ZOO, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(bug: type[TorchBackend]) -> None:
    rule, words = ZOO[bug]
    assert re.search(words, said(bug, rule))


RANK_RULE, SCALE_RULE = "test_the_rank_divides_alpha", "test_adapters_have_their_targets_and_scale"
ALSO = {
    TrainsEverything: {SCALE_RULE, RANK_RULE},
    TrainsBiasesToo: {SCALE_RULE, "test_grad_norm_is_the_length_of_the_whole_gradient"},
    HalvesTheRank: {RANK_RULE},
    DoublesTheRank: {RANK_RULE},
}
"""Rules that such a bug cannot but fail too."""
OF_SETTINGS = {bug: rule for bug, (rule, _) in ZOO.items() if rule in ABOUT_SETTINGS}
DAILY = set({rule: bug for bug, rule in OF_SETTINGS.items()}.values())
"""One bug for each rule."""
MARKED = [pytest.param(bug, marks=pytest.mark.full if bug in DAILY else pytest.mark.nightly) for bug in OF_SETTINGS]


@pytest.mark.parametrize("bug", MARKED, ids=lambda bug: bug.__name__)
def test_a_setting_that_is_ignored_fails_no_other_rule_about_settings(bug: type[TorchBackend]) -> None:
    assert {rule for rule in ABOUT_SETTINGS if said(bug, rule)} == {OF_SETTINGS[bug], *ALSO.get(bug, ())}


def test_every_rule_about_settings_has_a_bug_that_it_is_meant_for() -> None:
    assert set(ABOUT_SETTINGS) <= {rule for rule, _ in ZOO.values()}
