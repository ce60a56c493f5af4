"""Rules of weights, saved models and checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rlcore.contracts.errors import RlcoreError, WeightsError
from rlcore.contracts.interfaces import ModelRole, PendingSave, TrainingBackend
from rlcore.testing.training.trainer_suite import TrainerSuite
from rlcore.testing.weights import snapshot_of, weights_of

__all__ = ["CheckpointRules"]


class CheckpointRules(TrainerSuite):
    """Weights that are handed out, saved models and checkpoints."""

    def test_weights_are_whole_records(self) -> None:
        """Weights have unique names, tensors that agree with their records, and a kind that ``capabilities.kinds`` declares."""
        manifest = self.ready().weight_source().manifest()
        declared = self.ready().capabilities.kinds
        assert manifest.kind in declared, f"weights of kind {manifest.kind}, and capabilities.kinds has {', '.join(sorted(declared))}"
        names = [tensor.name for tensor in manifest.tensors]
        assert len(set(names)) == len(names) > 0, f"weights without or with repeated names: {names}"
        try:
            whole = snapshot_of(1, self.ready())
        except WeightsError as error:
            raise AssertionError(str(error)) from error
        assert list(whole.tensors) == names, "the manifest has other names, or another order, than the buckets"

    def test_buckets_hold_no_more_than_they_may(self) -> None:
        """A bucket holds at most ``max_bytes``, or one tensor, and the weights do not depend on the size of buckets."""
        backend = self.ready()
        whole = snapshot_of(1, backend)
        sizes = [tensor.data.nbytes for tensor in whole.tensors.values()]
        for most in (1, max(sizes), sum(sizes)):
            for bucket in backend.weight_source().buckets(most):
                held = sum(info.nbytes for info in whole.manifest().tensors if info.name in bucket)
                assert held <= most or len(bucket) == 1, f"a bucket of {held} bytes and {len(bucket)} tensors, where {most} are allowed"
            cut = snapshot_of(1, backend, bucket_bytes=most)
            assert dict(cut.checksums) == dict(whole.checksums), f"buckets of {most} bytes give other weights"

    def test_an_update_shows_in_the_next_source(self) -> None:
        """``weight_source`` after an update holds the new weights."""
        backend = self.ready()
        before = snapshot_of(1, backend)
        backend.update(self.batch(), self.objective())
        assert dict(snapshot_of(2, backend).checksums) != dict(before.checksums), "an update did not change the weights"

    def test_saved_model_is_the_policy(self) -> None:
        """A model that ``save_model`` wrote and ``setup`` reads has the weights of the policy, bit for bit, and its log probabilities."""
        backend = self.ready()
        backend.update(self.batch(), self.objective())
        folder = self.scratch / "model"
        folder.mkdir()
        _written(backend.save_model(folder))
        other = self.ready(model=str(folder))
        mine, theirs = weights_of(backend), weights_of(other)
        assert set(mine) == set(theirs), f"tensors in only one of saved and live model: {sorted(set(mine) ^ set(theirs))}"
        for name, tensor in mine.items():
            assert tensor.checksum == theirs[name].checksum, f"tensor {name!r} of the saved model is another"
        batch = self.batch()
        own, loaded = backend.logprobs(batch, ModelRole.POLICY), other.logprobs(batch, ModelRole.POLICY)
        # In lower precision the saved weights are rounded, and with adapters they are merged, so log probabilities may differ.
        allowed = 0.0 if self.dtype == "float32" and self.context().lora is None else self.tolerance
        assert np.allclose(own, loaded, rtol=0.0, atol=allowed), "the saved model has other log probabilities"

    def test_an_export_is_the_policy_rounded(self) -> None:
        """``save_model`` with a dtype of ``capabilities.exports`` writes the weights rounded to that dtype."""
        backend = self.ready()
        backend.update(self.batch(), self.objective())
        for dtype in sorted(backend.capabilities.exports) * (self.dtype == "float32"):
            folder = self.scratch / f"export-{dtype}"
            folder.mkdir()
            _written(backend.save_model(folder, dtype))
            mine, theirs = weights_of(backend), weights_of(self.ready(model=str(folder)))
            assert set(mine) == set(theirs), f"tensors in only one of export and live model: {sorted(set(mine) ^ set(theirs))}"
            for name, tensor in mine.items():
                rounded = _rounded(tensor.data, dtype)
                assert np.array_equal(theirs[name].data, rounded), f"tensor {name!r} of the export is not that of the policy in {dtype}"

    def test_continues_exactly(self) -> None:
        """A backend that loads a checkpoint continues with the same bits as one that was not interrupted."""
        straight = self.ready(total_steps=8)
        batches = [self.batch(seed=seed) for seed in range(4)]
        for batch in batches[:2]:
            straight.update(batch, self.objective())
        model, state = self.scratch / "continued-model", self.scratch / "continued-state"
        for folder in (model, state):
            folder.mkdir()
        begun = [straight.save_model(model), straight.save(state)]
        for saving in begun:
            _written(saving)
        resumed = self.ready(model=str(model), total_steps=8)
        resumed.load(state)
        for number, batch in enumerate(batches[2:], start=3):
            one, two = straight.update(batch, self.objective()), resumed.update(batch, self.objective())
            assert one["learning_rate"] == two["learning_rate"], (
                f"update {number}: learning rate {two['learning_rate']}, not {one['learning_rate']}"
            )
            mine, theirs = weights_of(straight), weights_of(resumed)
            for name, tensor in mine.items():
                assert tensor.checksum == theirs[name].checksum, f"update {number} after loading: tensor {name!r} differs"

    def test_a_damaged_state_is_refused(self) -> None:
        """``load`` raises an RlcoreError if any one file of the state is absent or cut in half."""
        backend = self.ready()
        backend.update(self.batch(), self.objective())
        model, state = self.scratch / "whole-model", self.scratch / "whole-state"
        for folder in (model, state):
            folder.mkdir()
        for saving in (backend.save_model(model), backend.save(state)):
            _written(saving)
        resumed = self.ready(model=str(model))
        resumed.load(state)
        for path in sorted(path for path in state.rglob("*") if path.is_file()):
            whole, name = path.read_bytes(), path.relative_to(state)
            path.unlink()
            _refused(resumed, state, f"lacks {name}")
            path.write_bytes(whole[: len(whole) // 2])
            _refused(resumed, state, f"has half of {name}")
            path.write_bytes(whole)

    def test_a_save_is_of_the_moment_that_it_began(self) -> None:
        """A checkpoint holds the state when saving began, even if an update comes before it is written."""
        backend = self.ready()
        backend.update(self.batch(seed=0), self.objective())
        model, state = self.scratch / "moment-model", self.scratch / "moment-state"
        for folder in (model, state):
            folder.mkdir()
        saved = weights_of(backend)
        begun = [backend.save_model(model), backend.save(state)]
        backend.update(self.batch(seed=1), self.objective())
        for saving in begun:
            _written(saving)
        other = self.ready(model=str(model))
        other.load(state)
        for name, tensor in weights_of(other).items():
            assert tensor.checksum == saved[name].checksum, f"tensor {name!r} was saved with what an update made of it meanwhile"
        other.update(self.batch(seed=1), self.objective())
        mine, theirs = weights_of(backend), weights_of(other)
        differing = [name for name in mine if mine[name].checksum != theirs[name].checksum]
        assert not differing, f"the state was saved with what an update made of it meanwhile: tensor {differing[:1]} differs after the next"

    def test_sleeps_and_wakes(self) -> None:
        """After ``sleep`` and ``wake`` training continues unchanged, and a sleeping backend can be saved. A backend that does not declare
        ``sleeps`` raises NotImplementedError."""
        backend, straight = self.ready(), self.ready()
        if not backend.capabilities.sleeps:
            try:
                backend.sleep()
            except NotImplementedError:
                return
            raise AssertionError("capabilities.sleeps is False and sleep() did nothing")
        model, state = self.scratch / "slept-model", self.scratch / "slept-state"
        for folder in (model, state):
            folder.mkdir()
        for seed in range(2):
            straight.update(self.batch(seed=seed), self.objective())
            backend.update(self.batch(seed=seed), self.objective())
            backend.sleep()
            if seed == 0:
                for saving in (backend.save_model(model), backend.save(state)):
                    _written(saving)
            backend.wake()
        expected = {name: tensor.checksum for name, tensor in weights_of(straight).items()}
        found = {name: tensor.checksum for name, tensor in weights_of(backend).items()}
        assert found == expected, "the weights differ after sleep and wake"
        resumed = self.ready(model=str(model))
        resumed.load(state)
        resumed.update(self.batch(seed=1), self.objective())
        differing = [name for name, tensor in weights_of(resumed).items() if tensor.checksum != expected[name]]
        assert not differing, f"what was saved during the sleep continues with another {differing[:1]}"

    def test_two_runs_are_equal(self) -> None:
        """The same updates from the same start give the same bits."""
        results = []
        for _ in range(2):
            backend = self.ready()
            for seed in range(2):
                backend.update(self.batch(seed=seed), self.objective())
            results.append({name: tensor.checksum for name, tensor in weights_of(backend).items()})
        assert results[0] == results[1], "two runs with one seed have different weights"


def _written(saving: PendingSave | None) -> None:
    if saving is not None:
        saving.result()


def _rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return float32 values rounded to the nearest of ``dtype``, ties to even, as float32; numpy has no bfloat16."""
    if dtype != "bfloat16":
        return values.astype(dtype).astype(np.float32)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).reshape(values.shape)


def _refused(backend: TrainingBackend, state: Path, what: str) -> None:
    try:
        backend.load(state)
    except RlcoreError:
        return
    except Exception as error:
        raise AssertionError(f"load of a state that {what} raised a {type(error).__name__}, no RlcoreError that says so") from error
    raise AssertionError(f"load took a state that {what}")
