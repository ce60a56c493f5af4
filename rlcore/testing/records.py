"""Makers of valid records for tests: requests, rollouts, reward batches, train batches.

Axes: ``R`` rollouts, ``N`` policy tokens, ``C`` context tokens, ``T`` tokens of a response.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlcore.contracts.batches import Normalisers, RewardBatch, TrainBatch
from rlcore.contracts.group_outlines import outline_of
from rlcore.contracts.interfaces import RewardDetail
from rlcore.contracts.types import FinishReason, Group, Request, Rollout, Sampling, Score, Segment

__all__ = ["make_request", "make_reward_batch", "make_rollout", "make_train_batch", "with_outlines"]


def make_request(
    request_id: str,
    token_ids: Sequence[int] | np.ndarray,
    *,
    noise: int = 0,
    max_new_tokens: int = 16,
    temperature: float = 1.0,
    stop: tuple[str, ...] = (),
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
) -> Request:
    """Return a request whose stream is ``(0, 0, 0, noise)``."""
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, max_new_tokens=max_new_tokens, stop=stop, min_p=min_p)
    return Request(request_id=request_id, token_ids=np.asarray(token_ids), sampling=sampling, noise=(0, 0, 0, noise))


def make_rollout(
    context: Sequence[int],
    tokens: Sequence[int],
    *,
    logprobs: Sequence[float] | None = None,
    policy_mask: Sequence[bool] | None = None,
    prompt_id: str = "p0",
    index: int = 0,
    text: str = "",
    finish: FinishReason = FinishReason.STOP,
    temperature: float = 1.0,
) -> Rollout:
    """Make a rollout of one segment: all versions 0, log probabilities -1 and every token sampled unless given."""
    segment = Segment(
        context_ids=context,  # type: ignore[arg-type]
        token_ids=tokens,  # type: ignore[arg-type]
        logprobs=logprobs if logprobs is not None else [-1.0] * len(tokens),  # type: ignore[arg-type]
        versions=[0] * len(tokens),  # type: ignore[arg-type]
        policy_mask=policy_mask if policy_mask is not None else [True] * len(tokens),  # type: ignore[arg-type]
    )
    return Rollout(prompt_id=prompt_id, index=index, segments=(segment,), text=text, finish=finish, temperature=temperature)


def make_reward_batch(
    rewards: Sequence[float],
    group: Sequence[int],
    *,
    in_statistics: Sequence[bool] | None = None,
    in_loss: Sequence[bool] | None = None,
    lengths: Sequence[int] | None = None,
    kl: Sequence[float] | None = None,
    kl_coeff: float = 0.0,
    greedy: Sequence[float] | None = None,
    needs: Collection[RewardDetail] = (),
) -> RewardBatch:
    """Make a batch: every rollout is in statistics and three tokens long unless given. Rollouts in statistics are in the loss; ``kl`` is
    per token. ``needs``: the details that an estimator declares: one part, ``reward``, which is the reward (also without its
    weight), token rewards of 0, two turns a rollout, a prompt a group."""
    counts = np.array(lengths if lengths is not None else [3] * len(rewards), np.int64)
    counted = np.array(in_statistics if in_statistics is not None else [True] * len(rewards), np.bool_)
    tokens, first = int(counts.sum()), counts // 2
    extras: dict[RewardDetail, dict[str, Any]] = {
        RewardDetail.PARTS: {"parts": {"reward": np.array(rewards, np.float64)}},
        RewardDetail.RAW_PARTS: {"raw_parts": {"reward": np.array(rewards, np.float64)}},
        RewardDetail.TOKEN_REWARDS: {"token_rewards": np.zeros(tokens)},
        RewardDetail.PROMPT_IDS: {"prompt_ids": tuple(f"p{number}" for number in range(max(group, default=-1) + 1))},
        RewardDetail.TURNS: {
            "turn_lengths": np.stack([first, counts - first], 1).reshape(-1),
            "turn_offsets": 2 * np.arange(len(rewards) + 1),
        },
        RewardDetail.ROLLOUT_LOGPROBS: {"rollout_logprobs": np.full(tokens, -1.0)},
    }
    return RewardBatch(
        rewards=np.array(rewards, np.float64),
        group=np.array(group, np.int64),
        in_statistics=counted,
        in_loss=counted if in_loss is None else np.array(in_loss, np.bool_),
        lengths=counts,
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        kl=None if kl is None else np.array(kl, np.float64),
        kl_coeff=kl_coeff,
        greedy=None if greedy is None else np.array(greedy, np.float64),
        **{name: value for need in needs for name, value in extras[need].items()},
    )


def make_train_batch(
    rollouts: Sequence[Rollout],
    advantages: Sequence[float],
    *,
    group: Sequence[int] | None = None,
    in_loss: Sequence[bool] | None = None,
    old_logprobs: np.ndarray | None = None,
    reference_logprobs: np.ndarray | None = None,
) -> TrainBatch:
    """Return a batch with one advantage a rollout and token-level weights (1 / tokens in the loss); ``old_logprobs`` and
    ``reference_logprobs`` float32[N]."""
    trains = np.array(in_loss if in_loss is not None else [True] * len(rollouts), np.bool_)
    lengths = np.array([rollout.length for rollout in rollouts], np.int64)
    tokens = int(lengths[trains].sum())
    sampled = [segment.logprobs[segment.policy_mask] for rollout in rollouts for segment in rollout.segments]
    return TrainBatch(
        rollouts=tuple(rollouts),
        group=np.array(group if group is not None else range(len(rollouts)), np.int64),
        in_loss=trains,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        advantages=np.repeat(np.array(advantages, np.float32), lengths),
        rollout_logprobs=np.concatenate([np.zeros(0, np.float32), *sampled]),
        weights=np.repeat(np.where(trains, 1.0 / max(tokens, 1), 0.0), lengths).astype(np.float32),
        normalisers=Normalisers(tokens=tokens, rollouts=int((trains & (lengths > 0)).sum()), length=int(lengths.max(initial=1))),
        old_logprobs=old_logprobs,
        reference_logprobs=reference_logprobs,
    )


def with_outlines(batch: TrainBatch) -> TrainBatch:
    """Return the batch as another trainer rank has it: outlines in place of its rollouts."""
    scores = tuple(Score(value=0.0) for _ in batch.rollouts)
    return replace(
        batch, rollouts=outline_of(Group(prompt_id="", episode=0, prompt_index=0, rollouts=batch.rollouts, scores=scores)).rollouts
    )
