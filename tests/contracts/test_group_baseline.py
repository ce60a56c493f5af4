"""``group_baseline`` of an estimator's spec is what its class does with groups of one: no advantage, or one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlcore.contracts.specs import AdvantageSpec, PluginKind
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import make_reward_batch

REGISTRY = Registry.discover()
NAMES = sorted(REGISTRY.names(PluginKind.ESTIMATOR))


@pytest.mark.parametrize("name", NAMES)
def test_a_group_of_one_has_an_advantage_where_the_spec_says_so(name: str) -> None:
    spec = REGISTRY.spec(PluginKind.ESTIMATOR, name)
    assert isinstance(spec, AdvantageSpec)
    options = REGISTRY.options_model(PluginKind.ESTIMATOR, name)
    estimator = REGISTRY.load(PluginKind.ESTIMATOR, name)(*([options()] if options else []))
    batch = make_reward_batch([1.0, 0.0, 3.0], [0, 1, 2], lengths=[2, 3, 1])
    if estimator.needs_greedy:
        batch = replace(batch, greedy=np.array([0.5, 0.5, 0.5]))
    assert bool(np.any(estimator.estimate(batch))) is not spec.group_baseline
