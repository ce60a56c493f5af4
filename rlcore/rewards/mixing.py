"""Several verdicts on one rollout become one score. Pure; knows no process."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.contracts.types import Outcome, Score

__all__ = ["mix"]


def mix(verdicts: Sequence[tuple[str, float, Score]]) -> Score:
    """(reward's name, weight, score), in the order of the configuration, at least one -> the score that trains.

    value: the sum of weight x value. accuracy, format_ok and parsed: of the first reward that gives one. parts: weight x value under
    each reward's name, its own parts as ``name/part``, unweighted, its accuracy as ``name/accuracy``. outcome: ``ok`` where all are,
    else that of the first that is not. One reward that failed (timeout, error, infra, invalid) fails the whole: half a sum is not a
    score. Masks: all must agree.
    """
    for name, _, score in verdicts:
        if not score.outcome.judged:
            return Score.failed(score.outcome, f"{name}: {score.reason}" if score.reason else name)
    parts: dict[str, float] = {}
    for name, weight, score in verdicts:
        parts[name] = weight * score.value
        parts.update({f"{name}/{part}": value for part, value in score.parts.items()})
        if score.accuracy is not None:
            parts[f"{name}/accuracy"] = score.accuracy
    scores = [score for _, _, score in verdicts]
    spoken = next((score for score in scores if score.outcome is not Outcome.OK), scores[0])
    return Score(
        value=sum(weight * score.value for _, weight, score in verdicts),
        accuracy=next((score.accuracy for score in scores if score.accuracy is not None), None),
        format_ok=next((score.format_ok for score in scores if score.format_ok is not None), None),
        parts=parts,
        outcome=spoken.outcome,
        reason=spoken.reason,
        parsed=next((score.parsed for score in scores if score.parsed is not None), None),
        in_statistics=all(score.in_statistics for score in scores),
        in_loss=all(score.in_loss for score in scores),
    )
