"""Episodes that an agent of smolagents plays, as it is. Arguments: tools (the default) or code; stream.

rlcore train … --environment program --command "python smolagents_calculator.py" --python .venv-of-the-agent -rt environment
"""

import json
import re
import sys
from contextlib import redirect_stdout

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def calculator(expression: str) -> str:
    """Calculate a sum or a product.

    Args:
        expression: Two numbers, with + or * between them.
    """
    numbers = re.fullmatch(r"(\d+)([+*])(\d+)", expression)
    if not numbers:
        return "error"
    left, right = int(numbers[1]), int(numbers[3])
    return str(left + right if numbers[2] == "+" else left * right)


def play(episode: dict) -> dict:
    """Return the reward, and the calls that train. Without their names, those after an error would not: it changes the first message."""
    kind, own = (CodeAgent, {}) if "code" in sys.argv else (ToolCallingAgent, {"tool_choice": "auto"})  # else it forces a call
    model = OpenAIServerModel(episode["model"], api_base=episode["base_url"], api_key=episode["key"], **own)
    agent = kind(tools=[calculator], model=model, max_steps=4, verbosity_level=0, stream_outputs="stream" in sys.argv)
    with redirect_stdout(sys.stderr):  # it shows streams
        answer = str(agent.run(episode["row"]["messages"][-1]["content"]))
    reward = float(answer.strip() == episode["row"]["gt_answer"])
    said = [getattr(step, "model_output_message", None) for step in agent.memory.steps]
    calls = [message.raw.id for message in said if message and message.raw]  # a stream has no ids
    return {"reward": reward, **({"calls": calls} if calls else {})}


for line in sys.stdin:
    episode = json.loads(line)
    if "cancel" not in episode:
        print(json.dumps({"episode": episode["episode"], **play(episode)}), flush=True)
