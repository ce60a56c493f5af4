"""Episodes that an agent of the package openai-agents plays, as it is. Arguments: responses (the default), stored or chat; stream.

rlcore train … --environment program --command "python openai_agents_calculator.py" --python .venv-of-the-agent -rt environment
"""

import asyncio
import json
import re
import sys

from agents import Agent, AgentsException, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

MODEL = OpenAIChatCompletionsModel if "chat" in sys.argv else OpenAIResponsesModel


@function_tool
def calculator(expression: str) -> str:
    """Calculate a sum or a product."""
    numbers = re.fullmatch(r"(\d+)([+*])(\d+)", expression)
    if not numbers:
        return "error"
    left, right = int(numbers[1]), int(numbers[3])
    return str(left + right if numbers[2] == "+" else left * right)


async def play(episode: dict) -> str:
    """Return the last answer of the agent."""
    async with AsyncOpenAI(base_url=episode["base_url"], api_key=episode["key"]) as client:
        agent = Agent(name="calculator", model=MODEL(episode["model"], client), tools=[calculator])
        question = episode["row"]["messages"][-1]["content"]
        settings = {"max_turns": 4, "auto_previous_response_id": "stored" in sys.argv}  # stored: only what is new is sent
        if "stream" not in sys.argv:
            return (await Runner.run(agent, question, **settings)).final_output
        result = Runner.run_streamed(agent, question, **settings)
        async for _ in result.stream_events():
            pass
        return result.final_output


set_tracing_disabled(True)  # else it sends each run to api.openai.com
for line in sys.stdin:
    episode = json.loads(line)
    if "cancel" not in episode:
        try:
            answer = asyncio.run(play(episode))
        except AgentsException:  # the policy called a tool that does not exist, or never ended: its fault, and no crash
            answer = ""
        reward = float(answer.strip() == episode["row"]["gt_answer"])
        print(json.dumps({"episode": episode["episode"], "reward": reward}), flush=True)
