"""How the rollouts of one optimizer step are cut into forwards. Pure numpy; the cut never changes the gradient.

A rollout's segments stay in one micro-batch. Inside a slice of prompts, rollouts of like width go together, so that little is padding.
Where prompts are shared, the completions of one prompt stand behind it in one row (``shared_rows``), and the row is the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlcore.contracts.batches import TrainBatch

__all__ = ["plan_micro_batches", "shared_rows"]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Rollouts that go together, as ``height`` rows of ``width`` tokens."""

    rollouts: tuple[int, ...]
    height: int
    width: int


def plan_micro_batches(
    batch: TrainBatch, *, rollouts: int, tokens: int, prompts: int, share_prompts: int = 0, everything: bool = False
) -> list[np.ndarray]:
    """int64 rollout numbers of each forward, ascending; every non-empty rollout in the loss in exactly one of them.

    At most ``rollouts`` (``-tmbs``) and ``tokens`` (rows x widest row, padding counted) a forward; a rollout wider than that goes alone.
    No forward spans two slices of ``prompts`` groups (``-tMbs``). ``share_prompts``: the widest row that may hold several completions of
    a prompt, 0 for none, at most ``tokens``. ``everything``: rollouts outside the loss too (for log probabilities).
    """
    rows = np.flatnonzero((batch.lengths > 0) & (batch.in_loss | everything))
    groups = list(dict.fromkeys(int(group) for group in batch.group[rows]))
    plan: list[np.ndarray] = []
    for start in range(0, len(groups), prompts):
        chosen = rows[np.isin(batch.group[rows], groups[start : start + prompts])]
        units = [_unit(batch, together) for together in shared_rows(batch, chosen, share_prompts, rollouts)]
        for held in _fill(units, rollouts, tokens):
            plan += [np.array(together, np.int64) for together in _forwards(batch, held, share_prompts, tokens)]
    return plan


def shared_rows(batch: TrainBatch, rows: Sequence[int] | np.ndarray, limit: int, most: int | None = None) -> list[tuple[int, ...]]:
    """The rollouts that share one row each: neighbours of one group, single-segment, with one context, no wider than ``limit`` together.

    A completion more than twice as long as its prompt stays alone: attention over the longer row would cost more than the prompt saves.
    ``most`` bounds the completions of a row. A rollout that shares with none is a tuple of its own.
    """
    shared: list[list[int]] = []
    width = 0
    for row in (int(row) for row in rows):
        length = len(batch.rollouts[row].segments[0].token_ids)
        if shared and width + length <= limit and len(shared[-1]) < (most or len(rows)) and _same_prompt(batch, shared[-1][0], row):
            shared[-1].append(row)
            width += length
        else:
            shared.append([row])
            width = length + len(batch.rollouts[row].segments[0].context_ids)
    return [tuple(together) for together in shared]


def _same_prompt(batch: TrainBatch, first: int, second: int) -> bool:
    one, other = batch.rollouts[first].segments, batch.rollouts[second].segments
    if batch.group[first] != batch.group[second] or len(one) > 1 or len(other) > 1:
        return False
    worthwhile = max(len(one[0].token_ids), len(other[0].token_ids)) <= 2 * len(one[0].context_ids)
    return worthwhile and bool(np.array_equal(one[0].context_ids, other[0].context_ids))


def _unit(batch: TrainBatch, together: tuple[int, ...]) -> _Unit:
    segments = batch.rollouts[together[0]].segments
    if len(together) == 1:
        return _Unit(together, len(segments), max(len(segment.context_ids) + len(segment.token_ids) for segment in segments))
    completions = sum(len(batch.rollouts[row].segments[0].token_ids) for row in together)
    return _Unit(together, 1, len(segments[0].context_ids) + completions)


def _fill(units: Sequence[_Unit], rollouts: int, tokens: int) -> list[list[_Unit]]:
    bins: list[list[_Unit]] = []
    for unit in sorted(units, key=lambda unit: (-unit.width, unit.rollouts)):
        held = bins[-1] if bins else []
        members = sum(len(other.rollouts) for other in held) + len(unit.rollouts)
        height = sum(other.height for other in held) + unit.height
        # Widest first: the first unit of a forward sets its width.
        if held and members <= rollouts and height * held[0].width <= tokens:
            held.append(unit)
        else:
            bins.append([unit])
    return bins


def _forwards(batch: TrainBatch, held: Sequence[_Unit], share_prompts: int, tokens: int) -> list[Sequence[int]]:
    """The rollouts of these units in one forward. Units that share a row only now, side by side, make it wider than was counted: if that
    is more than ``tokens``, each unit has a forward of its own."""
    together = sorted(row for unit in held for row in unit.rollouts)
    lines = [_unit(batch, line) for line in shared_rows(batch, together, share_prompts)] if share_prompts and len(held) > 1 else held
    wide = sum(line.height for line in lines) * max(line.width for line in lines) > tokens
    return [unit.rollouts for unit in held] if len(lines) < len(held) and wide else [together]
