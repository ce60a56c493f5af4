"""One micro-batch as tensors: padded rows, and where in them each policy token is predicted.

Rows are right-padded. A plain row is a context and its tokens; causal attention then needs no mask, because no real token sees the
padding behind it. A shared row is a prompt and several completions of it: positions restart at the prompt's end and a mask lets each
completion see the prompt and itself only. Only positions that predict policy tokens are ever projected onto the vocabulary.

Axes: ``B`` rows, ``T`` width, ``n`` policy tokens (rollout after rollout, as on the flat axis of the batch).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rlcore.contracts.batches import LossBatch, TrainBatch, full_precision, token_index
from rlcore.contracts.errors import RunError
from rlcore.contracts.types import Segment
from rlcore.learning.micro_batches import shared_rows

__all__ = ["MicroBatch", "collate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """``input_ids`` and ``position_ids`` int64[B, T]; ``mask`` bool[B, 1, T, T] (True: may see) or None where plain causal attention is
    meant; ``select`` int64[n]: the position in [B x T] whose output predicts each policy token; ``targets`` int64[n]: that token;
    ``index`` int64[n]: its place on the flat axis of the batch; ``rows``: the rollouts, of ``share``, which is the batch cut to them;
    ``temperature``: that of all its rollouts, or float64[n], each token's, where they differ.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    mask: torch.Tensor | None
    select: torch.Tensor
    targets: torch.Tensor
    index: np.ndarray
    rows: np.ndarray
    share: TrainBatch
    temperature: float | torch.Tensor

    def loss_batch(self, logprobs: torch.Tensor, entropy: torch.Tensor | None = None) -> LossBatch:
        """What the loss sees, on the device and in the precision of ``logprobs`` [n], float32 at least; missing old log probabilities are
        these, detached."""
        logprobs = full_precision(logprobs)

        def tensor(values: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(np.array(values)).to(device=logprobs.device, dtype=logprobs.dtype)

        share = self.share
        lengths = torch.from_numpy(np.array(share.lengths)).to(logprobs.device)
        return LossBatch(
            row=torch.repeat_interleave(torch.arange(len(share), device=logprobs.device), lengths),
            lengths=lengths,
            advantages=tensor(share.advantages),
            old_logprobs=logprobs.detach() if share.old_logprobs is None else tensor(share.old_logprobs),
            rollout_logprobs=tensor(share.rollout_logprobs),
            weights=tensor(share.weights),
            reference_logprobs=None if share.reference_logprobs is None else tensor(share.reference_logprobs),
            entropy=entropy,
            extras={name: tensor(values) for name, values in share.extras.items()},
            normalisers=share.normalisers,
        )


def collate(batch: TrainBatch, rows: np.ndarray, *, share_prompts: int = 0, device: torch.device | str = "cpu") -> MicroBatch:
    """The tensors of one forward over the given rollouts (at least one); ``share_prompts`` as it was planned with.

    Raises RunError where a segment has no context, so that nothing predicts its first token.
    """
    lines = [line for together in shared_rows(batch, rows, share_prompts) for line in _lines(batch, together)]
    width = max(line.width for line in lines)
    # Canonical flat order: lines follow ``rows``, and a rollout's segments follow each other.
    select = np.concatenate([number * width + line.predictors() for number, line in enumerate(lines)])
    targets = np.concatenate([segment.token_ids[segment.policy_mask] for line in lines for segment in line.completions])
    shared = any(len(line.completions) > 1 for line in lines)

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    share = batch.take(rows)
    temperatures = share.temperatures
    one = bool((temperatures == temperatures[0]).all())
    return MicroBatch(
        input_ids=tensor(np.stack([line.token_ids(width) for line in lines])),
        position_ids=tensor(np.stack([line.positions(width) for line in lines])),
        mask=tensor(np.stack([line.mask(width) for line in lines])[:, None]) if shared else None,
        select=tensor(select),
        targets=tensor(targets.astype(np.int64)),
        index=token_index(batch.offsets, rows),
        rows=np.asarray(rows),
        share=share,
        temperature=float(temperatures[0]) if one else tensor(np.repeat(temperatures, share.lengths)),
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """One row before padding: a context and the tokens of the segments that follow it, each as if alone."""

    context: np.ndarray
    completions: tuple[Segment, ...]

    @property
    def width(self) -> int:
        return len(self.context) + sum(len(segment.token_ids) for segment in self.completions)

    def token_ids(self, width: int) -> np.ndarray:
        row = np.zeros(width, np.int64)
        row[: self.width] = np.concatenate([self.context, *(segment.token_ids for segment in self.completions)])
        return row

    def positions(self, width: int) -> np.ndarray:
        if len(self.completions) == 1:
            return np.arange(width, dtype=np.int64)
        row = np.zeros(width, np.int64)
        start = len(self.context)
        row[: self.width] = np.concatenate([np.arange(start), *(start + np.arange(len(item.token_ids)) for item in self.completions)])
        return row

    def mask(self, width: int) -> np.ndarray:
        """bool[T, T]: causal, and only into the context (0) or into one's own completion (1, 2, …); padding (-1) sees the context."""
        owner = np.full(width, -1)
        numbers = np.arange(1, len(self.completions) + 1)
        owner[: len(self.context)] = 0
        owner[len(self.context) : self.width] = np.repeat(numbers, [len(segment.token_ids) for segment in self.completions])
        seen = (owner[:, None] == owner[None, :]) | (owner[None, :] == 0)
        return np.tril(seen)

    def predictors(self) -> np.ndarray:
        """int64: for each policy token, the place whose output predicts it: the one before it, or the context's last."""
        places, start = [], len(self.context)
        for segment in self.completions:
            before = np.arange(start - 1, start - 1 + len(segment.token_ids))
            before[:1] = len(self.context) - 1
            places.append(before[segment.policy_mask])
            start += len(segment.token_ids)
        return np.concatenate(places).astype(np.int64)


def _lines(batch: TrainBatch, together: Sequence[int]) -> list[_Line]:
    segments = [segment for row in together for segment in batch.rollouts[row].segments]
    for row in together:
        if any(len(segment.context_ids) == 0 for segment in batch.rollouts[row].segments):
            prompt = batch.rollouts[row].prompt_id
            raise RunError(f"a segment of prompt {prompt!r} has no context; at least one token must stand before what the policy samples")
    if len(together) == 1:
        return [_Line(segment.context_ids, (segment,)) for segment in segments]
    return [_Line(segments[0].context_ids, tuple(segments))]
