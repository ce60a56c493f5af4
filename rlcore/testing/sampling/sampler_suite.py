"""Conformance suite for samplers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from operator import index
from typing import Any, ClassVar

import cloudpickle

from rlcore.contracts.sampler import Draw, DrawResult, Sampler, SamplerContext

__all__ = ["SamplerSuite"]


class SamplerSuite(ABC):
    """The rules of a sampler. A subclass defines how to make it, the items that it draws from, and how its draws end."""

    updates: ClassVar[int] = 12
    draws_per_update: ClassVar[int] = 6

    @abstractmethod
    def make(self, context: SamplerContext) -> Sampler:
        """Return a fresh sampler."""

    def context(self) -> SamplerContext:
        """Return what it draws from: by default ten prompts with a column ``difficulty``."""
        rows = [{"difficulty": (7 * number) % 10, "gt_answer": str(number)} for number in range(10)]
        return SamplerContext(items=10, ids=[f"rows:{number}" for number in range(1, 11)], weights=(0.1,) * 10, seed=5, rows=lambda: rows)

    def accuracy(self, draw: Draw, number: int) -> float | None:
        """Return the mean accuracy of draw ``number``, None if its group failed. By default it depends on the item and rises slowly."""
        return None if number % 11 == 10 else min(1.0, (draw.item % 5) / 4 + draw.level / 4 + number / 200)

    def test_draws_are_of_the_items(self) -> None:
        """Each draw is a whole number or a ``Draw``, of an item and a level that the context has, however late results are."""
        for lag in (0, 2):
            self._all_draws(self.make(self.context()), lag=lag)

    def test_the_same_run_has_the_same_draws(self) -> None:
        """Two samplers that see the same results draw the same. They use no clock, only the seed's random numbers, and share nothing."""
        first, second = self._all_draws(self.make(self.context())), self._all_draws(self.make(self.context()))
        assert first == second, f"the first run drew {first}, the same run again {second}"

    def test_a_resumed_run_draws_the_same(self) -> None:
        """A sampler that continues from the state after any update, as JSON, draws as the one that was not interrupted."""
        whole, walked = self._all_draws(self.make(self.context())), self.make(self.context())
        for done, _ in enumerate(self._walk(walked), start=1):
            try:
                state = json.loads(json.dumps(dict(walked.state())))
            except (TypeError, ValueError) as error:
                raise AssertionError(f"the state after update {done} is not of JSON values: {error}") from None
            resumed = self.make(self.context())
            resumed.restore(state)
            rest = [draw for drawn in self._walk(resumed, done) for draw in drawn]
            assert rest == whole[done * self.draws_per_update :], f"resumed after update {done} it drew {rest}, and {whole} in all"

    def test_a_state_is_of_its_moment(self) -> None:
        """A state does not change when the sampler draws on: a checkpoint may be written later."""
        walked = self.make(self.context())
        for _ in self._walk(walked):
            state = walked.state()
            before = json.dumps(dict(state))
            break
        self._all_draws(walked)
        assert json.dumps(dict(state)) == before, f"the state was {before}, and later draws made it {json.dumps(dict(state))}"

    def test_it_can_be_sent_to_another_process(self) -> None:
        """The sampler pickles: it is made in one process and may draw in another."""
        try:
            sent = cloudpickle.loads(cloudpickle.dumps(self.make(self.context())))
        except Exception as error:
            raise AssertionError(f"it cannot be pickled: {type(error).__name__}: {error}") from error
        assert self._all_draws(sent) == self._all_draws(self.make(self.context())), "the pickled sampler draws otherwise"

    def _all_draws(self, sampler: Sampler, lag: int = 0) -> list[Draw]:
        return [draw for drawn in self._walk(sampler, lag=lag) for draw in drawn]

    def _walk(self, sampler: Sampler, done: int = 0, lag: int = 0) -> Iterator[list[Draw]]:
        """Yield the draws of each update after the first ``done``. The sampler then has seen their results, or those of ``lag`` updates
        before."""
        unseen: deque[list[DrawResult]] = deque()
        for update in range(done, self.updates):
            first = update * self.draws_per_update
            drawn = [self._checked(sampler.next()) for _ in range(self.draws_per_update)]
            unseen.append([self._result(draw, first + place, update + 1 + lag) for place, draw in enumerate(drawn)])
            for result in unseen.popleft() if len(unseen) > lag else ():
                sampler.observe(result)
            yield drawn

    def _checked(self, drawn: Any) -> Draw:
        context = self.context()
        try:
            item, level = map(index, drawn if isinstance(drawn, tuple) else (drawn, 0))
        except (TypeError, ValueError):
            raise AssertionError(f"next returned {drawn!r}, a whole number or a Draw is due") from None
        assert item in range(item + 1 if context.items is None else context.items), f"it drew item {item} of {context.items}"
        assert 0 <= level < context.levels, f"it drew level {level} of {context.levels}"
        return Draw(item, level)

    def _result(self, draw: Draw, number: int, version: int) -> DrawResult:
        accuracy = self.accuracy(draw, number)
        ended = "failed" if accuracy is None else "filtered" if accuracy in (0.0, 1.0) else "trained"
        return DrawResult(item=draw.item, level=draw.level, ended=ended, accuracy=accuracy, reward=accuracy, version=version)  # type: ignore[arg-type]
