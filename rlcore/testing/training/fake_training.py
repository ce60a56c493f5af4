"""A training backend in numpy for the model that the fake engine serves.

It does not call the objective it is given, which is made of torch: it minimises ``-sum(weights * advantages * ratio)``, where ``ratio`` is
policy over old probability (1 where the batch has no old log probabilities). That is the plain policy gradient, no clipping, no KL.
Several ranks add their gradients up over sockets (``StarRanks``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import ModelRole, Need, Objective, TrainingBackend, TrainingContext
from rlcore.contracts.types import Rollout
from rlcore.testing.fake_plugin import FAKE_TRAINING
from rlcore.testing.phases import note_phase
from rlcore.testing.policy import FakePolicy
from rlcore.testing.training.numpy_optimizer import NumpyOptimizer
from rlcore.testing.training.star_ranks import StarRanks
from rlcore.testing.weights import HostSource

__all__ = ["FakeTraining", "FakeTrainingOptions"]

STATE = "fake_trainer.npz"


class FakeTrainingOptions(BaseModel):
    """Options of the ``fake`` training backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    optimizer: Literal["adam", "sgd"] = Field(default="adam", description="AdamW, or gradient descent with the same schedule.")
    save_seconds: float = Field(default=0.0, ge=0, description="Seconds that a save takes, beside the training; 0: it is made at once.")
    phases: str = Field(default="", description="File that gets a line when the trainer sleeps, wakes or trains.")
    ranks_deadline: float = Field(default=60.0, gt=0, description="Seconds that one trainer rank waits for another.")


class FakeTraining(TrainingBackend):
    """TrainingBackend over a FakePolicy that ``setup`` loads from ``context.model``. Constructor: ``(context, options)`` or ``()``."""

    capabilities = FAKE_TRAINING
    ranks = StarRanks(0, 1, "")
    awake = True
    moved = False

    def __init__(self, context: TrainingContext | None = None, options: FakeTrainingOptions | None = None) -> None:
        self.options = options if options is not None else FakeTrainingOptions()

    def setup(self, context: TrainingContext) -> None:
        """Load the policy, and the reference if the objective needs one; with several ranks, wait for the others."""
        self.context = context
        self._closed = threading.Event()
        self._writer = ThreadPoolExecutor(1, "fake-trainer-saves")
        self.ranks = StarRanks(context.rank, context.world_size, context.rendezvous, self.options.ranks_deadline)
        self.policy = FakePolicy.load(context.model)
        self.reference = FakePolicy.load(context.reference or context.model) if Need.REFERENCE in context.needs else None
        self.optimizer = NumpyOptimizer(context.optimizer, self.policy.arrays(), self.options.optimizer == "adam")

    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        """Return float32[N]; RunError for the reference if its need was not declared."""
        self._require_device()
        policy = self.policy if which is ModelRole.POLICY else self.reference
        if policy is None:
            raise RunError("the fake trainer holds no reference model: Need.REFERENCE was not declared")
        rows = [_of_policy_tokens(rollout, policy) for rollout in batch.rollouts]
        return np.concatenate([np.zeros(0), *rows]).astype(np.float32)

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """Take one optimizer step; return the metrics ``loss``, ``grad_norm``, ``learning_rate``. The objective is not called."""
        self._require_device()
        note_phase(self.options.phases, "trainer trains")
        gradient = {name: np.zeros(array.shape) for name, array in self.policy.arrays().items()}
        trains = np.flatnonzero(batch.in_loss)
        loss = 0.0
        for start in range(0, len(trains), self.context.rollouts_per_forward):
            for row in trains[start : start + self.context.rollouts_per_forward]:
                loss += self._accumulate(batch, int(row), gradient)
        if self.ranks.size > 1:
            loss, gradient = self._summed(loss, gradient)
        if not any(count.any() for count in self.gather(np.array([len(trains)]))):
            return {"loss": loss, "grad_norm": 0.0, "learning_rate": self.optimizer.rate}
        weights, metrics = self.optimizer.step(self.policy.arrays(), gradient)
        self.policy = FakePolicy(*weights.values())
        return {"loss": loss, **metrics}

    def _summed(self, loss: float, gradient: Mapping[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
        """Return the loss and the gradient over all ranks, added in the order of the ranks, so that every rank gets the same bits."""
        flat = np.concatenate([[loss], *(array.reshape(-1) for array in gradient.values())])
        total = np.sum(self.ranks.gather(flat), axis=0)
        pieces = np.split(total[1:], np.cumsum([array.size for array in gradient.values()])[:-1])
        return float(total[0]), {name: piece.reshape(gradient[name].shape) for name, piece in zip(gradient, pieces, strict=True)}

    @property
    def data_parallel(self) -> tuple[int, int]:
        """Every rank holds the whole model."""
        return self.ranks.rank, self.ranks.size

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of all ranks, by rank."""
        return self.ranks.gather(values)

    def _accumulate(self, batch: TrainBatch, row: int, gradient: Mapping[str, np.ndarray]) -> float:
        """Add one rollout's gradient of the loss; returns its share of the loss."""
        span = slice(batch.offsets[row], batch.offsets[row + 1])
        rollout = batch.rollouts[row]
        factor = -batch.weights[span].astype(np.float64) * batch.advantages[span]
        if batch.old_logprobs is not None:
            logprobs = _of_policy_tokens(rollout, self.policy)
            factor = factor * np.exp(logprobs - batch.old_logprobs[span])
        start = 0
        for segment in rollout.segments:
            tokens = int(segment.policy_mask.sum())
            coefficients = np.zeros(len(segment.context_ids) + len(segment.token_ids) - 1)
            coefficients[len(segment.context_ids) - 1 :][segment.policy_mask] = factor[start : start + tokens]
            sequence = np.concatenate([segment.context_ids, segment.token_ids])
            self.policy.add_gradient(gradient, sequence, coefficients, rollout.temperature)
            start += tokens
        return float(factor.sum())

    def sync_reference(self, share: float) -> None:
        """Move the reference; the policy and the reference never change in place, so they may share arrays."""
        if self.reference is None:
            raise RunError("the fake trainer holds no reference model: Need.REFERENCE was not declared")
        self.moved = True
        own, new = self.reference.arrays(), self.policy.arrays()
        kept = np.float32(1.0 - share)
        self.reference = FakePolicy(*(kept * own[name] + np.float32(share) * new[name] for name in new)) if kept else self.policy

    def weight_source(self) -> HostSource:
        """Return the weights as they stand; the arrays never change afterwards."""
        self._require_device()
        return HostSource(dict(self.policy.tensors()))

    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """Return log probabilities: int32[T] -> float32[T - 1], at temperature 1."""
        return self.policy.logprobs(token_ids).astype(np.float32)

    def sleep(self) -> None:
        """Refuse to compute until ``wake``; no rank returns before all of them sleep."""
        self.awake = False
        self.gather(np.zeros(0))
        note_phase(self.options.phases, "trainer sleeps")

    def wake(self) -> None:
        """Return to work."""
        self.awake = True
        note_phase(self.options.phases, "trainer wakes")

    def _require_device(self) -> None:
        if not self.awake:
            raise RunError("the fake trainer sleeps: call wake() first")

    def save_model(self, folder: Path, dtype: str | None = None) -> Future[None] | None:
        """Write the policy in the form that ``setup`` loads; rank 0 writes, and no rank returns before it is whole, or begun."""
        return self._written(partial(self.policy.save, folder, dtype))

    def save(self, folder: Path) -> Future[None] | None:
        """Write the optimizer's state and a reference that has moved, as ``save_model`` does."""
        folder.mkdir(parents=True, exist_ok=True)
        state: dict[str, Any] = {name: np.array(value) for name, value in self.optimizer.state().items()}
        if self.moved and self.reference is not None:
            state |= {f"reference/{name}": array for name, array in self.reference.arrays().items()}
        return self._written(partial(np.savez, folder / STATE, **state))

    def _written(self, write: Callable[[], None]) -> Future[None] | None:
        """Call ``write``, at once or later in a thread, on rank 0."""
        seconds, writing = self.options.save_seconds, None
        if self.ranks.rank == 0 and seconds:
            writing = self._writer.submit(_later, seconds, write, self._closed)
        elif self.ranks.rank == 0:
            write()
        self.gather(np.zeros(0))
        return writing

    def load(self, folder: Path) -> None:
        """Read the optimizer's state; the policy comes from ``context.model``. RunError if the file is not whole."""
        try:
            with (folder / STATE).open("rb") as file, np.load(file) as stored:
                self.optimizer.restore(stored)
                names = [f"reference/{name}" for name in self.policy.arrays()]
                self.moved = names[0] in stored and self.reference is not None
                if self.moved:
                    self.reference = FakePolicy(*(stored[name] for name in names))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise RunError(f"the fake trainer's state in {folder} cannot be read: {error}; resume from another checkpoint") from error

    def close(self) -> None:
        """Leave the other ranks; a save that is not yet written is dropped."""
        self._closed.set()
        self._writer.shutdown()
        self.ranks.close()


def _later(seconds: float, write: Callable[[], None], closed: threading.Event) -> None:
    if closed.wait(seconds):
        raise RunError("the fake trainer was closed before its checkpoint was written")
    write()


def _of_policy_tokens(rollout: Rollout, policy: FakePolicy) -> np.ndarray:
    """Return float64[tokens of the rollout]: log probabilities of the tokens that the policy sampled, at their temperature."""
    rows = []
    for segment in rollout.segments:
        sequence = np.concatenate([segment.context_ids, segment.token_ids])
        rows.append(policy.logprobs(sequence, rollout.temperature)[len(segment.context_ids) - 1 :][segment.policy_mask])
    return np.concatenate(rows)
