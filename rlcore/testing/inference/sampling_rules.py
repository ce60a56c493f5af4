"""Rules of sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from rlcore.contracts.errors import ConfigError
from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.types import Completion, Request, Sampling
from rlcore.testing.inference.engine_suite import EngineSuite, expected
from rlcore.testing.records import make_request

__all__ = ["SamplingRules"]

TEMPERATURES = (0.5, 1.0, 1.3)
ALL_TEMPERATURES = (0.1, *TEMPERATURES, 2.0)
TOP_P, TOP_K, MIN_P = 0.6, 3, 0.5
KEYS = (
    (0, 0, 0, 1),
    (0, 0, 1, 0),
    (0, 1, 0, 0),
    (1, 0, 0, 0),
    (0, 0, 0, 2),
    (0, 0, 1, 1),
    (1, 0, 0, 1),
    (0, 0, 2, 0),
    (0, 0, 0, 1 + 2**32),
    (0, 0, 0, 2**32),
)
"""Noise of neighbours: rollouts, prompts, episodes and turns, and seeds that are one after the other."""
LONG = 8
"""Two draws that agree in so many tokens share a stream."""


class SamplingRules(EngineSuite):
    """Sampling: the distribution, its log probabilities, and the noise."""

    def test_logprobs_are_those_of_score(self) -> None:
        """At temperature 1, log probabilities of an answer are those of ``score`` on the same weights."""
        with self.shared() as engine:
            requests = self.requests(8, max_new_tokens=12)
            for request, (name, completion) in zip(requests, sorted(self.run(engine, requests).items()), strict=True):
                assert name == request.request_id
                self.assert_scored(engine, request, completion, f"log probabilities of {name}")

    def test_score_is_the_trainers_forward_pass(self) -> None:
        """``score`` equals the trainer's forward pass on version 0. Checked if the suite gives ``forward``."""
        sequence = self.fixed_sequence()
        plain = self.forward(0, sequence)
        if plain is None:
            self.skip("the suite has no forward pass of a trainer (forward)")
        with self.shared() as engine:
            rows = self.logprobs(engine, 0, sequence[:1], sequence[1:], 1.0)
            worst = float(np.abs(rows[np.arange(len(rows)), sequence[1:]] - engine.score(sequence)).max())
            assert worst <= self.tolerance, f"score is off by {worst:.2g} nats from the trainer's, {self.tolerance:.2g} is allowed"

    def test_logprobs_are_at_the_sampling_temperature(self) -> None:
        """At temperatures from 0.1 to 2, log probabilities are log softmax of logits / temperature over the full vocabulary."""
        self.check_draws("temperature alone", lambda rows, margin: (len(rows), len(rows)), ALL_TEMPERATURES)

    def test_top_p_keeps_the_likeliest_tokens(self) -> None:
        """With ``top_p``, tokens are drawn from the fewest likeliest ones that hold this mass, and log probabilities are over these."""

        def count(row: np.ndarray, margin: float) -> tuple[int, int]:
            masses = np.exp(row)
            before = np.cumsum(masses) - masses
            return int((before < TOP_P - margin).sum()), int((before < TOP_P + margin).sum())

        self.check_draws(f"top_p {TOP_P}", count, top_p=TOP_P)

    def test_top_k_keeps_the_likeliest_tokens(self) -> None:
        """With ``top_k``, tokens are drawn from the k likeliest ones, and log probabilities are over these."""
        self.check_draws(f"top_k {TOP_K}", lambda row, margin: (TOP_K, TOP_K), top_k=TOP_K)

    def test_top_p_is_of_what_top_k_leaves(self) -> None:
        """With both, ``top_p`` applies to the renormalised distribution that ``top_k`` leaves. With ``cuts_twice = False`` such a request
        is refused."""
        if not self.cuts_twice:
            with self.shared() as engine, expected(ConfigError, "submit took top_k and top_p together, and cuts_twice is False"):
                engine.submit([make_request("both", self.prompts()[0], top_p=TOP_P, top_k=TOP_K)])
            return

        def count(row: np.ndarray, margin: float) -> tuple[int, int]:
            masses = np.exp(row[:TOP_K] - _mass(row[:TOP_K]))
            before = np.cumsum(masses) - masses
            return int((before < TOP_P - 2 * margin).sum()), int((before < TOP_P + 2 * margin).sum())

        self.check_draws(f"top_p {TOP_P} of what top_k {TOP_K} leaves", count, top_p=TOP_P, top_k=TOP_K)

    def test_min_p_cuts_what_is_too_unlikely(self) -> None:
        """With ``min_p``, only tokens at least ``min_p`` times as likely as the likeliest are drawn, and log probabilities are over these.
        Checked if ``capabilities.sampling`` names it."""

        def count(row: np.ndarray, margin: float) -> tuple[int, int]:
            least = row[0] + np.log(MIN_P)
            return int((row >= least + margin).sum()), int((row >= least - margin).sum())

        with self.shared() as engine:
            if "min_p" not in engine.capabilities.sampling:
                self.skip("capabilities.sampling does not name min_p")
        self.check_draws(f"min_p {MIN_P}", count, min_p=MIN_P)

    def test_kept_sets_are_what_was_drawn_from(self) -> None:
        """The kept set of each token holds the token and all that the sampling kept, and the log probability is over the set. Checked if
        ``capabilities.details`` has "kept"."""
        with self.shared() as engine:
            if "kept" not in engine.capabilities.details:
                self.skip("capabilities.details does not name kept")
            requests = [make_request(f"k{n}", self.prompts()[0], noise=n, max_new_tokens=6, top_k=TOP_K) for n in range(6)]
            for request, completion in _paired(requests, self.run(engine, requests)):
                self._check_kept(engine, request, completion)

    def _check_kept(self, engine: InferenceBackend, request: Request, completion: Completion) -> None:
        name, details = request.request_id, completion.details
        if details is None or details.kept_ids is None or details.kept_offsets is None:
            raise AssertionError(f"{name}: no kept ids were told")
        details.check(len(completion.token_ids), name)
        margin = 2 * self.tolerance
        rows = self.logprobs(engine, 0, request.token_ids, completion.token_ids, 1.0)
        for place, row in enumerate(rows):
            told = details.kept_ids[details.kept_offsets[place] : details.kept_offsets[place + 1]]
            must, may = _kept(row, TOP_K, TOP_K, margin)
            token = int(completion.token_ids[place])
            assert token in told, f"{name}: token {token} was drawn, and is not in the set {told.tolist()} that it was drawn from"
            right = set(np.flatnonzero(must)) <= set(told.tolist()) <= set(np.flatnonzero(may))
            assert right, f"{name}: top_k {TOP_K} keeps {np.flatnonzero(may).tolist()}, and the set is told as {told.tolist()}"
            off = abs(float(completion.logprobs[place]) - (row[token] - _mass(row[told])))
            assert off <= margin, f"{name}: a log probability is off by {off:.2g} nats from that over the set that was told"

    def test_greedy_takes_the_likeliest_token(self) -> None:
        """At temperature 0 the likeliest token is taken, whatever noise and cuts are. Its log probability is at temperature 1 over the full
        vocabulary."""
        with self.shared() as engine:
            prompt = self.prompts()[0]
            cuts: list[dict[str, Any]] = [{}, {}, {"top_p": TOP_P, "top_k": TOP_K}]
            requests = [make_request(f"g{n}", prompt, noise=n, max_new_tokens=6, temperature=0.0, **cut) for n, cut in enumerate(cuts)]
            greedy = self.run(engine, requests)
            first = greedy["g0"].token_ids
            assert all(np.array_equal(answer.token_ids, first) for answer in greedy.values()), "greedy answers to one prompt differ"
            self.assert_likeliest(engine, 0, requests[0], greedy["g0"])
            for request, completion in _paired(requests, greedy):
                self.assert_scored(engine, request, completion, f"log probabilities of greedy {request.request_id}, at temperature 1")

    def test_greedy_and_sampled_requests_run_side_by_side(self) -> None:
        """Greedy and sampled requests in one batch do not change each other."""
        with self.shared() as engine:
            prompt = self.prompts()[0]
            sampled = [make_request(f"s{n}", prompt, noise=n, max_new_tokens=8) for n in range(8)]
            greedy = [make_request(f"g{n}", prompt, noise=n, max_new_tokens=8, temperature=0.0) for n in range(2)]
            apart = self.run(engine, sampled)
            beside = self.run(engine, [greedy[0], *sampled, greedy[1]])
            drawn = {tuple(beside[request.request_id].token_ids.tolist()) for request in sampled}
            assert len(drawn) > 1, "beside greedy requests eight samples of one prompt are all the same"
            for name, completion in apart.items():
                same = np.array_equal(completion.token_ids, beside[name].token_ids)
                assert same or not self.draws_alike(engine), f"beside greedy requests {name} draws other tokens"
            for request, completion in _paired(greedy, beside):
                self.assert_likeliest(engine, 0, request, completion, " beside sampled requests")

    def test_noise_repeats(self) -> None:
        """A request that is submitted again alone gets the same tokens. Not checked with ``same_draws = False``."""
        if not self.same_draws:
            self.skip("same_draws is False: rounding may change a draw")
        with self.shared() as engine:
            for request in self.requests(3, max_new_tokens=12):
                first, again = (self.run(engine, [request])[request.request_id].token_ids.tolist() for _ in range(2))
                assert first == again, f"{request.request_id!r}, asked twice with one noise, drew {first} and {again}"

    def test_noise_differs_between_rollouts(self) -> None:
        """Samples of one prompt differ."""
        with self.shared() as engine:
            answers = self.run(engine, [make_request(f"r{n}", self.prompts()[0], noise=n, max_new_tokens=8) for n in range(8)])
            assert len({tuple(answer.token_ids.tolist()) for answer in answers.values()}) > 1, (
                "eight samples of one prompt are all the same"
            )

    def test_no_two_requests_share_a_stream(self) -> None:
        """Requests whose noise differs in seed, episode, prompt, rollout or turn alone draw different tokens on one context."""
        with self.shared() as engine:
            sampling = Sampling(temperature=1.3, max_new_tokens=self.long_tokens)
            context = np.array(self.prompts()[0], np.int32)
            requests = [
                Request(request_id=f"n{number}", token_ids=context, sampling=sampling, noise=noise) for number, noise in enumerate(KEYS)
            ]
            answers = self.run(engine, requests)
            long = {name: answer.token_ids.tolist() for name, answer in answers.items() if len(answer.token_ids) >= LONG}
            assert len(long) >= 4, f"only {len(long)} of {len(KEYS)} samples are of {LONG} tokens or more: too few to compare"
            for one, other in combinations(sorted(long), 2):
                keys = f"noise {KEYS[int(one[1:])]} and {KEYS[int(other[1:])]}"
                assert long[one][:LONG] != long[other][:LONG], f"{keys} draw the same {LONG} tokens behind one context"

    # --- what these rules use --------------------------------------------------------------------------------------------

    def check_draws(
        self,
        what: str,
        count: Callable[[np.ndarray, float], tuple[int, int]],
        temperatures: Sequence[float] = TEMPERATURES,
        **sampling: Any,
    ) -> None:
        """Check samples at each temperature, in one batch: each token may be kept, and its log probability is over the kept ones.

        ``count``: of float64[V] log probabilities, the likeliest first, how many are kept at least and at most if each may be off by a
        margin.
        """
        with self.shared() as engine:
            prompts = self.prompts()
            requests = [
                make_request(f"t{temperature}-{n}", prompts[n % 2], noise=n, max_new_tokens=5, temperature=temperature, **sampling)
                for temperature in temperatures
                for n in range(8)
            ]
            for request, completion in _paired(requests, self.run(engine, requests)):
                temperature = request.sampling.temperature
                margin = 2 * self.tolerance / min(temperature, 1.0)
                label = f"{what} at temperature {temperature}"
                rows = self.logprobs(engine, 0, request.token_ids, completion.token_ids, temperature)
                for row, token, got in zip(rows, completion.token_ids, completion.logprobs, strict=False):
                    must, may = _kept(row, *count(np.sort(row)[::-1], margin), margin)
                    assert may[token], f"{label}: token {token} was drawn, and is not among the {may.sum()} of {len(row)} that are kept"
                    low, high = row[token] - _mass(row[may]) - margin, row[token] - _mass(row[must]) + margin
                    assert low <= got <= high, f"{label}: a log probability is {got:.6g}, over what is kept it is {low + margin:.6g}"


def _paired(requests: list[Request], answers: dict[str, Completion]) -> list[tuple[Request, Completion]]:
    return [(request, answers[request.request_id]) for request in requests]


def _kept(logprobs: np.ndarray, least: int, most: int, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """Return bool[V] each: the tokens that must be kept, and those that may be, if ``least`` to ``most`` of the likeliest are and two log
    probabilities may change places by ``margin``."""
    ordered = np.sort(logprobs)[::-1]
    must = logprobs > ordered[least] + margin if least < len(ordered) else np.ones(len(ordered), bool)
    return must | (logprobs == ordered[0]), logprobs >= ordered[max(most, 1) - 1] - margin


def _mass(logprobs: np.ndarray) -> float:
    return float(np.log(np.exp(logprobs).sum()))
