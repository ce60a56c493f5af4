from __future__ import annotations

import numpy as np
import pytest
import torch
from rlcore_plugin_grpo.grpo import RECIPE as SPEC

from rlcore.api import FinishReason, Group, LossBatch, PluginKind, Rollout, Score, Segment
from rlcore.learning import BatchSettings, PolicyObjective, assemble_batch, assemble_rewards, run_estimator
from rlcore.testing import Registry

DEFAULTS = {path: value for path, (value, _) in SPEC.defaults.items()}


def test_the_whole_recipe_by_hand() -> None:
    """Rewards 1 and 0 with 2 and 1 tokens. Advantages +-0.5 / (sqrt(0.5) + 1e-4); ratio 1; k3 of d = 0.3 and of 0."""
    registry = Registry.discover()
    rollouts = tuple(rollout(index, length) for index, length in enumerate([2, 1]))
    groups = [Group(prompt_id="p", episode=0, prompt_index=0, rollouts=rollouts, scores=(Score(value=1.0), Score(value=0.0)))]
    settings = BatchSettings(max_new_tokens=8, variation=registry.load(PluginKind.AGGREGATION, DEFAULTS["algorithm.loss_variation"])())
    estimator = registry.load(PluginKind.ESTIMATOR, SPEC.estimator)()
    batch = assemble_batch(groups, run_estimator("group_norm", estimator, assemble_rewards(groups, settings)), settings)
    loss = registry.load(PluginKind.LOSS, SPEC.loss)()
    kl = registry.load(PluginKind.KL, DEFAULTS["algorithm.kl_kind"])()
    objective = PolicyObjective(loss=loss, kl_coeff=DEFAULTS["algorithm.kl_coeff"], kl_kind=kl)
    logprobs = torch.tensor([-1.0, -1.0, -1.0], dtype=torch.float64)
    seen = LossBatch(
        row=torch.tensor([0, 0, 1]),
        lengths=torch.tensor([2, 1]),
        advantages=torch.from_numpy(batch.advantages.astype(np.float64)),
        old_logprobs=logprobs,
        rollout_logprobs=logprobs,
        weights=torch.from_numpy(batch.weights.astype(np.float64)),
        reference_logprobs=logprobs + torch.tensor([0.3, 0.0, 0.0]),
    )
    total, _ = objective(logprobs, seen)
    advantage = 0.5 / (0.5**0.5 + 1e-4)
    k3 = np.exp(0.3) - 1 - 0.3
    expected = (-advantage + 0.01 * k3 / 2) / 2 + advantage / 2
    assert float(total) == pytest.approx(expected, rel=1e-5)


def rollout(index: int, length: int) -> Rollout:
    segment = Segment(
        context_ids=[1],
        token_ids=np.arange(length),
        logprobs=-np.ones(length),
        versions=np.zeros(length),
        policy_mask=np.ones(length),
    )
    return Rollout(prompt_id="p", index=index, segments=(segment,), text="", finish=FinishReason.STOP)
