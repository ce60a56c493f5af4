"""Every recipe of the family: documented, resolvable, independent of the cut, and it trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rlcore_plugin_grpo import rlcore_register_algorithms, rlcore_register_losses

from rlcore.api import AlgorithmSpec, Group, PluginKind, Score, TrainBatch
from rlcore.learning import BatchSettings, PolicyObjective, assemble_batch, assemble_rewards, collate, prepare_loss, run_estimator, split
from rlcore.testing import Registry, RunTester, make_rollout

RECIPES = {spec.name: spec for spec in rlcore_register_algorithms()}
REGISTRY = Registry.discover()


def default(spec: AlgorithmSpec, key: str) -> object:
    return spec.defaults[f"algorithm.{key}"][0]


def test_the_family() -> None:
    assert list(RECIPES) == ["grpo", "dr_grpo", "gspo", "gmpo", "cispo", "sapo", "maxrl"]
    assert {spec.name for spec in rlcore_register_losses()} == {"gspo", "gmpo", "cispo", "sapo"}


@pytest.mark.parametrize("name", RECIPES)
def test_every_default_has_a_source_and_is_in_the_readme(name: str) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    line = next(line for line in readme.splitlines() if line.startswith(f"| `{name}` "))
    for path, (value, source) in RECIPES[name].defaults.items():
        assert source
        assert str(value) in line
        assert path.split(".")[-1] in readme


@pytest.mark.parametrize("name", RECIPES)
def test_the_notes_hold_the_formula_and_what_differs(name: str) -> None:
    notes = RECIPES[name].notes
    assert notes.startswith("advantage   A_i = ")
    assert "Where others differ:" in notes
    assert all(peer in notes for peer in ("TRL", "verl", "OpenRLHF"))
    assert name == "grpo" or "Against GRPO: " in notes
    assert all(len(line) <= 140 for line in notes.splitlines())


@pytest.mark.parametrize("name", RECIPES)
def test_the_parts_it_names_are_registered_and_take_its_options(name: str) -> None:
    spec = RECIPES[name]
    chosen = {path.rsplit(".", 1)[1]: value for path, (value, _) in spec.defaults.items() if ".options." in path}
    options = REGISTRY.options_model(PluginKind.LOSS, spec.loss)
    assert options is not None
    assert options().model_dump() == {**options().model_dump(), **chosen}, "the loss alone has other defaults than its recipe"
    REGISTRY.load(PluginKind.LOSS, spec.loss)(options(**chosen))
    REGISTRY.load(PluginKind.ESTIMATOR, spec.estimator)()


def test_show_prints_formula_and_sources(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True)
    for name, spec in RECIPES.items():
        shown = tester.run("show", "algo", name.upper()).assert_ok().stdout
        assert spec.notes.splitlines()[0] in shown
        assert all(source in " ".join(shown.split()) for _, source in spec.defaults.values())
    assert "algorithm.options.k" in tester.run("show", "estimator", "pass_at_k").assert_ok().stdout


@pytest.mark.parametrize("name", RECIPES)
def test_it_trains(name: str, tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True)
    tester.with_fakes()
    outcome = tester.run("train", tester.fake_run(algorithm={"name": name}, training={"train_batch_size": 4}))
    assert outcome.exit_code == 0, outcome.stderr


@pytest.mark.parametrize(
    ("flags", "option"), [(("--loss", "gspo"), "sequence_eps_low = 0.0003"), (("--estimator", "pass_at_k", "--k", "2"), "k = 2")]
)
def test_parts_are_replaceable_and_keep_their_own_bounds(tmp_path: Path, flags: tuple[str, ...], option: str) -> None:
    tester = RunTester(tmp_path, in_process=True)
    tester.with_fakes()
    run = tester.fake_run(algorithm={"name": "grpo"})
    shown = tester.run("show", "config", run, *flags).assert_ok().stdout
    assert option in " ".join(shown.split())
    tester.run("train", run, *flags).assert_ok()


# --- invariances of the whole recipe -----------------------------------------------------------------------------------


def make_groups() -> list[Group]:
    """Five groups: ragged, one of all equal rewards, one of one, an empty response, masked rollouts."""
    draw = np.random.default_rng(4)
    groups = []
    for number, size in enumerate([4, 3, 1, 5, 2]):
        lengths = [int(draw.integers(1, 9)) for _ in range(size)]
        if number == 3:
            lengths[2] = 0
        rollouts = tuple(
            make_rollout([1, 2], [3] * length, logprobs=draw.uniform(-3, -0.1, length).tolist(), prompt_id=f"p{number}", index=index)
            for index, length in enumerate(lengths)
        )
        values = [0.7] * size if number == 1 else draw.choice([0.0, 0.5, 1.0], size).tolist()
        scores = [Score(value=value) for value in values]
        scores[0] = replace(scores[0], in_loss=number != 0)
        groups.append(Group(prompt_id=f"p{number}", episode=0, prompt_index=number, rollouts=rollouts, scores=tuple(scores)))
    return groups


Token = tuple[str, int, int]
"""(prompt, rollout, place): what a token is, whatever the order of the batch."""


def tokens_of(batch: TrainBatch) -> list[Token]:
    return [(rollout.prompt_id, rollout.index, place) for rollout in batch.rollouts for place in range(rollout.length)]


def policy_of(batch: TrainBatch) -> np.ndarray:
    """float64[N]: the trained policy, off the sampler's by a fixed amount for each token."""
    return batch.rollout_logprobs + np.array([np.sin(hash_of(token)) * 0.6 for token in tokens_of(batch)])


def hash_of(token: Token) -> float:
    return float(int(token[0][1:]) * 13 + token[1] * 5 + token[2])


def gradients(name: str, groups: Sequence[Group], cut: int, updates: int) -> dict[tuple[str, str, int, int], float]:
    """Gradient of each step's loss in each token's log probability, by step (named by its prompts) and token."""
    spec = RECIPES[name]
    settings = BatchSettings(temperature=1.0, max_new_tokens=16, variation=default(spec, "loss_variation"))
    estimator, loss = REGISTRY.load(PluginKind.ESTIMATOR, spec.estimator)(), REGISTRY.load(PluginKind.LOSS, spec.loss)()
    advantages = run_estimator(spec.estimator, estimator, assemble_rewards(groups, settings))
    batch = assemble_batch(groups, advantages, settings)
    batch = replace(batch, old_logprobs=batch.rollout_logprobs, reference_logprobs=batch.rollout_logprobs - 0.3)
    objective = PolicyObjective(loss=loss, kl_coeff=float(default(spec, "kl_coeff")))
    found = {}
    for step in split(prepare_loss(spec.loss, loss, batch), settings, updates=updates, seed=1):
        policy, tokens = policy_of(step), tokens_of(step)
        label = "".join(sorted({rollout.prompt_id for rollout in step.rollouts}))
        rows = np.flatnonzero(step.in_loss)
        for start in range(0, len(rows), cut):
            micro = collate(step, rows[start : start + cut])
            logprobs = torch.tensor(policy[micro.index], requires_grad=True)
            total, _ = objective(logprobs, micro.loss_batch(logprobs))
            for place, value in zip(micro.index, torch.autograd.grad(total, logprobs)[0].tolist(), strict=True):
                found[(label, *tokens[place])] = value
    return found


def shuffled(groups: list[Group], seed: int) -> list[Group]:
    """Completions of each group in another order of arrival; ``assemble`` puts them back by index."""
    draw = np.random.default_rng(seed)
    orders = [draw.permutation(len(group.rollouts)) for group in groups]
    return [
        replace(group, rollouts=tuple(group.rollouts[i] for i in order), scores=tuple(group.scores[i] for i in order))
        for group, order in zip(groups, orders, strict=True)
    ]


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("name", RECIPES)
def test_the_gradient_does_not_depend_on_the_cut_or_the_order_of_completions(name: str, updates: int) -> None:
    groups = make_groups()
    whole = gradients(name, groups, cut=1000, updates=updates)
    assert sum(abs(value) > 1e-6 for value in whole.values()) > 10
    for cut in (1, 3):
        assert gradients(name, groups, cut, updates) == pytest.approx(whole, rel=1e-9, abs=1e-12)
    assert gradients(name, shuffled(groups, 2), 3, updates) == pytest.approx(whole, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", RECIPES)
def test_the_gradient_does_not_depend_on_the_order_of_groups(name: str) -> None:
    groups = make_groups()
    assert gradients(name, groups[::-1], 3, 1) == pytest.approx(gradients(name, groups, 1000, 1), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "maxrl"])
def test_a_constant_on_all_rewards_of_a_group_changes_nothing(name: str) -> None:
    groups = make_groups()
    moved = [replace(g, scores=tuple(replace(s, value=s.value + 3.0 * g.prompt_index) for s in g.scores)) for g in groups]
    assert gradients(name, moved, 3, 1) == pytest.approx(gradients(name, groups, 3, 1), rel=1e-5, abs=1e-7)
