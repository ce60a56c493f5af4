from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.learning import Kl, bounded_exp, kl_estimate
from rlcore.learning.kl import K3_TANGENT


def scalar_kl(policy: float, reference: float, kind: str) -> float:
    d = reference - policy
    return {"k1": -d, "k2": d * d / 2, "k3": math.exp(d) - 1 - d}[kind]


@settings(max_examples=60, deadline=None)
@given(st.floats(-20, 0), st.floats(-20, 0), st.sampled_from(["k1", "k2", "k3"]))
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
    value = kl_estimate(policy, torch.full((1,), gap, dtype=dtype), Kl.K3)
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
    """d k1 = 1, d k2 = policy - reference, d k3 = 1 - exp(reference - policy)."""
    for kind, expected in {"k1": 1.0, "k2": 0.5, "k3": 1 - math.exp(-0.5)}.items():
        policy = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
        kl_estimate(policy, torch.tensor([-1.5], dtype=torch.float64), kind).sum().backward()
        assert policy.grad is not None
        assert float(policy.grad) == pytest.approx(expected)


def test_an_unknown_estimate_is_refused() -> None:
    with pytest.raises(ValueError, match="k4"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")
