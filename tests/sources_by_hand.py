"""Two sources in one batch, and the loss of an optimizer step on them, written out by hand: loops over rollouts, no code of rlcore's.

Source 0 ("math"): groups of 8, GRPO, the mean over tokens, KL in the loss, rollouts whose ratio is above 3.5 are skipped.
Source 1 ("talk"): groups of 4, RLOO, the mean over rollouts, KL in the reward, a mask for data of another policy, truncated ones left out.
The loss of both prepares the batch (KL-Cov), with other options in each.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rlcore_plugin_grpo.kl_cov import KlCovLoss, KlCovOptions
from rlcore_plugin_rloo.leave_one_out import LeaveOneOut

from rlcore.api import FinishReason, Group, Objective, Rollout, Score, Segment, TrainBatch
from rlcore.learning import BatchSettings, PolicyObjective
from rlcore.learning.advantages import GroupNorm
from rlcore.learning.aggregation import SampleLevel, TokenLevel
from rlcore.learning.correction import Masked
from rlcore.roles.algorithm import Algorithm, MixedAlgorithm

__all__ = [
    "MASKED",
    "NAMES",
    "VOCABULARY",
    "Told",
    "log_probabilities",
    "loss_by_hand",
    "make_groups",
    "mixed_algorithm",
    "near",
    "who",
    "whole_step",
]

NAMES = ("math", "talk")
MASKED = (3, 6)
"""The places of the groups that a filter took out, one of each source: they count as prompts of a step and do not train."""
_LIMIT = 9

VOCABULARY = 97
"""Of the tiny models of ``tests.tiny_qwen2.SIZES``."""

Values = Callable[[Rollout], np.ndarray]
Told = Mapping[tuple[str, int], np.ndarray]


def who(rollout: Rollout) -> tuple[str, int]:
    return rollout.prompt_id, rollout.index


def make_groups(vocabulary: int, sampled: Callable[[Rollout], Rollout] = lambda rollout: rollout) -> list[Group]:
    """Eight groups of the two sources, in turns. ``sampled`` gives a rollout the sampler's log probabilities."""
    return [_group(vocabulary, place, source, sampled) for place, source in enumerate((0, 1, 1, 0, 1, 0, 1, 1))]


def _group(vocabulary: int, place: int, source: int, sampled: Callable[[Rollout], Rollout]) -> Group:
    draw = np.random.default_rng([7, place])
    context = draw.integers(1, vocabulary, 2 + place % 3).tolist()
    rollouts, scores = [], []
    for index in range((8, 4)[source]):
        length = 0 if (place, index) == (5, 2) else int(draw.integers(1, _LIMIT + 1))
        whole = _segment(draw, vocabulary, context, length)
        parts = (whole, _segment(draw, vocabulary, [*context, 1, 2], 3)) if (place + index) % 5 == 4 else (whole,)
        finish = FinishReason.LENGTH if length == _LIMIT else FinishReason.STOP
        made = Rollout(prompt_id=f"p{place}", index=index, segments=parts, text=f"{index}", finish=finish, temperature=(1.0, 0.8)[source])
        rollouts.append(sampled(made))
        scores.append(Score(value=float(draw.integers(0, 5)) / 4, in_loss=(place, index) != (1, 3)))
    return Group(prompt_id=f"p{place}", episode=0, prompt_index=place, rollouts=tuple(rollouts), scores=tuple(scores), source_index=source)


def _segment(draw: np.random.Generator, vocabulary: int, context: list[int], length: int) -> Segment:
    arrays: dict[str, Any] = {"logprobs": draw.normal(-3, 0.5, length), "versions": np.zeros(length), "policy_mask": np.ones(length)}
    if length > 4:
        arrays["policy_mask"][2] = 0
    return Segment(context_ids=context, token_ids=draw.integers(1, vocabulary, length), **arrays)


def mixed_algorithm(updates: int = 1, epochs: int = 1) -> MixedAlgorithm:
    """The algorithms of the two sources, as rlcore puts them together."""
    losses = [KlCovLoss(KlCovOptions(kl_cov_share=share, kl_cov_coeff=coeff)) for share, coeff in ((0.2, 1.0), (0.3, 0.5))]
    steps: dict[str, Any] = {"seed": 5, "updates_per_batch": updates, "epochs_per_batch": epochs}
    math = Algorithm(
        estimator_name="group_norm",
        estimator=GroupNorm(),
        loss_name="kl_cov",
        loss=losses[0],
        objective=PolicyObjective(loss=losses[0], name="kl_cov", kl_coeff=0.05, skip_threshold=3.5),
        batch=BatchSettings(max_new_tokens=_LIMIT, variation=TokenLevel()),
        whole_rollouts=True,
        **steps,
    )
    talk = Algorithm(
        estimator_name="rloo",
        estimator=LeaveOneOut(),
        loss_name="kl_cov",
        loss=losses[1],
        objective=PolicyObjective(loss=losses[1], name="kl_cov", correction=Masked((0.5, 2.0))),
        batch=BatchSettings(max_new_tokens=_LIMIT, variation=SampleLevel(), filter_truncated=True),
        kl_in_reward=0.1,
        **steps,
    )
    return MixedAlgorithm(NAMES, (math, talk))


def whole_step(old: Told, reference: Told) -> tuple[TrainBatch, Objective]:
    """The one step of an update, with these log probabilities, as the consumer assembles it."""
    mixed, groups = mixed_algorithm(), make_groups(VOCABULARY)
    batch = mixed.assemble(groups, MASKED, 3)
    batch = replace(batch, old_logprobs=in_order(groups, old), reference_logprobs=in_order(groups, reference))
    batch = mixed.prepare(replace(batch, advantages=mixed.advantages(groups, MASKED, batch)))
    return mixed.steps(batch)[0], mixed.objective


def in_order(groups: list[Group], told: Told) -> np.ndarray:
    return np.concatenate([told[who(one)] for group in groups for one in group.rollouts])


def near(now: Callable[[Rollout], torch.Tensor], groups: Sequence[Group], seed: int) -> dict[tuple[str, int], np.ndarray]:
    """float32 [n] log probabilities of each rollout, some 0.6 off those of ``now``."""
    found = {}
    with torch.no_grad():
        for place, group in enumerate(groups):
            for one in group.rollouts:
                noise = np.random.default_rng([seed, place, one.index]).normal(0, 0.6, one.length)
                found[who(one)] = (now(one).double().numpy() + noise).astype(np.float32)
    return found


def log_probabilities(model: torch.nn.Module) -> Callable[[Rollout], torch.Tensor]:
    """float64 [n] of a rollout, a segment at a time."""

    def of(rollout: Rollout) -> torch.Tensor:
        found = []
        for part in rollout.segments:
            ids = torch.tensor(np.concatenate([part.context_ids, part.token_ids]), dtype=torch.int64)
            over = (model(input_ids=ids[None]).logits[0] / rollout.temperature).log_softmax(-1)
            places = [len(part.context_ids) + at for at in np.flatnonzero(part.policy_mask)]
            found += [over[at - 1, ids[at]] for at in places]
        return torch.stack(found) if found else torch.zeros(0, dtype=torch.float64)

    return of


# --- by hand -----------------------------------------------------------------------------------------------------------


def loss_by_hand(
    groups: Sequence[Group], step: Collection[str], now: Callable[[Rollout], torch.Tensor], old: Values, reference: Values
) -> dict[str, torch.Tensor]:
    """The loss of each source in the optimizer step on the prompts ``step``; the step minimises their sum.

    :param now: float64 [n] log probabilities of a rollout under the policy, differentiable.
    :param old: float32 [n] those before the update; ``reference`` those of the reference.
    """
    found = {}
    for source, name in enumerate(NAMES):
        own = [group for group in groups if group.source_index == source]
        advantages = _grpo(own) if source == 0 else _rloo(own, old, reference)
        trained = [
            rollout for group in own for rollout, score in zip(group.rollouts, group.scores, strict=True) if _trains(group, rollout, score)
        ]
        held = _held(trained, advantages, old, (0.2, 0.3)[source])
        here = [rollout for rollout in trained if rollout.prompt_id in step]
        share = sum(group.prompt_id in step for group in own) / len(step)
        total = torch.zeros((), dtype=torch.float64)
        for rollout in here:
            weight = share / sum(one.length for one in here) if source == 0 else share / (len(here) * rollout.length)
            total = total + float(np.float32(weight)) * _rollout_sum(
                source, rollout, float(advantages[who(rollout)]), held, now, old, reference
            )
        found[name] = total
    return found


def _trains(group: Group, rollout: Rollout, score: Score) -> bool:
    cut_off = group.source_index == 1 and rollout.finish is FinishReason.LENGTH
    return group.prompt_index not in MASKED and score.in_loss and rollout.length > 0 and not cut_off


def _grpo(groups: Sequence[Group]) -> dict[tuple[str, int], np.float32]:
    found = {}
    for group in groups:
        rewards = [score.value for score in group.scores]
        mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
        for rollout, reward in zip(group.rollouts, rewards, strict=True):
            found[who(rollout)] = np.float32((reward - mean) / (deviation + 1e-4))
    return found


def _rloo(groups: Sequence[Group], old: Values, reference: Values) -> dict[tuple[str, int], np.float32]:
    found = {}
    for group in groups:
        rewards = []
        for rollout, score in zip(group.rollouts, group.scores, strict=True):
            gap = old(rollout).astype(np.float64) - reference(rollout).astype(np.float64)
            rewards.append(score.value - 0.1 * float(gap.sum()))
        for place, rollout in enumerate(group.rollouts):
            others = rewards[:place] + rewards[place + 1 :]
            found[who(rollout)] = np.float32(rewards[place] - statistics.fmean(others))
    return found


def _held(
    trained: Sequence[Rollout], advantages: Mapping[tuple[str, int], np.float32], old: Values, share: float
) -> dict[tuple[str, int], set[int]]:
    """The tokens of highest covariance of advantage and log probability among all that train, by rollout."""
    tokens = [
        (who(rollout), at, float(advantages[who(rollout)]), float(value)) for rollout in trained for at, value in enumerate(old(rollout))
    ]
    means = [statistics.fmean(token[column] for token in tokens) for column in (2, 3)]
    tokens.sort(key=lambda token: (token[2] - means[0]) * (token[3] - means[1]), reverse=True)
    found: dict[tuple[str, int], set[int]] = {}
    for rollout, at, *_ in tokens[: max(1, int(share * len(tokens)))]:
        found.setdefault(rollout, set()).add(at)
    return found


def _rollout_sum(
    source: int,
    rollout: Rollout,
    advantage: float,
    held: Mapping[tuple[str, int], set[int]],
    now: Callable[[Rollout], torch.Tensor],
    old: Values,
    reference: Values,
) -> torch.Tensor:
    new, before, anchor = now(rollout), old(rollout).astype(np.float64), reference(rollout).astype(np.float64)
    sampler = np.concatenate([part.logprobs[part.policy_mask] for part in rollout.segments]).astype(np.float64)
    if source == 0 and bool((torch.exp(new.detach() - torch.from_numpy(before)) > 3.5).any()):
        return new.sum() * 0.0
    total = torch.zeros((), dtype=torch.float64)
    for at in range(rollout.length):
        move = new[at] - float(before[at])
        loss = -torch.exp(move) * advantage
        if at in held.get(who(rollout), set()):
            loss = loss + (1.0, 0.5)[source] * move.abs()
        if source == 0:
            gap = float(anchor[at]) - new[at]
            loss = loss + 0.05 * (torch.exp(gap) - 1.0 - gap)
        else:
            ratio = float(np.exp(before[at] - sampler[at]))
            loss = loss * (ratio if 0.5 <= ratio <= 2.0 else 0.0)
        total = total + loss
    return total
