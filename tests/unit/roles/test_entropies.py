"""The consumer and a loss that prepares with entropies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import ModelRole
from rlcore.testing.algorithms.fake_algorithms import FakeLoss
from tests.unit.roles.test_consumer import RecordingTrainer, Seeing, consumer, group


class Uncertain(FakeLoss):
    """Keeps the entropies that its ``prepare`` sees."""

    prepares_entropy = True
    seen: list[float] = []  # noqa: RUF012

    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        assert batch.entropy is not None
        self.seen = batch.entropy.tolist()
        return {"seen": batch.entropy}


class EntropyTrainer(RecordingTrainer):
    spread = 0.25

    def logprobs_and_entropies(self, batch: TrainBatch) -> tuple[np.ndarray, np.ndarray]:
        self.asked.append(ModelRole.POLICY)
        return np.full((2, int(batch.offsets[-1])), [[-1.0], [self.spread]], np.float32)  # type: ignore[return-value]


@pytest.mark.parametrize("steps", [1, 2])
def test_entropies_come_with_the_old_log_probabilities_and_only_to_prepare(steps: int) -> None:
    trainer, loss = EntropyTrainer(), Uncertain()
    consumer(trainer, Seeing(), loss=loss, updates_per_batch=steps).update([group(0), group(1)], (), 3)
    assert trainer.asked == [ModelRole.POLICY]
    assert loss.seen == [0.25] * 10
    assert [batch.entropy for batch in trainer.batches] == [None] * steps
    assert [batch.old_logprobs is None for batch in trainer.batches] == [steps == 1] * steps
    trainer.spread = np.nan
    with pytest.raises(RunError, match="log probabilities or entropies of the policy model are not finite in the update of version 4"):
        consumer(trainer, Seeing(), loss=loss).update([group(0)], (), 4)
