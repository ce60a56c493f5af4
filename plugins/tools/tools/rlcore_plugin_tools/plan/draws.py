"""Random numbers of a simulation: independent streams by purpose, drawn in blocks, a function of the seed alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlcore.testing import Lengths
from rlcore_plugin_tools.plan.scenario import Scenario
from rlcore_plugin_tools.plan.workload_model import SimulatedSource

__all__ = ["Draws"]

_BLOCK = 4096


class _Stream:
    """A stream of numbers from one distribution."""

    __slots__ = ("_block", "_draw", "_next")

    def __init__(self, draw: Callable[[int], np.ndarray]) -> None:
        self._draw = draw
        self._block: list[float] = []
        self._next = 0

    def take(self, count: int) -> list[float]:
        """Return the next ``count`` numbers."""
        while len(self._block) - self._next < count:
            self._block = self._block[self._next :] + self._draw(_BLOCK).tolist()
            self._next = 0
        taken = self._block[self._next : self._next + count]
        self._next += count
        return taken

    def one(self) -> float:
        """Return the next number."""
        return self.take(1)[0]


class _SourceDraws:
    """The streams of one source."""

    __slots__ = ("accuracy", "filtered", "passing", "prompts", "responses", "size", "verdicts")

    def __init__(self, source: SimulatedSource, verdicts: Lengths | None, seeds: Sequence[np.random.SeedSequence]) -> None:
        prompts, responses, judged, _, passing = map(np.random.default_rng, seeds)
        self.size, self.filtered, self.accuracy = source.num_generations, source.filtered, source.accuracy
        self.prompts = _Stream(_from(source.prompts, prompts))
        self.responses = _Stream(_from(source.responses, responses))
        self.verdicts = None if verdicts is None else _Stream(_from(verdicts, judged))
        self.passing = _Stream(passing.random)


class Draws:
    """The random draws of a scenario: lengths in tokens, times in seconds. ``source``: the number of a source."""

    def __init__(self, scenario: Scenario) -> None:
        parts, rewards = scenario.workload.parts, scenario.workload.rewards
        seeds = np.random.SeedSequence(scenario.seed).spawn(5 * len(parts))
        self._of = [
            _SourceDraws(part, rewards.seconds(part.reward_seconds), seeds[5 * number : 5 * number + 5])
            for number, part in enumerate(parts)
        ]
        self._failing = np.random.default_rng(seeds[3])

    def prompt(self, source: int = 0) -> float:
        """Return the tokens of a prompt."""
        return self._of[source].prompts.one()

    def responses(self, source: int = 0) -> list[float]:
        """Return the tokens of each response of a group."""
        return self._of[source].responses.take(self._of[source].size)

    def verdicts(self, source: int = 0) -> list[float]:
        """Return the seconds to judge each response of a group; empty if judging takes no time."""
        own = self._of[source]
        return own.verdicts.take(own.size) if own.verdicts is not None else []

    def accuracy(self, source: int = 0) -> float:
        """Return the accuracy of a group: that of its source, or 0 or 1 if the filter removes the group. Its mean is that of the source."""
        own = self._of[source]
        chance = own.passing.one() if own.filtered else 1.0
        if chance >= own.filtered:
            return own.accuracy
        return 1.0 if chance < own.filtered * own.accuracy else 0.0

    def until_failure(self, mean: float) -> float:
        """Return the seconds until a producer fails."""
        return float(self._failing.exponential(mean))


def _from(lengths: Lengths, generator: np.random.Generator) -> Callable[[int], np.ndarray]:
    return lambda count: lengths.draw(generator, count)
