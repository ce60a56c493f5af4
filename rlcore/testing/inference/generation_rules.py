"""Rules of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlcore.contracts.errors import ConfigError, RunError
from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.specs import InferenceCapabilities
from rlcore.contracts.types import Completion, FinishReason, Request
from rlcore.testing.inference.engine_suite import EngineSuite, expected
from rlcore.testing.records import make_request

__all__ = ["GenerationRules"]

NEVER = ("\0nobody writes this\0", "\0nor this\0")
"""Stop strings that no answer holds."""


class GenerationRules(EngineSuite):
    """Answers: each request has one, with the right length and finish, and unchanged token ids."""

    def test_capabilities_are_declared(self) -> None:
        """The attribute ``capabilities`` is an ``InferenceCapabilities``."""
        with self.shared() as engine:
            assert isinstance(engine.capabilities, InferenceCapabilities), "capabilities must be an InferenceCapabilities"

    def test_the_spec_declares_the_capabilities_of_the_class(self) -> None:
        """The spec declares the capabilities of the class: a plan is checked against the spec before the class is imported."""
        with self.shared() as engine:
            declared = type(engine).capabilities
            assert self.spec is None or self.spec.capabilities == declared, f"the spec has {self.spec}, and the class {declared}"

    def test_what_is_lacking_has_a_name_and_a_reason(self) -> None:
        """``lacks`` names rules of the suite, each with a reason; a tolerance above 1e-4 has a reason too."""
        for rule, reason in self.lacks.items():
            assert callable(getattr(self, rule, None)), f"lacks names {rule!r}, which is not a rule of this suite"
            assert reason.strip(), f"lacks[{rule!r}] gives no reason"
        assert self.tolerance <= 1e-4 or self.tolerance_reason.strip(), (
            f"tolerance is {self.tolerance:g}, above 1e-4, and tolerance_reason does not say why"
        )

    def test_every_request_is_answered_once(self) -> None:
        """Each request is answered once under its id, even if more prompts come than fit into a forward pass."""
        with self.shared(prompts_per_forward=1) as engine:
            requests = self.requests(13, max_new_tokens=5)
            engine.submit(requests[:6])
            engine.submit(requests[6:])
            assert set(self.drain(engine, 13)) == {request.request_id for request in requests}, "other ids than were asked"

    def test_poll_of_an_idle_engine_returns_nothing(self) -> None:
        """``poll`` of an idle engine returns [], before the first request and after the last."""
        with self.shared() as engine:
            assert engine.poll(0.0) == []
            self.run(engine, self.requests(2, max_new_tokens=2))
            assert engine.poll(0.0) == []

    def test_an_empty_list_of_requests_is_nothing(self) -> None:
        """``submit([])`` and ``cancel([])`` change nothing, on an idle engine and on a busy one."""
        with self.shared() as engine:
            engine.submit([])
            engine.cancel([])
            assert engine.poll(0.0) == [], "no request was made, and poll returns an answer"
            engine.submit(self.requests(2, max_new_tokens=3))
            engine.submit([])
            engine.cancel([])
            assert all(answer.finish is not FinishReason.ABORTED for answer in self.drain(engine, 2).values()), (
                "cancel([]) aborted a request"
            )

    def test_length_and_finish(self) -> None:
        """An answer ends with LENGTH at ``max_new_tokens``, or with STOP at a stop token, which is its last token."""
        with self.shared() as engine:
            for completion in self.run(engine, self.requests(24, max_new_tokens=6)).values():
                self.assert_ended(completion, 6)

    def test_one_token_is_an_answer(self) -> None:
        """With ``max_new_tokens`` 1 an answer has one token and finish LENGTH, or STOP if it is a stop token."""
        with self.shared() as engine:
            for completion in self.run(engine, self.requests(12, max_new_tokens=1)).values():
                self.assert_ended(completion, 1)

    def test_each_request_has_its_own_limit(self) -> None:
        """Requests of one batch can have different ``max_new_tokens``."""
        with self.shared() as engine:
            requests = [make_request(f"r{n}", self.prompts()[0], noise=n, max_new_tokens=n + 1) for n in range(6)]
            answers = self.run(engine, requests)
            for n in range(6):
                tokens = len(answers[f"r{n}"].token_ids)
                assert tokens <= n + 1, f"{tokens} tokens where {n + 1} are the limit"

    def test_refuses_a_context_that_leaves_no_room(self) -> None:
        """``submit`` raises a ConfigError that names the request if its context has ``max_tokens`` tokens, and takes no request of the
        call."""
        if not self.max_tokens:
            self.skip("the suite does not say max_tokens of its context")
        with self.shared() as engine:
            short, *others = self.requests(3, max_new_tokens=2)
            engine.submit(others)
            with expected(ConfigError, f"submit took a context of {self.max_tokens} tokens, which leaves no room for an answer") as seen:
                engine.submit([short, make_request("too-long", self.filled(self.max_tokens), max_new_tokens=2)])
            assert "too-long" in str(seen[0]), f"the error does not name request 'too-long': {seen[0]}"
            answers = self.drain(engine, 2)
            assert set(answers) == {request.request_id for request in others}, "a request of a submit that was refused is answered"

    def test_refuses_an_id_that_is_in_flight(self) -> None:
        """``submit`` raises a RunError that names an id which is in flight or twice in the call, and takes no request of the call."""
        with self.shared() as engine:
            (running,), (new,) = self.requests(1), self.requests(1, start=1, max_new_tokens=1)
            engine.submit([running])
            self._assert_taken(engine, [new, running], running.request_id)
            early = engine.poll(0.0)
            if not early:
                self._assert_taken(engine, [new, running], running.request_id)
            self._assert_taken(engine, [new, new], new.request_id)
            answers = self.drain(engine, 1 - len(early))
            assert new.request_id not in answers, "a request of a submit that was refused is answered"

    def _assert_taken(self, engine: InferenceBackend, requests: Sequence[Request], taken: str) -> None:
        with expected(RunError, f"submit took {taken!r}, an id that is in flight or stands twice in the call") as seen:
            engine.submit(requests)
        assert taken in str(seen[0]), f"the error does not name request {taken!r}: {seen[0]}"

    def test_an_answer_ends_where_the_room_ends(self) -> None:
        """An answer ends with LENGTH if prompt and answer together have ``max_tokens`` tokens."""
        if not self.max_tokens:
            self.skip("the suite does not say max_tokens of its context")
        with self.shared() as engine:
            requests = [make_request(f"r{room}", self.filled(self.max_tokens - room), noise=room, max_new_tokens=9) for room in (1, 2, 3)]
            for name, completion in self.run(engine, requests).items():
                self.assert_ended(completion, int(name[1:]))

    def test_stop_strings(self) -> None:
        """Any of several stop strings ends its own request with STOP at the token that completes the string, and no other request."""
        self.require_decode()
        with self.shared() as engine:
            free = self.run(engine, self.requests(8))
            texts = {name: self.decode(answer.token_ids.tolist()) for name, answer in free.items()}
            name, text = max(texts.items(), key=lambda item: len(item[1]))
            string = text[len(text) // 2 :][:2]
            (plain,) = self.requests(1, start=int(name[1:]))
            request = replace(plain, sampling=replace(plain.sampling, stop=(NEVER[0], string, NEVER[1])))
            before, behind = (
                replace(plain, request_id=at, sampling=replace(plain.sampling, stop=NEVER[:1])) for at in ("before", "behind")
            )
            self.assert_stopped(engine, self.run(engine, [request])[name], string, "of three")
            engine.submit([before, request])
            engine.submit([behind])
            answers = self.drain(engine, 3)
            self.assert_stopped(engine, answers[name], string, "beside a request with another one")
            for other in ("before", "behind"):
                self.assert_unstopped(answers[other], NEVER[0], f"beside a request with {string!r}")

    def test_the_context_ends_no_answer(self) -> None:
        """A stop token or a stop string in the context does not end the answer."""
        with self.shared() as engine:
            prompts = self.prompts()
            contexts = [context for token in sorted(self.stop_ids)[:1] for context in ([*prompts[0], token], [token, *prompts[1]])]
            requests = [make_request(f"t{n}", contexts[n % 2], noise=n, max_new_tokens=4) for n in range(8 if contexts else 0)]
            texts = [(prompt, text[-2:]) for prompt in prompts if (text := self.decode(prompt))]
            strings = [
                make_request(f"s{n}", texts[n % len(texts)][0], noise=n, max_new_tokens=4, stop=(texts[n % len(texts)][1],))
                for n in range(8 if texts else 0)
            ]
            if not requests + strings:
                self.skip("the suite has no stop_ids, and does not decode")
            answers = self.run(engine, [*requests, *strings])
            for request in requests:
                tokens = answers[request.request_id].token_ids
                assert len(tokens), f"a stop token in the context ended {request.request_id} before its first token"
                self.assert_ended(answers[request.request_id], 4)
            for request in strings:
                self.assert_unstopped(answers[request.request_id], request.sampling.stop[0], "which is in the context")

    def test_token_ids_are_not_read_as_text(self) -> None:
        """Token ids that decoding and encoding would change come back as they were drawn, and can be used as a context."""
        self.require_decode()
        if not len(self.encode("a")):
            self.skip("the suite does not encode")
        with self.shared() as engine:
            requests = self.requests(16, max_new_tokens=self.long_tokens // 2)
            answers = self.run(engine, requests)
            changed = [request for request in requests if self.changed_by_text(answers[request.request_id].token_ids.tolist())]
            assert changed, "the token ids of 16 drawn answers are all what encoding their text gives: they were read as text"
            room = slice(0, self.long_tokens // 4)
            contexts = [np.concatenate([one.token_ids, answers[one.request_id].token_ids[room]]) for one in changed[:4]]
            for number, context in enumerate(contexts):
                if context[-1] in self.stop_ids:
                    contexts[number] = context[:-1]
            again = [make_request(f"c{number}", context, noise=number, max_new_tokens=4) for number, context in enumerate(contexts)]
            for request, (name, completion) in zip(again, sorted(self.run(engine, again).items()), strict=True):
                what = f"log probabilities of {name}, whose context does not survive decoding and encoding"
                self.assert_scored(engine, request, completion, what)
                self.assert_trained(0, request, completion, what)

    def test_score_is_a_log_probability(self) -> None:
        """``score`` returns finite float32[T - 1], at most 0, the same at each call and while requests are in flight."""
        with self.shared() as engine:
            sequence = self.fixed_sequence()
            scores = engine.score(sequence)
            assert scores.shape == (len(sequence) - 1,), f"{len(sequence)} tokens, scores of shape {scores.shape}"
            assert scores.dtype == np.float32, f"scores are {scores.dtype}"
            assert np.isfinite(scores).all(), "scores are not finite"
            assert (scores <= 1e-6).all(), "a log probability above 0"
            engine.submit(self.requests(3))
            early = engine.poll(0.0)
            assert np.allclose(engine.score(sequence), scores, atol=self.tolerance), "scores differ while requests are in flight"
            self.drain(engine, 3 - len(early))

    # --- what these rules use --------------------------------------------------------------------------------------------

    def filled(self, length: int) -> np.ndarray:
        """Return int32[length]: a context of repeated prompts."""
        return np.resize(self.fixed_sequence(), length)

    def assert_stopped(self, engine: InferenceBackend, completion: Completion, string: str, which: str) -> None:
        """Assert that it ended at the stop string, which it writes if draws are alike."""
        tokens = completion.token_ids.tolist()
        if string not in self.decode(tokens):
            self.assert_unstopped(completion, string, which)
            assert not self.draws_alike(engine), f"the same draw wrote {string!r} before and does not now, {which}"
            return
        assert completion.finish is FinishReason.STOP, f"the stop string {string!r}, {which}, was written and finish is {completion.finish}"
        assert string not in self.decode(tokens[:-1]), f"tokens continued after the stop string {string!r}, {which}"

    def assert_unstopped(self, completion: Completion, string: str, which: str) -> None:
        """Assert that STOP ended it, if at all, at a stop token or at the stop string."""
        tokens = completion.token_ids.tolist()
        ended = (
            completion.finish is FinishReason.STOP and (not tokens or tokens[-1] not in self.stop_ids) and string not in self.decode(tokens)
        )
        assert not ended, f"finish is stop, and neither a stop token nor the stop string {string!r}, {which}, is at the end of {tokens}"

    def changed_by_text(self, token_ids: list[int]) -> bool:
        """Return whether decoding and encoding gives other ids."""
        return list(self.encode(self.decode(token_ids))) != token_ids

    def assert_ended(self, completion: Completion, limit: int) -> None:
        """Assert that length and finish agree."""
        tokens = completion.token_ids.tolist()
        stops = [place for place, token in enumerate(tokens) if token in self.stop_ids]
        assert 1 <= len(tokens) <= limit, f"{len(tokens)} tokens where {limit} are the limit"
        if completion.finish is FinishReason.STOP:
            assert stops == [len(tokens) - 1], f"finish is stop, but stop tokens stand at {stops} of {len(tokens)} tokens"
        else:
            assert completion.finish is FinishReason.LENGTH, f"finish is {completion.finish} and nobody cancelled"
            assert len(tokens) == limit, f"finish is length after {len(tokens)} tokens of {limit}"
            assert not stops, f"a stop token at {stops[0]} did not end the completion"
