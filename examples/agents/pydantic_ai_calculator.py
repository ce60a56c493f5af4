"""Episodes that an agent of pydantic-ai plays, as it is. Arguments: chat (the default), responses or messages; stream.

rlcore train … --environment program --command "python pydantic_ai_calculator.py" --python .venv-of-the-agent -rt environment
"""

import asyncio
import json
import re
import sys

from pydantic_ai import Agent, UnexpectedModelBehavior
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


def calculator(expression: str) -> str:
    """Calculate a sum or a product."""
    numbers = re.fullmatch(r"(\d+)([+*])(\d+)", expression)
    if not numbers:
        return "error"
    left, right = int(numbers[1]), int(numbers[3])
    return str(left + right if numbers[2] == "+" else left * right)


def model(episode: dict):
    """Return the policy as a model of pydantic-ai."""
    policy = {"base_url": episode["base_url"], "api_key": episode["key"]}
    if "messages" in sys.argv:
        return AnthropicModel(episode["model"], provider=AnthropicProvider(**policy))
    kind = OpenAIResponsesModel if "responses" in sys.argv else OpenAIChatModel
    return kind(episode["model"], provider=OpenAIProvider(**policy))


async def play(episode: dict) -> str:
    """Return the last answer of the agent."""
    agent = Agent(model(episode), tools=[calculator])
    # Not run_stream, which takes a text beside a tool call for the last answer.
    result = await agent.run(episode["row"]["messages"][-1]["content"], event_stream_handler=read if "stream" in sys.argv else None)
    return result.output


async def read(context, events) -> None:
    """Read the events of a stream."""
    async for _ in events:
        pass


for line in sys.stdin:
    episode = json.loads(line)
    if "cancel" not in episode:
        try:
            answer = asyncio.run(play(episode))
        except UnexpectedModelBehavior:  # the policy called tools that do not exist, again and again: its fault, and no crash
            answer = ""
        reward = float(answer.strip() == episode["row"]["gt_answer"])
        print(json.dumps({"episode": episode["episode"], "reward": reward}), flush=True)
