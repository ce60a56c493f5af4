"""One update of one algorithm on nine ragged groups, through the real consumer, with a tiny float64 policy for a trainer.

The trainer is cut into ranks and micro-batches as the test asks; everything above it is what a run uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from zlib import crc32

import numpy as np
import pytest
import torch

from rlcore.api import FinishReason, Group, Need, Outcome, Rollout, Score, Segment, TrainBatch
from rlcore.contracts.interfaces import ModelRole, Objective
from rlcore.contracts.types import RolloutKind
from rlcore.learning import collate, plan_micro_batches
from rlcore.learning.collation import MicroBatch
from rlcore.roles.algorithm import Algorithm
from rlcore.roles.consumer import Consumer
from rlcore.schedule.accounting import TimeAccount

VOCABULARY, LIMIT = 11, 16
FILTERED = "p5"
"""The group that the group filter took out: it counts in statistics and does not train."""

# --- the policy and the trainer ----------------------------------------------------------------------------------------


class Policy:
    """A causal float64 network: each place sees its token and the mean of all before, so a wrong or padded place shows."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        shapes = {"embedding": (VOCABULARY, 5), "past": (5, 5), "out": (5, VOCABULARY)}
        self.weights = {
            name: (1.2 * torch.randn(shape, generator=draw, dtype=torch.float64)).requires_grad_() for name, shape in shapes.items()
        }

    def logits(self, input_ids: torch.Tensor) -> torch.Tensor:
        """int64[B, T] -> [B, T, V]."""
        tokens = self.weights["embedding"][input_ids]
        places = torch.arange(1, input_ids.shape[1] + 1, dtype=torch.float64)[:, None]
        return torch.tanh(tokens + tokens.cumsum(1) / places @ self.weights["past"]) @ self.weights["out"]

    def read(self, logits: torch.Tensor, micro: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """[n] log probability of each policy token, [n] entropy, at the temperatures that they were sampled at."""
        temperature = torch.as_tensor(micro.temperature, dtype=torch.float64).reshape(-1, 1)
        over = (logits.flatten(0, 1)[micro.select] / temperature).log_softmax(-1)
        return over.gather(1, micro.targets[:, None])[:, 0], -(over.exp() * over).sum(-1)

    def flat(self) -> torch.Tensor:
        return torch.cat([weight.detach().flatten() for weight in self.weights.values()])

    def gradient(self) -> torch.Tensor:
        return torch.cat([weight.grad.flatten() for weight in self.weights.values() if weight.grad is not None])

    def move(self, by: torch.Tensor) -> None:
        with torch.no_grad():
            for weight, step in zip(self.weights.values(), by.split([weight.numel() for weight in self.weights.values()]), strict=True):
                weight += step.view_as(weight)


@dataclass(frozen=True)
class Cut:
    """How a step is cut: ranks, rollouts a forward, columns of padding behind the widest row."""

    rollouts: int = 10_000
    ranks: int = 1
    padding: int = 0

    def micro_batches(self, part: TrainBatch) -> list[MicroBatch]:
        found = []
        for rank in range(self.ranks):
            share = part.take(np.arange(rank, len(part), self.ranks))
            plan = plan_micro_batches(share, rollouts=self.rollouts, tokens=1_000_000, prompts=1_000)
            found += [self.padded(collate(share, rows)) for rows in plan]
        return found

    def padded(self, micro: MicroBatch) -> MicroBatch:
        """Padding columns full of a real token: what is there must not matter."""
        rows, width = micro.input_ids.shape
        more = torch.full((rows, self.padding), 7)
        moved = micro.select // width * (width + self.padding) + micro.select % width
        return replace(micro, input_ids=torch.cat([micro.input_ids, more], 1), select=moved)


WHOLE = Cut()
Who = tuple[str, int]
"""A rollout, whatever the order of the batch: prompt, index."""


def who(rollout: Rollout) -> Who:
    return rollout.prompt_id, rollout.index


@dataclass
class Trainer:
    """Stands for a training backend. Its log probabilities are the policy's and noise fixed to the token, so that ratios leave every
    clip and old, sampled and reference policy all differ. ``spoilt``: rollouts for which it answers NaN."""

    cut: Cut = WHOLE
    spoilt: frozenset[Who] = frozenset()
    policy: Policy = field(default_factory=Policy)
    parts: list[TrainBatch] = field(default_factory=list)
    gradients: list[torch.Tensor] = field(default_factory=list)
    asked: int = 0
    data_parallel = (0, 1)  # its ranks are cut below ``update``

    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        self.asked += which is ModelRole.POLICY
        label = f"{which} {self.asked}"
        return np.concatenate([np.zeros(0, np.float32), *(self._of(batch, row, label) for row in range(len(batch)))])

    def _of(self, batch: TrainBatch, row: int, label: str) -> np.ndarray:
        own = sampled_by(self.policy, batch.rollouts[row], label)
        return np.full_like(own, np.nan) if who(batch.rollouts[row]) in self.spoilt else own

    def update(self, part: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """One step of plain gradient descent; the metrics, summed over micro-batches and ranks."""
        self.parts.append(part)
        gradient, metrics = differentiate(self.policy, part, objective, self.cut)
        self.gradients.append(gradient)
        self.policy.move(-0.3 * gradient)
        return metrics

    def timings(self) -> Mapping[str, float]:
        return {}


def differentiate(policy: Policy, part: TrainBatch, objective: Objective, cut: Cut = WHOLE) -> tuple[torch.Tensor, dict[str, float]]:
    totals: dict[str, float] = {}
    for weight in policy.weights.values():
        weight.grad = torch.zeros_like(weight)
    for micro in cut.micro_batches(part):
        loss, metrics = evaluate(policy, policy.logits(micro.input_ids), micro, objective)
        loss.backward()
        for name, value in metrics.items():
            totals[name] = totals.get(name, 0.0) + float(value)
    return policy.gradient(), totals


def evaluate(
    policy: Policy, logits: torch.Tensor, micro: MicroBatch, objective: Objective
) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
    logprobs, entropy = policy.read(logits, micro)
    return objective(logprobs, micro.loss_batch(logprobs, entropy if Need.ENTROPY in objective.needs else None))


def sampled_by(policy: Policy, rollout: Rollout, label: str) -> np.ndarray:
    """float32 log probabilities of a rollout's policy tokens, off the policy's by what ``label`` and the rollout's text decide."""
    values = []
    for segment in rollout.segments:
        places = np.arange(len(segment.token_ids)) + len(segment.context_ids) - 1
        row = torch.tensor(np.concatenate([segment.context_ids, segment.token_ids]), dtype=torch.int64)[None]
        over = (policy.logits(row)[0, places] / (rollout.temperature or 1.0)).log_softmax(-1).detach().numpy()
        values.append(over[np.arange(len(places)), segment.token_ids][segment.policy_mask])
    own = np.concatenate(values)
    noise = np.random.default_rng(crc32(f"{label} {rollout.prompt_id} {rollout.text}".encode())).normal(0, 0.8, len(own))
    return (own + noise).astype(np.float32)


# --- scored groups -----------------------------------------------------------------------------------------------------


def make_rollout(
    prompt: str, index: int, length: int, context: list[int], *, kind: RolloutKind = RolloutKind.SAMPLED, forced: bool = False
) -> Rollout:
    """``text`` names it for good, whatever index it is given later. Forced tokens are every third; two segments where there are some."""
    draw = np.random.default_rng([int(prompt[1:]), index])
    ids = draw.integers(0, VOCABULARY, length)
    pieces = [ids[: length // 2], ids[length // 2 :]] if forced else [ids]
    segments, past = [], context
    for piece in pieces:
        mask = np.array([not forced or place % 3 != 1 for place in range(len(piece))], np.bool_)
        nothing = np.zeros(len(piece))
        segments.append(Segment(context_ids=past, token_ids=piece, logprobs=nothing, versions=nothing, policy_mask=mask))
        past = [*past, *piece.tolist(), 3, 4]
    warmth = 0.0 if kind is RolloutKind.GREEDY else (0.8, 1.3, 1.0)[(int(prompt[1:]) + index) % 3]
    finish = FinishReason.LENGTH if length == LIMIT else FinishReason.STOP
    bare = Rollout(
        prompt_id=prompt, index=index, segments=tuple(segments), text=f"{kind} {index}", finish=finish, kind=kind, temperature=warmth
    )
    return with_logprobs(bare)


def with_logprobs(rollout: Rollout) -> Rollout:
    """With the sampler's log probabilities at the rollout's temperature; 0 at forced tokens."""
    values, segments, start = sampled_by(Policy(), rollout, "sampler"), [], 0
    for segment in rollout.segments:
        spread = np.zeros(len(segment.token_ids), np.float32)
        count = int(segment.policy_mask.sum())
        spread[segment.policy_mask] = values[start : start + count]
        segments.append(replace(segment, logprobs=spread))
        start += count
    return replace(rollout, segments=tuple(segments))


LENGTHS = [[5, 0, 9, 2], [3, 6, 1], [7], [LIMIT, 4, 8, 13, 15], [6, 2, 10], [4, 4, 12, 1], [5, 3, 14], [9, 6, 11, 12], [2, 5]]
REWARDS = [
    [1.0, 0.0, 0.25, 1.0],
    [0.7, 0.7, 0.7],  # all equal
    [1.0],  # a group of one
    [0.0, 1.0, 0.5, 1.0, 0.0],  # the first is truncated, others near the limit
    [1.0, 0.0, 0.5],  # the first is out of the loss
    [0.0, 1.0, 1.0, 0.25],  # the group filter took it out
    [1.0, 0.0, 1.0],  # the last was aborted
    [0.5, 0.0, 1.0, 0.0],  # forced tokens, two segments
    [1.0, 0.0],  # nothing could be judged
]


@cache
def make_groups() -> tuple[Group, ...]:
    """Nine ragged groups, each with a greedy completion (unjudged in the last but one) that only ReMax may look at."""
    groups = []
    for number, (lengths, rewards) in enumerate(zip(LENGTHS, REWARDS, strict=True)):
        prompt, context = f"p{number}", [1 + number, 2, 1 + number % 3]
        rollouts = [make_rollout(prompt, index, length, context, forced=number == 7) for index, length in enumerate(lengths)]
        scores = [Score(value=reward, accuracy=reward) for reward in rewards]
        if number == 3:
            scores[1] = Score.failed(Outcome.TIMEOUT, "no verdict")
        if number == 4:
            scores[0] = replace(scores[0], in_loss=False)
        if number == 6:
            rollouts[-1] = replace(rollouts[-1], finish=FinishReason.ABORTED)
        if number == 8:
            scores = [Score.failed(Outcome.ERROR, "the judge raised") for _ in scores]
        rollouts.append(make_rollout(prompt, len(lengths), 4, context, kind=RolloutKind.GREEDY))
        scores.append(Score.failed(Outcome.TIMEOUT, "no verdict") if number == 7 else Score(value=0.25 * (number % 4)))
        groups.append(Group(prompt_id=prompt, episode=0, prompt_index=number, rollouts=tuple(rollouts), scores=tuple(scores)))
    return tuple(groups)


def rewritten(groups: Sequence[Group], change: Callable[[Group, Rollout, Score], tuple[Rollout, Score]]) -> list[Group]:
    changed = []
    for group in groups:
        pairs = [change(group, rollout, score) for rollout, score in zip(group.rollouts, group.scores, strict=True)]
        changed.append(replace(group, rollouts=tuple(pair[0] for pair in pairs), scores=tuple(pair[1] for pair in pairs)))
    return changed


# --- one update --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """One update: the trainer with its parts and gradients, the consumer's metrics."""

    trainer: Trainer
    metrics: Mapping[str, float]

    def advantages(self) -> dict[tuple[str, str], list[float]]:
        """By prompt and text, of every rollout with a token that trains or not."""
        return {
            (rollout.prompt_id, rollout.text): batch.advantages[batch.offsets[row] : batch.offsets[row + 1]].tolist()
            for batch in self.trainer.parts
            for row, rollout in enumerate(batch.rollouts)
        }


def update(algorithm: Algorithm, groups: Sequence[Group], cut: Cut = WHOLE, spoilt: frozenset[Who] = frozenset()) -> Done:
    trainer = Trainer(cut=cut, spoilt=spoilt)
    masked = [place for place, group in enumerate(groups) if group.prompt_id == FILTERED]
    consumer = Consumer(trainer, algorithm, TimeAccount())  # type: ignore[arg-type]
    return Done(trainer, consumer.update(groups, masked, version=3))


def assert_same(got: Done, expected: Done, tolerance: float) -> None:
    """Gradient of every step, the weights they end in, every figure."""
    assert len(got.trainer.gradients) == len(expected.trainer.gradients)
    for mine, theirs in zip(got.trainer.gradients, expected.trainer.gradients, strict=True):
        assert float((mine - theirs).norm()) <= tolerance * float(theirs.norm())
    assert float((got.trainer.policy.flat() - expected.trainer.policy.flat()).norm()) < tolerance
    assert dict(got.metrics) == pytest.approx(dict(expected.metrics), rel=tolerance, abs=tolerance)


def differs(got: Done, expected: Done) -> bool:
    pairs = zip(got.trainer.gradients, expected.trainer.gradients, strict=True)
    return any(float((mine - theirs).norm()) > 1e-3 * float(theirs.norm()) for mine, theirs in pairs)
