"""Weights for data of another policy, against scalar loops written from the definitions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.api import Correction, LossBatch, Normalisers, RunError
from rlcore.learning import ClippedSurrogate, PolicyObjective
from rlcore.learning.correction import Decoupled, Masked, SequenceMasked, SequenceTruncated, Truncated
from rlcore.learning.kl import K2

CLASSES: dict[str, type[Decoupled | Truncated | Masked | SequenceTruncated | SequenceMasked]] = {
    "decoupled": Decoupled,
    "truncated": Truncated,
    "masked": Masked,
    "sequence_truncated": SequenceTruncated,
    "sequence_masked": SequenceMasked,
}
KINDS = list(CLASSES)


def correction(kind: str, *, low: float = 0.0, high: float = math.inf) -> Correction:
    return CLASSES[kind]((low, high))


def tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def make(gaps: list[list[float]], **changes: Any) -> LossBatch:
    """One rollout a row; ``gaps`` is old - sampler."""
    flat = [gap for row in gaps for gap in row]
    sampler = tensor([-1.0 - 0.1 * place for place in range(len(flat))])
    base = LossBatch(
        row=torch.tensor([number for number, row in enumerate(gaps) for _ in row], dtype=torch.int64),
        lengths=torch.tensor([len(row) for row in gaps], dtype=torch.int64),
        advantages=tensor([1.0 if place % 3 else -0.7 for place in range(len(flat))]),
        old_logprobs=sampler + tensor(flat),
        rollout_logprobs=sampler,
        weights=tensor([1.0 / len(flat)] * len(flat)),
        normalisers=Normalisers(tokens=len(flat), rollouts=len(gaps), length=8),
    )
    return replace(base, **changes)


def test_ranges_that_are_not_typed_are_those_of_the_papers() -> None:
    """C = 2 of truncated importance sampling, 0.5 to 5 of IcePop, 2 for sequences; decoupled PPO has none."""
    usual = {kind: CLASSES[kind].usual_range for kind in KINDS}
    sequences = {"sequence_truncated": (0.0, 2.0), "sequence_masked": (0.0, 2.0)}
    assert usual == {"decoupled": (), "truncated": (0.0, 2.0), "masked": (0.5, 5.0), **sequences}
    assert CLASSES["decoupled"]().bounds == (0.0, math.inf)


def scalar_weight(kind: str, gaps: list[float], place: int, low: float, high: float) -> float:
    """The weight of one token of a rollout, from the definitions in the papers."""
    match kind:
        case "decoupled":
            return math.exp(gaps[place])
        case "truncated":
            return min(max(math.exp(gaps[place]), low), high)
        case "masked":
            weight = math.exp(gaps[place])
            return weight if low <= weight <= high else 0.0
        case "sequence_truncated":
            return min(max(math.prod(map(math.exp, gaps)), low), high)
        case _:
            weight = math.prod(map(math.exp, gaps))
            return weight if low <= weight <= high else 0.0


GAPS = st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=5), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(GAPS, st.sampled_from(KINDS), st.floats(0, 0.9), st.floats(1.1, 6))
def test_weights_equal_the_scalar_definition(gaps: list[list[float]], kind: str, low: float, high: float) -> None:
    bounds = {} if kind == "decoupled" else {"low": low, "high": high}
    weights, cut = correction(kind, **bounds).weights(make(gaps))
    expected = [scalar_weight(kind, row, place, low, high) for row in gaps for place in range(len(row))]
    free = [scalar_weight("decoupled", row, place, 0, 0) for row in gaps for place in range(len(row))]
    if "sequence" in kind:
        free = [math.prod(map(math.exp, row)) for row in gaps for _ in row]
    near = [kind != "decoupled" and min(abs(w - low), abs(w - high)) < 1e-9 for w in free]
    for got, want, acted, w, edge in zip(weights.tolist(), expected, cut.tolist(), free, near, strict=True):
        if edge:  # rounding decides which side of the bound it is on
            continue
        assert got == pytest.approx(want, rel=1e-9)
        assert acted == (kind != "decoupled" and not low <= w <= high)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_gap_every_weight_is_one(kind: str) -> None:
    weights, cut = correction(kind, low=0.5, high=2.0).weights(make([[0.0, 0.0], [0.0]]))
    assert weights.tolist() == [1.0, 1.0, 1.0]
    assert not cut.any()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "decoupled"])
@pytest.mark.parametrize(("low", "high"), [(1.0, 2.0), (0.5, 1.0)])
def test_the_range_is_inclusive(kind: str, low: float, high: float) -> None:
    weights, cut = correction(kind, low=low, high=high).weights(make([[0.0, 0.0]]))
    assert weights.tolist() == [1.0, 1.0]
    assert not cut.any()


@pytest.mark.parametrize(("gap", "expected"), [(19.5, math.exp(19.5)), (20.5, 1.5 * math.exp(20)), (25.0, 6 * math.exp(20))])
def test_an_unbounded_weight_goes_on_along_its_tangent_beyond_20_nats(gap: float, expected: float) -> None:
    weights, _ = correction("decoupled").weights(make([[gap]]))
    assert weights.tolist() == pytest.approx([expected], rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gap", [-1e4, -90.0, 21.0, 90.0, 1e4])
def test_weights_are_finite_however_far_two_engines_differ(kind: str, gap: float) -> None:
    batch = make([[gap, gap], [0.1]])
    weights, _ = correction(kind, low=0.0, high=math.inf if kind == "decoupled" else 2.0).weights(batch)
    assert torch.isfinite(weights).all()
    logprobs = (batch.old_logprobs + 0.05).requires_grad_()
    PolicyObjective(loss=ClippedSurrogate(), correction=correction(kind, high=2.0))(logprobs, batch)[0].backward()
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_objective_weighs_the_loss_and_not_the_penalties(kind: str) -> None:
    gaps, moved = [[0.4, -0.3, 1.2], [0.9], [-1.5, 0.2]], [0.1, -0.5, 0.4, 0.3, 0.05, -0.1]
    batch = make(gaps)
    reference, entropy = batch.old_logprobs - 0.2, tensor([0.5] * 6)
    batch = replace(batch, reference_logprobs=reference, entropy=entropy)
    logprobs = (batch.old_logprobs + tensor(moved)).requires_grad_()
    low, high = (0.0, math.inf) if kind == "decoupled" else (0.5, 2.0)
    objective = PolicyObjective(
        loss=ClippedSurrogate(), kl_coeff=0.3, kl_kind=K2(), entropy_coeff=0.1, correction=correction(kind, low=low, high=high)
    )
    total, metrics = objective(logprobs, batch)
    weights = [scalar_weight(kind, row, place, low, high) for row in gaps for place in range(len(row))]
    expected = 0.0
    for t, (weight, step) in enumerate(zip(weights, moved, strict=True)):
        advantage, ratio = float(batch.advantages[t]), math.exp(step)
        surrogate = -min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
        drift = step + 0.2
        expected += (weight * surrogate + 0.3 * drift**2 / 2 - 0.1 * 0.5) / 6
    assert float(total.detach()) == pytest.approx(expected, rel=1e-12)
    assert float(metrics["mismatch_weight"]) == pytest.approx(sum(weights) / 6, rel=1e-12)
    assert 0 <= float(metrics["mismatch_cut"]) <= 1


def test_a_weight_carries_no_gradient() -> None:
    """With one optimizer step the old log probabilities are the policy's own: the weight must not be differentiated through them."""
    batch = make([[0.4, -0.3]])
    logprobs = batch.old_logprobs.clone().requires_grad_()
    own = replace(batch, old_logprobs=logprobs)
    objective = PolicyObjective(loss=ClippedSurrogate(), correction=correction("decoupled"))
    (gradient,) = torch.autograd.grad(objective(logprobs, replace(own, old_logprobs=logprobs.detach()))[0], logprobs)
    expected = [-math.exp(gap) * advantage / 2 for gap, advantage in zip([0.4, -0.3], batch.advantages.tolist(), strict=True)]
    assert gradient.tolist() == pytest.approx(expected, rel=1e-12)
    weights, _ = correction("decoupled").weights(own)
    assert not weights.requires_grad


def test_a_sampler_that_is_not_finite_is_an_error_of_its_own_and_only_where_it_is_compared_with() -> None:
    batch = make([[0.4, -0.3]])
    broken = replace(batch, rollout_logprobs=tensor([math.nan, -1.0]))
    with pytest.raises(RunError, match="the sampler's log probabilities are not finite"):
        PolicyObjective(loss=ClippedSurrogate(), correction=correction("masked"))(batch.old_logprobs, broken)
    total, _ = PolicyObjective(loss=ClippedSurrogate())(batch.old_logprobs, broken)
    assert math.isfinite(float(total))
