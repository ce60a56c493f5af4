"""Outlines of groups: the parts of a group that a trainer rank needs if it does not compute on the group's tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlcore.contracts.types import Group, Rollout, Segment

__all__ = ["SegmentOutline", "outline_of"]


def outline_of(group: Group, *, logprobs: bool = False, told: bool = False) -> Group:
    """Return the group with outlines in place of its segments.

    :param logprobs: keep the sampler's log probabilities.
    :param told: keep texts, turns and extra values, for a caller that reports them.
    """
    contexts: dict[bytes, int] = {}
    return replace(group, rollouts=tuple(_outlined(rollout, contexts, logprobs=logprobs, told=told) for rollout in group.rollouts))


def _outlined(rollout: Rollout, contexts: dict[bytes, int], *, logprobs: bool, told: bool) -> Rollout:
    """Return the rollout with outlines.

    :param contexts: a number for each context of the group so far; this function adds to it.
    """
    segments = tuple(
        SegmentOutline.of(segment, contexts.setdefault(segment.context_ids.tobytes(), len(contexts)), logprobs=logprobs)
        for segment in rollout.segments
    )
    return replace(rollout, segments=segments) if told else replace(rollout, segments=segments, text="", turns=(), extra={})


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOutline(Segment):
    """A segment without its tokens.

    Lengths and mask are true. The ids are below 0, and equal if the contexts of two segments of one group are equal. ``versions`` have the
    smallest version of the tokens that the policy sampled; the last of these tokens has the newest one. ``logprobs`` are NaN, unless they
    are kept. An outline travels as one bit a token, plus 4 bytes a token with ``logprobs``.
    """

    @classmethod
    def of(cls, segment: Segment, context: int, *, logprobs: bool) -> SegmentOutline:
        """Return the outline of a segment.

        :param context: the number of its context within its group.
        """
        own = segment.versions[segment.policy_mask]
        versions = (int(own.min()), int(own.max())) if len(own) else (-1, -1)
        kept = segment.logprobs.tobytes() if logprobs else b""
        mask = np.packbits(segment.policy_mask).tobytes()
        return _unpacked_outline(len(segment.context_ids), len(segment.token_ids), context, versions, mask, kept)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the numbers from which it is built."""
        tokens, context = len(self.token_ids), len(self.context_ids)
        number = -1 - int(self.context_ids[0]) if context else 0
        own = self.versions[self.policy_mask]
        versions = (int(own.min()), int(own.max())) if len(own) else (-1, -1)
        kept = b"" if not tokens or np.isnan(self.logprobs).all() else self.logprobs.tobytes()
        return _unpacked_outline, (context, tokens, number, versions, np.packbits(self.policy_mask).tobytes(), kept)


def _unpacked_outline(context: int, tokens: int, number: int, spread: tuple[int, int], mask: bytes, logprobs: bytes) -> SegmentOutline:
    outline = object.__new__(SegmentOutline)
    policy_mask = np.unpackbits(np.frombuffer(mask, np.uint8), count=tokens).view(np.bool_)
    versions = np.full(tokens, spread[0], np.int32)
    versions[np.flatnonzero(policy_mask)[-1:]] = spread[1]
    arrays = {
        "context_ids": np.full(context, -1 - number, np.int32),
        "token_ids": np.full(tokens, -1, np.int32),
        "logprobs": np.frombuffer(logprobs, np.float32) if logprobs else np.full(tokens, np.nan, np.float32),
        "versions": versions,
        "policy_mask": policy_mask,
    }
    for name, array in arrays.items():
        array.flags.writeable = False
        object.__setattr__(outline, name, array)
    object.__setattr__(outline, "details", None)
    return outline
