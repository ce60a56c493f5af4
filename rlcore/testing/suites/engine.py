"""How the suites for inference backends make and drive an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.specs import InferenceBackendSpec
from rlcore.contracts.transport import WeightTransfer
from rlcore.contracts.types import Completion, Request
from rlcore.testing.records import make_request

__all__ = ["EngineSuite"]


class EngineSuite(ABC):
    """How a suite makes and drives an engine."""

    spec: ClassVar[InferenceBackendSpec | None] = None
    """What the plugin registers, to hold the class against; None leaves that unchecked."""
    stop_ids: ClassVar[frozenset[int]] = frozenset()
    """Tokens that end a completion, as the tokenizer of ``make`` has them."""
    vocabulary: ClassVar[int] = 0
    """V, where it is small enough to score every token (up to some hundreds); 0 leaves the temperature unchecked."""
    inert_tensors: ClassVar[frozenset[str]] = frozenset()
    """Names in the snapshots without influence on any score: the second copy of a tied tensor."""
    long_tokens: ClassVar[int] = 48
    """``max_new_tokens`` of requests that should still run after one poll; some of eight samples must get beyond half of it."""
    tolerance: ClassVar[float] = 1e-4
    """Largest difference of two log probabilities of one token on one set of weights, by dtype."""
    same_draws: ClassVar[bool] = True
    """Whether equal noise gives equal tokens in any batch, for an engine that declares ``counter_noise``. Set False for low precisions,
    where rounding changes with the batch shape."""
    swaps: ClassVar[bool] = False
    """Whether it serves its old weights until an update has ended, also if the update breaks off. Leave it False for an engine that writes
    new weights over the old ones: it serves nothing then until a whole update has landed."""
    cached_prompt: ClassVar[int] = 0
    """So many tokens of a prompt are kept by the engine's prefix cache for the next request; 0 for an engine without one. ``make`` leaves
    room for ``long_tokens`` after them."""
    patience: ClassVar[int] = 400
    """Polls of 0.05 s in a row that may return nothing while requests are open."""

    @abstractmethod
    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        """A fresh engine that serves the weights of ``snapshot(0)`` as version 0, with room for ``long_tokens``."""

    @abstractmethod
    def snapshot(self, version: int) -> Snapshot:
        """Weights of that version, whole; clearly different ones for different versions."""

    @abstractmethod
    def prompts(self) -> list[Sequence[int]]:
        """Three or more different contexts of two or more tokens."""

    def transfer(self) -> WeightTransfer:
        """The transfer that the engine joins, of those in ``capabilities.transfers``; only for an engine that names one beside ``host``."""
        raise NotImplementedError

    def reference(self, version: int, token_ids: np.ndarray) -> np.ndarray | None:
        """float32[T-1]: what ``score`` must give on the weights of ``snapshot(version)``, computed without the engine (a plain forward pass
        of the trainer's model). None leaves unchecked whether the engine computes the model right, a tied head after an update included."""
        return None

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text as the engine's tokenizer gives it; leave it where stop strings are not to be checked."""
        return ""

    def required_tensor(self, snapshot: Snapshot) -> str:
        """A tensor without which the snapshot is not whole (not a tied copy)."""
        return next(name for name in sorted(snapshot.tensors) if "lm_head" not in name)

    def requests(self, count: int = 8, *, start: int = 0, max_new_tokens: int = 0, temperature: float = 1.0) -> list[Request]:
        """Requests over all prompts, ids ``r<n>``, each with its own noise."""
        prompts = self.prompts()
        limit = max_new_tokens or self.long_tokens
        return [
            make_request(f"r{n}", prompts[n % len(prompts)], noise=n, max_new_tokens=limit, temperature=temperature)
            for n in range(start, start + count)
        ]

    def draws_alike(self, engine: InferenceBackend) -> bool:
        """Whether two batches around one request must give it the same tokens."""
        return self.same_draws and engine.capabilities.counter_noise

    def drain(self, engine: InferenceBackend, wanted: int) -> dict[str, Completion]:
        """Poll until ``wanted`` completions came, in the order of arrival; AssertionError for a repeated or a missing one."""
        answers: dict[str, Completion] = {}
        quiet = 0
        while len(answers) < wanted:
            finished = engine.poll(0.05)
            quiet = 0 if finished else quiet + 1
            assert quiet < self.patience, f"{wanted - len(answers)} of {wanted} requests were never answered"
            for completion in finished:
                assert completion.request_id not in answers, f"request {completion.request_id!r} was answered twice"
                answers[completion.request_id] = completion
        assert not engine.poll(0.0), "more completions than requests"
        return answers

    def run(self, engine: InferenceBackend, requests: Sequence[Request]) -> dict[str, Completion]:
        """Submit and drain."""
        engine.submit(requests)
        return self.drain(engine, len(requests))

    def assert_scored(self, engine: InferenceBackend, request: Request, completion: Completion, message: str) -> None:
        """The completion's log probabilities are those that the engine's ``score`` gives on its weights."""
        sequence = np.concatenate([request.token_ids, completion.token_ids])
        expected = engine.score(sequence)[len(request.token_ids) - 1 :]
        worst = float(np.abs(expected - completion.logprobs).max(initial=0.0))
        assert worst <= self.tolerance, f"{message}: off by {worst:.2g} nats, {self.tolerance:.2g} is allowed"
