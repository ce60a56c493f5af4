"""Episodes that the tool loop of inspect-ai plays, as it is. Arguments: chat (the default), responses or messages; stream.

rlcore train … --environment program --command "python inspect_ai_calculator.py" --python .venv-of-the-agent -rt environment
"""

import asyncio
import json
import re
import sys

from inspect_ai.model import ChatMessageUser, GenerateConfig, Model, get_model
from inspect_ai.tool import Tool, tool


@tool
def calculator() -> Tool:
    """Return the tool."""

    async def execute(expression: str) -> str:
        """Calculate a sum or a product.

        Args:
            expression: Two numbers, with + or * between them.
        """
        numbers = re.fullmatch(r"(\d+)([+*])(\d+)", expression)
        if not numbers:
            return "error"
        left, right = int(numbers[1]), int(numbers[3])
        return str(left + right if numbers[2] == "+" else left * right)

    return execute


def policy(episode: dict) -> Model:
    """Return the policy as a model of inspect-ai.

    ``memoize=False``: each episode has its own key. ``max_tokens``: Anthropic's client refuses many without a stream.
    ``reasoning_summary``: without "none", each episode begins with a question about "hello, world", by which inspect-ai tries the server.
    """
    config, own = GenerateConfig(max_tokens=512, reasoning_summary="none"), {"streaming": "stream" in sys.argv}
    name = f"anthropic/{episode['model']}"
    if "messages" not in sys.argv:
        name, own["responses_api"] = f"openai/{episode['model']}", "responses" in sys.argv
    return get_model(name, base_url=episode["base_url"], api_key=episode["key"], config=config, memoize=False, **own)


async def play(episode: dict) -> str:
    """Return the last answer of the policy."""
    async with policy(episode) as model:
        question = ChatMessageUser(content=episode["row"]["messages"][-1]["content"])
        _, output = await model.generate_loop([question], tools=[calculator()])
        return output.completion


for line in sys.stdin:
    episode = json.loads(line)
    if "cancel" not in episode:
        answer = asyncio.run(play(episode))
        reward = float(answer.strip() == episode["row"]["gt_answer"])
        print(json.dumps({"episode": episode["episode"], "reward": reward}), flush=True)
