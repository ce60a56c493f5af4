"""A reward that the judged text controls: a verdict, or any failure that a judge can have."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlcore.contracts.errors import InfrastructureError
from rlcore.contracts.reward_interface import Reward
from rlcore.contracts.types import Outcome, RewardInput, Score
from rlcore.testing.fake_plugin import FAKE_REWARD, FAKE_TOKEN_REWARD

__all__ = ["FakeReward", "FakeRewardOptions", "FakeTokenReward"]


class FakeRewardOptions(BaseModel):
    """Options of the ``fake`` reward."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    correct: float = Field(default=1.0, gt=0, description="Value of a right answer; a wrong one is worth 0.")


class FakeReward(Reward, spec=FAKE_REWARD):
    """A text is right if it equals ``gt_answer`` up to white space at its ends. A text that starts with ``!`` is a script instead.

    ``!raise`` raises an exception, ``!exit`` ends the worker process at once, ``!hang`` never returns. ``!sleep 0.5`` waits so many seconds
    and is right. ``!nan`` has a value that is not a number, ``!type`` returns something else than a Score, ``!infra`` reports that the
    machine failed.
    """

    def __init__(self, options: FakeRewardOptions | None = None) -> None:
        self.options = options if options is not None else FakeRewardOptions()

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """Refuse a gold answer that is not a text, or is blank."""
        gold = columns["gt_answer"]
        return None if isinstance(gold, str) and gold.strip() else "gt_answer must be a text that is not blank"

    def score(self, item: RewardInput) -> Score:
        """Return a verdict, or fail as the text asks."""
        text = item.text.strip()
        if text.startswith("!"):
            return self._act(*text[1:].split(maxsplit=1))
        if not text:
            return Score(value=0.0, accuracy=0.0, format_ok=False, outcome=Outcome.MALFORMED, reason="empty")
        return self._verdict(text == item.columns["gt_answer"].strip())

    def _verdict(self, right: bool) -> Score:
        if right:
            return Score(value=self.options.correct, accuracy=1.0, format_ok=True)
        return Score(value=0.0, accuracy=0.0, format_ok=True, outcome=Outcome.WRONG)

    def _act(self, word: str = "", argument: str = "") -> Score:
        match word:
            case "raise":
                raise RuntimeError("the text asked the fake reward to raise")
            case "infra":
                raise InfrastructureError("the text asked the fake reward to blame the machine")
            case "exit":
                os._exit(3)
            case "hang":
                while True:
                    time.sleep(3600)
            case "sleep":
                time.sleep(float(argument))
                return self._verdict(True)
            case "nan":
                return Score(value=float("nan"))
            case "type":
                return "not a score"  # type: ignore[return-value]
        return self._verdict(False)


class FakeTokenReward(FakeReward, spec=FAKE_TOKEN_REWARD):
    """FakeReward with a reward for each token: 1 if its id is even."""

    def score(self, item: RewardInput) -> Score:
        """Return FakeReward's verdict, and one number a token."""
        assert item.token_ids is not None, "its spec says reads_tokens"
        return replace(super().score(item), token_rewards=tuple(float(token % 2 == 0) for token in item.token_ids))
