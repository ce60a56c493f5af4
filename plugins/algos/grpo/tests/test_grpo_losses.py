"""GSPO, GMPO, CISPO and SAPO against scalar loops written from the papers, their gradients, and the suite for losses."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import BaseModel, ValidationError
from rlcore_plugin_grpo.cispo import CispoLoss, CispoOptions
from rlcore_plugin_grpo.gmpo import GmpoLoss, GmpoOptions
from rlcore_plugin_grpo.gspo import GspoLoss, GspoOptions
from rlcore_plugin_grpo.sapo import SapoLoss, SapoOptions

from rlcore.api import Loss, LossBatch, RunError
from rlcore.learning import prepare_loss
from rlcore.testing import LossSuite, make_rollout, make_train_batch


class TestGspo(LossSuite):
    def make(self) -> Loss:
        return GspoLoss()


class TestGspoWide(LossSuite):
    def make(self) -> Loss:
        return GspoLoss(GspoOptions(sequence_eps_low=0.5, sequence_eps_high=0.5))


class TestGmpo(LossSuite):
    def make(self) -> Loss:
        return GmpoLoss()


class TestCispo(LossSuite):
    value_is_differentiated = False  # the weight is detached: section 3.1

    def make(self) -> Loss:
        return CispoLoss()


class TestSapo(LossSuite):
    def make(self) -> Loss:
        return SapoLoss()


# --- the papers' formulas, one token at a time -------------------------------------------------------------------------

Row = list[tuple[float, float, float]]
"""(log probability, old, advantage) of each token of one response."""


def scalar_ratio(nats: float) -> float:
    """exp, along its tangent beyond 20."""
    return math.exp(nats) if nats <= 20 else math.exp(20) * (1 + nats - 20)


def scalar_clip(value: float, low: float, high: float) -> float:
    return low if value < low else high if value > high else value


def scalar_gspo(row: Row) -> list[float]:
    """Equations 5 and 7."""
    total = 0.0
    for logprob, old, _ in row:
        total += logprob - old
    s = scalar_ratio(total / len(row))
    return [-min(s * a, scalar_clip(s, 0.7, 1.4) * a) for _, _, a in row]


def scalar_gmpo(row: Row) -> list[float]:
    """Section 3: the |o|-th root of the product of the pessimistic ratios, as a product of roots."""
    nats = 0.0
    for logprob, old, a in row:
        free = logprob - old
        held = scalar_clip(free, -0.3, 0.5)
        # The paper's min(w A, clip(w) A): by monotony of exp, the smaller log for A > 0, the larger for A < 0.
        nats += (min(free, held) if a > 0 else max(free, held)) / len(row)
    return [-scalar_ratio(nats) * a for _, _, a in row]


def scalar_cispo(row: Row) -> list[float]:
    """Equations 4 and 5, no lower bound."""
    return [-min(scalar_ratio(logprob - old), 1.0 + 0.6) * a * logprob for logprob, old, a in row]


def scalar_sapo(row: Row) -> list[float]:
    """Section 3."""
    values = []
    for logprob, old, a in row:
        tau = 0.9 if a > 0 else 1.3
        x = tau * (scalar_ratio(logprob - old) - 1)
        sigmoid = 1 / (1 + math.exp(-x)) if x > -700 else 0.0
        values.append(-4 / tau * sigmoid * a)
    return values


LOSSES: dict[str, tuple[Loss, Callable[[Row], list[float]]]] = {
    "gspo": (GspoLoss(GspoOptions(sequence_eps_low=0.3, sequence_eps_high=0.4)), scalar_gspo),
    "gmpo": (GmpoLoss(GmpoOptions(log_clip_low=0.3, log_clip_high=0.5)), scalar_gmpo),
    "cispo": (CispoLoss(CispoOptions(weight_eps_high=0.6)), scalar_cispo),
    "sapo": (SapoLoss(SapoOptions(tau_pos=0.9, tau_neg=1.3)), scalar_sapo),
}


def random_rows(seed: int, spread: float) -> list[Row]:
    """Responses of 1, 2, 300 and 0 to 9 tokens; advantages of one sign, of both, and 0."""
    draw = random.Random(seed)
    rows: list[Row] = []
    for length in (1, 2, 300, 0, *(draw.randint(0, 9) for _ in range(5))):
        a = draw.choice([0.0, draw.gauss(0, 1.5)])
        varies = draw.random() < 0.3
        olds = [draw.uniform(-4, 0) for _ in range(length)]
        rows.append([(old + draw.gauss(0, spread), old, draw.gauss(0, 1) if varies else a) for old in olds])
    return rows


def loss_batch(rows: list[Row]) -> tuple[torch.Tensor, LossBatch]:
    tokens = [token for row in rows for token in row]
    logprobs, old, advantages = (torch.tensor([token[part] for token in tokens], dtype=torch.float64) for part in range(3))
    lengths = torch.tensor([len(row) for row in rows])
    return logprobs.requires_grad_(), LossBatch(
        row=torch.repeat_interleave(torch.arange(len(rows)), lengths),
        lengths=lengths,
        advantages=advantages,
        old_logprobs=old,
        rollout_logprobs=old + 5.0,  # must not matter
        weights=torch.ones_like(old),
    )


def evaluate(loss: Loss, rows: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs, batch = loss_batch(rows)
    result = loss.per_token(logprobs, batch)
    values = result[0] if isinstance(result, tuple) else result
    return values.detach(), torch.autograd.grad(values.sum(), logprobs)[0]


@pytest.mark.parametrize("spread", [0.05, 0.6, 30.0])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", LOSSES)
def test_golden_against_scalar_loops(name: str, seed: int, spread: float) -> None:
    loss, scalar = LOSSES[name]
    rows = random_rows(seed, spread)
    expected = [value for row in rows if row for value in scalar(row)]
    values, gradient = evaluate(loss, rows)
    assert values.tolist() == pytest.approx(expected, rel=1e-11, abs=1e-11)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
def test_bounds_and_sides_one_by_one(name: str) -> None:
    """Each side of each bound with each sign, far inside and just across: what random draws may miss."""
    loss, scalar = LOSSES[name]
    for nats in (-2.0, -0.4, -0.29, 0.0, 0.29, 0.34, 0.46, 0.49, 0.51, 2.0, 19.0, 21.0, 500.0, -500.0):
        for advantage in (2.0, -2.0):
            rows: list[Row] = [[(nats - 1.0, -1.0, advantage)], [(nats - 1.0, -1.0, advantage), (-0.5, -0.6, advantage)]]
            values = evaluate(loss, rows)[0]
            assert values.tolist() == pytest.approx([value for row in rows for value in scalar(row)], rel=1e-12), (nats, advantage)


@pytest.mark.parametrize("name", ["gspo", "gmpo", "sapo"])
def test_gradient_against_differences_of_the_scalar_formula(name: str) -> None:
    loss, scalar = LOSSES[name]
    rows = [row[:4] for row in random_rows(3, 0.4)]
    gradient = evaluate(loss, rows)[1].tolist()
    step, place = 1e-6, 0
    for row in rows:
        for token in range(len(row)):
            ends = []
            for sign in (1, -1):
                moved = list(row)
                moved[token] = (row[token][0] + sign * step, *row[token][1:])
                ends.append(sum(scalar(moved)))
            assert gradient[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)
            place += 1


def test_cispo_gradient_is_the_bounded_weight_times_the_advantage() -> None:
    rows: list[Row] = [[(-1.0, -3.0, 1.0), (-3.0, -1.0, 2.0), (-1.0, -1.1, -1.0)]]
    gradient = evaluate(LOSSES["cispo"][0], rows)[1]
    assert gradient.tolist() == pytest.approx([-1.6, -2 * math.exp(-2.0), math.exp(0.1)])


def test_cispo_lower_bound_is_there_when_asked_for() -> None:
    rows: list[Row] = [[(-3.0, -1.0, 2.0)]]
    assert evaluate(CispoLoss(CispoOptions(weight_eps_low=0.2)), rows)[1].tolist() == pytest.approx([-0.8 * 2])


def test_gspo_shares_the_gradient_and_stops_the_whole_response() -> None:
    inside: list[Row] = [[(-1.0, -1.2, 1.0), (-2.0, -1.9, 1.0)]]
    s = math.exp(0.05)
    assert evaluate(LOSSES["gspo"][0], inside)[1].tolist() == pytest.approx([-s, -s])
    beyond: list[Row] = [[(-1.0, -2.5, 1.0), (-2.0, -1.9, 1.0)]]
    assert evaluate(LOSSES["gspo"][0], beyond)[1].tolist() == [0.0, 0.0]
    back: list[Row] = [[(-1.0, -2.5, -1.0), (-2.0, -1.9, -1.0)]]
    assert all(value > 0 for value in evaluate(LOSSES["gspo"][0], back)[1].tolist())


def test_gmpo_stops_single_tokens_only() -> None:
    rows: list[Row] = [[(-1.0, -2.0, 1.0), (-2.0, -1.9, 1.0)]]
    stopped, free = evaluate(LOSSES["gmpo"][0], rows)[1].tolist()
    assert stopped == 0.0
    assert free == pytest.approx(-math.exp((0.5 - 0.1) / 2))


def test_named_values() -> None:
    rows: list[Row] = [[(-1.0, -3.0, 1.0), (-1.0, -1.0, 1.0)], [(-1.0, -1.0, 0.0)]]
    expected = {"gspo": [1.0, 1.0, 0.0], "gmpo": [1.0, 0.0, 0.0], "cispo": [1.0, 0.0, 0.0]}
    for name, values in expected.items():
        logprobs, batch = loss_batch(rows)
        assert LOSSES[name][0].per_token(logprobs, batch)[1]["clip_fraction"].tolist() == values
    logprobs, batch = loss_batch([[(-3.0, -1.0, 1.0), (-1.0, -1.0, 1.0)]])
    bounded = CispoLoss(CispoOptions(weight_eps_low=0.2)).per_token(logprobs, batch)[1]["clip_fraction"]
    assert bounded.tolist() == [1.0, 0.0], "the lower bound counts too"
    logprobs, batch = loss_batch(rows)
    gate = LOSSES["sapo"][0].per_token(logprobs, batch)[1]["gate"].tolist()
    share = 1 / (1 + math.exp(-0.9 * (math.exp(2.0) - 1)))
    assert gate == pytest.approx([4 * share * (1 - share), 1.0, 1.0])


def test_clip_fraction_counts_what_lost_its_gradient_and_nothing_else() -> None:
    """Moved far down and far up, praised, blamed and neither: only praise up and blame down are stopped."""
    rows: list[Row] = [[(nats - 2.0, -2.0, advantage)] for advantage in (1.0, -1.0, 0.0) for nats in (-1.0, 1.0)]
    for name in ("gspo", "gmpo"):
        logprobs, batch = loss_batch(rows)
        assert LOSSES[name][0].per_token(logprobs, batch)[1]["clip_fraction"].tolist() == [0.0, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_options_at_their_bounds_are_taken() -> None:
    assert GspoOptions(sequence_eps_low=1e-6, sequence_eps_high=1e-6)
    assert GspoOptions(sequence_eps_low=1.0)
    assert GmpoOptions(log_clip_low=0.01, log_clip_high=0.01)
    assert CispoOptions(weight_eps_low=0.01, weight_eps_high=0.01)
    assert SapoOptions(tau_pos=0.01, tau_neg=0.01)


def test_tokens_without_advantage_among_others() -> None:
    """As negative ones: GMPO lets them rise in the mean, SAPO fades them with tau_neg."""
    rows: list[Row] = [[(-1.0, -2.0, 0.0), (-1.0, -1.2, 1.0), (-2.0, -1.0, 0.0)]]
    for loss, scalar in LOSSES.values():
        assert evaluate(loss, rows)[0].tolist() == pytest.approx(scalar(rows[0]), rel=1e-12)
    logprobs, batch = loss_batch(rows)
    share = 1 / (1 + math.exp(-1.3 * (math.e - 1)))
    assert LOSSES["sapo"][0].per_token(logprobs, batch)[1]["gate"].tolist()[0] == pytest.approx(4 * share * (1 - share))


def test_defaults_are_those_of_the_papers() -> None:
    assert GspoOptions().model_dump() == {"sequence_eps_low": 3e-4, "sequence_eps_high": 4e-4}
    assert GmpoOptions().model_dump() == {"log_clip_low": 0.4, "log_clip_high": 0.4}
    assert CispoOptions().model_dump() == {"weight_eps_low": 1.0, "weight_eps_high": 4.0}
    assert SapoOptions().model_dump() == {"tau_pos": 1.0, "tau_neg": 1.05}
    rows = random_rows(0, 0.5)
    for made, options in ((GspoLoss, GspoOptions), (GmpoLoss, GmpoOptions), (CispoLoss, CispoOptions), (SapoLoss, SapoOptions)):
        assert evaluate(made(), rows)[0].equal(evaluate(made(options()), rows)[0])


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (GspoOptions, {"sequence_eps_low": 0.0}),
        (GspoOptions, {"sequence_eps_low": 1.1}),
        (GspoOptions, {"sequence_eps_high": 0.0}),
        (GmpoOptions, {"log_clip_low": 0.0}),
        (GmpoOptions, {"log_clip_high": -0.4}),
        (CispoOptions, {"weight_eps_low": 1.5}),
        (CispoOptions, {"weight_eps_low": 0.0}),
        (CispoOptions, {"weight_eps_high": 0.0}),
        (SapoOptions, {"tau_pos": 0.0}),
        (SapoOptions, {"tau_neg": 0.0}),
        (SapoOptions, {"clip_eps_low": 0.2}),
    ],
)
def test_options_out_of_bounds_are_refused(model: type[BaseModel], values: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        model(**values)


def test_gspo_refuses_advantages_that_vary_over_a_response() -> None:
    rollouts = [make_rollout([1, 2], [3] * (length + 1), index=length) for length in range(4)]
    batch = make_train_batch([*rollouts, make_rollout([1], [], index=4)], [0.0, -1.5, 1.0, 2.0, 3.0])
    assert prepare_loss("gspo", GspoLoss(), batch).extras == {}
    varied = batch.advantages.copy()
    varied[-1] += 0.5
    words = "one advantage for a whole response, but those of rollout 3 of prompt 'p0' range from 2 to 2.5; .*--kl-in loss"
    with pytest.raises(RunError, match=words):
        prepare_loss("gspo", GspoLoss(), replace(batch, advantages=varied))
    prepare_loss("gspo", GspoLoss(), replace(batch, advantages=varied, in_loss=np.array([True, True, True, False, True])))
    rounding = np.where(np.arange(len(varied)) % 2, np.float32(1 + 1e-6), np.float32(1))
    prepare_loss("gspo", GspoLoss(), replace(batch, advantages=batch.advantages * rounding))
