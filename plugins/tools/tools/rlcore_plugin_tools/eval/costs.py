"""The cost of each answer: calls of the policy, tokens and seconds, measured between a producer and its engine.

An episode that is masked has no tokens that train, but it has a cost; therefore the cost is not read from rollouts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.api import Completion, InferenceBackend, Request
    from rlcore.api.conversations import Conversation, Transcript

__all__ = ["EPISODE_ENDS", "AnswerCost", "CostMeter", "cost_of", "episode_end", "outcomes_of"]

_INDEX = 2**32
"""The last number of a request's noise is the index of its rollout, plus this many times its turn."""

EPISODE_ENDS = ("ok", "exhausted", "timeout", "crashed", "environment", "lost")
"""The ends of an episode, in the order of tables."""

Answer = tuple[int, int, int]
"""The task's and the prompt's number in a noise key, and the index of the rollout."""


@dataclass(slots=True, kw_only=True)
class AnswerCost:
    """The cost of one answer.

    ``calls``: requests to the engine. ``prompt_tokens``: the tokens of their contexts, also those that a cache had. ``sampled_tokens``: all
    sampled tokens, also those that would not train. ``seconds``: from its first request to its end; None if it asked for nothing. They
    include the time in which a request waits for the engine.
    """

    calls: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    seconds: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain data; milliseconds are exact enough."""
        return {**asdict(self), "seconds": None if self.seconds is None else round(self.seconds, 3)}


class CostMeter:
    """Measures the costs of the answers of one producer. ``clock``: seconds, never running backwards."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._costs: dict[Answer, AnswerCost] = {}
        self._begun: dict[Answer, float] = {}
        self._asked: dict[str, Answer] = {}

    def watch(self, engine: InferenceBackend, conversations: Sequence[Conversation]) -> None:
        """Measure from now on. All keep their classes, which error messages name."""
        submit, poll = engine.submit, engine.poll

        def submitted(requests: Sequence[Request]) -> None:
            self._submitted(requests)
            submit(requests)

        def polled(timeout: float) -> list[Completion]:
            found = poll(timeout)
            self._completed(found)
            return found

        def conversed(converse: Callable[..., Any], transcript: Transcript) -> Generator[Any, Any, Any]:
            try:
                return (yield from converse(transcript))
            finally:
                self._ended((transcript.noise[1], transcript.noise[2], transcript.noise[3]))

        for conversation in conversations:
            setattr(conversation, "converse", partial(conversed, conversation.converse))  # noqa: B010 - mypy allows no assignment
        for name, watched in (("submit", submitted), ("poll", polled)):
            setattr(engine, name, watched)

    def take(self, noise: Sequence[int], index: int) -> AnswerCost:
        """Return the cost of an answer that has ended, and forget it. ``noise``: that of its job."""
        answer = noise[1], noise[2], index
        self._begun.pop(answer, None)
        return self._costs.pop(answer, AnswerCost())

    def _submitted(self, requests: Sequence[Request]) -> None:
        for request in requests:
            answer = request.noise[1], request.noise[2], request.noise[3] % _INDEX
            self._asked[request.request_id] = answer
            self._begun.setdefault(answer, self._clock())
            cost = self._costs.setdefault(answer, AnswerCost())
            cost.calls += 1
            cost.prompt_tokens += len(request.token_ids)

    def _completed(self, completions: Iterable[Completion]) -> None:
        for completion in completions:
            answer = self._asked.pop(getattr(completion, "request_id", ""), None)  # the producer refuses what is not a completion
            if answer is not None:
                self._costs.setdefault(answer, AnswerCost()).sampled_tokens += len(completion.token_ids)

    def _ended(self, answer: Answer) -> None:
        if answer in self._begun:
            self._costs[answer].seconds = self._clock() - self._begun[answer]


def cost_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of calls and tokens over the rows of a task, and mean, median and maximum of the seconds of an answer; None without
    one."""
    costs = [row["cost"] for row in rows]
    seconds = [cost["seconds"] for cost in costs if cost["seconds"] is not None]
    sums = {name: sum(cost[name] for cost in costs) for name in ("calls", "prompt_tokens", "sampled_tokens")}
    figures = {"mean": fmean(seconds), "p50": median(seconds), "max": max(seconds)} if seconds else None
    return {**sums, "answer_seconds": figures}


def outcomes_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return numbers of answers: ``outcomes`` by the outcome of their verdict, ``episodes`` by the end of the episode, {} if no environment
    played."""
    verdicts, ends = Counter(row["outcome"] for row in rows), Counter(filter(None, map(episode_end, rows)))
    return {"outcomes": dict(sorted(verdicts.items())), "episodes": {end: ends[end] for end in EPISODE_ENDS if ends[end]}}


def episode_end(row: Mapping[str, Any]) -> str | None:
    """Return how the episode of a row ended; None if no environment played it."""
    figures = row.get("extra", {})
    return next((end for end in EPISODE_ENDS if figures.get(f"episode_{end}")), None)
