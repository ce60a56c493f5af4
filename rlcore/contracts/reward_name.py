"""The type of an option that names a reward of the run."""

from __future__ import annotations

from typing import Annotated, Any, get_args

__all__ = ["RewardName", "is_reward_name"]

_MARK = "the name of a reward of the run"

RewardName = Annotated[str, _MARK]
"""The type of an option whose value is the name of a reward. A plan is refused if the run has no such reward. Since 2.0."""


def is_reward_name(annotation: Any, metadata: Any = ()) -> bool:
    """Return whether an annotation is ``RewardName``, or has it inside: ``RewardName | None``, ``tuple[RewardName, ...]``."""
    marks = (*metadata, *getattr(annotation, "__metadata__", ()))
    return _MARK in [mark for mark in marks if isinstance(mark, str)] or any(map(is_reward_name, get_args(annotation)))
