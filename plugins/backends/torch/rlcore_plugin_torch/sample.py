"""A tiny batch for trying a model: prompts, each with three completions of different lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlcore.api import FinishReason, Normalisers, Rollout, Segment, TrainBatch

__all__ = ["sample_batch"]


def sample_batch(vocabulary: int, contexts: Sequence[int] = (4,)) -> TrainBatch:
    """Return a batch with completions of 3, 2 and 4 tokens for each context length.

    Token ids are spread over the vocabulary.
    """
    lengths = [3, 2, 4]
    draws = np.random.default_rng(0)
    rollouts = []
    for size in contexts:
        context = draws.integers(0, vocabulary, size=size)
        rollouts += [_rollout(index, context, draws.integers(0, vocabulary, size=length)) for index, length in enumerate(lengths)]
    count, tokens = len(rollouts), sum(lengths) * len(contexts)
    return TrainBatch(
        rollouts=tuple(rollouts),
        group=np.repeat(np.arange(len(contexts)), len(lengths)),
        in_loss=np.ones(count, np.bool_),
        offsets=np.concatenate([[0], np.cumsum(lengths * len(contexts))]).astype(np.int64),
        advantages=np.zeros(tokens, np.float32),
        rollout_logprobs=np.zeros(tokens, np.float32),
        weights=np.full(tokens, 1.0 / tokens, np.float32),
        normalisers=Normalisers(tokens=tokens, rollouts=count, length=max(lengths)),
    )


def _rollout(index: int, context: np.ndarray, tokens: np.ndarray) -> Rollout:
    zeros = np.zeros(len(tokens))
    segment = Segment(context_ids=context, token_ids=tokens, logprobs=zeros, versions=zeros, policy_mask=np.ones(len(tokens)))
    return Rollout(prompt_id="sample", index=index, segments=(segment,), text="", finish=FinishReason.STOP)
