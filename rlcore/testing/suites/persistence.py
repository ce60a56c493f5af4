"""Rules of what leaves a trainer: weights, models, checkpoints."""

from __future__ import annotations

import numpy as np

from rlcore.contracts.interfaces import Which
from rlcore.contracts.snapshots import Snapshot
from rlcore.testing.suites.trainer import TrainerSuite

__all__ = ["PersistenceRules"]

NUMPY_DTYPE = {"bfloat16": "uint16"}


class PersistenceRules(TrainerSuite):
    """Weights, models, checkpoints."""

    def test_weights_are_whole_records(self) -> None:
        """Unique names; shape, dtype and data of each tensor agree; all of them seal into a snapshot that verifies."""
        weights = list(self.ready().iter_weights())
        names = [name for name, _ in weights]
        assert len(set(names)) == len(names) > 0, f"weights without or with repeated names: {names}"
        for name, tensor in weights:
            assert isinstance(tensor.data, np.ndarray), f"{name}: data is a {type(tensor.data).__name__}, only numpy crosses a process"
            assert tensor.data.size == int(np.prod(tensor.shape)), f"{name}: shape {tensor.shape} with {tensor.data.size} values"
            assert str(tensor.data.dtype) == NUMPY_DTYPE.get(tensor.dtype, tensor.dtype), f"{name}: {tensor.dtype} in {tensor.data.dtype}"
        Snapshot.of(1, dict(weights)).verify()

    def test_published_weights_do_not_change(self) -> None:
        """A snapshot is immutable: later updates do not show in arrays handed out before."""
        backend = self.ready()
        snapshot = Snapshot.of(1, dict(backend.iter_weights()))
        backend.update(self.batch(), self.objective())
        for name, tensor in snapshot.tensors.items():
            assert tensor.checksum == snapshot.checksums[name], f"an update changed tensor {name!r} of weights that were handed out before"
        after = Snapshot.of(2, dict(backend.iter_weights()))
        assert after.checksums != snapshot.checksums, "an update did not change the weights"

    def test_saved_model_is_the_policy(self) -> None:
        """``save_model`` writes what ``setup`` reads: the same weights bit for bit, the same log probabilities."""
        backend = self.ready()
        backend.update(self.batch(), self.objective())
        folder = self.scratch / "model"
        folder.mkdir()
        backend.save_model(folder)
        other = self.ready(model=str(folder))
        mine, theirs = dict(backend.iter_weights()), dict(other.iter_weights())
        assert set(mine) == set(theirs), f"tensors in only one of saved and live model: {sorted(set(mine) ^ set(theirs))}"
        for name, tensor in mine.items():
            assert tensor.checksum == theirs[name].checksum, f"tensor {name!r} of the saved model is another"
        batch = self.batch()
        own, loaded = backend.logprobs(batch, Which.POLICY), other.logprobs(batch, Which.POLICY)
        # In lower precision the saved weights are rounded, so log probabilities may differ.
        allowed = 0.0 if self.dtype == "float32" else self.tolerance
        assert np.allclose(own, loaded, rtol=0.0, atol=allowed), "the saved model has other log probabilities"

    def test_continues_exactly(self) -> None:
        """Saved after two updates and loaded into a fresh backend, the third and fourth are equal bit for bit."""
        straight = self.ready()
        batches = [self.batch(seed=seed) for seed in range(4)]
        for batch in batches[:2]:
            straight.update(batch, self.objective())
        model, state = self.scratch / "continued-model", self.scratch / "continued-state"
        for folder in (model, state):
            folder.mkdir()
        straight.save_model(model)
        straight.save(state)
        resumed = self.ready(model=str(model))
        resumed.load(state)
        for number, batch in enumerate(batches[2:], start=3):
            one, two = straight.update(batch, self.objective()), resumed.update(batch, self.objective())
            assert one["learning_rate"] == two["learning_rate"], (
                f"update {number}: learning rate {two['learning_rate']}, not {one['learning_rate']}"
            )
            mine, theirs = dict(straight.iter_weights()), dict(resumed.iter_weights())
            for name, tensor in mine.items():
                assert tensor.checksum == theirs[name].checksum, f"update {number} after loading: tensor {name!r} differs"

    def test_two_runs_are_equal(self) -> None:
        """The same updates from the same start give the same bits (staleness 0)."""
        results = []
        for _ in range(2):
            backend = self.ready()
            for seed in range(2):
                backend.update(self.batch(seed=seed), self.objective())
            results.append({name: tensor.checksum for name, tensor in backend.iter_weights()})
        assert results[0] == results[1], "two runs with one seed have different weights"
