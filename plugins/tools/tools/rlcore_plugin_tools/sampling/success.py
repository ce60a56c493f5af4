"""How well a group was solved."""

from __future__ import annotations

from rlcore.api import DrawResult

__all__ = ["success"]


def success(result: DrawResult) -> float | None:
    """Return the accuracy of the group, or its mean reward within 0 and 1 if it has none; None if no rollout was judged."""
    if result.accuracy is not None:
        return result.accuracy
    return None if result.reward is None else min(max(result.reward, 0.0), 1.0)
