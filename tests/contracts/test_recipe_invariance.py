"""Every registered recipe gives the same update however its work is cut, ordered and padded; a new recipe joins by being installed.

The whole path is the real one: the recipe's defaults through ``plan_run``, groups through the consumer (rewards, estimator, ``prepare``,
split into optimizer steps, objective). Only the trainer is a tiny float64 network, cut into ranks and micro-batches as the test asks.

Tolerances. Everything after the advantages is float64 here, so a cut may change the last bits only: 1e-9. Advantages, weights and log
probabilities cross to the trainer as float32 (the records' type). The same values round to the same float32 whatever the cut; where a
test changes the ORDER of the estimator's sums, a float64 value that differs by 1e-16 may fall to the neighbouring float32, 6e-8 away: 1e-6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tiny_update import (
    FILTERED,
    LIMIT,
    WHOLE,
    Cut,
    Done,
    Policy,
    Who,
    assert_same,
    differentiate,
    differs,
    evaluate,
    make_groups,
    rewritten,
    update,
    who,
)

from rlcore.api import FinishReason, Group, LossBatch, PluginKind, Rollout, Score, Segment, TrainBatch
from rlcore.config import plan_run
from rlcore.contracts.interfaces import Loss, Objective
from rlcore.contracts.specs import AdvantageSpec, AlgorithmSpec, LossSpec
from rlcore.contracts.types import RolloutKind
from rlcore.learning import PolicyObjective
from rlcore.registry.plugin_registry import Registry
from rlcore.roles.algorithm import Algorithm
from rlcore.runtime.backends import build_algorithm

REGISTRY = Registry.discover()

# --- what the theory says ----------------------------------------------------------------------------------------------

SHIFT = {
    "group_norm": "group",
    "group_mean": "group",
    "rloo": "group",
    "opo": "group",  # the weights of its mean add up to 1
    "gpg": "group",  # alpha counts groups whose rewards differ
    "remax": "group",  # the greedy completion's reward moves too
    "reinforce_ppb": "group",
    "pass_at_k": "group",  # made of differences between two rewards of a group
    "reinforce++": "batch",  # no baseline within a group; the whitening takes one constant out (undiscounted)
    "maxrl": "none",  # divides by the mean reward, 0 being failure
}
"""By estimator: may a constant be added to all rewards of a group, only to those of the whole batch, or none at all, and change nothing?"""

HELD_FACTOR = {"cispo"}
"""Losses of the form (detached factor) x logprob: the gradient is the derivative with that factor held."""

DRAWN_BY_INDEX = {"clip_cov"}
"""Losses that draw tokens by a number keyed with the rollout's index: renumbering the rollouts makes another draw."""

MISMATCH = ("none", *REGISTRY.names(PluginKind.CORRECTION))

EVERYTHING: dict[str, Any] = {
    "kl_coeff": 0.05,
    "entropy_coeff": 0.01,
    "skip_threshold": 3.5,
    "soft_over_length_punishment": True,
    "filter_truncated_response": True,
    "old_logprobs": "trainer",
}
"""All settings of the core that can be on at once, beside a recipe's own."""

VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    **{kind: {"mismatch_correction": kind, "old_logprobs": "trainer", "skip_threshold": 3.5} for kind in MISMATCH},
}
"""``none`` is the same without a correction, so that the difference is the correction's."""


def specs(kind: PluginKind) -> list[Any]:
    return [REGISTRY.spec(kind, name) for name in REGISTRY.names(kind)]


def cases() -> dict[str, dict[str, str]]:
    """Every recipe, and every estimator and loss that no recipe names, put into GRPO."""
    recipes: list[AlgorithmSpec] = specs(PluginKind.ALGORITHM)
    found = {recipe.name: {"name": recipe.name} for recipe in recipes}
    for kind, key in ((PluginKind.ESTIMATOR, "estimator"), (PluginKind.LOSS, "loss")):
        used = {getattr(recipe, key) for recipe in recipes}
        found |= {f"grpo+{spec.name}": {"name": "grpo", key: spec.name} for spec in specs(kind) if spec.name not in used}
    return found


CASES = cases()


@cache
def algorithm(case: str, variant: str = "defaults", updates: int = 0) -> Algorithm:
    """As a run would build it; ``updates`` optimizer steps a batch (0: the recipe's own), also for what is made for one only."""
    chosen: dict[str, Any] = {**CASES[case], **VARIANTS[variant]}
    if chosen.get("kl_coeff") and accepts_kl(case):
        chosen["kl_in"] = "reward"
    kind = chosen.get("mismatch_correction", "none")
    loss: LossSpec = part(case, PluginKind.LOSS, "loss")
    if loss.sequence_ratio and kind in ("decoupled", "truncated", "masked"):  # refused for these
        chosen["mismatch_correction"] = "sequence_masked" if kind == "masked" else "sequence_truncated"
    model = REGISTRY.options_model(PluginKind.LOSS, loss_name(case))
    if variant == "everything" and model is not None and "dual_clip" in model.model_fields:
        chosen["options"] = {"dual_clip": 1.5}
    sampling = {"max_new_tokens": LIMIT, "num_generations": 4, "temperature": 0.8}
    overrides = {"algorithm": chosen, "sampling": sampling, "rewards": [{"name": "boxed"}]}
    made = build_algorithm(plan_run([], {}, REGISTRY, overrides=overrides, require=False))
    return replace(made, updates_per_batch=updates) if updates else made


def part(case: str, kind: PluginKind, key: str) -> Any:
    recipe = REGISTRY.spec(PluginKind.ALGORITHM, CASES[case]["name"])
    return REGISTRY.spec(kind, CASES[case].get(key, getattr(recipe, key)))


def accepts_kl(case: str) -> bool:
    spec: AdvantageSpec = part(case, PluginKind.ESTIMATOR, "estimator")
    return spec.accepts_kl


def loss_name(case: str) -> str:
    spec: LossSpec = part(case, PluginKind.LOSS, "loss")
    return spec.name


@cache
def reference(case: str, variant: str = "defaults", updates: int = 2) -> Done:
    return update(algorithm(case, variant, updates), make_groups())


every_case = pytest.mark.parametrize("case", CASES)
two_variants = pytest.mark.parametrize("variant", ["defaults", "everything"])
every_variant = pytest.mark.parametrize(
    "variant", [name if name in ("defaults", "everything") else pytest.param(name, marks=pytest.mark.full) for name in VARIANTS]
)


@every_case
def test_what_should_act_does(case: str) -> None:
    """Otherwise the tests below compare nothing: clips, selections, skips, punishment, penalties and two real steps are at work."""
    assert VARIANTS.keys() >= {"none", "decoupled", "masked", "sequence_masked", "sequence_truncated", "truncated"}
    done, all_on = reference(case), reference(case, "everything")
    assert [float(gradient.norm()) > 1e-3 for gradient in done.trainer.gradients] == [True, True]
    reported = {name: value for name, value in done.metrics.items() if name.startswith("loss/")}
    sides = {"loss/clip_low", "loss/clip_high"}  # which of the two acts is up to the case
    assert all(value > 0.0 for name, value in reported.items() if name not in sides), reported
    assert all_on.metrics["skipped_rollouts"] > 0.0
    assert all_on.metrics["entropy"] > 0.0
    assert all_on.metrics["kl_reference"] > 0.0
    assert differs(all_on, reference(case))
    trained = {
        rollout.prompt_id: in_loss for part in done.trainer.parts for rollout, in_loss in zip(part.rollouts, part.in_loss, strict=True)
    }
    assert not trained[FILTERED]
    for kind in VARIANTS.keys() - {"defaults", "everything", "none"}:
        corrected = reference(case, kind)
        assert differs(corrected, reference(case, "none")), f"{kind} changed nothing"
        assert abs(corrected.metrics["mismatch_weight"] - 1.0) > 1e-3
        assert kind == "decoupled" or corrected.metrics["mismatch_cut"] > 0.0, f"the range of {kind} acts on nothing"


# --- how the work is cut -----------------------------------------------------------------------------------------------


@every_variant
@every_case
def test_micro_batches(case: str, variant: str) -> None:
    for rollouts in (1, 3):
        assert_same(update(algorithm(case, variant, 2), make_groups(), Cut(rollouts=rollouts)), reference(case, variant), 1e-9)


@every_variant
@every_case
def test_ranks(case: str, variant: str) -> None:
    for ranks, rollouts in ((2, 10_000), (4, 3)):
        assert_same(update(algorithm(case, variant, 2), make_groups(), Cut(ranks=ranks, rollouts=rollouts)), reference(case, variant), 1e-9)


@every_case
def test_padding(case: str) -> None:
    assert_same(update(algorithm(case, "defaults", 2), make_groups(), Cut(padding=13)), reference(case), 1e-9)


@every_case
def test_one_step_with_the_recipes_own_settings(case: str) -> None:
    """Fresh data and, where the recipe asks for one step, no old log probabilities but the trainer's own at the first forward."""
    whole = update(algorithm(case), make_groups())
    for cut in (Cut(rollouts=1), Cut(rollouts=3, ranks=2, padding=5)):
        assert_same(update(algorithm(case), make_groups(), cut), whole, 1e-9)


# --- how the batch is ordered ------------------------------------------------------------------------------------------


def arrived(groups: Sequence[Group]) -> list[Group]:
    """Completions of every group in another order of arrival."""
    shuffled = []
    for number, group in enumerate(groups):
        order = np.random.default_rng(number).permutation(len(group.rollouts))
        rollouts, scores = tuple(group.rollouts[i] for i in order), tuple(group.scores[i] for i in order)
        shuffled.append(replace(group, rollouts=rollouts, scores=scores))
    return shuffled


def renumbered(groups: Sequence[Group]) -> list[Group]:
    """Completions of every group under other indices, so that each stands at another place of the batch."""
    moved = []
    for number, group in enumerate(groups):
        order = np.random.default_rng(100 + number).permutation(len(group.rollouts))
        rollouts = tuple(replace(rollout, index=int(place)) for rollout, place in zip(group.rollouts, order, strict=True))
        moved.append(replace(group, rollouts=rollouts))
    return moved


@two_variants
@every_case
def test_completions_of_a_group_permuted(case: str, variant: str) -> None:
    whole, made = reference(case, variant), algorithm(case, variant, 2)
    assert_same(update(made, arrived(make_groups())), whole, 1e-9)
    moved = update(made, renumbered(make_groups()))
    expected = whole.advantages()
    assert moved.advantages().keys() == expected.keys()
    for rollout, values in moved.advantages().items():
        assert values == pytest.approx(expected[rollout], rel=1e-6, abs=1e-7)
    if loss_name(case) not in DRAWN_BY_INDEX:
        assert_same(moved, whole, 1e-6)


@two_variants
@every_case
def test_groups_permuted(case: str, variant: str) -> None:
    """All of them within one step; with two, those that are dealt into the same step (the deal is by place in the batch)."""
    groups, made = list(make_groups()), algorithm(case, variant, 1)
    assert_same(update(made, groups[::-1]), reference(case, variant, 1), 1e-6)
    whole = reference(case, variant)
    order = list(range(len(groups)))
    for part in whole.trainer.parts:
        places = np.unique(part.group)
        for place, other in zip(places, np.roll(places, 1), strict=True):
            order[place] = int(other)
    assert_same(update(algorithm(case, variant, 2), [groups[place] for place in order]), whole, 1e-6)


# --- what must not matter ----------------------------------------------------------------------------------------------


def spoilt_segment(segment: Segment, times: int) -> Segment:
    arrays = {name: np.tile(getattr(segment, name), times) for name in ("token_ids", "logprobs", "versions", "policy_mask")}
    return replace(segment, **{**arrays, "token_ids": arrays["token_ids"] * 0 + 9, "logprobs": arrays["logprobs"] * np.nan})


def spoil(case: str, variant: str) -> tuple[list[Group], frozenset[Who]]:
    """Rollouts that do not train get other tokens and NaN for log probabilities; failed and aborted ones are three times as long, too, with
    NaN or a huge number for a reward. Where KL goes into the reward, a rollout that counts in the statistics alone stays as it is: its KL
    is part of the baseline, by intention."""
    parts = reference(case, variant).trainer.parts
    trains = {who(rollout) for part in parts for rollout, in_loss in zip(part.rollouts, part.in_loss, strict=True) if in_loss}
    judged = bool(algorithm(case, variant, 2).kl_in_reward)
    spoilt: set[Who] = set()

    def change(group: Group, rollout: Rollout, score: Score) -> tuple[Rollout, Score]:
        if who(rollout) in trains or rollout.kind is RolloutKind.GREEDY:
            return rollout, score
        counts = score.in_statistics and rollout.finish is not FinishReason.ABORTED
        if not (counts and judged):
            spoilt.add(who(rollout))
            rollout = replace(rollout, segments=tuple(spoilt_segment(segment, 1 if counts else 3) for segment in rollout.segments))
        return rollout, score if counts else replace(score, value=1e6 if score.in_statistics else float("nan"))

    return rewritten(make_groups(), change), frozenset(spoilt)


@every_variant
@every_case
def test_nothing_leaks_from_what_is_masked(case: str, variant: str) -> None:
    groups, spoilt = spoil(case, variant)
    assert len(spoilt) > 2
    assert_same(update(algorithm(case, variant, 2), groups, spoilt=spoilt), reference(case, variant), 1e-9)


@every_case
def test_gradient_reaches_only_places_that_predict_a_policy_token(case: str) -> None:
    """Seen at the logits: prompts, forced tokens, padding and rollouts outside the loss get exactly none."""
    made = algorithm(case, "everything", 1)
    (part,) = update(made, make_groups()).trainer.parts
    policy = Policy()
    reached = 0
    for micro in Cut(padding=4).micro_batches(part):
        logits = policy.logits(micro.input_ids).detach().requires_grad_()
        evaluate(policy, logits, micro, made.objective)[0].backward()
        assert logits.grad is not None
        expected = np.zeros(logits.shape[:2], np.bool_)
        lines = [segment for row in micro.rows for segment in micro.share.rollouts[list(micro.rows).index(row)].segments]
        for line, segment in enumerate(lines):
            start = len(segment.context_ids) - 1
            expected[line, start : start + len(segment.token_ids)] = segment.policy_mask
        found = logits.grad.abs().sum(-1).numpy() > 0.0
        assert not (found & ~expected).any()
        reached += int(found.sum())
    assert reached > 20
    assert all(
        who(rollout) in {who(r) for r, kept in zip(part.rollouts, part.in_loss, strict=True) if kept}
        for micro in WHOLE.micro_batches(part)
        for rollout in micro.share.rollouts
    )


# --- a constant on all rewards -----------------------------------------------------------------------------------------


def shifted(groups: Sequence[Group], by: Callable[[int], float]) -> list[Group]:
    return rewritten(groups, lambda group, rollout, score: (rollout, replace(score, value=score.value + by(group.prompt_index))))


@two_variants
@every_case
def test_a_constant_on_all_rewards(case: str, variant: str) -> None:
    """As much as the theory grants, and no more: the next larger shift does change the update."""
    estimator = part(case, PluginKind.ESTIMATOR, "estimator").name
    if estimator not in SHIFT:
        pytest.fail(
            f"{case} uses the estimator {estimator!r}, and SHIFT of {__name__} does not say what a constant added to all rewards does to "
            "it: add it there as 'group', 'batch' or 'none'"
        )
    made, whole = algorithm(case, variant, 2), reference(case, variant)
    batch = update(made, shifted(make_groups(), lambda _: 4.0))
    group = update(made, shifted(make_groups(), lambda number: 0.5 * number - 2.0))
    if SHIFT[estimator] == "none":
        assert differs(batch, whole)
    else:
        assert_same(batch, whole, 1e-6)
    if SHIFT[estimator] == "group":
        assert_same(group, whole, 1e-6)
    else:
        assert differs(group, whole)


def test_the_tables_name_only_what_is_registered() -> None:
    assert set(SHIFT) <= set(REGISTRY.names(PluginKind.ESTIMATOR))
    assert set(REGISTRY.names(PluginKind.LOSS)) >= HELD_FACTOR | DRAWN_BY_INDEX


# --- finite differences ------------------------------------------------------------------------------------------------


@dataclass
class Held(Loss):
    """A loss (factor x logprob) with the factor as it is at the first call."""

    loss: Loss
    factor: torch.Tensor | None = None

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        if self.factor is None:
            result = self.loss.per_token(logprobs, batch)
            self.factor = ((result[0] if isinstance(result, tuple) else result) / logprobs).detach()
        return self.factor * logprobs


@every_variant
@every_case
def test_gradient_against_finite_differences(case: str, variant: str) -> None:
    """Central differences of the step's loss along every weight's own axis, in the second step too."""
    made = algorithm(case, variant, 2)
    objective = made.objective
    assert isinstance(objective, PolicyObjective)
    for part in reference(case, variant).trainer.parts:
        held = replace(objective, loss=Held(made.loss)) if made.loss_name in HELD_FACTOR else objective
        policy = Policy()
        gradient = differentiate(policy, part, objective)[0]
        value(policy, part, held)
        axes = torch.eye(len(gradient), dtype=torch.float64)[:: 7 if variant == "defaults" else 23]
        for axis in axes:
            ends = []
            for sign in (1.0, -1.0):
                moved = Policy()
                moved.move(sign * 1e-5 * axis)
                ends.append(value(moved, part, held))
            assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(float(gradient @ axis), rel=1e-6, abs=1e-7)


def value(policy: Policy, part: TrainBatch, objective: Objective) -> float:
    (micro,) = WHOLE.micro_batches(part)
    with torch.no_grad():
        logits = policy.logits(micro.input_ids)
    return float(evaluate(policy, logits.requires_grad_(), micro, objective)[0].detach())
