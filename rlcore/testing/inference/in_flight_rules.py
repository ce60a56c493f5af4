"""Rules of requests in flight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.types import Completion, FinishReason
from rlcore.testing.inference.engine_suite import EngineSuite
from rlcore.testing.records import make_request
from rlcore.testing.time_limit import within

__all__ = ["InFlightRules"]

ATTEMPTS = 3
"""Attempts of a short request to overtake long ones."""
CROWDS = 8
"""Crowds of cancelled requests, one after the other: an engine that keeps their places is full then."""


class InFlightRules(EngineSuite):
    """Requests in flight: progress, cancellation, and draws that do not depend on the batch."""

    def test_streams(self) -> None:
        """One ``poll`` makes progress without running all requests to the end, and a short request overtakes long ones."""
        with self.shared() as engine:
            overtook = any(self._a_short_request_overtakes(engine, attempt) for attempt in range(ATTEMPTS))
            assert overtook, "a one-token request came after every long one that ran before it"

    def _a_short_request_overtakes(self, engine: InferenceBackend, attempt: int) -> bool:
        """Return whether it did: over HTTP on a busy machine it may begin after long requests of a tiny model have ended."""
        long = [replace(request, request_id=f"{request.request_id}-{attempt}") for request in self.requests(8)]
        engine.submit(long)
        early = {completion.request_id for completion in engine.poll(0.0)}
        assert len(early) < 8, "one poll ran eight long requests to their end: nothing could be admitted or updated meanwhile"
        engine.submit([make_request("short", self.prompts()[0], noise=99, max_new_tokens=1)])
        order = list(self.drain(engine, 9 - len(early)))
        return order.index("short") < len(order) - 1

    def test_every_call_comes_back_in_time(self) -> None:
        """Each call returns within ``deadline``; an engine that hangs is not called again."""
        with self.updatable() as (engine, first):
            requests = self.requests(4)
            with within(self.deadline, "submit"):
                engine.submit(requests)
            with within(self.deadline, "poll"):
                early = engine.poll(0.0)
            with within(self.deadline, "cancel"):
                engine.cancel([requests[0].request_id])
            self.update(engine, 1, first + 1)
            self.drain(engine, 4 - len(early))
            with within(self.deadline, "score"):
                engine.score(np.array(self.prompts()[0], np.int32))

    def test_cancel(self) -> None:
        """A cancelled request comes back once, ABORTED, with its tokens so far; unknown ids are ignored, and other requests continue
        unchanged."""
        with self.shared() as engine:
            requests = self.requests(8)
            alone = self.run(engine, requests)
            engine.submit(requests)
            early = {completion.request_id: completion for completion in engine.poll(0.0)}
            running = [request.request_id for request in requests if request.request_id not in early]
            victims = sorted(running, key=lambda name: len(alone[name].token_ids))[-3:]  # those that run longest, of them the last begun
            engine.cancel([*victims, "no such request", *victims])
            answers = self.drain(engine, 8 - len(early))
            for name, completion in answers.items():
                if name in victims:
                    assert completion.finish is FinishReason.ABORTED, f"cancelled request {name!r} ended as {completion.finish}"
                    if self.draws_alike(engine):
                        whole = alone[name].token_ids[: len(completion.token_ids)]
                        assert np.array_equal(completion.token_ids, whole), f"cancelled request {name!r} has other tokens than it drew"
                else:
                    assert completion.finish is not FinishReason.ABORTED, f"request {name!r} was aborted, it was not the one cancelled"
                    if self.draws_alike(engine):
                        assert np.array_equal(completion.token_ids, alone[name].token_ids), f"cancelling others changed {name!r}"
            engine.cancel(victims)
            assert engine.poll(0.0) == [], "cancelling finished requests brought them back"

    def test_a_cancelled_request_frees_its_place(self) -> None:
        """Requests are served after many large groups of requests were cancelled."""
        with self.shared(prompts_per_forward=1) as engine:
            for crowd in range(CROWDS):
                prompt = self.prompts()[crowd % 3]
                requests = [make_request(f"r{n}", prompt, noise=8 * crowd + n, max_new_tokens=self.long_tokens) for n in range(8)]
                engine.submit(requests)
                early = engine.poll(0.0)
                engine.cancel([request.request_id for request in requests])
                self.drain(engine, 8 - len(early))
            answer = self.run(engine, [make_request("next", self.prompts()[0], noise=1, max_new_tokens=2)])["next"]
            assert answer.finish is not FinishReason.ABORTED, "a request that nobody cancelled was aborted"

    def test_an_aborted_request_can_be_asked_again(self) -> None:
        """An aborted request can be submitted again under its id, and draws the tokens of its noise from the beginning."""
        with self.shared() as engine:
            requests = self.requests(4)
            engine.submit(requests)
            early = {completion.request_id for completion in engine.poll(0.0)}
            engine.cancel([request.request_id for request in requests])
            self.drain(engine, 4 - len(early))
            again = self.run(engine, requests)
            assert all(answer.finish is not FinishReason.ABORTED for answer in again.values()), (
                "a request that is asked again comes back aborted"
            )
            if self.draws_alike(engine):
                untouched = self.run(engine, [replace(request, request_id=f"{request.request_id}-new") for request in requests])
                for request in requests:
                    name = request.request_id
                    same = np.array_equal(again[name].token_ids, untouched[f"{name}-new"].token_ids)
                    assert same, f"{name!r}, aborted and asked again from the beginning, draws other tokens than its noise gives"

    def test_noise_does_not_depend_on_batching(self) -> None:
        """The same noise gives the same tokens alone, one prompt a forward, in reverse and among others. Checked if
        ``capabilities.counter_noise`` is set."""
        with self.shared() as engine:
            if not self.draws_alike(engine):
                self.skip("capabilities.counter_noise is False, or same_draws")
            requests = self.requests(9, max_new_tokens=10)
            together = self.run(engine, requests)
            among = self.run(engine, [*self.requests(5, start=50), *requests])
        alone: dict[str, Completion] = {}
        with self.shared(prompts_per_forward=1) as narrow:
            for request in requests:
                alone |= self.run(narrow, [request])
            reversed_order = self.run(narrow, requests[::-1])
        for name, completion in together.items():
            for label, other in (("alone", alone), ("in reverse", reversed_order), ("among others", among)):
                assert np.array_equal(other[name].token_ids, completion.token_ids), f"{name!r} drew other tokens {label}"
                assert np.allclose(other[name].logprobs, completion.logprobs, atol=self.tolerance), (
                    f"{name!r} has other log probabilities {label}"
                )

    def test_a_continued_request_goes_on_as_if_nothing_had_been_aborted(self) -> None:
        """A request that is continued after any of its tokens gets the remaining tokens, log probabilities and finish. Checked if
        ``capabilities.continues`` is set."""
        with self.shared() as engine:
            if not engine.capabilities.continues:
                self.skip("capabilities.continues is False")
            for request in self.requests(4, max_new_tokens=8):
                whole = self.run(engine, [request])[request.request_id]
                for cut in range(1, len(whole.token_ids)):
                    rest = replace(
                        request,
                        token_ids=np.concatenate([request.token_ids, whole.token_ids[:cut]]),
                        sampling=replace(request.sampling, max_new_tokens=8 - cut),
                        continued=cut,
                    )
                    later = self.run(engine, [rest])[request.request_id]
                    label = f"{request.request_id!r} continued after {cut} tokens"
                    if self.draws_alike(engine):
                        assert np.array_equal(later.token_ids, whole.token_ids[cut:]), f"{label} drew other tokens"
                        assert later.finish is whole.finish, f"{label} ended by {later.finish}, and by {whole.finish} in one piece"
                        assert np.allclose(later.logprobs, whole.logprobs[cut:], atol=self.tolerance), (
                            f"{label} has other log probabilities"
                        )
                    assert cut + len(later.token_ids) <= 8, f"{label}: {len(later.token_ids)} tokens more, 8 in all are the limit"

    def test_a_stop_string_may_begin_in_what_is_continued(self) -> None:
        """A stop string is found if its first character was drawn before the request was aborted and continued. Checked if
        ``capabilities.continues`` is set."""
        self.require_decode()
        with self.shared() as engine:
            if not engine.capabilities.continues:
                self.skip("capabilities.continues is False")
            for request in self.requests(8):
                tokens = self.run(engine, [request])[request.request_id].token_ids
                printed = [place for place, token in enumerate(tokens.tolist()) if self.decode([token])]
                if len(printed) < 2:
                    continue
                first, second = printed[:2]
                string = self.decode(tokens[: second + 1].tolist())
                rest = replace(
                    request,
                    token_ids=np.concatenate([request.token_ids, tokens[: first + 1]]),
                    sampling=replace(request.sampling, stop=(string,)),
                    continued=first + 1,
                )
                later = self.run(engine, [rest])[request.request_id]
                if np.array_equal(later.token_ids, tokens[first + 1 : second + 1]):
                    assert later.finish is FinishReason.STOP, f"the stop string {string!r} was completed and finish is {later.finish}"
                else:
                    assert not self.draws_alike(engine), f"the stop string {string!r} began before the abort, and was not seen"
                return
            self.skip("no sample printed two characters")
