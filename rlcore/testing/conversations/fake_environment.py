"""An environment that asks once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.contracts.environment import Environment, Model

__all__ = ["FakeEnvironment"]


class FakeEnvironment(Environment):
    """Asks the row's own messages. The reward is 1 for ``gt_answer``, else 0."""

    deterministic = True

    async def play(self, model: Model, row: Mapping[str, Any]) -> float:
        """See Environment."""
        answer = await model.chat(row["messages"])
        return float(answer["content"] == row["gt_answer"])
