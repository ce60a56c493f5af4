"""Rules of updates that succeed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlcore.contracts.errors import GroupBrokenError
from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.snapshots import BUCKET_BYTES, RemoteSnapshot, Snapshot
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, FinishReason, Request
from rlcore.roles.engine_update import update_engine
from rlcore.testing.inference.engine_suite import expected
from rlcore.testing.inference.failed_update_rules import FailedUpdateRules
from rlcore.testing.records import make_request
from rlcore.testing.weights import publish, resealed

__all__ = ["WeightUpdateRules"]

_JOINING_SECONDS = 30.0
"""Deadline of a transfer that an engine joins."""
_TRIES = 5
_MORE_ROUNDS = 10
"""In which an update is to find requests in flight."""


class WeightUpdateRules(FailedUpdateRules):
    """Updates that succeed: versions of tokens, new weights, caches, requests in flight, sleep."""

    def test_serves_version_zero_first(self) -> None:
        """Each token of a fresh engine has version 0."""
        with self.shared() as engine:
            for completion in self.run(engine, self.requests(4, max_new_tokens=4)).values():
                assert (completion.versions == 0).all(), f"versions {completion.versions.tolist()} before any update"

    def test_update_serves_the_new_weights(self) -> None:
        """An update returns its version; tokens, log probabilities and scores are then those of the new weights."""
        with self.updatable() as (engine, first):
            before = engine.score(self.fixed_sequence())
            greedy = [make_request(f"g{n}", prompt, max_new_tokens=6, temperature=0.0) for n, prompt in enumerate(self.prompts())]
            self.run(engine, greedy)
            for number in (1, 5):
                version = first + number
                served = self.update(engine, number, version)
                assert served == version, f"update to version {version} reports {served}"
                after = engine.score(self.fixed_sequence())
                assert np.abs(after - before).max() > 10 * self.tolerance, "score is the same after an update to other weights"
                requests = self.requests(4, max_new_tokens=6)
                answers = self.run(engine, requests)
                for request in requests:
                    completion = answers[request.request_id]
                    assert (completion.versions == version).all(), f"versions {completion.versions.tolist()} after the update to {version}"
                    self.assert_scored(engine, request, completion, f"log probabilities after the update to {version}")
                for request, completion in zip(greedy, self.in_order(greedy, self.run(engine, greedy)), strict=True):
                    self.assert_likeliest(engine, number, request, completion, f" after the update to {version}")
                before = after

    def test_after_an_update_it_is_the_trainers_model(self) -> None:
        """After an update, scores and answers equal the trainer's forward pass on the new weights, a tied head included. Checked if the
        suite gives ``forward``."""
        if self.forward(1, self.fixed_sequence()) is None:
            self.skip("the suite has no forward pass of a trainer (forward)")
        with self.updatable() as (engine, first):
            self.update(engine, 1, first + 1)
            sequence = self.fixed_sequence()
            rows = self.logprobs(engine, 1, sequence[:1], sequence[1:], 1.0)
            off = float(np.abs(rows[np.arange(len(rows)), sequence[1:]] - engine.score(sequence)).max())
            assert off <= self.tolerance, f"after an update, score is off by {off:.2g} nats from the trainer's"
            requests = self.requests(4, max_new_tokens=6)
            for request, completion in zip(requests, self.in_order(requests, self.run(engine, requests)), strict=True):
                self.assert_trained(1, request, completion, f"log probabilities of {request.request_id} after an update")

    def test_every_tensor_is_taken(self) -> None:
        """A change of any one tensor changes the scores, packed and tied tensors included."""
        base, other = self.snapshot(0), self.snapshot(1)
        with self.updatable() as (engine, first):
            before = engine.score(self.fixed_sequence())
            for version, (name, tensor) in enumerate(sorted(other.tensors.items()), start=first + 1):
                if name in self.inert_tensors or tensor.checksum == base.tensors[name].checksum:
                    continue
                update_engine(engine, resealed(replace(base, version=version), {**base.tensors, name: tensor}))
                changed = not np.array_equal(engine.score(self.fixed_sequence()), before)
                assert changed, f"an update with another {name!r} changes no score"

    def test_an_update_is_a_fresh_engine(self) -> None:
        """After an update and its reversal the engine scores and draws as at first: no cached keys and values remain."""
        with self.updatable() as (engine, first):
            requests = self.requests(4, max_new_tokens=6)
            before, drawn = engine.score(self.fixed_sequence()), self.run(engine, requests)
            self.update(engine, 1, first + 1)
            self.run(engine, requests)
            self.update(engine, 0, first + 2)
            assert np.allclose(engine.score(self.fixed_sequence()), before, atol=self.tolerance), (
                "the first weights, loaded again, score differently"
            )
            if self.draws_alike(engine):
                for name, completion in self.run(engine, requests).items():
                    assert np.array_equal(completion.token_ids, drawn[name].token_ids), "the first weights, loaded again, draw differently"

    def test_no_cached_prefix_outlives_an_update(self) -> None:
        """Answers to long prompts with a common prefix that was served before are those of the new weights. They are generated, since a
        probe does not use the prefix cache."""
        prefix = np.resize(self.fixed_sequence(), self.cached_prompt)
        prompts = [prefix, *(np.append(prefix[:-1], prompt[:1]) for prompt in self.prompts()[:2])]
        requests = [make_request(f"p{n}", prompts[n % 3], noise=n, max_new_tokens=8) for n in range(6)]
        with self.updatable() as (engine, first):
            for number in (0, 1):
                if number:
                    self.update(engine, number, first + number)
                for request in requests:  # one after the other, so that each finds what the ones before it left
                    completion = self.run(engine, [request])[request.request_id]
                    when = "after an update: keys and values of the old weights were used" if number else "before any update"
                    what = f"log probabilities behind a prefix of {self.cached_prompt} tokens, {when}"
                    self.assert_scored(engine, request, completion, what)

    def test_a_late_engine_takes_the_newest_version(self) -> None:
        """An engine that has missed versions serves the same weights as one that took them all."""
        with self.updatable() as (engine, first):
            for number in (1, 2):
                self.update(engine, number, first + number)
            every = engine.score(self.fixed_sequence())
        with self.updatable() as (engine, first):
            served = self.update(engine, 2, first + 7)
            assert served == first + 7, f"an engine of version {first}, updated to {first + 7}, reports {served}"
            off = float(np.abs(engine.score(self.fixed_sequence()) - every).max())
            assert off <= self.tolerance, f"scores are off by {off:.2g} nats from those of an engine that took every version"

    def test_update_with_requests_in_flight(self) -> None:
        """At an update, running requests finish on the old weights, resume on the new ones, or are ABORTED, as ``capabilities.in_flight``
        declares."""
        with self.updatable() as (engine, first), self.shared() as old:
            mode = engine.capabilities.in_flight
            requests, late, first = self._updated_in_flight(engine, first)
            check = {InFlight.FINISH: self._finished, InFlight.RESUME: self._resumed, InFlight.ABORT: self._aborted}[mode]
            check(list(late.values()), first)
            for request in requests:
                if (completion := late.get(request.request_id)) is not None:
                    part = replace_tokens(completion, int((completion.versions == first).sum()))
                    self.assert_scored(old, request, part, f"tokens that {request.request_id!r} labels version {first}, on that version")

    def test_resumed_tokens_are_of_the_new_weights_alone(self) -> None:
        """Tokens after an update have log probabilities of the new weights over the whole sequence: cached keys and values are computed
        anew. Checked if ``capabilities.in_flight`` is RESUME."""
        with self.updatable() as (engine, first):
            if engine.capabilities.in_flight is not InFlight.RESUME:
                self.skip(f"capabilities.in_flight is {engine.capabilities.in_flight}")
            requests, late, first = self._updated_in_flight(engine, first)
            for request in requests:
                if (completion := late.get(request.request_id)) is not None:
                    start = int((completion.versions == first).sum())
                    before = replace(request, token_ids=np.concatenate([request.token_ids, completion.token_ids[:start]]))
                    rest = replace_tokens(completion, len(completion.token_ids), start)
                    self.assert_scored(engine, before, rest, f"tokens that {request.request_id!r} labels version {first + 1}")

    def _updated_in_flight(self, engine: InferenceBackend, first: int) -> tuple[list[Request], dict[str, Completion], int]:
        """Return eight requests, the answers to those that an update from ``snapshot(0)`` to ``snapshot(1)`` found in flight, and the
        version before it.

        An engine that generates in another process may be before its first token or behind its last one if the update comes at once.
        Another round then waits twice as long, or half way between the waits that were too short and too long.
        """
        wait, early, late = 0.0, 0.0, np.inf
        requests, answers = self._updated_after(engine, wait, first)
        for _ in range(_MORE_ROUNDS):
            if self._caught(engine.capabilities.in_flight, answers, first):
                break
            too_early = any(first + 1 in completion.versions for completion in answers.values())
            early, late = (wait, late) if too_early else (early, wait)
            wait = max(2 * early, 0.001) if late == np.inf else (early + late) / 2
            first += 2
            self.update(engine, 0, first)
            requests, answers = self._updated_after(engine, wait, first)
        return requests, answers, first

    def _caught(self, mode: InFlight, answers: dict[str, Completion], first: int) -> bool:
        """Return whether the update found requests that the rules of this mode can check."""
        versions = [set(completion.versions.tolist()) for completion in answers.values()]
        seen = {InFlight.RESUME: {first, first + 1} in versions, InFlight.FINISH: {first} in versions, InFlight.ABORT: bool(versions)}
        return seen[mode]

    def _updated_after(self, engine: InferenceBackend, wait: float, first: int) -> tuple[list[Request], dict[str, Completion]]:
        requests = self.requests(8)
        for _ in range(_TRIES):
            engine.submit(requests)
            time.sleep(wait)
            early = engine.poll(0.0)
            if wait or len(early) < 8:
                break  # else the machine may be so busy that an engine's own process was done before this one came to its poll
        assert wait or len(early) < 8, f"no request was left in flight after one poll, {_TRIES} times"
        assert self.update(engine, 1, first + 1) == first + 1, "update with requests in flight reports another version"
        return requests, self.drain(engine, 8 - len(early))

    def _finished(self, late: list[Completion], first: int) -> None:
        for completion in late:
            assert len(set(completion.versions.tolist())) <= 1, f"in flight is finish, yet versions are {completion.versions.tolist()}"
            assert completion.finish is not FinishReason.ABORTED, "in flight is finish, yet a request was aborted"
        assert any((completion.versions == first).all() for completion in late), "no running request finished on the old weights"

    def _resumed(self, late: list[Completion], first: int) -> None:
        for completion in late:
            assert (np.diff(completion.versions) >= 0).all(), f"versions go back: {completion.versions.tolist()}"
            assert set(completion.versions.tolist()) <= {first, first + 1}, f"versions are {completion.versions.tolist()}"
            assert completion.finish is not FinishReason.ABORTED, "in flight is resume, yet a request was aborted"
        assert any(len(set(completion.versions.tolist())) == 2 for completion in late), (
            "in flight is resume, yet no completion has two versions"
        )

    def _aborted(self, late: list[Completion], first: int) -> None:
        for completion in late:
            assert completion.finish is FinishReason.ABORTED, f"in flight is abort, yet a request ended as {completion.finish}"
            assert (completion.versions == first).all(), f"an aborted request has versions {completion.versions.tolist()}"

    def test_joins_its_own_transfer_again_and_again(self) -> None:
        """The engine joins each new group of its transfer and serves the weights published there. An engine without a transfer of its own
        raises NotImplementedError in ``connect``."""
        with self.shared() as engine:
            if engine.capabilities.transfers <= {"host"}:
                with expected(NotImplementedError, "capabilities.transfers names host alone, and connect() did nothing"):
                    engine.connect({}, 1)
                return
        with self.fresh() as engine:
            self._join_thrice(engine)

    def _join_thrice(self, engine: InferenceBackend) -> None:
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
        """After sleep at either level, wake and an update, the engine serves as before. An engine that does not declare ``sleeps`` raises
        NotImplementedError."""
        with self.updatable() as (engine, first):
            before = engine.score(self.fixed_sequence())
            if not engine.capabilities.sleeps:
                with expected(NotImplementedError, "capabilities.sleeps is False and sleep() did nothing"):
                    engine.sleep()
                return
            for level, version in ((1, first + 3), (2, first + 4)):
                engine.sleep(level)
                engine.wake()
                assert self.update(engine, 0, version) == version, "update after wake reports another version"
                engine.wake_cache()
                assert np.allclose(engine.score(self.fixed_sequence()), before, atol=self.tolerance), (
                    "scores differ after sleep, wake and update"
                )
                answers = self.run(engine, self.requests(2, max_new_tokens=3))
                assert all((completion.versions == version).all() for completion in answers.values()), (
                    "tokens after wake have another version"
                )

    def test_sleep_waits_for_what_is_in_flight(self) -> None:
        """``sleep`` with requests in flight raises a RunError, and the requests end as usual."""
        with self.updatable() as (engine, _):
            if not engine.capabilities.sleeps:
                self.skip("capabilities.sleeps is False")
            engine.submit(self.requests(4))
            self.assert_refuses_work(engine.sleep, "sleep with requests in flight")
            assert len(self.drain(engine, 4)) == 4, "requests are lost after a refused sleep"

    def test_serves_nothing_between_sleep_and_update(self) -> None:
        """A sleeping engine, and one that woke, raise a RunError for work until an update has landed; both can be closed."""
        with self.shared() as engine:
            if not engine.capabilities.sleeps:
                self.skip("capabilities.sleeps is False")
        with self.fresh() as engine:
            engine.sleep()
            self.refuses_work(engine, "while it sleeps")
            self.assert_refuses_work(lambda: self.begin(engine, self.snapshot(1)), "begin_update while it sleeps")
            engine.wake()
            self.refuses_work(engine, "after wake, before an update")
            self.begin(engine, self.snapshot(1))
            engine.receive(next(self.snapshot(1).buckets(1)))
            self.refuses_work(engine, "after wake, in the middle of an update")
            self.update(engine, 1, 1)
            engine.wake_cache()
            assert len(self.run(engine, self.requests(2, max_new_tokens=3))) == 2, "nothing is served after wake and update"
            engine.sleep()

    @staticmethod
    def in_order(requests: Sequence[Request], answers: dict[str, Completion]) -> list[Completion]:
        """Return the answers in the order of their requests."""
        return [answers[request.request_id] for request in requests]


def replace_tokens(completion: Completion, end: int, start: int = 0) -> Completion:
    """Return the completion cut to its tokens from ``start`` to ``end``."""
    return replace(
        completion,
        token_ids=completion.token_ids[start:end],
        logprobs=completion.logprobs[start:end],
        versions=completion.versions[start:end],
        details=None,
    )
