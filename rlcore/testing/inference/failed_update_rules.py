"""Rules of updates that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from rlcore.contracts.errors import RunError, WeightsError
from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.snapshots import BUCKET_BYTES, Bucket, Snapshot
from rlcore.contracts.types import Completion, FinishReason, Request
from rlcore.roles.engine_update import update_engine
from rlcore.testing.inference.engine_suite import EngineSuite, expected
from rlcore.testing.weights import resealed

__all__ = ["FailedUpdateRules"]


class FailedUpdateRules(EngineSuite):
    """Updates that fail: weights that do not fit are refused, and half an update serves nothing mixed."""

    def test_refuses_a_snapshot_that_is_not_whole(self) -> None:
        """``begin_update`` raises a WeightsError that names the tensor which the manifest lacks, and the old weights stay."""
        self._refused(self._incomplete, "a manifest without one of the model's tensors")

    def test_refuses_a_tensor_of_another_shape(self) -> None:
        """``begin_update`` raises a WeightsError that names a tensor of another shape, and the old weights stay."""
        self._refused(self._misshapen, "a manifest with a tensor of another shape")

    def _incomplete(self, snapshot: Snapshot) -> Snapshot:
        name = self.required_tensor(snapshot)
        return resealed(snapshot, {key: tensor for key, tensor in snapshot.tensors.items() if key != name})

    def _misshapen(self, snapshot: Snapshot) -> Snapshot:
        name = self.required_tensor(snapshot)
        data = np.concatenate([snapshot.tensors[name].data] * 2)
        return resealed(snapshot, {**snapshot.tensors, name: replace(snapshot.tensors[name], data=data, shape=data.shape)})

    def _refused(self, spoil: Callable[[Snapshot], Snapshot], what: str) -> None:
        with self.updatable() as (engine, first):
            before = engine.score(self.fixed_sequence())
            spoilt = spoil(self.weights(1, first + 1))
            with expected(WeightsError, f"begin_update took {what}") as seen:
                self.begin(engine, spoilt)
            name = self.required_tensor(self.snapshot(1))
            assert name in str(seen[0]), f"begin_update refuses {what}, {name!r}, without naming it: {seen[0]}"
            assert np.array_equal(engine.score(self.fixed_sequence()), before), f"after it refused {what}, other weights are served"
            for completion in self.run(engine, self.requests(2, max_new_tokens=3)).values():
                versions = completion.versions
                assert (versions == first).all(), f"after it refused {what}, tokens have versions {versions.tolist()}"
            assert self.update(engine, 2, first + 2) == first + 2, f"after it refused {what}, a good snapshot is not taken"

    def test_an_update_of_many_buckets_is_one_of_one_bucket(self) -> None:
        """The served weights do not depend on the cut into buckets."""
        scores = []
        for max_bytes in (1, BUCKET_BYTES):
            with self.updatable() as (engine, first):
                update_engine(engine, self.weights(1, first + 1), max_bytes)
                scores.append(engine.score(self.fixed_sequence()))
        assert np.allclose(scores[0], scores[1], atol=self.tolerance), "an update of one bucket a tensor scores otherwise than one of one"

    def test_an_update_keeps_nothing_of_a_bucket(self) -> None:
        """The memory of a bucket can be overwritten when ``receive`` has returned."""
        with self.updatable() as (engine, first):
            self.update(engine, 1, first + 1)
            plain = engine.score(self.fixed_sequence())
            self.update(engine, 0, first + 2)
            source = self.weights(1, first + 3)
            self.begin(engine, source)
            for bucket in source.buckets(1):
                lent = {name: replace(tensor, data=np.array(tensor.data)) for name, tensor in bucket.tensors.items()}
                engine.receive(replace(bucket, tensors=lent))
                for tensor in lent.values():
                    tensor.data[...] = 0
            assert engine.finish_update() == source.version, "finish_update reports another version than was begun"
            same = np.allclose(engine.score(self.fixed_sequence()), plain, atol=self.tolerance)
            assert same, "the scores change with the arrays of a bucket that it has received"

    def test_an_update_that_breaks_off_serves_nothing_torn(self) -> None:
        """After an unfinished update the old weights are served, with ``swaps``, or all work is refused, until a whole update has landed.
        Each request in flight is answered once."""
        with self.updatable() as (engine, first), self.shared() as old:
            requests = self.requests(8)
            engine.submit(requests)
            early = {completion.request_id for completion in engine.poll(0.0)}
            source, last = self.weights(1, first + 1), first + 2
            self.begin(engine, source)
            for bucket in list(source.buckets(1))[:-1]:
                engine.receive(bucket)
            answered = self._assert_nothing_torn(engine, first, old, requests, "after an update that broke off")
            assert self.update(engine, 2, last) == last, "after an update that broke off, a whole one is not taken"
            late = self.drain(engine, 8 - len(early | answered))
            assert not set(late) & (early | answered), "a request was answered before an update that broke off, and again after it"
            after = engine.score(self.fixed_sequence())
            for completion in self.run(engine, self.requests(2, max_new_tokens=3, start=20)).values():
                assert (completion.versions == last).all(), f"after a whole update to {last}, versions are {completion.versions.tolist()}"
        with self.updatable() as (engine, first):
            self.update(engine, 2, first + 1)
            same = np.allclose(engine.score(self.fixed_sequence()), after, atol=self.tolerance)
            assert same, "after an update that broke off, a whole one scores otherwise than behind another whole one"

    def test_names_a_tensor_that_did_not_come(self) -> None:
        """``finish_update`` raises a WeightsError that names a tensor which did not come."""
        with self.updatable() as (engine, first), self.shared() as old:
            source, name = self.weights(1, first + 1), self.required_tensor(self.snapshot(1))
            self.begin(engine, source)
            for bucket in self._numbered(bucket for bucket in source.buckets(1) if name not in bucket.tensors):
                engine.receive(bucket)
            with expected(WeightsError, f"finish_update took a version whose tensor {name!r} did not come") as seen:
                engine.finish_update()
            assert name in str(seen[0]), f"finish_update does not name tensor {name!r}, which did not come: {seen[0]}"
            self._assert_nothing_torn(engine, first, old, (), "after an update without one of its tensors")

    def test_refuses_a_bucket_that_comes_twice(self) -> None:
        """A bucket that comes twice does not replace the one that did not come: ``receive`` or ``finish_update`` raises a WeightsError."""
        with self.updatable() as (engine, first), self.shared() as old:
            source, name = self.weights(1, first + 1), self.required_tensor(self.snapshot(1))
            others = [bucket for bucket in source.buckets(1) if name not in bucket.tensors]
            if not others:
                self.skip("the model is one tensor: there is no other bucket to send in its place")
            self.begin(engine, source)
            with expected(WeightsError, f"a bucket that came twice was taken for that of tensor {name!r}"):
                for bucket in self._numbered([*others, others[0]]):
                    engine.receive(bucket)
                engine.finish_update()
            self._assert_nothing_torn(engine, first, old, (), "after a bucket that came twice")

    def test_weights_that_are_not_finite_serve_nothing(self) -> None:
        """If weights are not finite, ``poll`` raises a RunError that names their version, until a whole update has landed."""
        with self.updatable() as (engine, first):
            spoilt = self.weights(1, first + 1)
            name = max(name for name in spoilt.tensors if name not in self.inert_tensors and "lm_head" not in name)
            tensor = spoilt.tensors[name]
            nan = np.full_like(tensor.data, 0x7FC0 if tensor.dtype == "bfloat16" else np.nan)
            update_engine(engine, resealed(spoilt, {**spoilt.tensors, name: replace(tensor, data=nan)}))
            (request,) = self.requests(1, max_new_tokens=1)
            with expected(RunError, f"tokens are drawn from weights whose {name!r} is not a number") as seen:
                self.run(engine, [request])
            assert str(first + 1) in str(seen[0]), f"the error does not name version {first + 1}: {seen[0]}"
            engine.cancel([request.request_id])
            self.update(engine, 2, first + 2)
            engine.poll(0.0)
            healed = self.run(engine, [replace(request, request_id="healed")])["healed"]
            assert healed.finish is not FinishReason.ABORTED, "after weights that are not finite, a whole update does not heal it"

    def _numbered(self, buckets: Iterable[Bucket]) -> list[Bucket]:
        return [replace(bucket, index=index) for index, bucket in enumerate(buckets)]

    def _assert_nothing_torn(
        self, engine: InferenceBackend, version: int, old: InferenceBackend, asked: Sequence[Request], when: str
    ) -> set[str]:
        """Assert that the engine refuses work, or, with ``swaps``, serves ``version`` with the weights of ``old``. Return the requests of
        ``asked`` that were answered."""
        if self.swaps:
            served = np.allclose(engine.score(self.fixed_sequence()), old.score(self.fixed_sequence()), atol=self.tolerance)
            assert served, f"it swaps, and serves other weights than the old ones {when}"
        else:
            self.refuses_work(engine, when)
        known = {request.request_id: request for request in asked}
        answers: list[Completion] = []
        try:
            answers = engine.poll(0.05)
        except RunError:
            assert not self.swaps, f"it swaps, and does not poll {when}"
        for completion in answers:
            assert (completion.versions == version).all(), f"tokens have versions {completion.versions.tolist()} {when}"
            self.assert_scored(old, known[completion.request_id], completion, f"log probabilities {when}, on the old weights")
        return {completion.request_id for completion in answers}

    # --- what these rules use --------------------------------------------------------------------------------------------

    def weights(self, number: int, version: int) -> Snapshot:
        """Return ``snapshot(number)`` as this version."""
        return replace(self.snapshot(number), version=version)

    def begin(self, engine: InferenceBackend, snapshot: Snapshot) -> None:
        """Announce it."""
        engine.begin_update(snapshot.version, snapshot.manifest(), engine.capabilities.in_flight)

    def refuses_work(self, engine: InferenceBackend, when: str) -> None:
        """Assert that ``submit`` and ``score`` raise RunError."""
        self.assert_refuses_work(lambda: engine.submit(self.requests(1, start=90)), f"submit {when}")
        self.assert_refuses_work(lambda: engine.score(self.fixed_sequence()), f"score {when}")

    def assert_refuses_work(self, call: Callable[[], object], what: str) -> None:
        """Assert that ``call`` raises RunError."""
        with expected(RunError, f"{what} is not a RunError"):
            call()
