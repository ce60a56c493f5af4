"""Random numbers of a simulation: independent streams by purpose, drawn in blocks, a function of the seed alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlcore.testing import Lengths
from rlcore_plugin_tools.plan.scenario import Scenario

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


class Draws:
    """The random draws of a scenario: lengths in tokens, times in seconds."""

    def __init__(self, scenario: Scenario) -> None:
        group, verdicts = scenario.workload.group, scenario.workload.rewards.seconds
        seeds = np.random.SeedSequence(scenario.seed).spawn(5)
        prompts, responses, judged, failing, passing = (np.random.default_rng(seed) for seed in seeds)
        self._size = group.num_generations
        self._filtered = group.filtered
        self._prompts = _Stream(_from(group.prompts, prompts))
        self._responses = _Stream(_from(group.responses, responses))
        self._verdicts = None if verdicts is None else _Stream(_from(verdicts, judged))
        self._failing = failing
        self._passing = _Stream(passing.random)

    def prompt(self) -> float:
        """Return the tokens of a prompt."""
        return self._prompts.one()

    def responses(self) -> list[float]:
        """Return the tokens of each response of a group."""
        return self._responses.take(self._size)

    def verdicts(self) -> list[float]:
        """Return the seconds to judge each response of a group; empty if judging takes no time."""
        return self._verdicts.take(self._size) if self._verdicts is not None else []

    def accuracy(self) -> float:
        """Return 0 if the filter removes the group, otherwise 0.5."""
        return 0.0 if self._filtered and self._passing.one() < self._filtered else 0.5

    def until_failure(self, mean: float) -> float:
        """Return the seconds until a producer fails."""
        return float(self._failing.exponential(mean))


def _from(lengths: Lengths, generator: np.random.Generator) -> Callable[[int], np.ndarray]:
    return lambda count: lengths.draw(generator, count)
