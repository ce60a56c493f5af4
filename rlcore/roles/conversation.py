"""How one rollout comes about, as a generator: it yields what to generate next, receives the completion, returns the segments.

Single turn is the only conversation today. Tools and further turns are another generator, not another producer.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from rlcore.contracts.types import Completion, Sampling, Segment

__all__ = ["Conversation", "Turn", "single_turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request to an engine: int32[C] context and how to sample after it."""

    context_ids: np.ndarray
    sampling: Sampling


Conversation = Generator[Turn, Completion, tuple[Segment, ...]]


def single_turn(context_ids: np.ndarray, sampling: Sampling) -> Conversation:
    """Ask once; the answer is the one segment."""
    completion = yield Turn(context_ids, sampling)
    return (
        Segment(
            context_ids=context_ids,
            token_ids=completion.token_ids,
            logprobs=completion.logprobs,
            versions=completion.versions,
            policy_mask=np.ones(len(completion.token_ids), np.bool_),
        ),
    )
