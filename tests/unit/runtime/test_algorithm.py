"""What a run's settings become: every setting of [algorithm] reaches the part that acts on it."""

from __future__ import annotations

from importlib.metadata import distributions
from math import inf
from pathlib import Path
from typing import Any

import pytest

from rlcore.config import plan_run
from rlcore.contracts.errors import PluginError
from rlcore.learning import PolicyObjective
from rlcore.learning.aggregation import TokenLevel
from rlcore.learning.correction import Decoupled, Masked, SequenceMasked, Truncated
from rlcore.learning.kl import K2, AbsoluteKl
from rlcore.registry.plugin_registry import Registry
from rlcore.roles.algorithm import Algorithm
from rlcore.runtime.backends import build_algorithm
from rlcore.runtime.factories import schedule_settings
from rlcore.testing.plugin_folder import PluginFolder

REGISTRY = Registry.discover()


def built(**algorithm: Any) -> Algorithm:
    overrides = {"algorithm": {"name": "dr_grpo", **algorithm}, "rewards": [{"name": "boxed"}], "training": {"train_batch_size": 4}}
    return build_algorithm(plan_run([], {}, REGISTRY, overrides=overrides, require=False))


def objective(**algorithm: Any) -> PolicyObjective:
    made = built(**algorithm).objective
    assert isinstance(made, PolicyObjective)
    return made


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"mismatch_correction": "none"}, None),
        ({"mismatch_correction": "decoupled"}, Decoupled((0.0, inf))),
        ({"mismatch_correction": "truncated"}, Truncated((0.0, 2.0))),
        ({"mismatch_correction": "truncated", "mismatch_range": None}, Truncated((0.0, inf))),
        ({"mismatch_correction": "masked", "mismatch_range": [0.7, 1.3]}, Masked((0.7, 1.3))),
        ({"mismatch_correction": "sequence_masked"}, SequenceMasked((0.0, 2.0))),
    ],
)
def test_the_correction_and_its_range_reach_the_objective(settings: dict[str, Any], expected: Decoupled | None) -> None:
    assert objective(**settings).correction == expected


def test_penalties_and_threshold_reach_the_objective() -> None:
    made = objective(kl_coeff=0.3, kl_kind="absolute", entropy_coeff=0.02, skip_threshold=7.0)
    assert (made.kl_coeff, type(made.kl_kind), made.entropy_coeff, made.skip_threshold) == (0.3, AbsoluteKl, 0.02, 7.0)


@pytest.mark.parametrize(("partial", "staleness", "bound"), [(True, 2, 2), (False, 2, None), (True, 0, None)])
def test_old_tokens_do_not_train_if_rollouts_continue_over_updates(partial: bool, staleness: int, bound: int | None) -> None:
    schedule = {"schedule": {"partial_rollouts": partial, "max_staleness": staleness}}
    overrides = {"rewards": [{"name": "boxed"}], "algorithm": {"mismatch_correction": "truncated"}, **schedule}
    plan = plan_run([], {}, REGISTRY, overrides=overrides, require=False)
    assert build_algorithm(plan).batch.max_staleness == bound
    assert schedule_settings(plan, 8).partial_rollouts is (bound is not None)


def test_a_penalty_in_the_reward_leaves_the_loss() -> None:
    made = built(estimator="rloo", kl_coeff=0.3, kl_kind="k2", kl_in="reward")
    assert (made.kl_in_reward, type(made.kl_kind)) == (0.3, K2)
    assert isinstance(made.objective, PolicyObjective)
    assert made.objective.kl_coeff == 0.0


@pytest.mark.parametrize(("updates", "epochs", "steps"), [(1, 1, 1), (2, 1, 2), (1, 3, 3), (2, 3, 6), (4, 2, 8)])
def test_optimizer_steps_are_splits_times_epochs(updates: int, epochs: int, steps: int) -> None:
    assert built(updates_per_batch=updates, epochs_per_batch=epochs).optimizer_steps == steps


def test_a_recipes_splits_are_no_more_than_there_are_prompts() -> None:
    overrides = {"algorithm": {"name": "kl_cov"}, "rewards": [{"name": "boxed"}], "training": {"train_batch_size": 3}}
    assert build_algorithm(plan_run([], {}, REGISTRY, overrides=overrides, require=False)).optimizer_steps == 3


DISAGREES = """
from rlcore.api import AdvantageSpec, hookimpl

rlcore_api = "2.0"

@hookimpl
def rlcore_register_advantage_estimators():
    return [AdvantageSpec(name="odd", target="rlcore.learning.advantages:GroupNorm", summary="", per="token")]
"""


def test_an_estimator_that_is_not_what_its_spec_says_is_refused(tmp_path: Path) -> None:
    with PluginFolder(tmp_path) as folder:
        folder.install("acme", DISAGREES)
        registry = Registry.discover([*distributions(), *distributions(path=[str(folder.root)])])
        overrides = {"algorithm": {"estimator": "odd", "loss": "clipped"}, "rewards": [{"name": "boxed"}]}
        with pytest.raises(PluginError, match=r"estimator 'odd' of .*: per is rollout on its class and token in its spec; they must agree"):
            build_algorithm(plan_run([], {}, registry, overrides=overrides, require=False))


def test_the_batch_is_shaped_by_the_settings() -> None:
    made = built(loss_variation="token_level", filter_truncated_response=True, soft_over_length_punishment=True, cache_length=8)
    assert (type(made.batch.variation), made.batch.filter_truncated) == (TokenLevel, True)
    assert made.batch.overlong is not None
    assert (made.batch.overlong.cache_length, made.batch.overlong.correct_score) == (8, 10.0)
    assert built().batch.overlong is None


@pytest.mark.parametrize("needs", ["'old'", "(Need.OLD,)", "{'odl'}"])
def test_needs_that_are_no_set_of_need_are_blamed_on_the_loss(tmp_path: Path, needs: str) -> None:
    path = tmp_path / "needy.py"
    path.write_text(
        f"from rlcore.api import Loss, Need\n\nclass Needy(Loss):\n    needs = {needs}\n\n    def per_token(self, logprobs, batch): ...\n"
    )
    with pytest.raises(PluginError, match=r"needy.py:Needy' needs .*; needs must be a frozenset of old, reference, entropy$"):
        built(loss=f"{path}:Needy")
