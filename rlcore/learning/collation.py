"""One micro-batch as tensors: padded rows, and the position that predicts each policy token.

Rows are right-padded, each with a context and its tokens. Causal attention then needs no mask, because no real token sees the padding after
it. Only positions that predict policy tokens are projected onto the vocabulary.

Axes: ``B`` rows, ``T`` width, ``n`` policy tokens (rollout after rollout, as on the flat axis of the batch).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rlcore.contracts.batches import LossBatch, TrainBatch, full_precision, token_index
from rlcore.contracts.errors import RunError
from rlcore.contracts.types import Segment

__all__ = ["MicroBatch", "collate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """The tensors of one micro-batch.

    ``input_ids``, ``position_ids``: int64[B, T].
    ``select``: int64[n], the position in [B x T] whose output predicts each policy token.
    ``targets``: int64[n], that token.
    ``index``: int64[n], its place on the flat axis of the batch.
    ``rows``: the rollouts.
    ``share``: the batch reduced to these rollouts.
    ``temperature``: the temperature of all its rollouts; float64[n], one per token, if they differ.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    select: torch.Tensor
    targets: torch.Tensor
    index: np.ndarray
    rows: np.ndarray
    share: TrainBatch
    temperature: float | torch.Tensor

    def loss_batch(self, logprobs: torch.Tensor, entropy: torch.Tensor | None = None) -> LossBatch:
        """Return the input of the loss, on the device and in the precision of ``logprobs`` [n], at least float32.

        If the batch has no old log probabilities, they are ``logprobs``, detached.
        """
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
            whole=share.whole,
            source=None if share.source is None else torch.from_numpy(np.repeat(share.source, share.lengths)).to(logprobs.device),
        )


def collate(batch: TrainBatch, rows: np.ndarray, *, device: torch.device | str = "cpu") -> MicroBatch:
    """Return the tensors of one forward over the given rollouts (at least one), right-padded, with one row for each segment.

    Raise RunError if a segment has no context, because nothing would predict its first token.
    """
    segments = _segments(batch, rows)
    whole = [np.concatenate([segment.context_ids, segment.token_ids]) for segment in segments]
    input_ids = np.zeros((len(whole), max(map(len, whole))), np.int64)
    for row, tokens in zip(input_ids, whole, strict=True):
        row[: len(tokens)] = tokens
    # # The position before a token predicts it.
    starts = [number * input_ids.shape[1] + len(segment.context_ids) - 1 for number, segment in enumerate(segments)]
    places = [np.flatnonzero(segment.policy_mask) + start for segment, start in zip(segments, starts, strict=True)]
    targets = np.concatenate([segment.token_ids[segment.policy_mask] for segment in segments])

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    share = batch.take(rows)
    temperatures = share.temperatures
    one = bool((temperatures == temperatures[0]).all())
    return MicroBatch(
        input_ids=tensor(input_ids),
        position_ids=tensor(np.tile(np.arange(input_ids.shape[1]), (len(whole), 1))),
        select=tensor(np.concatenate(places)),
        targets=tensor(targets.astype(np.int64)),
        index=token_index(batch.offsets, rows),
        rows=np.asarray(rows),
        share=share,
        temperature=float(temperatures[0]) if one else tensor(np.repeat(temperatures, share.lengths)),
    )


def _segments(batch: TrainBatch, rows: np.ndarray) -> list[Segment]:
    """Return the segments, rollout after rollout: the canonical order of the flat axis."""
    for row in rows:
        if any(len(segment.context_ids) == 0 for segment in batch.rollouts[row].segments):
            prompt = batch.rollouts[row].prompt_id
            raise RunError(f"a segment of prompt {prompt!r} has no context; at least one token must come before the sampled tokens")
    return [segment for row in rows for segment in batch.rollouts[row].segments]
