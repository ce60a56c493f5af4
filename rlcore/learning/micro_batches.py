"""The division of one optimizer step's rollouts into forwards of padded rows. Pure numpy; the division never changes the gradient.

A rollout's segments stay in one micro-batch. Inside a slice of prompts, rollouts of similar width are grouped, so that there is little
padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlcore.contracts.batches import TrainBatch

__all__ = ["plan_micro_batches"]


def plan_micro_batches(batch: TrainBatch, *, rollouts: int, tokens: int, prompts: int, everything: bool = False) -> list[np.ndarray]:
    """Return int64 rollout numbers of each forward, ascending. Every non-empty rollout in the loss is in exactly one forward.

    A forward has at most ``rollouts`` (``-tmbs``) and ``tokens`` (rows x widest row, padding included); a rollout wider than that has its
    own forward. No forward spans two slices of ``prompts`` groups (``-tMbs``). ``everything``: include rollouts outside the loss (for log
    probabilities).
    """
    rows = np.flatnonzero((batch.lengths > 0) & (batch.in_loss | everything))
    groups = list(dict.fromkeys(int(group) for group in batch.group[rows]))
    plan: list[np.ndarray] = []
    for start in range(0, len(groups), prompts):
        chosen = rows[np.isin(batch.group[rows], groups[start : start + prompts])].tolist()
        plan += [np.array(sorted(together), np.int64) for together in _fill(batch, chosen, rollouts, tokens)]
    return plan


def _fill(batch: TrainBatch, rows: Sequence[int], rollouts: int, tokens: int) -> list[list[int]]:
    heights = {row: len(batch.rollouts[row].segments) for row in rows}
    widths = {row: max(len(part.context_ids) + len(part.token_ids) for part in batch.rollouts[row].segments) for row in rows}
    bins: list[list[int]] = []
    height = 0
    for row in sorted(rows, key=lambda row: (-widths[row], row)):
        height += heights[row]
        # # Widest first: the first rollout of a forward sets its width.
        if bins and len(bins[-1]) < rollouts and height * widths[bins[-1][0]] <= tokens:
            bins[-1].append(row)
        else:
            bins.append([row])
            height = heights[row]
    return bins
