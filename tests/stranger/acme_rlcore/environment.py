"""A shop: the policy may ask for prices, and says what a purchase costs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import DataError
from rlcore.api.environments import TurnEnvironment


class ShopOptions(BaseModel):
    """Options of the environment ``acme_shop``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fee: float = Field(0.0, ge=0, description="what a question about a price costs of the reward")


class Shop(TurnEnvironment):
    """The row has ``prices``, ``item`` and ``number``. A right answer is worth 1, less the fee of each question."""

    deterministic = True
    tools = (
        {
            "type": "function",
            "function": {
                "name": "price",
                "description": "The price of an item",
                "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
            },
        },
    )

    def __init__(self, options: ShopOptions) -> None:
        self._options = options

    @classmethod
    def rows(cls, name: str) -> Iterator[Mapping[str, Any]]:
        """See Environment. ``name`` is the greatest number that somebody buys."""
        if not name.isdigit():
            raise DataError(f"acme_shop: {name!r} must be a number, such as env:acme_shop:3")
        for number in range(1, int(name) + 1):
            yield {"messages": [{"role": "user", "content": "?"}], "prices": {"apple": 3}, "item": "apple", "number": number}

    def reset(self, row: Mapping[str, Any]) -> str:
        """See TurnEnvironment."""
        self._prices: Mapping[str, int] = row["prices"]
        self._total = self._prices[row["item"]] * row["number"]
        return f"What do {row['number']} {row['item']} cost?"

    def step(self, answer: Mapping[str, Any]) -> tuple[list[dict[str, Any]], float, bool]:
        """See TurnEnvironment."""
        calls = answer.get("tool_calls") or []
        if not calls:
            return [], float((answer["content"] or "").strip() == str(self._total)), True
        results = [{"role": "tool", "tool_call_id": call["id"], "content": self._price(call["function"]["arguments"])} for call in calls]
        return results, -self._options.fee * len(calls), False

    def _price(self, arguments: str) -> str:
        try:
            item = json.loads(arguments)["item"]
        except (ValueError, KeyError, TypeError):
            return "name an item"
        return str(self._prices.get(item, "not sold")) if isinstance(item, str) else "name an item"
