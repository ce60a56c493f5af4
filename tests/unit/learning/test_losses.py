from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rlcore.api import LossBatch
from rlcore.learning import ClippedOptions, ClippedSurrogate, policy_ratio


def loss_batch(advantages: list[float], old: list[float]) -> LossBatch:
    n = len(old)
    values = torch.tensor(old, dtype=torch.float64)
    return LossBatch(
        row=torch.zeros(n, dtype=torch.int64),
        lengths=torch.tensor([n]),
        advantages=torch.tensor(advantages, dtype=torch.float64),
        old_logprobs=values,
        rollout_logprobs=values,
        weights=torch.full((n,), 1 / n, dtype=torch.float64),
    )


def scalar_loss(logprob: float, old: float, advantage: float, low: float, high: float) -> float:
    ratio = math.exp(logprob - old)
    return -min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)


@settings(max_examples=80, deadline=None)
@given(st.floats(-10, 0), st.floats(-10, 0), st.floats(-3, 3), st.floats(0.01, 0.9), st.floats(0.01, 3))
def test_equals_the_scalar_definition(logprob: float, old: float, advantage: float, low: float, high: float) -> None:
    loss = ClippedSurrogate(ClippedOptions(clip_eps_low=low, clip_eps_high=high))
    values, _ = loss.per_token(torch.tensor([logprob], dtype=torch.float64), loss_batch([advantage], [old]))
    assert float(values) == pytest.approx(scalar_loss(logprob, old, advantage, low, high), rel=1e-9, abs=1e-12)


@settings(max_examples=80, deadline=None)
@given(st.floats(-10, 0), st.floats(-10, 0), st.floats(-3, 3), st.floats(1.01, 8))
def test_dual_clip_equals_the_scalar_definition(logprob: float, old: float, advantage: float, dual: float) -> None:
    """Dual-clip PPO of arXiv 1912.09729: where A < 0 the objective is at least c A."""
    loss = ClippedSurrogate(ClippedOptions(dual_clip=dual))
    values, _ = loss.per_token(torch.tensor([logprob], dtype=torch.float64), loss_batch([advantage], [old]))
    objective = -scalar_loss(logprob, old, advantage, 0.2, 0.2)
    expected = -max(objective, dual * advantage) if advantage < 0 else -objective
    assert float(values) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope", "clipped"),
    [(2.9, -1.0, 2.9, 0), (3.1, -1.0, 0.0, 1), (3.1, 0.0, 0.0, 0), (3.1, 1.0, 0.0, 1), (0.7, -1.0, 0.0, 1), (1.1, 1.0, -1.1, 0)],
)
def test_dual_clip_stops_the_gradient_of_a_bad_token_that_became_much_likelier(
    ratio: float, advantage: float, slope: float, clipped: int
) -> None:
    logprobs = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    values, metrics = ClippedSurrogate(ClippedOptions(dual_clip=3.0)).per_token(logprobs, loss_batch([advantage], [0.0]))
    values.sum().backward()
    assert logprobs.grad is not None
    assert float(logprobs.grad) == pytest.approx(slope)
    assert int(metrics["clip_fraction"]) == clipped


def test_a_ratio_at_the_dual_bound_keeps_its_gradient() -> None:
    logprobs = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    bound = float(logprobs.detach().exp())
    values, metrics = ClippedSurrogate(ClippedOptions(dual_clip=bound)).per_token(logprobs, loss_batch([-1.0], [0.0]))
    (gradient,) = torch.autograd.grad(values.sum(), logprobs)
    assert (float(values.detach()), float(gradient), int(metrics["clip_fraction"])) == (bound, bound, 0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope", "clipped"),
    [(1.0, 2.0, -2.0, 0), (1.3, 2.0, 0.0, 1), (0.7, 2.0, -1.4, 0), (1.3, -2.0, 2.6, 0), (0.7, -2.0, 0.0, 1), (1.19, 2.0, -2.38, 0)],
)
def test_gradient_stops_only_where_the_step_would_go_further_out(ratio: float, advantage: float, slope: float, clipped: int) -> None:
    """d loss / d logprob = -ratio x advantage inside, 0 where clipped."""
    logprobs = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    values, metrics = ClippedSurrogate().per_token(logprobs, loss_batch([advantage], [0.0]))
    values.sum().backward()
    assert logprobs.grad is not None
    assert float(logprobs.grad) == pytest.approx(slope)
    assert int(metrics["clip_fraction"]) == clipped
    assert (int(metrics["clip_low"]), int(metrics["clip_high"])) == (clipped * (ratio < 1), clipped * (ratio > 1))


@pytest.mark.parametrize("gap", [-1e4, -100.0, 19.0, 25.0, 100.0, 1e4])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_extreme_ratios_are_finite_and_a_bad_token_is_still_pushed_down(gap: float, advantage: float) -> None:
    logprobs = torch.tensor([gap], dtype=torch.float32, requires_grad=True)
    batch = loss_batch([advantage], [0.0])
    values, _ = ClippedSurrogate().per_token(logprobs, batch)
    values.sum().backward()
    assert torch.isfinite(values).all()
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()
    if advantage < 0 < gap:
        assert float(logprobs.grad) > 1e7


@pytest.mark.parametrize(
    ("nats", "expected"), [(19.5, math.exp(19.5)), (20.0, math.exp(20)), (20.5, 1.5 * math.exp(20)), (25.0, 6 * math.exp(20))]
)
def test_the_ratio_goes_on_along_its_tangent_beyond_20_nats(nats: float, expected: float) -> None:
    old = torch.zeros(1, dtype=torch.float64)
    assert float(policy_ratio(old + nats, old)) == pytest.approx(expected, rel=1e-12)


def test_ratio_is_exactly_one_on_policy() -> None:
    values = torch.tensor([-3.7, -0.1])
    assert policy_ratio(values, values).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "bad",
    [
        {"clip_eps_low": 0.0},
        {"clip_eps_low": 1.5},
        {"clip_eps_high": -0.1},
        {"clip_eps_high": math.inf},
        {"dual_clip": 1.0},
        {"dual_clip": math.inf},
        {"clip": 0.2},
    ],
)
def test_options_refuse(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        ClippedOptions(**bad)
