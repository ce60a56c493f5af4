"""The kinds of a verdict: accepted, refused, failed, or a row that cannot be judged."""

from __future__ import annotations

from enum import StrEnum

from rlcore.api import Outcome, Score

__all__ = ["Answer", "answer_of"]


class Answer(StrEnum):
    """The kind of a reward's verdict on one text."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    FAILED = "failed"
    INVALID = "invalid"


def answer_of(score: Score) -> Answer:
    """Return the kind of a verdict. A text is accepted if it earns as much as a right answer: outcome ``ok``, and an accuracy above 0, or a
    value above 0 if the reward gives no accuracy. A text that the reward masks, since it does not apply, has no verdict."""
    if score.outcome is Outcome.INVALID:
        return Answer.INVALID
    if not score.outcome.judged or not (score.in_statistics or score.in_loss):
        return Answer.FAILED
    earned = score.value if score.accuracy is None else score.accuracy
    return Answer.ACCEPTED if score.outcome is Outcome.OK and earned > 0 else Answer.REFUSED
