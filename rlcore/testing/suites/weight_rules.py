"""Rules of weights: versions per token, updates with requests in flight, refusal of what is not whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from rlcore.contracts.errors import GroupBrokenError, RunError, WeightsError
from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.snapshots import BUCKET_BYTES, Bucket, RemoteSnapshot, Snapshot
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, Finish, Request
from rlcore.roles.engine_update import update_engine
from rlcore.testing.records import make_request
from rlcore.testing.suites.engine import EngineSuite
from rlcore.testing.weights import publish

__all__ = ["WeightRules"]

_JOINING_SECONDS = 30.0
"""Deadline of a transfer that an engine joins."""


class WeightRules(EngineSuite):
    """Updates."""

    def fixed_sequence(self) -> np.ndarray:
        """int32[T]: all prompts in a row."""
        return np.array([token for prompt in self.prompts() for token in prompt], np.int32)

    def test_serves_version_zero_first(self) -> None:
        """Every token of a fresh engine is of version 0."""
        for completion in self.run(self.make(), self.requests(4, max_new_tokens=4)).values():
            assert (completion.versions == 0).all(), f"versions {completion.versions.tolist()} before any update"

    def test_update_serves_the_new_weights(self) -> None:
        """It returns the snapshot's version, and tokens, log probabilities and score are of the new weights from then on."""
        engine = self.make()
        before = engine.score(self.fixed_sequence())
        for version in (1, 5):
            served = update_engine(engine, self.snapshot(version))
            assert served == version, f"update to version {version} reports {served}"
            after = engine.score(self.fixed_sequence())
            assert np.abs(after - before).max() > 10 * self.tolerance, "score is the same after an update to other weights"
            requests = self.requests(4, max_new_tokens=6)
            answers = self.run(engine, requests)
            for request in requests:
                completion = answers[request.request_id]
                assert (completion.versions == version).all(), f"versions {completion.versions.tolist()} after the update to {version}"
                self.assert_scored(engine, request, completion, f"log probabilities after the update to {version}")
            before = after

    def test_every_tensor_is_taken(self) -> None:
        """Each tensor alone, changed, changes the scores: none keeps its old value, packed or tied copies included."""
        engine = self.make()
        base, other = self.snapshot(0), self.snapshot(1)
        before = engine.score(self.fixed_sequence())
        for version, (name, tensor) in enumerate(sorted(other.tensors.items()), start=1):
            if name in self.inert_tensors or tensor.checksum == base.tensors[name].checksum:
                continue
            update_engine(engine, Snapshot.of(version, {**base.tensors, name: tensor}))
            assert not np.array_equal(engine.score(self.fixed_sequence()), before), f"an update with another {name!r} changes no score"

    def test_an_update_is_a_fresh_engine(self) -> None:
        """Nothing of the old weights is left, no cached keys and values either: there and back gives the first scores again."""
        engine = self.make()
        requests = self.requests(4, max_new_tokens=6)
        before, first = engine.score(self.fixed_sequence()), self.run(engine, requests)
        update_engine(engine, self.snapshot(1))
        self.run(engine, requests)
        update_engine(engine, replace(self.snapshot(0), version=2))
        assert np.allclose(engine.score(self.fixed_sequence()), before, atol=self.tolerance), (
            "the first weights, loaded again, score differently"
        )
        if self.draws_alike(engine):
            for name, completion in self.run(engine, requests).items():
                assert np.array_equal(completion.token_ids, first[name].token_ids), "the first weights, loaded again, draw differently"

    def test_it_computes_the_model(self) -> None:
        """If the suite has a ``reference``: before any update and after each, scores are those of the model, tied tensors included."""
        if self.reference(0, self.fixed_sequence()) is None:
            return
        engine = self.make()
        for version in (0, 1, 2):
            if version:
                update_engine(engine, self.snapshot(version))
            expected = self.reference(version, self.fixed_sequence())
            assert expected is not None, f"there is a reference for version 0 and none for version {version}"
            off = float(np.abs(engine.score(self.fixed_sequence()) - expected).max())
            assert off <= self.tolerance, (
                f"scores of version {version} are off the model's by {off:.2g} nats, {self.tolerance:.2g} is allowed"
            )

    def test_a_prompt_in_the_cache_is_computed_anew_after_an_update(self) -> None:
        """If there is a ``cached_prompt``: what is drawn after it has the log probabilities of the new weights. ``score`` uses no cache."""
        if not self.cached_prompt:
            return
        engine, tokens = self.make(), self.fixed_sequence()
        prompt = np.resize(tokens, self.cached_prompt + 1)
        for version in (0, 1):
            if version:
                update_engine(engine, self.snapshot(version))
            for number in (0, 1):
                request = make_request(f"v{version}-{number}", prompt, noise=number, max_new_tokens=4)
                completion = self.run(engine, [request])[request.request_id]
                self.assert_scored(engine, request, completion, f"log probabilities after a cached prompt, version {version}")

    def test_update_with_requests_in_flight(self) -> None:
        """Running requests finish on the old weights, resume on the new ones, or come back ABORTED, as declared."""
        engine = self.make()
        requests = self.requests(8)
        engine.submit(requests)
        early = {completion.request_id for completion in engine.poll(0.0)}
        assert len(early) < 8, "no request was left in flight after one poll"
        assert update_engine(engine, self.snapshot(1)) == 1, "update with requests in flight reports another version"
        late = self.drain(engine, 8 - len(early))
        mode = engine.capabilities.in_flight
        check = {InFlight.FINISH: self._finished, InFlight.RESUME: self._resumed, InFlight.ABORT: self._aborted}[mode]
        check(list(late.values()))
        old = self.make()
        for request in requests:
            if (completion := late.get(request.request_id)) is not None:
                start = int((completion.versions == 0).sum())
                part = replace_tokens(completion, start)
                self.assert_scored(old, request, part, f"tokens that {request.request_id!r} labels version 0, on version 0")

    def _finished(self, late: list[Completion]) -> None:
        for completion in late:
            assert len(set(completion.versions.tolist())) <= 1, f"in flight is finish, yet versions are {completion.versions.tolist()}"
            assert completion.finish is not Finish.ABORTED, "in flight is finish, yet a request was aborted"
        assert any((completion.versions == 0).all() for completion in late), "no running request finished on the old weights"

    def _resumed(self, late: list[Completion]) -> None:
        for completion in late:
            assert (np.diff(completion.versions) >= 0).all(), f"versions go back: {completion.versions.tolist()}"
            assert completion.finish is not Finish.ABORTED, "in flight is resume, yet a request was aborted"
        assert any(len(set(completion.versions.tolist())) == 2 for completion in late), (
            "in flight is resume, yet no completion has two versions"
        )

    def _aborted(self, late: list[Completion]) -> None:
        for completion in late:
            assert completion.finish is Finish.ABORTED, f"in flight is abort, yet a request ended as {completion.finish}"
            assert (completion.versions == 0).all(), f"an aborted request has versions {completion.versions.tolist()}"

    def test_refuses_a_snapshot_that_is_not_whole(self) -> None:
        """A manifest without one of the model's tensors is a WeightsError of ``begin_update`` that names it; the old weights stay."""
        self._refused(self._incomplete, "a manifest without one of the model's tensors")

    def test_refuses_a_tensor_of_another_shape(self) -> None:
        """So is one with a tensor of another shape."""
        self._refused(self._misshapen, "a manifest with a tensor of another shape")

    def _incomplete(self, snapshot: Snapshot) -> Snapshot:
        name = self.required_tensor(snapshot)
        return Snapshot.of(snapshot.version, {key: tensor for key, tensor in snapshot.tensors.items() if key != name})

    def _misshapen(self, snapshot: Snapshot) -> Snapshot:
        name = self.required_tensor(snapshot)
        data = np.concatenate([snapshot.tensors[name].data] * 2)
        return Snapshot.of(snapshot.version, {**snapshot.tensors, name: replace(snapshot.tensors[name], data=data, shape=data.shape)})

    def _refused(self, spoil: Callable[[Snapshot], Snapshot], what: str) -> None:
        engine = self.make()
        before = engine.score(self.fixed_sequence())
        spoilt = spoil(self.snapshot(1))
        with _expected(WeightsError, f"begin_update took {what}") as seen:
            self._begin(engine, spoilt)
        name = self.required_tensor(self.snapshot(1))
        assert name in str(seen[0]), f"begin_update refuses {what}, {name!r}, without naming it: {seen[0]}"
        assert np.array_equal(engine.score(self.fixed_sequence()), before), f"after it refused {what}, other weights are served"
        for completion in self.run(engine, self.requests(2, max_new_tokens=3)).values():
            assert (completion.versions == 0).all(), f"after it refused {what}, tokens have versions {completion.versions.tolist()}"
        assert update_engine(engine, self.snapshot(2)) == 2, f"after it refused {what}, a good snapshot is not taken"

    def test_an_update_of_many_buckets_is_one_of_one_bucket(self) -> None:
        """However the tensors are cut into buckets, the same weights are served."""
        scores = []
        for max_bytes in (1, BUCKET_BYTES):
            engine = self.make()
            update_engine(engine, self.snapshot(1), max_bytes)
            scores.append(engine.score(self.fixed_sequence()))
        assert np.allclose(scores[0], scores[1], atol=self.tolerance), "an update of one bucket a tensor scores otherwise than one of one"

    def test_an_update_keeps_nothing_of_a_bucket(self) -> None:
        """Its arrays are copied or moved: their memory is used for other weights as soon as ``receive`` has returned."""
        plain, engine = self.make(), self.make()
        source = self.snapshot(1)
        update_engine(plain, source)
        self._begin(engine, source)
        for bucket in source.buckets(1):
            lent = {name: replace(tensor, data=np.array(tensor.data)) for name, tensor in bucket.tensors.items()}
            engine.receive(replace(bucket, tensors=lent))
            for tensor in lent.values():
                tensor.data[...] = 0
        assert engine.finish_update() == source.version, "finish_update reports another version than was begun"
        scores = [one.score(self.fixed_sequence()) for one in (plain, engine)]
        assert np.allclose(scores[0], scores[1], atol=self.tolerance), "the scores change with the arrays of a bucket that it has received"

    def test_an_update_that_breaks_off_serves_nothing_torn(self) -> None:
        """With ``swaps`` the old weights are served on; without, everything is refused until a whole update has landed. Requests in flight
        are answered after it, or before."""
        engine, old, new = self.make(), self.make(), self.make()
        update_engine(new, self.snapshot(2))
        requests = self.requests(8)
        engine.submit(requests)
        early = {completion.request_id for completion in engine.poll(0.0)}
        self._begin(engine, self.snapshot(1))
        for bucket in list(self.snapshot(1).buckets(1))[:-1]:
            engine.receive(bucket)
        answered = self._assert_nothing_torn(engine, old, requests, "after an update that broke off")
        assert update_engine(engine, self.snapshot(2)) == 2, "after an update that broke off, a whole one is not taken"
        late = self.drain(engine, 8 - len(early | answered))
        assert not set(late) & (early | answered), "a request was answered before an update that broke off, and again after it"
        scores = [one.score(self.fixed_sequence()) for one in (new, engine)]
        assert np.allclose(scores[0], scores[1], atol=self.tolerance), "after an update that broke off, a whole one scores otherwise"
        for completion in self.run(engine, self.requests(2, max_new_tokens=3, start=20)).values():
            assert (completion.versions == 2).all(), f"after a whole update to 2, tokens have versions {completion.versions.tolist()}"

    def test_names_a_tensor_that_did_not_come(self) -> None:
        """``finish_update`` is a WeightsError then, and nothing torn is served."""
        engine, old = self.make(), self.make()
        snapshot, name = self.snapshot(1), self.required_tensor(self.snapshot(1))
        self._begin(engine, snapshot)
        for bucket in self._numbered(bucket for bucket in snapshot.buckets(1) if name not in bucket.tensors):
            engine.receive(bucket)
        with _expected(WeightsError, f"finish_update took a version whose tensor {name!r} did not come") as seen:
            engine.finish_update()
        assert name in str(seen[0]), f"finish_update does not name tensor {name!r}, which did not come: {seen[0]}"
        self._assert_nothing_torn(engine, old, (), "after an update without one of its tensors")

    def test_refuses_a_bucket_that_comes_twice(self) -> None:
        """It does not stand for the one that did not come: a WeightsError of ``receive`` or ``finish_update``."""
        engine, old = self.make(), self.make()
        snapshot, name = self.snapshot(1), self.required_tensor(self.snapshot(1))
        others = [bucket for bucket in snapshot.buckets(1) if name not in bucket.tensors]
        self._begin(engine, snapshot)
        with _expected(WeightsError, f"a bucket that came twice was taken for that of tensor {name!r}"):
            for bucket in self._numbered([*others, others[0]]):
                engine.receive(bucket)
            engine.finish_update()
        self._assert_nothing_torn(engine, old, (), "after a bucket that came twice")

    def _begin(self, engine: InferenceBackend, snapshot: Snapshot) -> None:
        engine.begin_update(snapshot.version, snapshot.manifest(), engine.capabilities.in_flight)

    def _numbered(self, buckets: Iterable[Bucket]) -> list[Bucket]:
        return [replace(bucket, index=index) for index, bucket in enumerate(buckets)]

    def _assert_nothing_torn(self, engine: InferenceBackend, old: InferenceBackend, asked: Sequence[Request], when: str) -> set[str]:
        """It refuses work, or serves the weights of ``old`` if it ``swaps``; the requests of ``asked`` that were answered."""
        if self.swaps:
            served = np.array_equal(engine.score(self.fixed_sequence()), old.score(self.fixed_sequence()))
            assert served, f"it swaps, and serves other weights than the old ones {when}"
        else:
            self._refuses_work(engine, when)
        known = {request.request_id: request for request in asked}
        answers: list[Completion] = []
        try:
            answers = engine.poll(0.05)
        except RunError:
            assert not self.swaps, f"it swaps, and does not poll {when}"
        for completion in answers:
            assert (completion.versions == 0).all(), f"tokens have versions {completion.versions.tolist()} {when}"
            self.assert_scored(old, known[completion.request_id], completion, f"log probabilities {when}, on the old weights")
        return {completion.request_id for completion in answers}

    def test_joins_its_own_transfer_again_and_again(self) -> None:
        """As declared: without one, ``connect`` says so; with one, weights of each group that it joins are served, and back again."""
        engine = self.make()
        if engine.capabilities.transfers <= {"host"}:
            try:
                engine.connect({}, 1)
            except NotImplementedError:
                return
            raise AssertionError("capabilities.transfers names host alone, and connect() did nothing")
        before, versions = engine.score(self.fixed_sequence()), (1, 2, 3)
        scores = [self._joined(engine, version, self.snapshot(0 if version == 3 else version)) for version in versions]
        for version, last, score in zip(versions, [before, *scores], scores, strict=False):
            assert np.abs(score - last).max() > 10 * self.tolerance, f"the scores of version {version}, of another group, are those before"
        assert np.allclose(scores[-1], before, atol=self.tolerance), "the first weights, taken from a third group, score differently"

    def _joined(self, engine: InferenceBackend, version: int, snapshot: Snapshot) -> np.ndarray:
        """Publish to a group that this engine is alone in, as epoch ``version``; the scores afterwards."""
        transfer = self.transfer()
        publisher = transfer.publisher(deadline=_JOINING_SECONDS, bucket_bytes=BUCKET_BYTES)
        receiver = transfer.receiver(name="p0", address=publisher.address(), deadline=_JOINING_SECONDS, on_news=lambda: None)
        try:
            receiver.introduce(engine.describe())
            publish(publisher, replace(snapshot, version=version))
            until, got = time.monotonic() + _JOINING_SECONDS, None
            while got is None:
                assert time.monotonic() < until, f"version {version} was not offered to the engine within {_JOINING_SECONDS:g} s"
                got = receiver.newer_than(version - 1)
                time.sleep(0.005)
            assert isinstance(got, RemoteSnapshot), f"newer_than returned a {type(got).__name__}"
            parts = tuple(replace(part, epoch=version) for part in got.parts)
            try:
                served = update_engine(engine, replace(got, epoch=version, parts=parts))
            except GroupBrokenError as error:
                raise AssertionError(f"the engine did not join the group of epoch {version}: {error}") from error
            assert served == version, f"update to version {version} reports {served}"
            return engine.score(self.fixed_sequence())
        finally:
            receiver.close()
            publisher.close()

    def test_sleeps_and_wakes(self) -> None:
        """Where declared: after sleep at either level, wake and update it serves as before; elsewhere ``sleep`` says that it does not."""
        engine = self.make()
        before = engine.score(self.fixed_sequence())
        if not engine.capabilities.sleeps:
            try:
                engine.sleep()
            except NotImplementedError:
                return
            raise AssertionError("capabilities.sleeps is False and sleep() did nothing")
        for level, version in ((1, 3), (2, 4)):
            engine.sleep(level)
            engine.wake()
            assert update_engine(engine, replace(self.snapshot(0), version=version)) == version, "update after wake reports another version"
            engine.wake_cache()
            assert np.allclose(engine.score(self.fixed_sequence()), before, atol=self.tolerance), (
                "scores differ after sleep, wake and update"
            )
            answers = self.run(engine, self.requests(2, max_new_tokens=3))
            assert all((completion.versions == version).all() for completion in answers.values()), "tokens after wake have another version"

    def test_sleep_waits_for_what_is_in_flight(self) -> None:
        """It refuses with requests in flight, which then end as if nothing had been asked."""
        engine = self.make()
        if not engine.capabilities.sleeps:
            return
        engine.submit(self.requests(4))
        self._assert_refuses_work(engine.sleep, "sleep with requests in flight")
        assert len(self.drain(engine, 4)) == 4, "requests are lost after a refused sleep"
        engine.sleep()

    def test_serves_nothing_between_sleep_and_update(self) -> None:
        """Work is refused until an update has brought weights, by a sleeping engine and by one that only woke; it may be closed so."""
        engine = self.make()
        if not engine.capabilities.sleeps:
            return
        engine.sleep()
        self._refuses_work(engine, "while it sleeps")
        self._assert_refuses_work(lambda: self._begin(engine, self.snapshot(1)), "begin_update while it sleeps")
        engine.wake()
        self._refuses_work(engine, "after wake, before an update")
        self._begin(engine, self.snapshot(1))
        engine.receive(next(self.snapshot(1).buckets(1)))
        self._refuses_work(engine, "after wake, in the middle of an update")
        update_engine(engine, self.snapshot(1))
        assert len(self.run(engine, self.requests(2, max_new_tokens=3))) == 2, "nothing is served after wake and update"
        engine.sleep()
        engine.close()

    def _refuses_work(self, engine: InferenceBackend, when: str) -> None:
        self._assert_refuses_work(lambda: engine.submit(self.requests(1, start=90)), f"submit {when}")
        self._assert_refuses_work(lambda: engine.score(self.fixed_sequence()), f"score {when}")

    def _assert_refuses_work(self, call: Callable[[], object], what: str) -> None:
        with _expected(RunError, f"{what} is no RunError"):
            call()


@contextmanager
def _expected(kind: type[Exception], otherwise: str) -> Iterator[list[Exception]]:
    """AssertionError with the words ``otherwise`` unless an error of this kind is raised inside; the list holds it then."""
    seen: list[Exception] = []
    try:
        yield seen
    except kind as error:
        seen.append(error)
        return
    raise AssertionError(otherwise)


def replace_tokens(completion: Completion, count: int) -> Completion:
    """The completion cut to its first ``count`` tokens."""
    return replace(
        completion,
        token_ids=completion.token_ids[:count],
        logprobs=completion.logprobs[:count],
        versions=completion.versions[:count],
    )
