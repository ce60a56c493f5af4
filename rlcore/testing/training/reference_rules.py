"""Rules of a reference model that moves towards the policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rlcore.contracts.interfaces import ModelRole, Need, TrainingBackend
from rlcore.testing.training.trainer_suite import TrainerSuite

__all__ = ["ReferenceRules"]


class ReferenceRules(TrainerSuite):
    """``sync_reference``. Not checked without ``capabilities.syncs_reference``, and with adapters."""

    def test_a_synced_reference_is_the_policy(self) -> None:
        """``sync_reference(1.0)`` makes the reference the policy, bit for bit, and later updates do not move it."""
        for backend in self._syncing_after_two_steps():
            backend.sync_reference(1.0)
            policy, reference = self._scores_of(backend, ModelRole.POLICY), self._scores_of(backend, ModelRole.REFERENCE)
            off = float(np.abs(policy - reference).max())
            assert off == 0.0, f"after sync_reference(1.0) policy and reference differ by {off:.2g} nats"
            backend.update(self.batch(seed=1), self.objective())
            off = float(np.abs(self._scores_of(backend, ModelRole.REFERENCE) - reference).max())
            assert off == 0.0, f"an update after sync_reference moves the reference by {off:.2g} nats"
            assert np.any(self._scores_of(backend, ModelRole.POLICY) != policy), "an update after sync_reference does not move the policy"

    def test_a_share_mixes_the_weights(self) -> None:
        """Two syncs with a share of 1/2 are one with 3/4, and the policy stays as it is."""
        for one, two in zip(self._syncing_after_two_steps(), self._syncing_after_two_steps(), strict=True):
            policy = self._scores_of(one, ModelRole.POLICY)
            one.sync_reference(0.75)
            for _ in range(2):
                two.sync_reference(0.5)
            mixed, halved = self._scores_of(one, ModelRole.REFERENCE), self._scores_of(two, ModelRole.REFERENCE)
            gap = float(np.abs(policy - self._scores_of(next(self._syncing()), ModelRole.REFERENCE)).max())
            off = float(np.abs(mixed - halved).max())
            assert off <= max(1e-2 * gap, 1e-5), f"two halves and three quarters differ by {off:.2g} nats; the policy is {gap:.2g} away"
            assert np.any(mixed != policy), "a share of 3/4 makes the reference the policy"
            assert np.all(self._scores_of(one, ModelRole.POLICY) == policy), "sync_reference moves the policy"

    def test_a_checkpoint_holds_a_synced_reference(self) -> None:
        """A backend that loads a checkpoint has the reference that was saved, bit for bit, and saves it in turn."""
        for straight in self._syncing_after_two_steps():
            straight.sync_reference(0.5)
            saved = self._scores_of(straight, ModelRole.REFERENCE)
            model, state = self._saved_with_reference(straight)
            for times in ("a resume", "a second resume"):
                resumed = self.ready(model=str(model), reference=self.model(), needs=frozenset({Need.REFERENCE}))
                resumed.load(state)
                off = float(np.abs(self._scores_of(resumed, ModelRole.REFERENCE) - saved).max())
                assert off == 0.0, f"after {times} the reference is {off:.2g} nats away from the saved one"
                model, state = self._saved_with_reference(resumed, times)

    def _syncing(self) -> Iterator[TrainingBackend]:
        backend = self.ready(needs=frozenset({Need.REFERENCE}))
        if backend.capabilities.syncs_reference and self.context().lora is None:
            yield backend

    def _syncing_after_two_steps(self) -> Iterator[TrainingBackend]:
        for backend in self._syncing():
            for _ in range(2):
                backend.update(self.batch(), self.objective())
            yield backend

    def _scores_of(self, backend: TrainingBackend, which: ModelRole) -> np.ndarray:
        return backend.logprobs(self.batch(), which).copy()

    def _saved_with_reference(self, backend: TrainingBackend, name: str = "synced") -> tuple[Path, Path]:
        folders = self.scratch / f"{name}-model", self.scratch / f"{name}-state"
        for folder, write in zip(folders, (backend.save_model, backend.save), strict=True):
            folder.mkdir()
            saving = write(folder)
            if saving is not None:
                saving.result()
        return folders
