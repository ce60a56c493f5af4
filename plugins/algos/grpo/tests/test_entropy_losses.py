"""Clip-Cov and KL-Cov per token against scalar loops, gradients, the suite for losses, recipes, and the cut."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import BaseModel, ValidationError
from rlcore_plugin_grpo import clip_cov, kl_cov, rlcore_register_losses
from rlcore_plugin_grpo.clip_cov import ClipCovLoss, ClipCovOptions
from rlcore_plugin_grpo.kl_cov import KlCovLoss, KlCovOptions

from rlcore.api import Group, Loss, LossBatch, PluginKind, Score, TrainBatch
from rlcore.learning import BatchSettings, PolicyObjective, assemble_batch, assemble_rewards, collate, prepare_loss, run_estimator, split
from rlcore.testing import LossSuite, Registry, RunTester, make_rollout

RECIPES = {spec.name: spec for spec in (clip_cov.RECIPE, kl_cov.RECIPE)}
REGISTRY = Registry.discover()


class TestClipCov(LossSuite):
    follows_advantage = False  # a token that was taken out does not move at all: section 4.2

    def make(self) -> Loss:
        return ClipCovLoss()


class TestClipCovTakesNone(LossSuite):
    def make(self) -> Loss:
        return ClipCovLoss(ClipCovOptions(cov_low=100.0, cov_high=200.0))


class TestKlCov(LossSuite):
    def make(self) -> Loss:
        return KlCovLoss(KlCovOptions(kl_cov_share=0.3))


# --- per token ---------------------------------------------------------------------------------------------------------


def scalar_ratio(nats: float) -> float:
    return math.exp(nats) if nats <= 20 else math.exp(20) * (1 + nats - 20)


def scalar_clip_cov(nats: float, advantage: float, marked: float) -> float:
    ratio = scalar_ratio(nats)
    held = 0.9 if ratio < 0.9 else 1.3 if ratio > 1.3 else ratio
    return 0.0 if marked else -min(ratio * advantage, held * advantage)


def scalar_kl_cov(nats: float, advantage: float, marked: float) -> float:
    return -scalar_ratio(nats) * advantage + (0.4 * abs(nats) if marked else 0.0)


LOSSES = {
    "clip_cov": (ClipCovLoss(ClipCovOptions(clip_eps_low=0.1, clip_eps_high=0.3)), scalar_clip_cov, "taken_out"),
    "kl_cov": (KlCovLoss(KlCovOptions(kl_cov_coeff=0.4)), scalar_kl_cov, "held"),
}


def loss_batch(nats: list[float], advantages: list[float], name: str, marked: list[float]) -> tuple[torch.Tensor, LossBatch]:
    old = torch.linspace(-3.0, -0.1, len(nats), dtype=torch.float64)
    logprobs = (old + torch.tensor(nats, dtype=torch.float64)).requires_grad_()
    return logprobs, LossBatch(
        row=torch.zeros(len(nats), dtype=torch.int64),
        lengths=torch.tensor([len(nats)]),
        advantages=torch.tensor(advantages, dtype=torch.float64),
        old_logprobs=old,
        rollout_logprobs=old + 5.0,
        weights=torch.ones_like(old),
        extras={name: torch.tensor(marked, dtype=torch.float64)},
    )


@pytest.mark.parametrize("spread", [0.05, 0.5, 40.0])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", LOSSES)
def test_golden_against_scalar_loops(name: str, seed: int, spread: float) -> None:
    loss, scalar, extra = LOSSES[name]
    chance = random.Random(seed)
    nats = [chance.gauss(0, spread) for _ in range(60)]
    advantages = [chance.choice([0.0, chance.gauss(0, 2)]) for _ in nats]
    marked = [float(chance.random() < 0.4) for _ in nats]
    logprobs, batch = loss_batch(nats, advantages, extra, marked)
    values, named = loss.per_token(logprobs, batch)
    nats = (logprobs - batch.old_logprobs).tolist()
    expected = [scalar(*token) for token in zip(nats, advantages, marked, strict=True)]
    assert values.tolist() == pytest.approx(expected, rel=1e-11, abs=1e-12)
    assert named[extra].tolist() == marked
    (gradient,) = torch.autograd.grad(values.sum(), logprobs)
    assert gradient.isfinite().all()
    if spread < 1:
        step = 1e-7
        slopes = [
            (scalar(nat + step, *rest) - scalar(nat - step, *rest)) / (2 * step)
            for nat, *rest in zip(nats, advantages, marked, strict=True)
        ]
        assert gradient.tolist() == pytest.approx(slopes, abs=1e-5)


def test_a_token_that_was_taken_out_has_no_gradient_and_keeps_nothing_of_others() -> None:
    logprobs, batch = loss_batch([0.01, 0.01], [1.0, 1.0], "taken_out", [1.0, 0.0])
    values, _ = LOSSES["clip_cov"][0].per_token(logprobs, batch)
    gradient = torch.autograd.grad(values.sum(), logprobs)[0].tolist()
    assert gradient == [0.0, pytest.approx(-math.exp(0.01))]


def test_kl_cov_pulls_back_from_both_sides_and_is_flat_at_the_old_policy() -> None:
    logprobs, batch = loss_batch([0.001, -0.001, 0.0], [0.0, 0.0, 0.0], "held", [1.0, 1.0, 1.0])
    values, _ = LOSSES["kl_cov"][0].per_token(logprobs, batch)
    assert torch.autograd.grad(values.sum(), logprobs)[0].tolist() == [0.4, -0.4, 0.0]


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (ClipCovOptions, {"clip_eps_low": 0.0}),
        (ClipCovOptions, {"clip_eps_low": 1.1}),
        (ClipCovOptions, {"clip_eps_high": 0.0}),
        (ClipCovOptions, {"clip_cov_share": 0.0}),
        (ClipCovOptions, {"clip_cov_share": 1.1}),
        (ClipCovOptions, {"cov_low": 5.1}),
        (KlCovOptions, {"kl_cov_share": 0.0}),
        (KlCovOptions, {"kl_cov_share": 1.5}),
        (KlCovOptions, {"kl_cov_coeff": -0.1}),
        (KlCovOptions, {"clip_eps_low": 0.2}),
    ],
)
def test_options_out_of_bounds_are_refused(model: type[BaseModel], values: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        model(**values)


def test_options_at_their_bounds_are_taken() -> None:
    low = {"clip_eps_low": 0.01, "clip_eps_high": 0.01, "clip_cov_share": 1e-6, "cov_low": 2.0, "cov_high": 2.0}
    assert ClipCovOptions(**low).model_dump() == low
    assert ClipCovOptions(clip_eps_low=1.0, clip_cov_share=1.0)
    assert KlCovOptions(kl_cov_share=1e-6, kl_cov_coeff=0.0)
    assert KlCovOptions(kl_cov_share=1.0)


def test_defaults_are_those_of_the_paper() -> None:
    clip = {"clip_eps_low": 0.2, "clip_eps_high": 0.2, "clip_cov_share": 2e-4, "cov_low": 1.0, "cov_high": 5.0}
    assert ClipCovOptions().model_dump() == ClipCovLoss().options.model_dump() == clip
    assert KlCovOptions().model_dump() == KlCovLoss().options.model_dump()
    assert KlCovOptions().model_dump() == {"kl_cov_share": 2e-3, "kl_cov_coeff": 1.0}


# --- recipes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_is_documented_and_its_parts_take_its_options(name: str) -> None:
    spec = RECIPES[name]
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for path, (value, source) in spec.defaults.items():
        assert source
        assert str(value) in readme
        assert path.split(".")[-1] in readme
    chosen = {path.rsplit(".", 1)[1]: value for path, (value, _) in spec.defaults.items() if ".options." in path}
    options = REGISTRY.options_model(PluginKind.LOSS, spec.loss)
    assert options is not None
    assert options().model_dump() == {**options().model_dump(), **chosen}
    assert {spec.name for spec in rlcore_register_losses()} >= set(RECIPES)
    assert all(word in spec.notes for word in ("Against GRPO: ", "Where others differ:", "TRL", "verl", "OpenRLHF"))
    assert all(len(line) <= 140 for line in spec.notes.splitlines())


@pytest.mark.parametrize("name", RECIPES)
def test_it_is_shown_and_trains(name: str, tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True)
    tester.with_fakes()
    shown = tester.run("show", "algo", name.replace("_", "-").upper()).assert_ok().stdout
    assert RECIPES[name].notes.splitlines()[1] in shown
    run = tester.fake_run(algorithm={"name": name, "updates_per_batch": 2})
    outcome = tester.run("train", run)
    assert outcome.exit_code == 0, outcome.stderr


def make_groups() -> list[Group]:
    """Five ragged groups, an empty response and a masked one among them."""
    chance = np.random.default_rng(4)
    groups = []
    for number, size in enumerate([4, 3, 1, 5, 2]):
        lengths = [0 if (number, index) == (3, 2) else int(chance.integers(1, 9)) for index in range(size)]
        rollouts = tuple(
            make_rollout([1, 2], [3] * length, logprobs=chance.uniform(-3, 0, length).tolist(), prompt_id=f"p{number}", index=index)
            for index, length in enumerate(lengths)
        )
        scores = [Score(value=float(value)) for value in chance.choice([0.0, 0.5, 1.0], size)]
        scores[0] = replace(scores[0], in_loss=number != 0)
        groups.append(Group(prompt_id=f"p{number}", episode=0, prompt_index=number, rollouts=rollouts, scores=tuple(scores)))
    return groups


WIDE = {
    "clip_cov": ClipCovLoss(ClipCovOptions(clip_cov_share=0.1, cov_low=0.1)),
    "kl_cov": KlCovLoss(KlCovOptions(kl_cov_share=0.1)),
}


def gradients(name: str, groups: list[Group], cut: int, updates: int) -> dict[tuple[str, int, int], float]:
    """Gradient of the steps' losses in each token's log probability, by (prompt, rollout, place)."""
    variation = REGISTRY.load(PluginKind.AGGREGATION, RECIPES[name].defaults["algorithm.loss_variation"][0])()
    settings = BatchSettings(max_new_tokens=16, variation=variation)
    estimator = REGISTRY.load(PluginKind.ESTIMATOR, RECIPES[name].estimator)()
    batch = assemble_batch(groups, run_estimator("group_norm", estimator, assemble_rewards(groups, settings)), settings)
    batch = prepare_loss(name, WIDE[name], replace(batch, old_logprobs=batch.rollout_logprobs))
    objective = PolicyObjective(loss=WIDE[name])
    found = {}
    for step in split(batch, settings, updates=updates):
        policy, tokens = policy_of(step)
        rows = np.flatnonzero(step.in_loss)
        for start in range(0, len(rows), cut):
            micro = collate(step, rows[start : start + cut])
            logprobs = torch.tensor(policy[micro.index], requires_grad=True)
            total, _ = objective(logprobs, micro.loss_batch(logprobs))
            for place, value in zip(micro.index, torch.autograd.grad(total, logprobs)[0].tolist(), strict=True):
                found[tokens[place]] = value
    return found


def policy_of(batch: TrainBatch) -> tuple[np.ndarray, list[tuple[str, int, int]]]:
    """float64[N], off the sampler's by a fixed amount for each token; and what each token is."""
    tokens = [(rollout.prompt_id, rollout.index, place) for rollout in batch.rollouts for place in range(rollout.length)]
    return batch.rollout_logprobs + np.array([0.5 * math.sin(int(p[1:]) * 13 + r * 5 + t) for p, r, t in tokens]), tokens


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("name", RECIPES)
def test_the_gradient_does_not_depend_on_the_cut_or_on_any_order(name: str, updates: int) -> None:
    groups = make_groups()
    whole = gradients(name, groups, 1000, updates)
    assert sum(abs(value) > 1e-6 for value in whole.values()) > 10
    for cut in (1, 3):
        assert gradients(name, groups, cut, updates) == pytest.approx(whole, rel=1e-9, abs=1e-12)
    turned = [replace(group, rollouts=group.rollouts[::-1], scores=group.scores[::-1]) for group in groups]
    assert gradients(name, turned, 3, updates) == pytest.approx(whole, rel=1e-9, abs=1e-12)
    if updates == 1:
        assert gradients(name, groups[::-1], 3, updates) == pytest.approx(whole, rel=1e-6, abs=1e-9)
