"""Engines with one planted bug each in which request a rule of sampling or stopping is for, and in what they take, cut and remember."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from zoo_engines import TOKENIZER, Retells, arrays

from rlcore.contracts.types import Completion, FinishReason, Request, Sampling
from rlcore.testing import FakeInference, FakePolicy
from rlcore.testing.inference.fake_sampling import draw, kept_tokens


class TakesBusyIds(FakeInference):
    """Looks for an id among those of the call alone."""

    def submit(self, requests: Sequence[Request]) -> None:
        running, waiting = self._running, self._waiting
        self._running, self._waiting = {}, deque()
        try:
            super().submit(requests)
            waiting.extend(self._waiting)
        finally:
            self._running, self._waiting = running, waiting


class TakesTheLastOfTwo(FakeInference):
    """A call that names an id twice has changed its mind, it thinks."""

    def submit(self, requests: Sequence[Request]) -> None:
        super().submit(list({request.request_id: request for request in requests}.values()))


class LooksForOther(FakeInference):
    """No bug: the base of those that look for other stop strings than they are asked for."""

    def _ended(self, running: Any) -> FinishReason | None:
        request = running.request
        running.request = replace(request, sampling=replace(request.sampling, stop=self.looked_for(request.sampling.stop)))
        ended = super()._ended(running)
        running.request = request
        return ended

    def looked_for(self, stop: tuple[str, ...]) -> tuple[str, ...]:
        return stop


class LooksForTheFirst(LooksForOther):
    """Of several stop strings."""

    def looked_for(self, stop: tuple[str, ...]) -> tuple[str, ...]:
        return stop[:1]


class LooksForTheNewest(LooksForOther):
    """The stop strings of the last submit stand for all that runs."""

    newest: tuple[str, ...] = ()

    def submit(self, requests: Sequence[Request]) -> None:
        super().submit(requests)
        for request in requests:
            self.newest = request.sampling.stop

    def looked_for(self, stop: tuple[str, ...]) -> tuple[str, ...]:
        return self.newest


class LooksForAll(LooksForOther):
    """The stop strings of everything that runs are one set."""

    def looked_for(self, stop: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text for running in self._running.values() for text in running.request.sampling.stop) + stop


class LooksIntoTheContext(FakeInference):
    """For stop strings."""

    def _ended(self, running: Any) -> FinishReason | None:
        request = running.request
        running.request = replace(request, continued=len(request.token_ids))
        ended = super()._ended(running)
        running.request = request
        return ended


class StopsBehindAStop(FakeInference):
    """A sequence that has a stop token is at its end."""

    def _admit(self) -> None:
        super()._admit()
        for name, running in list(self._running.items()):
            if TOKENIZER.stop_ids & set(running.request.token_ids.tolist()):
                self._finished.append(self._running.pop(name).completion(FinishReason.STOP))


class CutsTopPByTheWhole(FakeInference):
    """``top_p`` is of the whole vocabulary, also where ``top_k`` has cut it."""

    def _step(self) -> None:
        with patch("rlcore.testing.inference.fake_inference.draw", drawn_by_the_whole):
            super()._step()


def drawn_by_the_whole(logits: np.ndarray, sampling: Sampling, uniform: float) -> tuple[int, float]:
    if not (sampling.temperature and sampling.top_k) or sampling.top_p == 1.0:
        return draw(logits, sampling, uniform)
    kept = [kept_tokens(logits, replace(sampling, **whole)) for whole in ({"top_p": 1.0}, {"top_k": 0})]
    left = np.full(len(logits), -np.inf)
    both = np.intersect1d(*kept)
    left[both] = logits[both]
    return draw(left, replace(sampling, top_p=1.0, top_k=0), uniform)


class HoldsItsTemperature(FakeInference):
    """Between 0.3 and 1.5, without a word."""

    def _start(self, request: Request) -> Any:
        held = min(max(request.sampling.temperature, 0.3), 1.5) if request.sampling.temperature else 0.0
        return super()._start(replace(request, sampling=replace(request.sampling, temperature=held)))


class GreedyForAll(FakeInference):
    """One greedy request makes the whole batch greedy."""

    def _step(self) -> None:
        greedy = any(running.request.sampling.temperature == 0 for running in self._running.values())
        with patch("rlcore.testing.inference.fake_inference.draw", drawn_greedily if greedy else draw):
            super()._step()


def drawn_greedily(logits: np.ndarray, sampling: Sampling, uniform: float) -> tuple[int, float]:
    return draw(logits, replace(sampling, temperature=0.0), uniform)


class SureOfItsGreed(Retells):
    """A token that was not drawn has log probability 0."""

    def told(self, request: Request, answer: Completion) -> Completion:
        return answer if request.sampling.temperature else replace(answer, logprobs=0 * answer.logprobs)


class CancelsOneByOne(FakeInference):
    """Each time that a request is named."""

    def cancel(self, request_ids: Iterable[str]) -> None:
        for name in [name for name in request_ids if name in self._running]:
            self._finished.append(self._running[name].completion(FinishReason.ABORTED))
        answered = {answer.request_id for answer in self._finished}
        self._running = {name: running for name, running in self._running.items() if name not in answered}


class RemembersItsGreed(FakeInference):
    """What is greedy goes on with the weights that its context was answered with first."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.answered: dict[bytes, FakePolicy] = {}

    def _start(self, request: Request) -> Any:
        running = super()._start(request)
        if not request.sampling.temperature:
            running.policy = self.answered.setdefault(request.token_ids.tobytes(), running.policy)
        return running


class MakesNumbers(FakeInference):
    """What is not a number is 0."""

    def finish_update(self) -> int:
        version = super().finish_update()
        self._policy = FakePolicy(*map(np.nan_to_num, arrays(self._policy)))
        return version
