"""Whether the reward can read the answers at all: the one sign that the first update of a run shows."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["unread_answers"]

_MALFORMED = re.compile(r"reward/(?:(?P<name>.+)/)?outcome/malformed")
_MOST = 0.5
"""Share of malformed answers that is enough if no answer at all has the required form; the others were cut off."""


def unread_answers(metrics: Mapping[str, float]) -> str:
    """Return a sentence if a reward called all answers of the first update malformed; "" otherwise."""
    shares = {found["name"] or "": share for name, share in metrics.items() if (found := _MALFORMED.fullmatch(name))}
    none_read = metrics.get("reward/format") == 0.0
    blamed = next((name for name, share in sorted(shares.items(), reverse=True) if share == 1.0 or (none_read and share >= _MOST)), None)
    if blamed is None:
        return ""
    who = f"the reward {blamed}" if blamed else "the reward"
    return (
        f"{who} called every answer malformed: it looks for the answer where the model does not put it, so nothing is learned; compare "
        "answers in rollouts/ of the run with what the prompts ask for (--dry-run says if they ask for another mark), then change the "
        "system prompt (-s) or how the reward finds the answer (rlcore show reward NAME)"
    )
