"""Samplers with one planted bug each."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Mapping
from typing import Any

from rlcore.contracts.sampler import Draw, DrawResult, Sampler, SamplerContext


class InOrder(Sampler):
    """Without a bug."""

    def __init__(self, context: SamplerContext) -> None:
        self.items, self.drawn = context.items or 1000, 0

    def next(self) -> Draw | int:
        self.drawn += 1
        return (self.drawn - 1) % self.items

    def state(self) -> Mapping[str, Any]:
        return {"drawn": self.drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.drawn = state["drawn"]


class ForgetsItsPlace(InOrder):
    def state(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass


class ThrowsDice(InOrder):
    def next(self) -> int:
        return random.randrange(self.items)


class RunsPastTheEnd(InOrder):
    def next(self) -> int:
        self.drawn += 1
        return self.drawn


class RaisesTheLevel(InOrder):
    def next(self) -> Draw:
        return Draw(super().next(), 1)  # type: ignore[arg-type]


class AnswersWithAnId(InOrder):
    def next(self) -> int:
        return f"rows:{super().next()}"  # type: ignore[return-value]


class CountsForAll(InOrder):
    """One count of draws for every instance."""

    count = itertools.count()

    def next(self) -> int:
        return next(self.count) % self.items


class KeepsASet(InOrder):
    def state(self) -> Mapping[str, Any]:
        return {"drawn": self.drawn, "seen": {1, 2}}


class GivesItsOwnList(InOrder):
    """Its state is the list that it goes on to fill."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self.history: list[int] = []

    def next(self) -> int:
        self.history.append(len(self.history) % self.items)
        return self.history[-1]

    def state(self) -> Mapping[str, Any]:
        return {"history": self.history}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.history = list(state["history"])


class HoldsALock(InOrder):
    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self.lock = threading.Lock()


class WaitsForResults(InOrder):
    """Draws the next item when the last result was of the item before: late results let it run behind the first item."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self.open = 0

    def next(self) -> Draw | int:
        self.open += 1
        return super().next() if self.open <= 12 else -1

    def observe(self, result: DrawResult) -> None:
        self.open -= 1

    def state(self) -> Mapping[str, Any]:
        return {"drawn": self.drawn, "open": self.open}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.drawn, self.open = state["drawn"], state["open"]
