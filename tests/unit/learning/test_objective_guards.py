"""What a stranger's loss may do wrong, and who is blamed: the loss, by name."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rlcore.contracts.batches import LossBatch
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import Loss
from rlcore.learning import PolicyObjective, prepare_loss
from rlcore.registry.error_context import error_context
from rlcore.testing.records import make_rollout, make_train_batch


def batch() -> LossBatch:
    return LossBatch(
        row=torch.tensor([0, 0, 1]),
        lengths=torch.tensor([2, 1]),
        advantages=torch.tensor([1.0, 1.0, -1.0]),
        old_logprobs=torch.tensor([-1.0, -2.0, -0.5]),
        rollout_logprobs=torch.tensor([-1.0, -2.0, -0.5]),
        weights=torch.full((3,), 1 / 3),
    )


def objective(per_token: Any) -> PolicyObjective:
    made = type("Mine", (Loss,), {"per_token": lambda self, logprobs, batch: per_token(logprobs, batch)})
    return PolicyObjective(loss=made(), name="mine")


def logprobs() -> torch.Tensor:
    return torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)


def fails(logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
    raise ValueError("bang")


@pytest.mark.parametrize(
    ("per_token", "words"),
    [
        (fails, "loss 'mine' failed in per_token: ValueError: bang"),
        (lambda logprobs, batch: sys.exit(0), "loss 'mine' failed in per_token: SystemExit"),
        (lambda logprobs, batch: logprobs.detach(), "loss 'mine' is detached"),
    ],
)
def test_the_loss_is_blamed_by_name(per_token: Any, words: str) -> None:
    with pytest.raises(RunError, match=words):
        objective(per_token)(logprobs(), batch())


@pytest.mark.parametrize("name", ["weights", "advantages", "old_logprobs", "rollout_logprobs", "extras['mine']"])
def test_a_loss_that_writes_into_its_batch_is_named_with_what_it_wrote(name: str) -> None:
    def writes(values: torch.Tensor, lent: LossBatch) -> torch.Tensor:
        loss = -values * lent.advantages
        (lent.extras["mine"] if "mine" in name else getattr(lent, name)).fill_(100.0)
        return loss

    whole = replace(batch(), extras={"mine": torch.zeros_like(batch().advantages)})
    with pytest.raises(RunError, match=f"wrote into {re.escape(name)} of its batch"):
        objective(writes)(logprobs(), whole)
    assert not whole.extras["mine"].any(), "the batch itself stays as it is"


def test_a_loss_that_reads_what_it_did_not_declare_is_told_so() -> None:
    with pytest.raises(RunError, match="a loss declares the fields that it reads in `needs`"):
        objective(lambda values, lent: -values * lent.entropy)(logprobs(), replace(batch(), entropy=None))


def test_other_errors_of_a_loss_say_nothing_of_needs() -> None:
    with pytest.raises(RunError) as raised:
        objective(lambda values, lent: values + "x")(logprobs(), batch())
    assert "needs" not in str(raised.value)


def test_prepare_is_lent_the_batch_read_only_and_must_return_a_mapping() -> None:
    class Writes(Loss):
        def prepare(self, batch: Any) -> dict[str, np.ndarray]:
            batch.weights[:] = 0.0
            return {}

        def per_token(self, logprobs: Any, batch: Any) -> Any:
            return logprobs

    class Nothing(Writes):
        def prepare(self, batch: Any) -> Any:
            return None

    with pytest.raises(ValueError, match="read-only"):
        prepare_loss("mine", Writes(), make_train_batch([make_rollout([1, 2], [5, 6])], [1.0]))
    with pytest.raises(RunError, match="prepare returned a NoneType"):
        prepare_loss("mine", Nothing(), make_train_batch([make_rollout([1, 2], [5, 6])], [1.0]))


def test_a_plugin_that_exits_is_a_failure_not_the_end() -> None:
    with pytest.raises(RunError, match="estimator 'x' failed while estimating: SystemExit"), error_context("estimator 'x'", "estimating"):
        sys.exit(0)
