"""Log probabilities that a training backend hands over in half precision are summed in float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlcore.api import LossBatch, Normalisers
from rlcore.learning import ClippedSurrogate, PolicyObjective, collate
from rlcore.testing import make_rollout, make_train_batch

TOKENS = 1000


def long_rollout(dtype: torch.dtype) -> LossBatch:
    """One rollout of a thousand tokens, old log probabilities of -0.5."""
    flat = torch.full((TOKENS,), -0.5, dtype=dtype)
    return LossBatch(
        row=torch.zeros(TOKENS, dtype=torch.int64),
        lengths=torch.tensor([TOKENS]),
        advantages=torch.ones_like(flat),
        old_logprobs=flat,
        rollout_logprobs=flat,
        weights=torch.full_like(flat, 1 / 1024),
        normalisers=Normalisers(tokens=TOKENS, rollouts=1, length=TOKENS),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_sum_over_a_rollout_is_in_float32(dtype: torch.dtype) -> None:
    batch = long_rollout(dtype)
    values = torch.full((TOKENS,), 0.0625, dtype=dtype)
    assert batch.row_sum(values).unique().tolist() == [62.5]
    assert batch.row_mean(values).unique().tolist() == [0.0625]
    assert batch.row_mean(values).dtype == torch.float32


def test_wider_values_keep_their_precision() -> None:
    batch = long_rollout(torch.float32)
    for dtype in (torch.float32, torch.float64):
        assert batch.row_sum(torch.ones(TOKENS, dtype=dtype)).dtype == batch.row_mean(torch.ones(TOKENS, dtype=dtype)).dtype == dtype


def test_the_objective_of_half_precision_is_that_of_the_same_numbers_in_float32() -> None:
    totals = []
    for dtype in (torch.bfloat16, torch.float32):
        logprobs = torch.full((TOKENS,), -0.4375, dtype=dtype, requires_grad=True)
        total, metrics = PolicyObjective(loss=ClippedSurrogate())(logprobs, long_rollout(dtype))
        assert total.dtype == metrics["ratio_mean"].dtype == torch.float32
        totals.append((float(total.detach()), float(metrics["ratio_mean"]), float(metrics["kl_old"])))
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)


def test_a_micro_batch_lends_its_arrays_in_float32() -> None:
    batch = make_train_batch([make_rollout([1, 2], [3, 4, 5]), make_rollout([1, 2], [6])], [0.1, 0.1])
    micro = collate(batch, np.arange(len(batch)))
    lent = micro.loss_batch(torch.zeros(len(micro.targets), dtype=torch.bfloat16))
    assert lent.advantages.dtype == lent.weights.dtype == lent.old_logprobs.dtype == torch.float32
    assert lent.advantages.unique().tolist() == [np.float32(0.1)]
