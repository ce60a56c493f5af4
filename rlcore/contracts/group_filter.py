"""Filters of groups: which rollouts of a group may be in the loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rlcore.contracts.types import Group

__all__ = ["GroupFilter"]


class GroupFilter(ABC):
    """Chooses the rollouts of a group that train. It is a pure function of one group, so it has no state to save. Since 2.0."""

    @abstractmethod
    def keep(self, group: Group) -> Sequence[bool]:
        """Return one value for each of ``group.rollouts``, in their order: True if the rollout may be in the loss.

        A removed rollout keeps its reward in the statistics of its group. If no rollout is left for the loss, the whole group is filtered:
        ``dynamic_batching`` replaces it, or it is masked.

        :param group: the scored group, which must not be changed. Rollouts that cannot train have ``score.in_loss`` False: those without a
            valid score, those without tokens, greedy ones, and those that an earlier filter removed. The core ignores the values for them.
        """
