"""Batches: what an advantage estimator, a training backend and a loss see of one update.

Everything is ragged and flat. ``R`` rollouts in canonical order (episode order, then rollout index) own ``N`` policy tokens; rollout
``r`` owns tokens ``offsets[r]:offsets[r + 1]``, and only tokens that the policy sampled are there. Padding is the business of
a training backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcore.contracts.types import Rollout, TokenDetails

if TYPE_CHECKING:
    import torch

__all__ = ["LossBatch", "Normalisers", "RewardBatch", "TrainBatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardBatch:
    """What an advantage estimator sees, once, of the whole global batch. All arrays float64 or integer numpy.

    ``rewards`` float64[R]; ``group`` int64[R], the number of the rollout's group, 0 … G-1; ``in_statistics`` bool[R]: only these may
    enter a mean or a deviation; ``in_loss`` bool[R]: these train, and make up the denominators of the loss; ``lengths`` int64[R] policy
    tokens; ``offsets`` int64[R + 1] into the flat token axis.
    ``kl`` float64[N], the per-token KL estimate, and its coefficient ``kl_coeff``: only where the estimator declares it and the run asks
    for KL in the reward. ``greedy`` float64[G], the reward of each group's greedy rollout (NaN where it has none): only where the
    estimator declares that it needs one.

    The rest is there only if the estimator declares it in ``needs``. ``parts``: float64[R] of each share of the reward that a score names:
    every reward under its name, weighted, and its own parts as ``name/part`` (NaN: this rollout has none). ``token_rewards`` float64[N]:
    what rewards gave to single tokens, weighted, 0 where none did; it is not in ``rewards``. ``prompt_ids``: G texts, by the number of the
    group. ``turn_lengths`` int64[S]: policy tokens of each turn (an unbroken run of them), rollout after rollout; rollout ``r`` owns turns
    ``turn_offsets[r]:turn_offsets[r + 1]``. ``rollout_logprobs`` float64[N]: the sampler's.
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
    token_rewards: np.ndarray | None = None
    prompt_ids: tuple[str, ...] | None = None
    turn_lengths: np.ndarray | None = None
    turn_offsets: np.ndarray | None = None
    rollout_logprobs: np.ndarray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisers:
    """Counts over the global batch of one optimizer step, fixed before its first forward.

    ``tokens``: policy tokens in the loss; ``rollouts``: non-empty rollouts in the loss; ``length``: the constant of
    constant-length aggregation (``max_new_tokens``).
    """

    tokens: int
    rollouts: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    """The rollouts of one optimizer step, or one rank's share of them, with per-token arrays on the flat axis [N].

    ``group`` int64[R]; ``in_loss`` bool[R]: rollouts that train (the others are never forwarded); ``offsets`` int64[R + 1];
    ``advantages`` float32[N]; ``rollout_logprobs`` float32[N] of the sampler; ``old_logprobs`` float32[N] or None, which means "the
    trainer's own, at the first forward" (exact where one optimizer step uses the batch); ``reference_logprobs`` float32[N] or None;
    ``weights`` float32[N]: the aggregation with its global normalisers, so that the loss of any share is
    ``sum(weights * per_token)``, 0 outside the loss; ``extras``: what ``Loss.prepare`` returned, float32[N] each; ``seed``: the run's,
    with ``version`` the key of every random choice on the batch.
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
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rollouts)

    @property
    def lengths(self) -> np.ndarray:
        """int64[R]: policy tokens of each rollout."""
        return np.diff(self.offsets)

    @property
    def temperatures(self) -> np.ndarray:
        """float64[R]: the temperature that each rollout was sampled at; its log probabilities and its gradient are taken at it."""
        return np.array([rollout.temperature for rollout in self.rollouts], np.float64)

    @property
    def details(self) -> TokenDetails | None:
        """What the engine told of each of the ``N`` policy tokens, None if it told nothing; put together when it is asked for."""
        segments = [segment for rollout in self.rollouts for segment in rollout.segments]
        masks = [np.flatnonzero(segment.policy_mask) for segment in segments]
        return TokenDetails.joined([(s.details and s.details.take(mask), len(mask)) for s, mask in zip(segments, masks, strict=True)])

    def take(self, rows: np.ndarray) -> TrainBatch:
        """The share of the given rollouts (int[R']); weights and normalisers stay those of the whole."""
        index = token_index(self.offsets, rows)
        arrays = {name: value[index] for name in _PER_TOKEN if (value := getattr(self, name)) is not None}
        return replace(
            self,
            rollouts=tuple(self.rollouts[row] for row in rows),
            group=self.group[rows],
            in_loss=self.in_loss[rows],
            offsets=np.concatenate([[0], np.cumsum(self.lengths[rows])]).astype(np.int64),
            extras={name: value[index] for name, value in self.extras.items()},
            **arrays,
        )


_PER_TOKEN = ("advantages", "rollout_logprobs", "weights", "old_logprobs", "reference_logprobs")


def token_index(offsets: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """int64[N']: positions on the flat token axis of the given rollouts, in their order."""
    spans = [np.arange(offsets[row], offsets[row + 1]) for row in rows]
    return np.concatenate(spans).astype(np.int64) if spans else np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBatch:
    """What a loss sees of one micro-batch: flat torch tensors over its ``n`` policy tokens, all of them in the loss.

    A micro-batch holds whole rollouts. ``row`` int64[n] numbers each token's rollout, 0 … rows-1; ``lengths`` [rows] counts its tokens.
    ``advantages``, ``old_logprobs``, ``rollout_logprobs`` [n]; ``reference_logprobs`` [n] if declared;
    ``entropy`` [n], differentiable, where declared; ``extras``: the arrays that ``prepare`` returned, [n] each; ``normalisers``: those of
    the whole optimizer step, None where this batch is the whole.
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

    @property
    def rows(self) -> int:
        """Number of rollouts in the micro-batch."""
        return int(self.lengths.shape[0])

    def row_sum(self, values: torch.Tensor) -> torch.Tensor:
        """[n] -> [n]: the sum over the token's rollout, at each of its tokens; differentiable; in float32 at least."""
        values = full_precision(values)
        sums = values.new_zeros(self.rows).index_add(0, self.row, values)
        return sums[self.row]

    def row_mean(self, values: torch.Tensor) -> torch.Tensor:
        """[n] -> [n]: the mean over the token's rollout, at each of its tokens; differentiable."""
        sums = self.row_sum(values)
        return sums / self.lengths.to(sums.dtype)[self.row]


def full_precision(values: torch.Tensor) -> torch.Tensor:
    """Half precision as float32: 8 bits hold neither a sum of hundreds of log probabilities nor their number. The rest as it is."""
    return values.float() if values.element_size() < 4 else values
