"""Cut the rollouts of one optimizer step into packed forwards of similar cost. Pure numpy; the cut never changes the gradient.

Rollouts of one group stay together if the bounds of a forward allow it, so that their prompt is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlcore.api import TrainBatch
from rlcore_plugin_torch.packing import trees

__all__ = ["Cost", "plan_packed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of a forward, in units of one pair of tokens that attend to each other (4 x hidden size operations a layer).

    ``token``: one token through the linear layers (24 x hidden^2 operations a layer of the usual shape, so 6 x hidden size). ``target``:
    one projection onto the vocabulary (2 x hidden size x vocabulary operations, once). The costs are integers, so that all ranks agree.
    """

    token: int = 384
    target: int = 0

    def packed(self, batch: TrainBatch, rows: Sequence[int] | np.ndarray) -> int:
        """Return the cost of these rollouts in one packed forward."""
        found = trees(batch, rows)
        targets = sum(len(branch.predicted) for tree in found for branch in tree.branches)
        return sum(self.token * tree.tokens + tree.pairs for tree in found) + self.target * targets

    def padded(self, batch: TrainBatch, rows: Sequence[int] | np.ndarray) -> int:
        """Return the cost of these rollouts in separate rows, not counting padding."""
        segments = [segment for row in rows for segment in batch.rollouts[row].segments]
        lengths = [len(segment.context_ids) + len(segment.token_ids) for segment in segments]
        targets = sum(int(segment.policy_mask.sum()) for segment in segments)
        return sum(self.token * length + length * (length + 1) // 2 for length in lengths) + self.target * targets


@dataclass(frozen=True, slots=True)
class _Bundle:
    """Rollouts of one group that stay together, the ``tokens`` of their buffer, and their cost."""

    rollouts: tuple[int, ...]
    tokens: int
    cost: int


def plan_packed(
    batch: TrainBatch, *, rollouts: int, tokens: int, prompts: int, cost: Cost | None = None, everything: bool = False
) -> list[np.ndarray]:
    """Return the int64 rollout numbers of each forward, ascending; every non-empty rollout in the loss is in exactly one forward.

    A forward has at most ``rollouts`` (``-tmbs``) rollouts and ``tokens`` tokens in its buffer; a longer rollout gets a forward by itself.
    A forward never spans two slices of ``prompts`` groups (``-tMbs``). Each slice has as few forwards as the search finds, of similar
    ``cost``. ``everything``: also include rollouts outside the loss (for log probabilities).
    """
    rows = np.flatnonzero((batch.lengths > 0) & (batch.in_loss | everything))
    groups = list(dict.fromkeys(batch.group[rows].tolist()))
    plan: list[np.ndarray] = []
    for start in range(0, len(groups), prompts):
        bundles = [
            bundle
            for group in groups[start : start + prompts]
            for bundle in _bundles(batch, rows[batch.group[rows] == group], rollouts, tokens, cost or Cost())
        ]
        plan += [np.array(sorted(row for bundle in held for row in bundle.rollouts), np.int64) for held in _fill(bundles, rollouts, tokens)]
    return plan


def _bundles(batch: TrainBatch, rows: np.ndarray, rollouts: int, tokens: int, cost: Cost) -> list[_Bundle]:
    """Divide the rollouts of a group into as few bundles as fit the bounds, of similar length."""
    longest_first = sorted(rows.tolist(), key=lambda row: (-sum(len(part.token_ids) for part in batch.rollouts[row].segments), row))
    for count in range(-(-len(rows) // rollouts), len(rows) + 1):
        found = [_bundle(batch, longest_first[start::count], cost) for start in range(count)]
        if count == len(rows) or all(bundle.tokens <= tokens and len(bundle.rollouts) <= rollouts for bundle in found):
            break
    return found


def _bundle(batch: TrainBatch, rows: Sequence[int], cost: Cost) -> _Bundle:
    return _Bundle(tuple(rows), sum(tree.tokens for tree in trees(batch, rows)), cost.packed(batch, rows))


def _fill(bundles: Sequence[_Bundle], rollouts: int, tokens: int) -> list[list[_Bundle]]:
    """Return bins of similar cost.

    The most expensive bundle goes first, into the cheapest bin with enough room. One bin is added until all bundles fit.
    """
    dearest_first = sorted(bundles, key=lambda bundle: (-bundle.cost, bundle.rollouts))
    least = max(-(-sum(len(bundle.rollouts) for bundle in bundles) // rollouts), -(-sum(bundle.tokens for bundle in bundles) // tokens))
    for count in range(max(1, min(least, len(bundles))), len(bundles)):
        if (bins := _bins(dearest_first, count, rollouts, tokens)) is not None:
            return bins
    return [[bundle] for bundle in dearest_first]


def _bins(dearest_first: Sequence[_Bundle], count: int, rollouts: int, tokens: int) -> list[list[_Bundle]] | None:
    """Return at most ``count`` non-empty bins; None if a bundle fits into no bin."""
    bins: list[list[_Bundle]] = [[] for _ in range(count)]
    held = np.zeros((3, count), np.int64)  # rows: rollouts, tokens, cost
    for bundle in dearest_first:
        room = (held[0] + len(bundle.rollouts) <= rollouts) & (held[1] + bundle.tokens <= tokens) | (held[0] == 0)
        if not room.any():
            return None
        chosen = int(np.where(room, held[2], np.iinfo(np.int64).max).argmin())
        bins[chosen].append(bundle)
        held[:, chosen] += (len(bundle.rollouts), bundle.tokens, bundle.cost)
    return [one for one in bins if one]
