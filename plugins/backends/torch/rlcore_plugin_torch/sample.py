"""A tiny batch to try a model on: one prompt and three completions of different lengths."""

from __future__ import annotations

import numpy as np

from rlcore.api import Finish, Normalisers, Rollout, Segment, TrainBatch

__all__ = ["sample_batch"]


def sample_batch(vocabulary: int) -> TrainBatch:
    """Four context tokens and completions of 3, 2 and 4; token ids spread over the vocabulary."""
    lengths = [3, 2, 4]
    ids = np.random.default_rng(0).integers(0, vocabulary, size=4 + sum(lengths))
    starts = np.cumsum([4, *lengths])
    rollouts = tuple(
        _rollout(index, ids[:4], ids[start : start + length]) for index, (start, length) in enumerate(zip(starts, lengths, strict=False))
    )
    tokens = sum(lengths)
    return TrainBatch(
        rollouts=rollouts,
        group=np.zeros(len(lengths), np.int64),
        in_loss=np.ones(len(lengths), np.bool_),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        advantages=np.zeros(tokens, np.float32),
        rollout_logprobs=np.zeros(tokens, np.float32),
        weights=np.full(tokens, 1.0 / tokens, np.float32),
        normalisers=Normalisers(tokens=tokens, rollouts=len(lengths), length=max(lengths)),
    )


def _rollout(index: int, context: np.ndarray, tokens: np.ndarray) -> Rollout:
    zeros = np.zeros(len(tokens))
    segment = Segment(context_ids=context, token_ids=tokens, logprobs=zeros, versions=zeros, policy_mask=np.ones(len(tokens)))
    return Rollout(prompt_id="sample", index=index, segments=(segment,), text="", finish=Finish.STOP)
