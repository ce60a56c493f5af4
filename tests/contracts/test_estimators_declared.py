"""What an estimator returns is what its spec and its class declare, of every registered one; a new one joins by being installed."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from rlcore.api import AdvantageEstimator, RewardBatch, RunError
from rlcore.contracts.specs import AdvantageSpec, PluginKind
from rlcore.learning import run_estimator
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import make_reward_batch

REGISTRY = Registry.discover()

every_estimator = pytest.mark.parametrize("name", REGISTRY.names(PluginKind.ESTIMATOR))


def made(name: str) -> AdvantageEstimator:
    options = REGISTRY.options_model(PluginKind.ESTIMATOR, name)
    estimator = REGISTRY.make(PluginKind.ESTIMATOR, name, options=options() if options else None)
    assert isinstance(estimator, AdvantageEstimator)
    return estimator


def batch(estimator: AdvantageEstimator, rewards: list[float], lengths: list[int]) -> RewardBatch:
    built = make_reward_batch(rewards, [0] * len(rewards), lengths=lengths)
    return replace(built, greedy=np.array([0.5])) if estimator.needs_greedy else built


@every_estimator
def test_the_shape_is_that_of_what_it_is_declared_per(name: str) -> None:
    estimator, spec = made(name), REGISTRY.spec(PluginKind.ESTIMATOR, name)
    assert isinstance(spec, AdvantageSpec)
    assert spec.per == estimator.per
    values = estimator.estimate(batch(estimator, [1.0, 0.0, 0.0, 1.0], [2, 3, 1, 4]))
    assert values.shape == {"rollout": (4,), "token": (10,)}[estimator.per]


@every_estimator
def test_with_as_many_tokens_as_rollouts_each_token_has_the_advantage_of_its_own_rollout(name: str) -> None:
    """Four tokens, four rollouts: the shape alone does not tell one from the other."""
    estimator = made(name)
    rewards, lengths = [1.0, 0.0, 0.0, 0.0], [3, 1, 0, 0]
    values = run_estimator(name, estimator, batch(estimator, rewards, lengths))
    assert values[0] == values[1] == values[2] > values[3]


@every_estimator
def test_a_reward_that_is_nan_never_becomes_a_number(name: str) -> None:
    estimator = made(name)
    with pytest.raises(RunError, match=re.escape(f"estimator {name!r} returned nan for rollout")):
        run_estimator(name, estimator, batch(estimator, [float("nan"), 0.0, 1.0, 1.0], [2, 2, 2, 2]))
