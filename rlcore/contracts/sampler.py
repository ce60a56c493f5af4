"""Samplers: plugins that decide which prompt is issued next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from rlcore.contracts.public_members import PublicMembers

__all__ = ["Draw", "DrawResult", "Sampler", "SamplerContext"]


class Draw(NamedTuple):
    """What a sampler issues: an item, and the difficulty at which an endless source makes it."""

    item: int
    level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawResult(metaclass=PublicMembers):
    """The end of one issue of an item.

    ``item``, ``level``: as drawn. ``ended``: whether its group trained, was filtered, or failed. ``accuracy``: the mean accuracy of the
    group (the value of ``filter_by``), None if it has none. ``reward``: its mean reward, None if no rollout was judged. ``version``: the
    update after which the sampler sees it.
    """

    item: int
    ended: Literal["trained", "filtered", "failed"]
    accuracy: float | None
    reward: float | None
    version: int
    level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerContext(metaclass=PublicMembers):
    """What a sampler draws from: the prompts of a data set, or the sources of a run.

    ``items``: their number, None for an endless source, whose items are 0, 1, 2, … ``ids``: their names, () for an endless source.
    ``weights``: the share of each item; of prompts, they are equal. ``seed``: that of the run, for random choices. ``levels``: the number
    of difficulties of an endless source. ``rows``: called in ``__init__``, returns the columns of every prompt, such as ``difficulty``; ()
    for sources and endless data.
    """

    items: int | None
    ids: Sequence[str] = ()
    weights: Sequence[float] = ()
    seed: int = 0
    levels: int = 1
    rows: Callable[[], Sequence[Mapping[str, Any]]] = tuple


class Sampler(ABC):
    """Decides which item is issued next. Made with a ``SamplerContext``, and with its options if it has some. Since 2.0.

    Its draws must depend only on the context, its options, the calls of ``next`` and ``observe``, and a restored state: not on clocks, and
    not on random numbers that these do not determine. An item may be issued several times. Prompts that were lost with a worker are issued
    again without asking the sampler. An exception ends the run.
    """

    @abstractmethod
    def next(self) -> Draw | int:
        """Return the item to issue next."""

    def observe(self, result: DrawResult) -> None:  # noqa: B027 - a sampler may ignore the results
        """See the end of an issue. Called between two updates, for all issues that ended since the last update, in the order of the draws.

        At ``max_staleness`` 0, the order depends on the draws alone. Above it, which results are known after an update depends on which
        groups were ready, so two runs may draw differently; each issue is observed exactly once in any case.
        """

    def state(self) -> Mapping[str, Any]:
        """Return what the draws depend on, as JSON values, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        if state:
            raise NotImplementedError(f"{type(self).__name__} gave a state and cannot restore one")
