from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlcore.api import Loss, LossBatch, Need, Normalisers, RunError
from rlcore.learning import ClippedSurrogate, PolicyObjective
from rlcore.learning.objective import WEIGHT, WEIGHT_SQUARED
from rlcore.testing.algorithms.fake_algorithms import KL_ESTIMATORS

LENGTHS = [3, 1, 2]
ROW = [0, 0, 0, 1, 2, 2]
ADVANTAGES = [1.0, 1.0, 1.0, -0.5, 2.0, 2.0]
OLD = [-1.0, -2.0, -0.5, -3.0, -0.1, -1.5]
MOVED = [0.1, -0.5, 0.4, 0.3, 0.05, -0.1]
REFERENCE = [-1.2, -1.0, -0.9, -2.0, -0.4, -1.5]
ENTROPY = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]


def tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def batch(**changes: Any) -> LossBatch:
    """Sample-level weights of three rollouts."""
    base = LossBatch(
        row=torch.tensor(ROW),
        lengths=torch.tensor(LENGTHS),
        advantages=tensor(ADVANTAGES),
        old_logprobs=tensor(OLD),
        rollout_logprobs=tensor(OLD) + 0.01,
        weights=tensor([1 / (3 * LENGTHS[row]) for row in ROW]),
        reference_logprobs=tensor(REFERENCE),
        entropy=tensor(ENTROPY),
        normalisers=Normalisers(tokens=6, rollouts=3, length=8),
    )
    return replace(base, **changes)


def policy() -> torch.Tensor:
    return (tensor(OLD) + tensor(MOVED)).requires_grad_()


def scalar_total(moved: list[float], kl_coeff: float, kl_kind: str, entropy_coeff: float, skip: float | None) -> float:
    """The whole objective a second time, one token at a time."""
    total = 0.0
    skipped = {ROW[t] for t in range(6) if skip is not None and math.exp(moved[t]) > skip}
    for t in range(6):
        if ROW[t] in skipped:
            continue
        ratio, d = math.exp(moved[t]), REFERENCE[t] - OLD[t] - moved[t]
        surrogate = -min(ratio * ADVANTAGES[t], min(max(ratio, 0.8), 1.2) * ADVANTAGES[t])
        kl = {"k1": -d, "k2": d * d / 2, "k3": math.exp(d) - 1 - d, "absolute": abs(d)}[kl_kind]
        total += (surrogate + kl_coeff * kl - entropy_coeff * ENTROPY[t]) / (3 * LENGTHS[ROW[t]])
    return total


@pytest.mark.parametrize("kl_kind", ["k1", "k2", "k3", "absolute"])
@pytest.mark.parametrize(("kl_coeff", "entropy_coeff", "skip"), [(0.0, 0.0, None), (0.3, 0.0, None), (0.3, 0.02, 1.4), (0.0, 0.1, 1.2)])
def test_equals_the_scalar_definition(kl_kind: Any, kl_coeff: float, entropy_coeff: float, skip: float | None) -> None:
    objective = PolicyObjective(
        loss=ClippedSurrogate(), kl_coeff=kl_coeff, kl_kind=KL_ESTIMATORS[kl_kind], entropy_coeff=entropy_coeff, skip_threshold=skip
    )
    total, metrics = objective(policy(), batch())
    expected = scalar_total(MOVED, kl_coeff, kl_kind, entropy_coeff, skip)
    assert float(total.detach()) == pytest.approx(expected, rel=1e-12)
    assert float(metrics["loss"]) == pytest.approx(expected, rel=1e-12)
    assert float(metrics["policy_loss"]) == pytest.approx(scalar_total(MOVED, 0.0, kl_kind, 0.0, skip), rel=1e-12)


@pytest.mark.parametrize("skip", [None, 1.4])
def test_gradient_equals_finite_differences(skip: float | None) -> None:
    objective = PolicyObjective(loss=ClippedSurrogate(), kl_coeff=0.3, skip_threshold=skip)
    logprobs = policy()
    objective(logprobs, batch())[0].backward()
    assert logprobs.grad is not None
    for t in range(6):
        sides = []
        for step in (1e-6, -1e-6):
            moved = [value + step * (t == i) for i, value in enumerate(MOVED)]
            sides.append(scalar_total(moved, 0.3, "k3", 0.0, skip))
        assert float(logprobs.grad[t]) == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-6, abs=1e-9)


def test_entropy_bonus_pushes_the_entropy_up() -> None:
    entropy = tensor(ENTROPY).requires_grad_()
    PolicyObjective(loss=ClippedSurrogate(), entropy_coeff=0.5)(policy(), batch(entropy=entropy))[0].backward()
    assert entropy.grad is not None
    assert entropy.grad.tolist() == pytest.approx([-0.5 / (3 * LENGTHS[row]) for row in ROW])


def test_metrics_are_means_over_the_tokens_of_the_step() -> None:
    _, metrics = PolicyObjective(loss=ClippedSurrogate(), kl_coeff=0.1)(policy(), batch())
    values = {name: float(value) for name, value in metrics.items()}
    assert values["ratio_mean"] == pytest.approx(sum(math.exp(m) for m in MOVED) / 6)
    assert values["kl_old"] == pytest.approx(sum(math.exp(m) - 1 - m for m in MOVED) / 6)
    assert values["sampler_gap"] == pytest.approx(sum(abs(m - 0.01) for m in MOVED) / 6)
    assert values["ratio_outside"] == pytest.approx(sum(not 0.9 <= math.exp(m) <= 1.1 for m in MOVED) / 6)
    assert 0 < values["ratio_outside"] < 1, "the case has tokens of both kinds"
    assert values[WEIGHT] == pytest.approx(sum(math.exp(m - 0.01) for m in MOVED) / 6)
    assert values[WEIGHT_SQUARED] == pytest.approx(sum(math.exp(m - 0.01) ** 2 for m in MOVED) / 6)
    assert values["entropy"] == pytest.approx(sum(ENTROPY) / 6)
    drift = [r - o - m for r, o, m in zip(REFERENCE, OLD, MOVED, strict=True)]
    assert values["kl_reference"] == pytest.approx(sum(math.exp(d) - 1 - d for d in drift) / 6)
    assert values["loss/clip_fraction"] == pytest.approx(1 / 6)
    assert values["skipped_rollouts"] == 0


def test_a_skipped_rollout_has_no_gradient_is_counted_and_stays_in_the_denominators() -> None:
    logprobs = policy()
    total, metrics = PolicyObjective(loss=ClippedSurrogate(), kl_coeff=0.3, entropy_coeff=0.1, skip_threshold=1.4)(logprobs, batch())
    total.backward()
    assert logprobs.grad is not None
    assert logprobs.grad[:3].tolist() == [0.0, 0.0, 0.0]
    assert logprobs.grad[3:].abs().min() > 0
    assert int(metrics["skipped_rollouts"]) == 1


class Exponential(Loss):
    """A loss without any protection of its own."""

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        return -(logprobs - batch.old_logprobs).exp() * batch.advantages


def test_skipping_protects_a_loss_that_overflows() -> None:
    logprobs = (tensor(OLD) + tensor([0.0, 2000.0, 0.0, 0.0, 0.0, 0.0])).requires_grad_()
    with pytest.raises(RunError, match=r"loss 'mine' returned -inf .*log probability 1998"):
        PolicyObjective(loss=Exponential(), name="mine")(logprobs, batch())
    total, metrics = PolicyObjective(loss=Exponential(), name="mine", skip_threshold=20.0)(logprobs, batch())
    total.backward()
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()
    assert logprobs.grad[:3].tolist() == [0.0, 0.0, 0.0]
    assert all(math.isfinite(float(value)) for value in metrics.values())


class Answers(Loss):
    def __init__(self, answer: Callable[[torch.Tensor], Any]) -> None:
        self.answer = answer

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> Any:
        return self.answer(logprobs)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda lp: lp.sum(), r"loss 'mine' returned its loss as shape \[\]; it must be one value per token, a tensor of shape \[6\]"),
        (lambda lp: lp[:2], r"shape \[2\]"),
        (lambda lp: 1.0, "a float"),
        (lambda lp: (lp, {"spread": lp.mean()}), r"returned spread as shape \[\]"),
        (lambda lp: lp * float("nan"), "returned nan"),
    ],
)
def test_a_bad_loss_is_named(answer: Callable[[torch.Tensor], Any], words: str) -> None:
    with pytest.raises(RunError, match=words):
        PolicyObjective(loss=Answers(answer), name="mine")(policy(), batch())


def test_metrics_of_a_loss_carry_its_prefix() -> None:
    _, metrics = PolicyObjective(loss=Answers(lambda lp: (lp, {"two": lp * 0 + 2})))(policy(), batch())
    assert float(metrics["loss/two"]) == pytest.approx(2.0)


class WantsOldAndReference(ClippedSurrogate):
    needs = frozenset({Need.OLD, Need.REFERENCE})


def test_needs_are_the_losses_and_the_penalties() -> None:
    assert PolicyObjective(loss=ClippedSurrogate()).needs == frozenset()
    assert PolicyObjective(loss=WantsOldAndReference(), kl_coeff=0.1, entropy_coeff=0.1).needs == set(Need)


@pytest.mark.parametrize(
    ("objective", "missing"),
    [
        (PolicyObjective(loss=ClippedSurrogate(), kl_coeff=0.1), "reference"),
        (PolicyObjective(loss=ClippedSurrogate(), entropy_coeff=0.1), "entropy"),
        (PolicyObjective(loss=WantsOldAndReference()), "reference"),
    ],
)
def test_what_is_needed_and_missing_is_named(objective: PolicyObjective, missing: str) -> None:
    with pytest.raises(RunError, match=f"needs {missing} values"):
        objective(policy(), batch(reference_logprobs=None, entropy=None))


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize(
    ("objective", "bad"),
    [
        (PolicyObjective(loss=ClippedSurrogate(), name="mine", kl_coeff=0.1), "reference"),
        (PolicyObjective(loss=ClippedSurrogate(), name="mine", entropy_coeff=0.1), "entropy"),
        (PolicyObjective(loss=WantsOldAndReference(), name="mine"), "old"),
    ],
)
def test_what_is_needed_and_not_finite_is_named(objective: PolicyObjective, bad: str, value: float) -> None:
    field = "entropy" if bad == "entropy" else f"{bad}_logprobs"
    odd = batch(**{field: tensor([-1.0, value, -1.0, -1.0, -1.0, -1.0])})
    with pytest.raises(RunError, match=f"loss 'mine' needs {bad} values, but those of the batch are not finite"):
        objective(policy(), odd)


def test_a_diverged_model_is_not_blamed_on_the_loss() -> None:
    with pytest.raises(RunError, match="diverged"):
        PolicyObjective(loss=ClippedSurrogate())(policy() * float("nan"), batch())


@pytest.mark.parametrize("threshold", [0.0, -1.0, 0.5, 1.0, float("nan")])
def test_a_threshold_that_would_skip_fresh_data_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="skip_threshold"):
        PolicyObjective(loss=ClippedSurrogate(), skip_threshold=threshold)


def test_a_ratio_at_the_threshold_is_not_beyond_it() -> None:
    old = torch.zeros(6, dtype=torch.float64)
    moved = torch.full_like(old, math.log(2.0))
    for threshold, skipped in ((2.0, 0), (1.99, 3), (1.001, 3)):
        objective = PolicyObjective(loss=ClippedSurrogate(), skip_threshold=threshold)
        assert int(objective(moved.clone().requires_grad_(), batch(old_logprobs=old))[1]["skipped_rollouts"]) == skipped


class WantsReference(ClippedSurrogate):
    needs = frozenset({Need.REFERENCE, Need.ENTROPY})


def test_what_both_loss_and_penalty_need_is_needed() -> None:
    assert PolicyObjective(loss=WantsReference(), kl_coeff=0.1, entropy_coeff=0.1).needs == {Need.REFERENCE, Need.ENTROPY}


def test_what_is_only_watched_never_reaches_the_loss() -> None:
    """Coefficients of 0 are no penalty, whatever the watched values are."""
    watched = batch(reference_logprobs=tensor([-math.inf] * 6), entropy=tensor([math.inf] * 6))
    total, _ = PolicyObjective(loss=ClippedSurrogate())(policy(), watched)
    assert float(total.detach()) == pytest.approx(scalar_total(MOVED, 0.0, "k3", 0.0, None), rel=1e-12)


def test_one_token_that_is_not_finite_is_a_diverged_model() -> None:
    logprobs = tensor([math.nan, *OLD[1:]]).requires_grad_()
    with pytest.raises(RunError, match="diverged"):
        PolicyObjective(loss=ClippedSurrogate())(logprobs, batch())


def test_the_first_token_that_is_not_finite_is_named() -> None:
    bad = Answers(lambda lp: lp * tensor([1.0, 1.0, math.inf, 1.0, math.nan, 1.0]))
    words = r"returned -inf for a token with log probability -0\.1, old -0\.5 and advantage 1;"
    with pytest.raises(RunError, match=words):
        PolicyObjective(loss=bad)(policy(), batch())


def test_metrics_carry_no_gradient_and_the_mean_ratio_is_bounded() -> None:
    logprobs = (tensor(OLD) + 25.0).requires_grad_()
    given = batch(entropy=tensor(ENTROPY).requires_grad_())
    _, metrics = PolicyObjective(loss=ClippedSurrogate(), entropy_coeff=0.1)(logprobs, given)
    assert not any(value.requires_grad for value in metrics.values())
    assert float(metrics["ratio_mean"]) == pytest.approx(math.exp(20))


@pytest.mark.parametrize(("tokens", "expected"), [(1, 0.5), (0, 0.0)])
def test_metrics_of_one_token_and_of_none(tokens: int, expected: float) -> None:
    empty = torch.zeros(tokens, dtype=torch.float64)
    given = LossBatch(
        row=torch.zeros(tokens, dtype=torch.int64),
        lengths=torch.tensor([tokens]),
        advantages=empty,
        old_logprobs=empty,
        rollout_logprobs=empty - 0.5,
        weights=empty,
        normalisers=Normalisers(tokens=tokens, rollouts=tokens, length=8),
    )
    _, metrics = PolicyObjective(loss=ClippedSurrogate())(empty.clone().requires_grad_(), given)
    assert float(metrics["sampler_gap"]) == expected


def test_metrics_of_a_share_are_divided_by_the_tokens_of_the_whole_step() -> None:
    whole = PolicyObjective(loss=ClippedSurrogate())(policy(), batch())[1]
    share = PolicyObjective(loss=ClippedSurrogate())(policy(), batch(normalisers=Normalisers(tokens=24, rollouts=12, length=8)))[1]
    alone = PolicyObjective(loss=ClippedSurrogate())(policy(), batch(normalisers=None))[1]
    assert float(share["ratio_mean"]) == pytest.approx(float(whole["ratio_mean"]) / 4)
    assert float(alone["ratio_mean"]) == float(whole["ratio_mean"])
