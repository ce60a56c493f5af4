"""Batches: the data of one update as an advantage estimator, a training backend and a loss receive it.

All arrays are ragged and flat. ``R`` rollouts in canonical order (episode order, then rollout index) own ``N`` policy tokens. Rollout ``r``
owns the tokens ``offsets[r]:offsets[r + 1]``. The arrays hold only tokens that the policy sampled. Training backends add the padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcore.contracts.public_members import PublicMembers
from rlcore.contracts.types import Rollout, TokenDetails

if TYPE_CHECKING:
    import torch

__all__ = ["LossBatch", "Normalisers", "RewardBatch", "TrainBatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardBatch(metaclass=PublicMembers):
    """The whole global batch as an advantage estimator receives it, once. All arrays are numpy, float64 or integer.

    ``rewards``: float64[R].
    ``group``: int64[R], the number of the rollout's group, 0 … G-1.
    ``in_statistics``: bool[R]. Only these rollouts may enter a mean or a deviation.
    ``in_loss``: bool[R]. These rollouts train, and make up the denominators of the loss.
    ``lengths``: int64[R], policy tokens of each rollout.
    ``offsets``: int64[R + 1], into the flat token axis.
    ``kl``: float64[N], the KL estimate per token, with its coefficient ``kl_coeff``. Present only if the estimator declares ``accepts_kl``
        and the run puts KL into the reward.
    ``greedy``: float64[G], the reward of each group's greedy rollout, NaN if it has none. Present only if the estimator declares
        ``needs_greedy``.

    The other fields are present only if the estimator declares them in ``needs``:

    ``parts``: name -> float64[R], each named share of the reward, NaN if a rollout has none. Every reward is there under its name,
        weighted, and its own parts as ``name/part``, as the reward gave them.
    ``raw_parts``: name -> float64[R], the value of each reward of the run before its weight, in the order of the configuration; NaN if a
        rollout has none.
    ``token_rewards``: float64[N], the weighted rewards of single tokens, 0 for tokens without one. They are not included in ``rewards``.
    ``prompt_ids``: G texts, by group number; ``prompt/player`` if players are compared separately.
    ``turn_lengths``: int64[S], policy tokens of each message of the policy, rollout after rollout; 0 for an empty message. Rollout ``r``
        owns the turns ``turn_offsets[r]:turn_offsets[r + 1]``. If a conversation does not report them, an unbroken run of policy tokens
        counts as a message.
    ``rollout_logprobs``: float64[N], the sampler's log probabilities.
    """

    rewards: np.ndarray
    group: np.ndarray
    in_statistics: np.ndarray
    in_loss: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray
    kl: np.ndarray | None = None
    kl_coeff: float = 0.0
    greedy: np.ndarray | None = None
    parts: Mapping[str, np.ndarray] | None = None
    raw_parts: Mapping[str, np.ndarray] | None = None
    token_rewards: np.ndarray | None = None
    prompt_ids: tuple[str, ...] | None = None
    turn_lengths: np.ndarray | None = None
    turn_offsets: np.ndarray | None = None
    rollout_logprobs: np.ndarray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisers(metaclass=PublicMembers):
    """Counts over the global batch of one optimizer step, fixed before its first forward.

    ``tokens``: policy tokens in the loss. ``rollouts``: non-empty rollouts in the loss. ``length``: the constant of constant-length
    aggregation (``max_new_tokens``).

    ``sources``: in a run with several sources, those of each source that is in the step, by its number. ``share`` is then its share of the
    step's prompts, a factor of its weights.
    """

    tokens: int
    rollouts: int
    length: int
    share: float = 1.0
    sources: Mapping[int, Normalisers] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch(metaclass=PublicMembers):
    """The rollouts of one optimizer step, or one rank's share of them. Arrays per token are on the flat axis [N].

    ``group``: int64[R], the group number of each rollout.
    ``in_loss``: bool[R], True for the rollouts that train. The others are never forwarded.
    ``offsets``: int64[R + 1].
    ``advantages``: float32[N].
    ``rollout_logprobs``: float32[N], the sampler's log probabilities.
    ``old_logprobs``: float32[N], or None for "the trainer's own, at the first forward". That is exact if a single optimizer step uses the
        batch.
    ``reference_logprobs``: float32[N] or None.
    ``entropy``: float32[N], the policy's entropy at each token before the update. Only in ``Loss.prepare``, if the loss declares
        ``prepares_entropy``.
    ``weights``: float32[N], the aggregation with its global normalisers, 0 outside the loss. The loss of any share is ``sum(weights *
        per_token)``.
    ``extras``: the arrays that ``Loss.prepare`` returned, float32[N] each.
    ``seed``: the seed of the run. Seed and ``version`` are the key of every random choice on the batch.
    ``whole``: False if each entry of ``rollouts`` is a single segment of a rollout (``by_segment``).
    ``source``: int64[R], the number of each rollout's source, None if the run has one source.
    """

    rollouts: tuple[Rollout, ...]
    group: np.ndarray
    in_loss: np.ndarray
    offsets: np.ndarray
    advantages: np.ndarray
    rollout_logprobs: np.ndarray
    weights: np.ndarray
    normalisers: Normalisers
    version: int = 0
    seed: int = 0
    old_logprobs: np.ndarray | None = None
    reference_logprobs: np.ndarray | None = None
    entropy: np.ndarray | None = None
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    whole: bool = True
    source: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rollouts)

    @property
    def lengths(self) -> np.ndarray:
        """int64[R]: policy tokens of each rollout."""
        return np.diff(self.offsets)

    @property
    def temperatures(self) -> np.ndarray:
        """float64[R]: the temperature at which each rollout was sampled.

        Its log probabilities and its gradient are computed at that temperature.
        """
        return np.array([rollout.temperature for rollout in self.rollouts], np.float64)

    @property
    def details(self) -> TokenDetails | None:
        """The details that the engine reported for the ``N`` policy tokens, None if it reported nothing. Computed at each access."""
        segments = [segment for rollout in self.rollouts for segment in rollout.segments]
        masks = [np.flatnonzero(segment.policy_mask) for segment in segments]
        return TokenDetails.joined([(s.details and s.details.take(mask), len(mask)) for s, mask in zip(segments, masks, strict=True)])

    def by_segment(self) -> TrainBatch:
        """Return the same tokens with each segment as a rollout of its own, so that a backend may divide them between forwards.

        The arrays per token, the weights and the normalisers are unchanged. The batch itself if no rollout has several segments.
        """
        counts = np.array([len(rollout.segments) for rollout in self.rollouts], np.int64)
        if (counts < 2).all():
            return self
        lengths = np.array([int(part.policy_mask.sum()) for rollout in self.rollouts for part in rollout.segments], np.int64)
        return replace(
            self,
            rollouts=tuple(replace(one, segments=(part,), turn_lengths=(), branches=()) for one in self.rollouts for part in one.segments),
            group=np.repeat(self.group, counts),
            in_loss=np.repeat(self.in_loss, counts) & (lengths > 0),
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            whole=False,
            source=None if self.source is None else np.repeat(self.source, counts),
        )

    def take(self, rows: np.ndarray) -> TrainBatch:
        """Return the share of the given rollouts (int[R']). Its weights and normalisers stay those of the whole batch."""
        index = token_index(self.offsets, rows)
        arrays = {name: value[index] for name in _PER_TOKEN if (value := getattr(self, name)) is not None}
        return replace(
            self,
            rollouts=tuple(self.rollouts[row] for row in rows),
            group=self.group[rows],
            in_loss=self.in_loss[rows],
            offsets=np.concatenate([[0], np.cumsum(self.lengths[rows])]).astype(np.int64),
            extras={name: value[index] for name, value in self.extras.items()},
            source=None if self.source is None else self.source[rows],
            **arrays,
        )


_PER_TOKEN = ("advantages", "rollout_logprobs", "weights", "old_logprobs", "reference_logprobs", "entropy")


def token_index(offsets: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return int64[N']: the positions of the given rollouts' tokens on the flat token axis, in the order of ``rows``."""
    spans = [np.arange(offsets[row], offsets[row + 1]) for row in rows]
    return np.concatenate(spans).astype(np.int64) if spans else np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBatch(metaclass=PublicMembers):
    """One micro-batch as a loss receives it: flat torch tensors over its ``n`` policy tokens, all of them in the loss.

    A micro-batch holds whole rollouts, unless ``whole`` is False: then its rows are segments, and other segments of the same rollouts may
    be in other micro-batches. This happens only if neither the loss, the correction nor ``skip_threshold`` combines the tokens of a
    rollout.

    ``row``: int64[n], the number of each token's rollout, 0 … rows-1.
    ``lengths``: [rows], the number of tokens of each rollout.
    ``advantages``, ``old_logprobs``, ``rollout_logprobs``: [n].
    ``weights``: [n], see ``TrainBatch.weights``.
    ``reference_logprobs``: [n], if the loss declares it.
    ``entropy``: [n], differentiable, if the loss declares it.
    ``extras``: the arrays that ``prepare`` returned, [n] each.
    ``normalisers``: those of the whole optimizer step, or None if this batch is the whole step.
    ``source``: int64[n], the number of each token's source, if the run has several. A loss receives the tokens of its own source alone.
    """

    row: torch.Tensor
    lengths: torch.Tensor
    advantages: torch.Tensor
    old_logprobs: torch.Tensor
    rollout_logprobs: torch.Tensor
    weights: torch.Tensor
    reference_logprobs: torch.Tensor | None = None
    entropy: torch.Tensor | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    normalisers: Normalisers | None = None
    whole: bool = True
    source: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """Number of rollouts in the micro-batch."""
        return int(self.lengths.shape[0])

    def row_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return [n] -> [n]: at each token the sum over its rollout. Differentiable; at least float32."""
        values = full_precision(values)
        sums = values.new_zeros(self.rows).index_add(0, self.row, values)
        return sums[self.row]

    def row_mean(self, values: torch.Tensor) -> torch.Tensor:
        """Return [n] -> [n]: at each token the mean over its rollout. Differentiable."""
        sums = self.row_sum(values)
        return sums / self.lengths.to(sums.dtype)[self.row]


def full_precision(values: torch.Tensor) -> torch.Tensor:
    """Return half-precision values as float32, and other values unchanged.

    Eight bits of mantissa hold neither a sum of hundreds of log probabilities nor their count.
    """
    return values.float() if values.element_size() < 4 else values
