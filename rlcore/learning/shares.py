"""The division of one optimizer step between data-parallel ranks: whole groups, similar costs. Pure numpy.

Every rank divides the same global batch and computes the same shares, without communication.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlcore.contracts.batches import TrainBatch, token_index
from rlcore.contracts.errors import RunError

__all__ = ["StepShares", "cut_shares", "joined"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShares:
    """The shares of one update: int64 rollout numbers by the place of each data-parallel rank.

    ``scored``: shares of the whole batch, for log probabilities, None if the update needs none. ``steps``: shares of each optimizer step,
    as rollout numbers in that step's own part of the batch.
    """

    scored: list[np.ndarray] | None
    steps: list[list[np.ndarray]]

    @property
    def digest(self) -> str:
        """A hash of the shares: equal shares have equal digests."""
        told = hashlib.blake2b(digest_size=16)
        for shares in (self.scored or [], *self.steps):
            for rows in shares:
                told.update(len(rows).to_bytes(8, "little") + rows.astype(np.int64).tobytes())
        return told.hexdigest()

    def groups(self, place: int, batch: TrainBatch, parts: Sequence[TrainBatch]) -> list[int]:
        """Return the numbers of the groups whose tokens the rank at ``place`` computes on.

        :param parts: the parts of ``batch``, one per step.
        """
        held = [part.group[share[place]] for part, share in zip(parts, self.steps, strict=True)]
        if self.scored is not None:
            held.append(batch.group[self.scored[place]])
        return sorted({int(group) for of_share in held for group in of_share})


def cut_shares(
    batch: TrainBatch, size: int, cost: Callable[[TrainBatch, np.ndarray], int], *, everything: bool = False
) -> list[np.ndarray]:
    """Return int64 rollout numbers of each of ``size`` shares, ascending.

    Every rollout is in exactly one share, and a group is never divided.

    The heaviest group goes first, to the share that is lightest so far (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969).
    Therefore no share outweighs another by more than one group. The weight of a group is the ``cost`` (see ``TrainingBackend.cost``) of its
    rollouts in the loss, or of all of them with ``everything`` (for log probabilities). If there are fewer groups than shares, the last
    shares are empty.
    """
    groups = list(dict.fromkeys(batch.group.tolist()))
    forwarded = (batch.lengths > 0) & (batch.in_loss | everything)
    members = [np.flatnonzero(batch.group == group) for group in groups]
    weights = [cost(batch, held) if len(held := rows[forwarded[rows]]) else 0 for rows in members]
    loads = np.zeros(size, np.int64)
    shares: list[list[np.ndarray]] = [[] for _ in range(size)]
    for group in sorted(range(len(groups)), key=lambda group: (-weights[group], group)):
        lightest = int(loads.argmin())
        shares[lightest].append(members[group])
        loads[lightest] += weights[group]
    return [np.sort(np.concatenate([np.zeros(0, np.int64), *share])) for share in shares]


def joined(batch: TrainBatch, shares: Sequence[np.ndarray], parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return float32[N]: the per-token arrays of the shares, placed at their rollouts' positions in the batch.

    Raise RunError, naming the rank, if the length of a part differs from the number of tokens in its share.
    """
    if len(parts) != len(shares):
        raise RunError(f"the training backend gathered the arrays of {len(parts)} ranks, but {len(shares)} ranks share the batch")
    whole = np.zeros(int(batch.offsets[-1]), np.float32)
    for rank, (rows, part) in enumerate(zip(shares, parts, strict=True)):
        index = token_index(batch.offsets, rows)
        if np.shape(part) != index.shape:
            raise RunError(
                f"data-parallel rank {rank} sent values of shape {list(np.shape(part))} for its share of {len(index)} tokens: the ranks do "
                "not hold the same batch"
            )
        whole[index] = part
    return whole
