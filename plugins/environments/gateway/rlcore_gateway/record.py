"""What an environment recorded of the policy's answers, compared with what the engine sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["difference"]


def difference(recorded: Sequence[Sequence[int]], sampled: Sequence[Sequence[int]]) -> str:
    """Return the first difference in words, "" if both have the same answers, in any order.

    :param recorded: the token ids of each answer in the environment's record.
    :param sampled: those of each answer of the policy.
    """
    theirs, ours = Counter(map(tuple, recorded)), Counter(map(tuple, sampled))
    only_theirs, only_ours = list((theirs - ours).elements()), list((ours - theirs).elements())
    if not only_theirs and not only_ours:
        return ""
    if not only_theirs:
        return f"it lacks {len(only_ours)} of {len(sampled)} answers that the policy gave, such as that of {len(only_ours[0])} tokens"
    if not only_ours:
        return f"it has {len(recorded)} answers and the policy gave {len(sampled)}; one of {len(only_theirs[0])} tokens was never sampled"
    answer = only_theirs[0]
    nearest = max(only_ours, key=lambda other: _common(answer, other))
    place = _common(answer, nearest)
    number = [tuple(one) for one in recorded].index(answer) + 1
    said, was = (str(ids[place]) if place < len(ids) else "the end of the answer" for ids in (answer, nearest))
    return f"at token {place + 1} of answer {number} it has {said}, and the policy sampled {was}"


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of equal tokens at the beginning."""
    return next((at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other), min(len(first), len(second)))
