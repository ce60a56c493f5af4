from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.learning.kl import K3_TANGENT, bounded_exp
from rlcore.testing.algorithms.fake_algorithms import KL_ESTIMATORS


def kl_estimate(logprobs: torch.Tensor, reference: torch.Tensor, kind: str) -> torch.Tensor:
    return KL_ESTIMATORS[kind].estimate(logprobs, reference)


def kl_penalty(logprobs: torch.Tensor, reference: torch.Tensor, kind: str) -> torch.Tensor:
    return KL_ESTIMATORS[kind].penalty(logprobs, reference)


def scalar_kl(policy: float, reference: float, kind: str) -> float:
    d = reference - policy
    return {"k1": -d, "k2": d * d / 2, "k3": math.exp(d) - 1 - d, "absolute": abs(d)}[kind]


@settings(max_examples=60, deadline=None)
@given(st.floats(-20, 0), st.floats(-20, 0), st.sampled_from(list(KL_ESTIMATORS)))
def test_equals_the_scalar_definition(policy: float, reference: float, kind: str) -> None:
    if kind == "k3" and reference - policy > K3_TANGENT:
        return
    value = kl_estimate(torch.tensor([policy]).double(), torch.tensor([reference]).double(), kind)
    policy, reference = float(torch.tensor(policy)), float(torch.tensor(reference))
    assert float(value) == pytest.approx(scalar_kl(policy, reference, kind), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [-1e4, -60.0, -11.0, 2.7, 9.9, 10.1, 88.0, 200.0, 1e4])
def test_k3_is_finite_and_pulls_back_however_far_the_policy_drifted(gap: float, dtype: torch.dtype) -> None:
    policy = torch.zeros(1, dtype=dtype, requires_grad=True)
    value = kl_estimate(policy, torch.full((1,), gap, dtype=dtype), "k3")
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert float(value.detach()) > 0
    assert policy.grad is not None
    assert torch.isfinite(policy.grad).all()
    assert float(policy.grad) * gap < 0
    assert abs(float(policy.grad)) > 0.5


def test_k3_is_smooth_where_its_tangent_begins() -> None:
    d = torch.tensor([K3_TANGENT - 1e-9, K3_TANGENT, K3_TANGENT + 1e-9], dtype=torch.float64, requires_grad=True)
    values = bounded_exp(d, K3_TANGENT)
    (slope,) = torch.autograd.grad(values.sum(), d)
    assert slope.detach().tolist() == pytest.approx([math.exp(10)] * 3, rel=1e-8)
    assert values.detach().tolist() == pytest.approx([math.exp(10)] * 3, rel=1e-8)


def test_gradients() -> None:
    """d k1 = 1, d k2 = policy - reference, d k3 = 1 - exp(reference - policy), d absolute = sign(policy - reference)."""
    for kind, expected in {"k1": 1.0, "k2": 0.5, "k3": 1 - math.exp(-0.5), "absolute": 1.0}.items():
        policy = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
        kl_estimate(policy, torch.tensor([-1.5], dtype=torch.float64), kind).sum().backward()
        assert policy.grad is not None
        assert float(policy.grad) == pytest.approx(expected)


def exact_gradients(logits: list[float], reference: list[float]) -> tuple[list[float], list[float]]:
    """Gradients in the logits of KL(policy || reference) and of KL(reference || policy), by central differences of their sums."""

    def softmax(values: list[float]) -> list[float]:
        total = sum(map(math.exp, values))
        return [math.exp(value) / total for value in values]

    def kl(p: list[float], q: list[float]) -> float:
        return sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True))

    q = softmax(reference)
    found: tuple[list[float], list[float]] = ([], [])
    for place in range(len(logits)):
        up, down = ([x + h * (i == place) for i, x in enumerate(logits)] for h in (1e-5, -1e-5))
        found[0].append((kl(softmax(up), q) - kl(softmax(down), q)) / 2e-5)
        found[1].append((kl(q, softmax(up)) - kl(q, softmax(down))) / 2e-5)
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=2, max_size=6))
def test_in_expectation_a_penalty_has_the_gradient_of_the_divergence_it_is_for(pairs: list[tuple[float, float]]) -> None:
    """The sum over all tokens, weighted with their probabilities, is the expectation over the policy's own data."""
    logits, reference = ([pair[side] for pair in pairs] for side in (0, 1))
    of_policy, of_reference = exact_gradients(logits, reference)
    for kind, expected in {"k1": of_policy, "k2": of_policy, "k3": of_reference}.items():
        leaf = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
        logprobs = leaf.log_softmax(0)
        penalty = kl_penalty(logprobs, torch.tensor(reference, dtype=torch.float64).log_softmax(0), kind)
        (gradient,) = torch.autograd.grad((logprobs.detach().exp() * penalty).sum(), leaf)
        assert gradient.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-8), kind


@pytest.mark.parametrize("kind", list(KL_ESTIMATORS))
def test_a_penalty_has_the_value_of_its_estimate(kind: str) -> None:
    policy, reference = torch.tensor([-1.0, -0.2, -3.0]).double(), torch.tensor([-1.5, -0.1, -3.0]).double()
    assert kl_penalty(policy, reference, kind).tolist() == pytest.approx(kl_estimate(policy, reference, kind).tolist(), abs=1e-15)


def test_k1_as_a_penalty_has_the_gradient_of_k2_at_every_token() -> None:
    """Its own, 1 at every token, is nothing in expectation, and noise on any batch."""
    policy, reference = torch.tensor([-1.0, -0.2, -3.0]).double().requires_grad_(), torch.tensor([-1.5, -0.1, -3.0]).double()
    (gradient,) = torch.autograd.grad(kl_penalty(policy, reference, "k1").sum(), policy)
    assert gradient.tolist() == pytest.approx([0.5, -0.1, 0.0])
