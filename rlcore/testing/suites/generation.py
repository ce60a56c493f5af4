"""Rules of answers: each once, right in length, finish and log probabilities."""

from __future__ import annotations

import numpy as np

from rlcore.contracts.specs import InferenceCapabilities
from rlcore.contracts.types import Finish
from rlcore.testing.records import make_request
from rlcore.testing.suites.engine import EngineSuite

__all__ = ["GenerationRules"]


class GenerationRules(EngineSuite):
    """Answers: each once, right in length, finish and log probabilities."""

    def test_capabilities_are_declared(self) -> None:
        """A record, checked before start."""
        engine = self.make()
        assert isinstance(engine.capabilities, InferenceCapabilities), "capabilities must be an InferenceCapabilities"
        engine.close()

    def test_the_spec_declares_the_capabilities_of_the_class(self) -> None:
        """A plan is checked against the spec's, before the class is imported."""
        declared = type(self.make()).capabilities
        assert self.spec is None or self.spec.capabilities == declared, f"the spec has {self.spec}, and the class {declared}"

    def test_every_request_is_answered_once(self) -> None:
        """Also with more prompts than fit into a forward; ids are the ones that were asked."""
        engine = self.make(prompts_per_forward=1)
        requests = self.requests(13, max_new_tokens=5)
        engine.submit(requests[:6])
        engine.submit(requests[6:])
        assert set(self.drain(engine, 13)) == {request.request_id for request in requests}, "other ids than were asked"

    def test_poll_of_an_idle_engine_returns_nothing(self) -> None:
        """[] where nothing is in flight, before the first request and after the last."""
        engine = self.make()
        assert engine.poll(0.0) == []
        self.run(engine, self.requests(2, max_new_tokens=2))
        assert engine.poll(0.0) == []

    def test_length_and_finish(self) -> None:
        """LENGTH at exactly ``max_new_tokens``; STOP exactly where a stop token was sampled, which is kept; nothing after it."""
        engine = self.make()
        for completion in self.run(engine, self.requests(24, max_new_tokens=6)).values():
            tokens = completion.token_ids.tolist()
            stops = [place for place, token in enumerate(tokens) if token in self.stop_ids]
            assert 1 <= len(tokens) <= 6, f"{len(tokens)} tokens where 6 are the limit"
            if completion.finish is Finish.STOP:
                assert stops == [len(tokens) - 1], f"finish is stop, but stop tokens stand at {stops} of {len(tokens)} tokens"
            else:
                assert completion.finish is Finish.LENGTH, f"finish is {completion.finish} and nobody cancelled"
                assert len(tokens) == 6, f"finish is length after {len(tokens)} tokens of 6"
                assert not stops, f"a stop token at {stops[0]} did not end the completion"

    def test_each_request_has_its_own_limit(self) -> None:
        """Sampling belongs to the request, not to the batch."""
        engine = self.make()
        requests = [make_request(f"r{n}", self.prompts()[0], noise=n, max_new_tokens=n + 1) for n in range(6)]
        answers = self.run(engine, requests)
        for n in range(6):
            tokens = len(answers[f"r{n}"].token_ids)
            assert tokens <= n + 1, f"{tokens} tokens where {n + 1} are the limit"

    def test_logprobs_are_those_of_score(self) -> None:
        """At temperature 1, over the full vocabulary, on the weights that served them."""
        engine = self.make()
        requests = self.requests(8, max_new_tokens=12)
        for request, (name, completion) in zip(requests, sorted(self.run(engine, requests).items()), strict=True):
            assert name == request.request_id
            self.assert_scored(engine, request, completion, f"log probabilities of {name}")

    def test_logprobs_are_at_the_sampling_temperature(self) -> None:
        """At temperature 0.5 they are log softmax of logits / 0.5."""
        if not self.vocabulary:
            return
        engine = self.make()
        request = make_request("r0", self.prompts()[0], noise=3, max_new_tokens=1, temperature=0.5)
        completion = self.run(engine, [request])["r0"]
        logits = np.array([engine.score(np.append(request.token_ids, token))[-1] for token in range(self.vocabulary)], np.float64) / 0.5
        expected = logits[completion.token_ids[0]] - np.log(np.exp(logits).sum())
        off = abs(float(completion.logprobs[0]) - expected)
        assert off <= 2 * self.tolerance, f"log probability at temperature 0.5 is off by {off:.2g} nats"

    def test_min_p_cuts_what_is_too_unlikely(self) -> None:
        """If ``capabilities.sampling`` has it: only tokens at least ``min_p`` times as likely as the likeliest are drawn, and
        their log probabilities are over these."""
        engine, cut = self.make(), 0.9
        if not self.vocabulary or "min_p" not in engine.capabilities.sampling:
            return
        prompt = self.prompts()[0]
        scores = np.array([engine.score(np.append(np.array(prompt, np.int32), token))[-1] for token in range(self.vocabulary)], np.float64)
        ratios = np.exp(scores - scores.max())
        margin = np.exp(2 * self.tolerance)
        mass = [np.log(np.exp(scores[ratios >= cut * side]).sum()) for side in (margin, 1 / margin)]
        requests = [make_request(f"r{n}", prompt, noise=n, max_new_tokens=1, min_p=cut) for n in range(16)]
        for name, answer in self.run(engine, requests).items():
            token = answer.token_ids[0]
            assert ratios[token] * margin >= cut, f"{name}: min_p is {cut}, and token {token} is {ratios[token]:.3g} times as likely"
            low, high = (scores[token] - one for one in mass[::-1])
            assert low - 2 * self.tolerance <= answer.logprobs[0] <= high + 2 * self.tolerance, (
                f"{name}: log probability {answer.logprobs[0]:.4g} is not over the tokens that min_p keeps ({low:.4g} to {high:.4g})"
            )

    def test_greedy_takes_the_likeliest_token(self) -> None:
        """Temperature 0: the same answer whatever the noise, and no sampled first token scores above its first."""
        engine = self.make()
        prompt = self.prompts()[0]
        requests = [make_request(f"g{n}", prompt, noise=n, max_new_tokens=6, temperature=0.0) for n in range(3)]
        greedy = self.run(engine, requests)
        first = greedy["g0"].token_ids
        assert all(np.array_equal(answer.token_ids, first) for answer in greedy.values()), "greedy answers to one prompt differ"
        sampled = self.run(engine, [make_request(f"r{n}", prompt, noise=n, max_new_tokens=1) for n in range(16)])
        best = engine.score(np.append(prompt, first[0]))[-1]
        for answer in sampled.values():
            assert engine.score(np.append(prompt, answer.token_ids[0]))[-1] <= best + self.tolerance, (
                "a sampled token is likelier than greedy's"
            )

    def test_stop_strings(self) -> None:
        """A stop string ends the completion with STOP at the token that completes it, which is kept."""
        engine = self.make()
        if not self.decode([0]) and not any(self.decode(prompt) for prompt in self.prompts()):
            return
        free = self.run(engine, self.requests(8))
        name, text = max(((name, self.decode(answer.token_ids.tolist())) for name, answer in free.items()), key=lambda item: len(item[1]))
        string = text[len(text) // 2 :][:2]
        number = int(name[1:])
        prompts = self.prompts()
        request = make_request(name, prompts[number % len(prompts)], noise=number, max_new_tokens=self.long_tokens, stop=(string,))
        stopped = self.run(engine, [request])[name]
        tokens = stopped.token_ids.tolist()
        if string in self.decode(tokens):
            assert stopped.finish is Finish.STOP, f"the stop string {string!r} was written and finish is {stopped.finish}"
            assert string not in self.decode(tokens[:-1]), f"tokens went on after the stop string {string!r}"
        else:
            assert not self.draws_alike(engine), f"the same draw wrote {string!r} before and does not now"

    def test_score_is_a_log_probability(self) -> None:
        """float32[T - 1], finite, at most 0, the same at each call and with requests in flight."""
        engine = self.make()
        sequence = np.array([token for prompt in self.prompts() for token in prompt], np.int32)
        scores = engine.score(sequence)
        assert scores.shape == (len(sequence) - 1,), f"{len(sequence)} tokens, scores of shape {scores.shape}"
        assert scores.dtype == np.float32, f"scores are {scores.dtype}"
        assert np.isfinite(scores).all(), "scores are not finite"
        assert (scores <= 1e-6).all(), "a log probability above 0"
        engine.submit(self.requests(3))
        engine.poll(0.0)
        assert np.allclose(engine.score(sequence), scores, atol=self.tolerance), "scores differ while requests are in flight"
        engine.close()
