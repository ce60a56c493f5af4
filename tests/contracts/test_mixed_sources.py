"""Two sources with other algorithms in one batch: every optimizer step has the gradient that is summed up by hand, however it is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from tiny_update import VOCABULARY, WHOLE, Cut, Policy, Trainer, sampled_by, with_logprobs

from rlcore.api import Group, Rollout
from rlcore.contracts.interfaces import ModelRole
from rlcore.roles.consumer import Consumer
from rlcore.schedule.accounting import TimeAccount
from tests.sources_by_hand import MASKED, NAMES, loss_by_hand, make_groups, mixed_algorithm

STEPS = pytest.mark.parametrize(("updates", "epochs"), [(1, 1), (3, 1), (2, 2)])


@cache
def groups() -> tuple[Group, ...]:
    return tuple(make_groups(VOCABULARY, with_logprobs))


def key(rollout: Rollout) -> str:
    return f"{rollout.prompt_id} {rollout.index}"


@cache
def before(which: ModelRole) -> dict[str, np.ndarray]:
    """What the trainer answers before the update, by rollout; it is asked segment by segment."""
    label = f"{which} {int(which is ModelRole.POLICY)}"
    policy = Policy()
    return {
        key(one): np.concatenate([sampled_by(policy, replace(one, segments=(part,)), label) for part in one.segments])
        for group in groups()
        for one in group.rollouts
    }


def answer(which: ModelRole, rollout: Rollout) -> np.ndarray:
    return before(which)[key(rollout)]


def log_probabilities(policy: Policy, rollout: Rollout) -> torch.Tensor:
    """float64 [n], segment by segment."""
    values = []
    for segment in rollout.segments:
        places = np.arange(len(segment.token_ids)) + len(segment.context_ids) - 1
        row = torch.tensor(np.concatenate([segment.context_ids, segment.token_ids]), dtype=torch.int64)[None]
        over = (policy.logits(row)[0, places] / rollout.temperature).log_softmax(-1)
        taken = over[torch.arange(len(places)), torch.tensor(segment.token_ids, dtype=torch.int64)]
        values.append(taken[torch.from_numpy(np.array(segment.policy_mask))])
    return torch.cat(values)


def trained(updates: int, epochs: int, cut: Cut = WHOLE) -> tuple[Trainer, dict[str, float]]:
    trainer = Trainer(cut=cut)
    consumer = Consumer(trainer, mixed_algorithm(updates, epochs), TimeAccount())  # type: ignore[arg-type]
    return trainer, dict(consumer.update(groups(), MASKED, version=3))


def by_hand(steps: Sequence[set[str]]) -> tuple[list[torch.Tensor], list[dict[str, float]]]:
    """The gradient of each step, and the losses of the sources."""
    policy, gradients, losses = Policy(), [], []
    for step in steps:
        old, reference = (partial(answer, which) for which in (ModelRole.POLICY, ModelRole.REFERENCE))
        found = loss_by_hand(groups(), step, partial(log_probabilities, policy), old, reference)
        for weight in policy.weights.values():
            weight.grad = torch.zeros_like(weight)
        torch.stack([*found.values()]).sum().backward()
        gradients.append(policy.gradient().clone())
        losses.append({name: float(value.detach()) for name, value in found.items()})
        policy.move(-0.3 * gradients[-1])
    return gradients, losses


@STEPS
@pytest.mark.parametrize(
    "cut", [WHOLE, Cut(rollouts=1), Cut(rollouts=3), Cut(padding=5), Cut(ranks=2), Cut(ranks=3, rollouts=2), Cut(ranks=50)], ids=str
)
def test_the_gradient_is_the_sum_by_hand(updates: int, epochs: int, cut: Cut) -> None:
    trainer, metrics = trained(updates, epochs, cut)
    steps = [{rollout.prompt_id for rollout in part.rollouts} for part in trainer.parts]
    assert len(steps) == updates * epochs
    assert sorted(prompt for step in steps for prompt in step) == sorted(f"p{place}" for place in range(8) for _ in range(epochs))
    gradients, losses = by_hand(steps)
    for mine, theirs in zip(trainer.gradients, gradients, strict=True):
        assert float((mine - theirs).norm()) <= 1e-9 * float(theirs.norm())
    assert metrics["loss"] == pytest.approx(np.mean([sum(loss.values()) for loss in losses]), rel=1e-9)


def test_what_should_act_does() -> None:
    """Skips, the mask of the correction, chosen tokens and both penalties are at work in the comparison above."""
    _, metrics = trained(2, 2)
    assert metrics["skipped_rollouts"] == metrics["source/math/skipped_rollouts"] > 0
    assert 0.0 < metrics["source/talk/mismatch_cut"] < 1.0
    assert "source/math/mismatch_cut" not in metrics
    assert metrics["source/math/loss"] != metrics["source/math/policy_loss"]
    assert metrics["source/talk/loss"] == metrics["source/talk/policy_loss"]
    assert [metrics[f"source/{name}/loss/held"] for name in NAMES] == pytest.approx([0.2, 0.3], abs=0.05)


def test_figures_are_means_over_all_tokens_and_those_of_each_source() -> None:
    trainer, metrics = trained(1, 1)
    assert {name.split("/")[1] for name in metrics if name.startswith("source/")} == set(NAMES)
    _, (losses,) = by_hand([{f"p{place}" for place in range(8)}])
    share = {"math": 3 / 8, "talk": 5 / 8}  # masked groups are prompts of the step, too
    for name, loss in losses.items():
        assert metrics[f"source/{name}/loss"] == pytest.approx(loss / share[name], rel=1e-6)
    tokens = [metrics[f"source/{name}/tokens"] for name in NAMES]
    assert sum(tokens) == metrics["tokens"] == trainer.parts[0].normalisers.tokens
    for figure in ("ratio_mean", "sampler_gap", "kl_reference", "loss/held"):
        own = [metrics[f"source/{name}/{figure}"] for name in NAMES]
        assert metrics[figure] == pytest.approx(np.dot(own, tokens) / sum(tokens), rel=1e-9)
    sizes = [metrics[f"source/{name}/effective_sample_size"] for name in NAMES]
    assert all(0.0 < size < 1.0 for size in [*sizes, metrics["effective_sample_size"]])
    assert not [name for name in metrics if "sampler_weight" in name]
