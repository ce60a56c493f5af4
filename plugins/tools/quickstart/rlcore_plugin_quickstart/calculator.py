"""The environment of this quickstart: the model may call a calculator before it answers.

Change it as you like: another reward, more turns. Another tool needs another model, because this tiny one has seen no other prompt.

rlcore calls ``play`` once for each episode, in another process. ``model.client`` is an ``openai.AsyncOpenAI``, which asks the model
that is being trained.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Calculate a sum or a product.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}


async def play(model: Any, row: Mapping[str, Any]) -> float:
    """Return the reward of one episode: 1.0 if the last answer is the right number, else 0.0."""
    messages = list(row["messages"])
    for _ in range(2):
        response = await model.client.chat.completions.create(model=model.name, messages=messages, tools=[CALCULATOR])
        answer = response.choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        for call in answer.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": calculate(call.function.arguments)})
        if not answer.tool_calls:
            break
    return float(answer.content == row["gt_answer"])


def calculate(arguments: str) -> str:
    """Return the result of a call as the model reads it. ``arguments``: JSON, for example ``{"expression": "47*36"}``."""
    expression = json.loads(arguments).get("expression")
    numbers = re.fullmatch(r"(\d+)([+*])(\d+)", str(expression))
    if not numbers:
        return "error"
    left, sign, right = int(numbers[1]), numbers[2], int(numbers[3])
    return str(left + right if sign == "+" else left * right)
