"""An environment as authors of openenv write it: guess a digit in four tries. ``app`` allows one session, which is the default."""

import os
import random
import signal
import socket
from importlib import import_module
from urllib.parse import urlsplit

from openenv.core import GenericEnvClient
from openenv.core.env_server import (
    Action,
    CallToolAction,
    Environment,
    MCPEnvironment,
    Observation,
    State,
    Tool,
    create_fastapi_app,
)
from openenv.core.harness import ResourceSession, ResourceSessionFactory, ToolResult, VerifyResult


class GuessAction(Action):
    guess: int


class GuessObservation(Observation):
    hint: str


class GuessEnvironment(Environment):
    """``mode`` of reset is what a test wants to go wrong in the first step."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, mode="", **kwargs):
        self._digit, self._mode = random.Random(seed).randint(0, 9), mode
        self._state = State(episode_id=episode_id, step_count=0)
        return GuessObservation(hint="guess a digit")

    def step(self, action, timeout_s=None, **kwargs):
        if self._mode == "crash":
            os._exit(7)
        if self._mode == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._mode == "raise":
            raise OSError("the disk is gone")
        self._state.step_count += 1
        right, last = action.guess == self._digit, self._state.step_count == 4
        hint = "right" if right else "higher" if action.guess < self._digit else "lower"
        reward = None if self._mode == "unscored" else float(right)
        return GuessObservation(hint=hint, reward=reward, done=right or last)

    @property
    def state(self):
        return self._state


app = create_fastapi_app(GuessEnvironment, GuessAction, GuessObservation)
four = create_fastapi_app(GuessEnvironment, GuessAction, GuessObservation, max_concurrent_envs=4)


class Calculator(MCPEnvironment):
    """A tool of FastMCP; whether the answer is right is graded by another step."""

    def __init__(self):
        server = import_module("fastmcp").FastMCP("calculator")  # a package that openenv brings

        @server.tool
        def calculator(expression: str) -> str:
            """Calculate a sum or a product."""
            left, sign, right = expression.partition("*" if "*" in expression else "+")
            return str(int(left) * int(right) if sign == "*" else int(left) + int(right))

        super().__init__(server)
        self._state = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._state = State(episode_id=episode_id, step_count=0)
        return Observation()

    def _step_impl(self, action, timeout_s=None, **kwargs):
        raise TypeError("only tools")

    @property
    def state(self):
        return self._state


tools = create_fastapi_app(Calculator, CallToolAction, Observation)


class CalculatorSession(ResourceSession):
    """The same tool in a session, which grades the last message."""

    def __init__(self, task):
        self._task, self.closed = task, False

    def initial_messages(self):
        return [{"role": "user", "content": self._task["question"]}]

    def list_tools(self):
        schema = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
        return [Tool(name="calculator", description="Calculate a sum or a product.", input_schema=schema)]

    def call_tool(self, name, arguments):
        if name != "calculator":
            raise KeyError(f"Unknown tool: {name}")
        if "exits" in self._task:
            raise SystemExit(3)
        if "gone" in self._task:
            raise OSError("the calculator is gone")
        left, _sign, right = str(arguments.get("expression", "")).partition("*")
        if not (left.isdigit() and right.isdigit()):
            return ToolResult(error="no product")
        return ToolResult(data=str(int(left) * int(right)))

    def verify(self, transcript, final_state=None):
        reward = None if "unscored" in self._task else float(transcript[-1].get("content") == self._task["answer"])
        return VerifyResult(env_reward=reward, done=True, metrics={"messages": len(transcript)})

    def close(self):
        self.closed = True


class CalculatorSessions(ResourceSessionFactory):
    def create(self, task, seed=None, episode_id=None):
        return CalculatorSession(task)


def guess(text):
    """An action parser: the first digit of the answer."""
    return {"guess": int(next(character for character in f"{text}0" if character.isdigit()))}


def hint(observation):
    """A prompt builder."""
    return [{"role": "user", "content": f"hint: {observation['hint']}"}]


async def agent(base_url, api_key, model, row, server):
    """An agent with a loop of its own, on the server of the environment. It crashes if its model answers at other addresses too."""
    import openai

    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.2", urlsplit(base_url).port)) == 0:
            raise AssertionError("the capture server listens at other addresses")
    client = openai.AsyncOpenAI(base_url=base_url, api_key=api_key)
    async with GenericEnvClient(base_url=server) as env:
        messages, result, reward = list(row["messages"]), await env.reset(**row.get("reset", {})), 0.0
        while not result.done:
            answer = (await client.chat.completions.create(model=model, messages=messages, max_tokens=3)).choices[0].message.content
            result = await env.step(guess(answer or ""))
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": result.observation["hint"]}]
            reward += result.reward or 0.0
    await client.close()
    return reward
