"""Packed micro-batches: all documents of a forward in one buffer, without padding, and each prompt once with its completions as branches.

A tree is a context and the segments that continue it. Position ids restart at the context's end for each branch. Attention is per document:
a branch sees its context and itself. The buffer holds only tokens that help to predict a policy token: of a segment, those before its last
policy token.

Axes: ``T`` tokens of the buffer, ``n`` policy tokens (rollout after rollout, as on the flat axis of the batch).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import torch

from rlcore.api import TrainBatch
from rlcore.learning import MicroBatch, collate
from rlcore_plugin_torch.attention import AttentionPlan, Pieces

__all__ = ["Branch", "PackedBatch", "Tree", "pack", "trees"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBatch(MicroBatch):
    """A MicroBatch of one row: ``input_ids`` and ``position_ids`` int64[1, T], ``select`` int64[n] into [T].

    ``attention`` defines which tokens of the buffer see each other.
    """

    attention: AttentionPlan


@dataclass(frozen=True, slots=True)
class Branch:
    """One segment.

    ``order``: its place among those of the forward. ``tokens`` int32[l]: those of the segment before its last policy token. ``predicted``
    int64: the places of the policy's tokens in the segment.
    """

    order: int
    tokens: np.ndarray
    predicted: np.ndarray


@dataclass(frozen=True, slots=True)
class Tree:
    """A context int32[P] and the branches that continue it, at least one."""

    context: np.ndarray
    branches: list[Branch] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The number of tokens in the buffer."""
        return len(self.context) + sum(len(branch.tokens) for branch in self.branches)

    @property
    def pairs(self) -> int:
        """The number of pairs of a token and a token that it sees, in a layer of full attention."""
        prompt = len(self.context)
        lengths = [len(branch.tokens) for branch in self.branches]
        return prompt * (prompt + 1) // 2 + sum(length * prompt + length * (length + 1) // 2 for length in lengths)


def trees(batch: TrainBatch, rows: Iterable[int]) -> list[Tree]:
    """Return the trees of these rollouts, in the order in which their contexts first occur.

    Segments share a context if they are of one group and their contexts are equal, token by token. A segment without a policy token is left
    out.
    """
    found: dict[tuple[int, bytes], Tree] = {}
    segments = [(int(batch.group[row]), segment) for row in rows for segment in batch.rollouts[row].segments]
    for order, (group, segment) in enumerate(segments):
        predicted = np.flatnonzero(segment.policy_mask)
        if len(predicted):
            tree = found.setdefault((group, segment.context_ids.tobytes()), Tree(segment.context_ids))
            tree.branches.append(Branch(order, segment.token_ids[: predicted[-1]], predicted))
    return list(found.values())


def pack(batch: TrainBatch, rows: np.ndarray, *, device: torch.device | str = "cpu") -> PackedBatch:
    """Return the packed tensors of one forward over the given rollouts, at least one of which has a policy token.

    Raises RunError if a segment has no context, because its first token then has no prediction.
    """
    plain = collate(batch, rows, device=device)
    found = trees(batch, rows)
    starts = np.cumsum([0, *(tree.tokens for tree in found)])

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(device)

    moved = {
        "input_ids": tensor(np.concatenate([part for tree in found for part in _token_ids(tree)]))[None],
        "position_ids": tensor(np.concatenate([part for tree in found for part in _positions(tree)]))[None],
        "select": tensor(_select(found, starts)),
        "attention": AttentionPlan(_pieces(found, starts), torch.device(device)),
    }
    return PackedBatch(**{item.name: getattr(plain, item.name) for item in fields(plain)} | moved)


def _token_ids(tree: Tree) -> list[np.ndarray]:
    return [tree.context, *(branch.tokens for branch in tree.branches)]


def _positions(tree: Tree) -> list[np.ndarray]:
    start = len(tree.context)
    return [np.arange(start), *(np.arange(start, start + len(branch.tokens)) for branch in tree.branches)]


def _select(found: Sequence[Tree], starts: np.ndarray) -> np.ndarray:
    """Return int64[n]: the place of the buffer whose output predicts each policy token, segment after segment."""
    places: dict[int, np.ndarray] = {}
    for tree, start in zip(found, starts.tolist(), strict=False):
        behind = at = start + len(tree.context)
        for branch in tree.branches:
            # The token before the first one of a branch is the context's last, wherever the branch begins.
            places[branch.order] = np.where(branch.predicted > 0, at + branch.predicted, behind) - 1
            at += len(branch.tokens)
    return np.concatenate([places[order] for order in sorted(places)])


def _pieces(found: Sequence[Tree], starts: np.ndarray) -> Pieces:
    """Return the pieces of the trees.

    A context with one branch is one document. Otherwise the context is a document, and each branch is a document with the context as its
    prefix.
    """
    pieces: list[tuple[int, int, int, int]] = []
    for tree, start in zip(found, starts.tolist(), strict=False):
        prompt, at = len(tree.context), start + len(tree.context)
        lengths = [len(branch.tokens) for branch in tree.branches if len(branch.tokens)]
        if len(lengths) < 2:
            pieces.append((0, 0, start, tree.tokens))
            continue
        pieces.append((0, 0, start, prompt))
        for length in lengths:
            pieces.append((start, prompt, at, length))
            at += length
    return Pieces.of(pieces)
