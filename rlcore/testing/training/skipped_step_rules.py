"""Rules of steps that are not taken, and of ranks without work."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import ModelRole, TrainingBackend
from rlcore.testing.training.trainer_suite import TrainerSuite
from rlcore.testing.weights import weights_of

__all__ = ["SkippedStepRules"]


class SkippedStepRules(TrainerSuite):
    """Steps that are not taken, and ranks without work, on one rank."""

    def test_one_rank_is_the_whole(self) -> None:
        """One rank is place 0 of 1, and ``gather`` returns the values that it was given."""
        backend = self.ready()
        assert backend.data_parallel == (0, 1), f"one rank says that it is place and size {backend.data_parallel}"
        values = np.array([0.5, -2.0], np.float32)
        (gathered,) = backend.gather(values)
        assert np.array_equal(gathered, values), f"one rank gathered {gathered}, it gave {values}"

    def test_an_empty_share_has_no_log_probabilities(self) -> None:
        """``logprobs`` of an empty share is float32[0]."""
        empty = self.batch().take(np.zeros(0, np.int64))
        logprobs = self.ready().logprobs(empty, ModelRole.POLICY)
        assert len(logprobs) == 0, f"an empty share gives log probabilities of shape {logprobs.shape}"
        assert logprobs.dtype == np.float32, f"log probabilities of an empty share are {logprobs.dtype}"

    def test_nothing_in_the_loss_is_no_step(self) -> None:
        """A batch without rollouts in the loss has ``grad_norm`` 0 and changes nothing: no weights, moments or schedule."""
        batch = self.batch(seed=1)
        nothing = replace(batch, in_loss=np.zeros(len(batch), np.bool_), weights=np.zeros_like(batch.weights))
        for what, empty in (("an all-masked batch", nothing), ("an empty batch", batch.take(np.zeros(0, np.int64)))):
            metrics = self._check_no_step(empty, what)
            assert metrics == (0.0, 0.0), f"{what} gave grad_norm {metrics[0]} and skipped_steps {metrics[1]}, 0 is due for both"

    def test_a_gradient_that_is_not_finite_is_skipped(self) -> None:
        """A gradient with NaN or infinity gives ``skipped_steps`` 1 and changes nothing: no weights, moments or schedule."""
        batch = self.batch(seed=1)
        for value in (np.nan, np.inf, -np.inf):
            advantages = batch.advantages.copy()
            advantages[0] = value
            norm, skipped = self._check_no_step(replace(batch, advantages=advantages), f"a gradient with {value}")
            assert skipped == 1.0, f"a gradient with {value} gave skipped_steps {skipped}, 1 is due"
            assert not math.isfinite(norm), f"a gradient with {value} has grad_norm {norm}"

    def _check_no_step(self, idle: TrainBatch, what: str) -> tuple[float, float]:
        """Assert that ``idle`` changes nothing, the next step included. Return its ``grad_norm`` and ``skipped_steps``."""
        straight, other = (self.ready(rollouts_per_forward=2, total_steps=8) for _ in range(2))
        for backend in (straight, other):
            backend.update(self.batch(), self.objective())
        before = _checksums(other)
        metrics = other.update(idle, self.objective())
        changed = [name for name, checksum in _checksums(other).items() if checksum != before[name]]
        assert not changed, f"{what} changed tensor {changed[0]!r} and {len(changed) - 1} more"
        due, found = (backend.update(self.batch(seed=2), self.objective()) for backend in (straight, other))
        assert due["learning_rate"] == found["learning_rate"], (
            f"after {what} the learning rate is {found['learning_rate']}, without it {due['learning_rate']}: the schedule has moved"
        )
        expected, got = _checksums(straight), _checksums(other)
        differing = [name for name, checksum in expected.items() if got[name] != checksum]
        assert not differing, f"{what} left something behind: the step after it gives another {differing[0]!r}"
        return metrics["grad_norm"], metrics.get("skipped_steps", 0.0)


def _checksums(backend: TrainingBackend) -> dict[str, int]:
    return {name: tensor.checksum for name, tensor in weights_of(backend).items()}
