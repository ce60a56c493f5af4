"""The plugin by which ``benchmarks.engines`` sees what the engines said of their tokens: it keeps every segment that was scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlcore.api import Group, Segment, hookimpl
from rlcore.contracts.types import RolloutKind

rlcore_api = "2.0"


@dataclass(frozen=True, slots=True)
class Seen:
    """A segment, and the temperature that it was sampled at."""

    segment: Segment
    temperature: float


SEEN: list[Seen] = []
"""Of the run under way; whoever starts the next one empties it."""


@hookimpl
def rlcore_groups_scored(groups: Sequence[Group], version: int) -> None:
    """Keep what was sampled."""
    sampled = [rollout for group in groups for rollout in group.rollouts if rollout.kind is RolloutKind.SAMPLED]
    SEEN.extend(Seen(segment, rollout.temperature) for rollout in sampled for segment in rollout.segments)
