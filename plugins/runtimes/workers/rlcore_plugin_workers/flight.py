"""How many prompts a producer has in flight: as many as keep its engine busy, because an episode that waits asks for no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from rlcore.api.runtime import RunConfig

__all__ = ["FlightControl", "flight_control", "prompts_wanted"]

_HEADROOM = 1.25
"""Requests per slot of the engine. The number of requests varies, and a slot that is free must find one."""
_KEPT = 0.9
"""The weight of earlier observations after one more group has ended."""


def prompts_wanted(slots: int, prompts: float, requests: float) -> float:
    """Return how many prompts in flight fill the slots of an engine, if ``prompts`` of them have ``requests`` open on average."""
    return _HEADROOM * slots * prompts / requests if requests else float("inf")


@dataclass(slots=True)
class FlightControl:
    """Chooses the number of prompts in flight of one producer, between ``least`` and ``most``.

    It compares two integrals over time, of the prompts in flight and of the requests in the engine. If requests queue in the engine, the
    number falls; if slots are free, it rises. Until a group has ended, little is known, and it is ``least``.

    ``slots``: the requests that the engine runs at the same time.
    """

    slots: int
    least: int
    most: int
    _prompts: float = field(default=0.0, init=False)
    _requests: float = field(default=0.0, init=False)
    _known: bool = field(default=False, init=False)

    def saw(self, seconds: float, prompts: int, requests: int) -> None:
        """Note the prompts in flight, and their requests in the engine, for this long."""
        self._prompts += seconds * prompts
        self._requests += seconds * requests

    def ended(self, groups: int) -> None:
        """Note that groups have ended. Earlier observations count less from now on."""
        self._known = self._known or groups > 0
        self._prompts *= _KEPT**groups
        self._requests *= _KEPT**groups

    @property
    def limit(self) -> int:
        """The most prompts that should be in flight now."""
        if not self._known or self.most <= self.least:
            return self.least
        return max(self.least, ceil(min(prompts_wanted(self.slots, self._prompts, self._requests), self.most)))


def flight_control(config: RunConfig, samplings: Sequence[Any] = ()) -> FlightControl:
    """Return the control of a run's settings, all of which are resolved. At staleness 0, the number never changes.

    :param samplings: the settings ``sampling`` of each source of the run; (): those of ``config``."""
    inference, largest = config.inference, max(one.num_generations + one.oversampling for one in samplings or [config.sampling])
    least = int(inference.inference_batch_size)
    slots = int(inference.inference_microbatch_size) * largest
    return FlightControl(slots, least, least if config.schedule.alternating else max(least, int(inference.max_in_flight)))
