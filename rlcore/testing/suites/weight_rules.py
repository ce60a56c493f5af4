"""Rules of weights: versions per token, updates with requests in flight, refusal of what is not whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rlcore.contracts.errors import RunError, WeightsError
from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, Finish
from rlcore.testing.suites.engine import EngineSuite

__all__ = ["WeightRules"]


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
            served = engine.update(self.snapshot(version))
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

    def test_an_update_keeps_nothing_of_the_snapshot(self) -> None:
        """Its arrays are copied or moved: their memory is used for other weights as soon as ``update`` has returned."""
        engine = self.make()
        source = self.snapshot(1)
        lent = {name: replace(tensor, data=np.array(tensor.data)) for name, tensor in source.tensors.items()}
        engine.update(Snapshot.of(1, lent))
        before = engine.score(self.fixed_sequence())
        for tensor in lent.values():
            tensor.data[...] = 0
        after = engine.score(self.fixed_sequence())
        assert np.array_equal(after, before), "the scores change with the arrays of a snapshot after update has returned"

    def test_every_tensor_is_taken(self) -> None:
        """Each tensor alone, changed, changes the scores: none keeps its old value, packed or tied copies included."""
        engine = self.make()
        base, other = self.snapshot(0), self.snapshot(1)
        before = engine.score(self.fixed_sequence())
        for version, (name, tensor) in enumerate(sorted(other.tensors.items()), start=1):
            if name in self.inert_tensors or tensor.checksum == base.tensors[name].checksum:
                continue
            engine.update(Snapshot.of(version, {**base.tensors, name: tensor}))
            assert not np.array_equal(engine.score(self.fixed_sequence()), before), f"an update with another {name!r} changes no score"

    def test_an_update_is_a_fresh_engine(self) -> None:
        """Nothing of the old weights is left, no cached keys and values either: there and back gives the first scores again."""
        engine = self.make()
        requests = self.requests(4, max_new_tokens=6)
        before, first = engine.score(self.fixed_sequence()), self.run(engine, requests)
        engine.update(self.snapshot(1))
        self.run(engine, requests)
        engine.update(replace(self.snapshot(0), version=2))
        assert np.allclose(engine.score(self.fixed_sequence()), before, atol=self.tolerance), (
            "the first weights, loaded again, score differently"
        )
        if self.draws_alike(engine):
            for name, completion in self.run(engine, requests).items():
                assert np.array_equal(completion.token_ids, first[name].token_ids), "the first weights, loaded again, draw differently"

    def test_update_with_requests_in_flight(self) -> None:
        """Running requests finish on the old weights, resume on the new ones, or come back ABORTED, as declared."""
        engine = self.make()
        requests = self.requests(8)
        engine.submit(requests)
        early = {completion.request_id for completion in engine.poll(0.0)}
        assert len(early) < 8, "no request was left in flight after one poll"
        assert engine.update(self.snapshot(1)) == 1, "update with requests in flight reports another version"
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

    def test_refuses_a_damaged_snapshot(self) -> None:
        """A flipped bit is a WeightsError; the old weights stay."""
        self._refused(self._damaged, "a tensor that differs from its checksum")

    def test_refuses_a_snapshot_that_is_not_whole(self) -> None:
        """A snapshot sealed without one of the model's tensors is a WeightsError; no half-new model is served."""
        self._refused(self._incomplete, "a snapshot without one of the model's tensors")

    def test_refuses_a_tensor_of_another_shape(self) -> None:
        """Also where checksums are right."""
        self._refused(self._misshapen, "a tensor of another shape")

    def _damaged(self, snapshot: Snapshot) -> Snapshot:
        name = self.required_tensor(snapshot)
        data = np.array(snapshot.tensors[name].data)
        data.view(np.uint8).reshape(-1)[0] ^= 1
        return replace(snapshot, tensors={**snapshot.tensors, name: replace(snapshot.tensors[name], data=data)})

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
        self._assert_refuses(engine, spoil(self.snapshot(1)), what)
        assert np.array_equal(engine.score(self.fixed_sequence()), before), f"after it refused {what}, other weights are served"
        for completion in self.run(engine, self.requests(2, max_new_tokens=3)).values():
            assert (completion.versions == 0).all(), f"after it refused {what}, tokens have versions {completion.versions.tolist()}"
        assert engine.update(self.snapshot(2)) == 2, f"after it refused {what}, a good snapshot is not taken"

    def _assert_refuses(self, engine: InferenceBackend, snapshot: Snapshot, what: str) -> None:
        try:
            engine.update(snapshot)
        except WeightsError:
            return
        raise AssertionError(f"update took {what}")

    def test_sleeps_and_wakes(self) -> None:
        """Where declared: after sleep, wake and update it serves as before; elsewhere ``sleep`` says that it does not."""
        engine = self.make()
        before = engine.score(self.fixed_sequence())
        if not engine.capabilities.sleeps:
            try:
                engine.sleep()
            except NotImplementedError:
                return
            raise AssertionError("capabilities.sleeps is False and sleep() did nothing")
        for version in (3, 4):
            engine.sleep()
            engine.wake()
            assert engine.update(replace(self.snapshot(0), version=version)) == version, "update after wake reports another version"
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
        """Work is refused until ``update`` has brought weights, by a sleeping engine and by one that only woke; it may be closed so."""
        engine = self.make()
        if not engine.capabilities.sleeps:
            return
        engine.sleep()
        self._refuses_work(engine, "while it sleeps")
        engine.wake()
        self._refuses_work(engine, "after wake, before update")
        engine.update(self.snapshot(1))
        assert len(self.run(engine, self.requests(2, max_new_tokens=3))) == 2, "nothing is served after wake and update"
        engine.sleep()
        engine.close()

    def _refuses_work(self, engine: InferenceBackend, when: str) -> None:
        self._assert_refuses_work(lambda: engine.submit(self.requests(1)), f"submit {when}")
        self._assert_refuses_work(lambda: engine.score(self.fixed_sequence()), f"score {when}")

    def _assert_refuses_work(self, call: Callable[[], object], what: str) -> None:
        try:
            call()
        except RunError:
            return
        raise AssertionError(f"{what} is no RunError")


def replace_tokens(completion: Completion, count: int) -> Completion:
    """The completion cut to its first ``count`` tokens."""
    return replace(
        completion,
        token_ids=completion.token_ids[:count],
        logprobs=completion.logprobs[:count],
        versions=completion.versions[:count],
    )
