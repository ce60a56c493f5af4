"""The base of the rules for training backends: it makes trainers and batches."""

from __future__ import annotations

import shutil
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import ModelRole, Objective, TrainingBackend, TrainingContext
from rlcore.contracts.specs import TrainingBackendSpec
from rlcore.contracts.training_settings import OptimizerSettings
from rlcore.testing.records import make_rollout, make_train_batch

__all__ = ["TrainerSuite"]

LENGTHS = (4, 1, 7, 3, 6, 2)


class TrainerSuite(ABC):
    """Make a trainer, and a batch for it, for the suites of training backends."""

    spec: ClassVar[TrainingBackendSpec | None] = None
    """The spec that the plugin registers, to compare with the class; None leaves that unchecked."""
    vocabulary: ClassVar[int]
    """V of the model, no multiple of 64; with more than some hundreds set ``checks_temperature`` to False."""
    checks_temperature: ClassVar[bool] = True
    """Probe every token of the vocabulary once to know the distribution at another temperature."""
    learning_rate: ClassVar[float] = 1e-3
    """A rate at which the objective falls in five steps."""
    adamw: ClassVar[bool] = True
    """Steps are AdamW's, as ``OptimizerSettings`` describes them; False for a backend with another optimizer, whose steps are unchecked."""
    untrained: ClassVar[frozenset[str]] = frozenset()
    """Tensors that are handed out and that no gradient of ``batch()`` reaches, by name: a buffer, an expert that no token goes to."""
    dtype: ClassVar[str] = "float32"
    device: ClassVar[str] = "auto"
    """``TrainingContext.device`` of every backend that the suite makes."""
    tolerance: ClassVar[float] = 1e-4
    """Largest difference of two log probabilities of one token, by dtype."""

    @abstractmethod
    def make(self, context: TrainingContext) -> TrainingBackend:
        """Return a fresh backend, not set up, for the context that the suite then gives to ``setup``."""

    @abstractmethod
    def model(self) -> str:
        """Return a folder with the model to train; the same weights each time."""

    def forward(self, model: str, token_ids: np.ndarray) -> np.ndarray | None:
        """Return logits [T, V] of the model in a folder at each of int[T] tokens, by other code than the backend's, in float32 or better.
        With None, mistakes that the backend's own probe shares are not seen: the precision of its head, weights that it hands out
        unmerged."""
        return None

    def models(self) -> Mapping[str, str]:
        """Return models of other kinds that the rules of layouts try too (tied and untied heads), by name; the first one is ``model()``."""
        return {"": self.model()}

    def variants(self) -> Mapping[str, Any]:
        """Return options of the backend under which it must compute the same (packing on and off), by name."""
        return {}

    def objective(self) -> Objective:
        """Return ``-sum(weights * advantages * ratio)``; override it for a backend that takes another kind of objective."""
        from rlcore.testing.training.plain_objective import PlainObjective  # torch, which a backend in numpy does not need

        return PlainObjective()

    def watching(self) -> Any:
        """Return an objective that needs entropies, and keeps (place, entropy) of each token in ``seen``; ``extras`` have the places."""
        from rlcore.testing.training.plain_objective import WatchingObjective

        return WatchingObjective()

    @cached_property
    def scratch(self) -> Path:
        """A folder that lasts as long as the suite object."""
        folder = Path(mkdtemp(prefix="rlcore-suite-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def context(self, **changes: Any) -> TrainingContext:
        """Return a context: one rank, constant learning rate, no weight decay, all rollouts in one forward, unless ``changes`` say
        otherwise. ``total_steps``: of a learning rate that falls."""
        steps = changes.pop("total_steps", 0)
        optimizer = OptimizerSettings(
            learning_rate=changes.pop("learning_rate", self.learning_rate),
            weight_decay=0.0,
            min_lr_ratio=0.1 if steps else 1.0,
            max_grad_norm=changes.pop("max_grad_norm", 1e9),
            total_steps=steps or 100,
        )
        context = TrainingContext(
            model=self.model(),
            optimizer=optimizer,
            rollouts_per_forward=64,
            tokens_per_forward=65_536,
            prompts_per_slice=64,
            dtype=self.dtype,
            device=self.device,
        )
        return replace(context, **changes)

    def ready(self, **changes: Any) -> TrainingBackend:
        """Return a backend that is set up."""
        context = self.context(**changes)
        backend = self.make(context)
        backend.setup(context)
        return backend

    def full_precision(self) -> str:
        """Return the dtype in which a small step shows; "" if the backend has none."""
        dtypes = self.make(self.context()).capabilities.dtypes
        return next((each for each in ("float32", "float64") if each in dtypes), "")

    def batch(self, temperature: float | Sequence[float] = 1.0, seed: int = 0) -> TrainBatch:
        """Return a batch of six rollouts of two prompts, 1 to 7 tokens, one out of the loss, one with a forced token; no old log
        probabilities.

        ``temperature``: that of every rollout, or one for each of the six.
        """
        temperatures = [temperature] * len(LENGTHS) if isinstance(temperature, int | float) else temperature
        draw = np.random.default_rng(seed)
        contexts = [draw.integers(1, self.vocabulary, 5).tolist(), draw.integers(1, self.vocabulary, 3).tolist()]
        rollouts = [
            make_rollout(
                contexts[row // 3],
                draw.integers(1, self.vocabulary, length).tolist(),
                policy_mask=[not (row == 2 and token == 1) for token in range(length)],
                index=row % 3,
                prompt_id=f"p{row // 3}",
                temperature=temperatures[row],
            )
            for row, length in enumerate(LENGTHS)
        ]
        advantages = [1.0, -0.5, 0.75, -1.25, 2.0, -1.0]
        return make_train_batch(rollouts, advantages, group=[0, 0, 0, 1, 1, 1], in_loss=[True] * 3 + [False] + [True] * 2)

    def off_policy(self, batch: TrainBatch) -> TrainBatch:
        """Return the batch with old log probabilities some 0.2 off the model's own, as at a second step on one batch."""
        own = self.ready().logprobs(batch, ModelRole.POLICY)
        return replace(batch, old_logprobs=own + np.random.default_rng(1).normal(0, 0.2, len(own)).astype(np.float32))

    def loss(self, backend: TrainingBackend, batch: TrainBatch) -> float:
        """Return the plain objective's value on the backend's present weights, worked out in numpy."""
        old = batch.old_logprobs if batch.old_logprobs is not None else batch.rollout_logprobs
        ratio = np.exp(backend.logprobs(batch, ModelRole.POLICY).astype(np.float64) - old)
        return float(-(batch.weights * batch.advantages * ratio).sum())
