"""The base of the rules for inference backends: it makes, lends and drives engines.

An engine may take seconds to start, so rules share what they can: ``shared`` lends the engine that no rule updates, ``updatable`` the one
that rules update, ``fresh`` makes one. A rule that fails takes its engine with it, so the next rule begins with a good one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn
from unittest import SkipTest

import numpy as np

from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.specs import InferenceBackendSpec
from rlcore.contracts.types import Completion, Request
from rlcore.contracts.weight_transfer import WeightTransfer
from rlcore.roles.engine_update import update_engine
from rlcore.testing.policy import log_softmax
from rlcore.testing.records import make_request
from rlcore.testing.time_limit import within

__all__ = ["EngineSuite", "expected"]

_PATIENCE = 5
"""Deadlines of one call within which an engine starts, and a rule ends."""
_NEXT = 100
"""From the version that a rule begins with to that of the next rule on the same engine; no rule uses so many."""


@contextmanager
def expected(kind: type[Exception], otherwise: str) -> Iterator[list[Exception]]:
    """Raise AssertionError with the words ``otherwise`` unless an error of this kind is raised inside; the list holds it then."""
    seen: list[Exception] = []
    try:
        yield seen
    except kind as error:
        seen.append(error)
        return
    raise AssertionError(otherwise)


@dataclass
class _LentEngine:
    """An engine between two rules. ``version``: the version that it served when a rule took it last. ``suite`` made it, and may hold its
    files."""

    suite: EngineSuite
    engine: InferenceBackend
    version: int = 0
    taken: bool = False


class EngineSuite(ABC):
    """Make and drive an engine for the suites of inference backends."""

    _kept_engines: ClassVar[dict[Any, _LentEngine]]
    lacks: ClassVar[Mapping[str, str]] = {}
    """Rules that the engine does not keep, by name, each with the reason: they are skipped with it. Capabilities need no entry here."""
    spec: ClassVar[InferenceBackendSpec | None] = None
    """The spec that the plugin registers, to compare with the class; None leaves that unchecked."""
    stop_ids: ClassVar[frozenset[int]] = frozenset()
    """Tokens that end a completion, as the tokenizer of ``make`` has them."""
    vocabulary: ClassVar[int] = 0
    """V, if it is small enough to score every token (up to some hundreds); 0 leaves the temperature unchecked."""
    inert_tensors: ClassVar[frozenset[str]] = frozenset()
    """Names in the snapshots without influence on any score: the second copy of a tied tensor."""
    long_tokens: ClassVar[int] = 48
    """``max_new_tokens`` of requests that should still run after one poll; some of eight samples must get beyond half of it."""
    tolerance: ClassVar[float] = 1e-4
    """Largest difference of two log probabilities of one token on one set of weights, by dtype; at temperature T it is divided by T."""
    tolerance_reason: ClassVar[str] = ""
    """Why the tolerance is larger than 1e-4, with the largest difference that was seen."""
    same_draws: ClassVar[bool] = True
    """Whether equal noise gives equal tokens in any batch, for an engine that declares ``counter_noise``. Set False for low precisions, if
    rounding changes with the batch shape."""
    cuts_twice: ClassVar[bool] = True
    """Whether ``top_p`` applies to the tokens that ``top_k`` leaves. Set False if ``submit`` refuses the two together (ConfigError)."""
    swaps: ClassVar[bool] = False
    """Whether it serves its old weights until an update has ended, also if the update breaks off. Leave it False for an engine that writes
    new weights over the old ones: it serves nothing then until a whole update has landed."""
    patience: ClassVar[int] = 400
    """Polls of 0.05 s in a row that may return nothing while requests are open."""
    deadline: ClassVar[float] = 60.0
    """Seconds within which each call of the engine comes back; a start, and a whole rule, may take five times as long."""
    closing_seconds: ClassVar[float] = 10.0
    """Seconds after ``close`` within which its processes have ended."""
    max_tokens: ClassVar[int] = 0
    """``max_tokens`` of the context that ``make`` gives: the bound of prompt and answer together; 0 leaves the bound unchecked."""
    cached_prompt: ClassVar[int] = 40
    """Length of a prompt that the engine keeps in its prefix cache: two of its blocks or more. ``make`` leaves room for 8 tokens more."""

    @abstractmethod
    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        """Return a fresh engine that serves the weights of ``snapshot(0)`` as version 0, with room for ``long_tokens``. The suite closes
        it, maybe after other rules, so no ``teardown_method`` may."""

    @abstractmethod
    def snapshot(self, version: int) -> Snapshot:
        """Return weights of that version, whole; clearly different ones for different versions."""

    @abstractmethod
    def prompts(self) -> list[Sequence[int]]:
        """Return three or more different contexts of two or more tokens."""

    def transfer(self) -> WeightTransfer:
        """Return the transfer that the engine joins, of those in ``capabilities.transfers``; only for an engine that names one beside
        ``host``."""
        raise NotImplementedError

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return text as the engine's tokenizer gives it. Without this method, stop strings are not checked."""
        return ""

    def encode(self, text: str) -> Sequence[int]:
        """Return token ids as the engine's tokenizer gives them. Without this method, re-tokenised text is not looked for."""
        return []

    def forward(self, version: int, token_ids: np.ndarray) -> np.ndarray | None:
        """Return float[T, V]: the logits of int32[T] by the plain forward pass of a trainer, on the weights of ``snapshot(version)``. Omit
        it if you have no trainer: rules then use the engine's own ``score``, and miss mistakes that both share."""
        return None

    def required_tensor(self, snapshot: Snapshot) -> str:
        """Return a tensor without which the snapshot is not whole (not a tied copy)."""
        return next(name for name in sorted(snapshot.tensors) if "lm_head" not in name)

    def requests(self, count: int = 8, *, start: int = 0, max_new_tokens: int = 0, temperature: float = 1.0) -> list[Request]:
        """Return requests over all prompts, ids ``r<n>``, each with its own noise."""
        prompts = self.prompts()
        limit = max_new_tokens or self.long_tokens
        return [
            make_request(f"r{n}", prompts[n % len(prompts)], noise=n, max_new_tokens=limit, temperature=temperature)
            for n in range(start, start + count)
        ]

    # --- engines ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def shared(self, prompts_per_forward: int = 8) -> Iterator[InferenceBackend]:
        """Lend the engine of all rules that change no weights, of version 0, idle before and after."""
        with self._lent(prompts_per_forward) as kept:
            yield kept.engine

    @contextmanager
    def updatable(self) -> Iterator[tuple[InferenceBackend, int]]:
        """Lend the engine of rules that change its weights, idle before and after, and the version that it serves: the weights of
        ``snapshot(0)``."""
        with self._lent("updatable", 8) as kept:
            if kept.taken:
                kept.version += _NEXT
                self.update(kept.engine, 0, kept.version)
            kept.taken = True
            yield kept.engine, kept.version

    @contextmanager
    def fresh(self) -> Iterator[InferenceBackend]:
        """Lend a new engine, which is closed afterwards."""
        engine = self._made(8)
        try:
            with within(_PATIENCE * self.deadline, "the rule"):
                yield engine
        finally:
            with within(self.deadline, "close"):
                engine.close()

    @classmethod
    def teardown_class(cls) -> None:
        """Close the engines that rules shared; pytest calls it."""
        shelf = cls._shelf()
        while shelf:
            shelf.popitem()[1].engine.close()

    @contextmanager
    def _lent(self, key: Any, prompts_per_forward: int | None = None) -> Iterator[_LentEngine]:
        shelf = self._shelf()
        kept = shelf.pop(key, None) or _LentEngine(self, self._made(prompts_per_forward or key))
        try:
            with within(_PATIENCE * self.deadline, "the rule"):
                yield kept
        except SkipTest:
            shelf[key] = kept
            raise
        except BaseException:
            with suppress(Exception), within(self.deadline, "close"):  # what the rule found is told, not what comes of it
                kept.engine.close()
            raise
        shelf[key] = kept

    @classmethod
    def _shelf(cls) -> dict[Any, _LentEngine]:
        if "_kept_engines" not in vars(cls):
            cls._kept_engines = {}
        return cls._kept_engines

    def _made(self, prompts_per_forward: int) -> InferenceBackend:
        with within(_PATIENCE * self.deadline, "making an engine"):
            return self.make(prompts_per_forward)

    # --- what rules use --------------------------------------------------------------------------------------------------

    def setup_method(self, method: Callable[..., object] | None = None) -> None:
        """Skip a rule that the engine lacks; pytest calls it."""
        if (reason := self.lacks.get(getattr(method, "__name__", ""))) is not None:
            self.skip(reason)

    def skip(self, reason: str) -> NoReturn:
        """Skip the rule for this reason."""
        raise SkipTest(reason)

    def fixed_sequence(self) -> np.ndarray:
        """Return int32[T]: all prompts, one after the other."""
        return np.array([token for prompt in self.prompts() for token in prompt], np.int32)

    def require_decode(self) -> None:
        """Skip a rule of text if the suite has no ``decode``."""
        if not any(self.decode([token]) for token in range(max(self.vocabulary, 256))):
            self.skip("the suite does not decode")

    def update(self, engine: InferenceBackend, number: int, version: int) -> int:
        """Give it the weights of ``snapshot(number)`` as this version; the version that it says it serves."""
        with within(self.deadline, "an update"):
            return update_engine(engine, replace(self.snapshot(number), version=version))

    def logprobs(self, engine: InferenceBackend, number: int, context: np.ndarray, tokens: np.ndarray, temperature: float) -> np.ndarray:
        """Return float64[n, V]: the untruncated distributions of the first ``n`` tokens behind the context. All are by the trainer's
        forward pass on ``snapshot(number)``, or the first one is by the ``score`` of an engine that serves it. Skip the rule if there is
        neither."""
        sequence, start = np.concatenate([context, tokens]).astype(np.int32), len(context) - 1
        plain = self.forward(number, sequence)
        if plain is not None:
            return log_softmax(np.asarray(plain, np.float64)[start:-1] / temperature)
        if not self.vocabulary:
            self.skip("the suite has no forward pass of a trainer (forward), and no vocabulary to score every token of")
        known: dict[tuple[int, bytes], np.ndarray] = vars(self).setdefault("_scores", {})
        key = (number, context.tobytes())
        if key not in known:
            scores = [engine.score(np.append(context, token).astype(np.int32))[-1] for token in range(self.vocabulary)]
            known[key] = np.array([scores], np.float64)
        return log_softmax(known[key] / temperature)

    def draws_alike(self, engine: InferenceBackend) -> bool:
        """Return whether two batches around one request must give it the same tokens."""
        return self.same_draws and engine.capabilities.counter_noise

    def drain(self, engine: InferenceBackend, wanted: int) -> dict[str, Completion]:
        """Poll until ``wanted`` completions came, in the order of arrival; AssertionError for a repeated or a missing one."""
        answers: dict[str, Completion] = {}
        quiet = 0
        while len(answers) < wanted:
            with within(self.deadline, "poll"):
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

    def assert_likeliest(self, engine: InferenceBackend, number: int, request: Request, completion: Completion, when: str = "") -> None:
        """Assert that each token of a greedy completion is the likeliest one on ``snapshot(number)``, which the engine serves. Without a
        forward pass of a trainer, assert that its first token is at least as likely as those that the engine samples."""
        context, tokens = request.token_ids, completion.token_ids
        plain = self.forward(number, np.concatenate([context, tokens]).astype(np.int32))
        if plain is not None:
            rows = np.asarray(plain, np.float64)[len(context) - 1 : -1]
            lost = rows.max(axis=1) - rows[np.arange(len(rows)), tokens]
            bound = 2 * self.tolerance
            assert lost.max() <= bound, f"greedy's token {int(lost.argmax())} is {lost.max():.2g} nats below the likeliest{when}"
            return
        sampled = self.run(engine, [make_request(f"r{n}", context, noise=n, max_new_tokens=1) for n in range(16)])
        best = engine.score(np.append(context, tokens[0]))[-1] + self.tolerance
        for answer in sampled.values():
            likelier = engine.score(np.append(context, answer.token_ids[0]))[-1] > best
            assert not likelier, f"a sampled token is likelier than greedy's{when}"

    def assert_trained(self, number: int, request: Request, completion: Completion, message: str) -> None:
        """Assert that the completion's log probabilities, at temperature 1, are those of the trainer on ``snapshot(number)``, if the
        subclass gives one."""
        plain = self.forward(number, np.concatenate([request.token_ids, completion.token_ids]).astype(np.int32))
        if plain is not None:
            rows = log_softmax(np.asarray(plain, np.float64)[len(request.token_ids) - 1 : -1])
            worst = float(np.abs(rows[np.arange(len(rows)), completion.token_ids] - completion.logprobs).max(initial=0.0))
            assert worst <= self.tolerance, f"{message}: off by {worst:.2g} nats from the trainer's, {self.tolerance:.2g} is allowed"

    def assert_scored(self, engine: InferenceBackend, request: Request, completion: Completion, message: str) -> None:
        """Assert that the completion's log probabilities are those that the engine's ``score`` gives on its weights."""
        sequence = np.concatenate([request.token_ids, completion.token_ids])
        expected = engine.score(sequence)[len(request.token_ids) - 1 :]
        worst = float(np.abs(expected - completion.logprobs).max(initial=0.0))
        assert worst <= self.tolerance, f"{message}: off by {worst:.2g} nats, {self.tolerance:.2g} is allowed"
