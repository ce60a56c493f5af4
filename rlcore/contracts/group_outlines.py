"""Outlines of groups: what a trainer rank must know of a group whose tokens it does not compute on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlcore.contracts.types import Group, Rollout, Segment

__all__ = ["SegmentOutline", "outline_of"]


def outline_of(group: Group, *, logprobs: bool = False, told: bool = False) -> Group:
    """The group with outlines in place of its segments. ``logprobs``: with the sampler's; ``told``: with what was said, for whoever reports
    it."""
    contexts: dict[bytes, int] = {}
    return replace(group, rollouts=tuple(_outlined(rollout, contexts, logprobs=logprobs, told=told) for rollout in group.rollouts))


def _outlined(rollout: Rollout, contexts: dict[bytes, int], *, logprobs: bool, told: bool) -> Rollout:
    """``contexts``: a number for each context of its group, which grows."""
    segments = tuple(
        SegmentOutline.of(segment, contexts.setdefault(segment.context_ids.tobytes(), len(contexts)), logprobs=logprobs)
        for segment in rollout.segments
    )
    return replace(rollout, segments=segments) if told else replace(rollout, segments=segments, text="", turns=(), extra={})


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOutline(Segment):
    """A segment without its tokens: lengths and mask are true, ids are below 0, equal where the contexts of two segments of one group are
    equal; ``versions`` are all the smallest of those that the policy sampled; ``logprobs`` NaN, unless they are kept. It travels as a bit
    a token, and 4 bytes with ``logprobs``."""

    @classmethod
    def of(cls, segment: Segment, context: int, *, logprobs: bool) -> SegmentOutline:
        """``context``: the number of its context within its group."""
        version = int(segment.versions[segment.policy_mask].min()) if segment.policy_mask.any() else -1
        kept = segment.logprobs.tobytes() if logprobs else b""
        mask = np.packbits(segment.policy_mask).tobytes()
        return _unpacked_outline(len(segment.context_ids), len(segment.token_ids), context, version, mask, kept)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """The numbers that it is made of."""
        tokens, context = len(self.token_ids), len(self.context_ids)
        number = -1 - int(self.context_ids[0]) if context else 0
        version = int(self.versions[0]) if tokens else -1
        kept = b"" if not tokens or np.isnan(self.logprobs).all() else self.logprobs.tobytes()
        return _unpacked_outline, (context, tokens, number, version, np.packbits(self.policy_mask).tobytes(), kept)


def _unpacked_outline(context: int, tokens: int, number: int, version: int, mask: bytes, logprobs: bytes) -> SegmentOutline:
    outline = object.__new__(SegmentOutline)
    arrays = {
        "context_ids": np.full(context, -1 - number, np.int32),
        "token_ids": np.full(tokens, -1, np.int32),
        "logprobs": np.frombuffer(logprobs, np.float32) if logprobs else np.full(tokens, np.nan, np.float32),
        "versions": np.full(tokens, version, np.int32),
        "policy_mask": np.unpackbits(np.frombuffer(mask, np.uint8), count=tokens).view(np.bool_),
    }
    for name, array in arrays.items():
        array.flags.writeable = False
        object.__setattr__(outline, name, array)
    object.__setattr__(outline, "details", None)
    return outline
