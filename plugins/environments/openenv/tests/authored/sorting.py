"""Sort digits in at most three tries, as the quickstart's tiny model has half learned it. Each app allows 16 sessions."""

import random
import re

from openenv.core import GenericEnvClient
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class SortAction(Action):
    answer: str


class SortObservation(Observation):
    text: str


class SortEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        chosen = random.Random(seed)
        self._digits = chosen.sample(range(10), chosen.randint(3, 6))
        self._state = State(episode_id=episode_id, step_count=0)
        return SortObservation(text=f"sort {' '.join(map(str, self._digits))}")

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        right = action.answer.strip() == " ".join(map(str, sorted(self._digits)))
        over = right or self._state.step_count == 3
        return SortObservation(text=f"sort {' '.join(map(str, self._digits))}", reward=float(right), done=over)

    @property
    def state(self):
        return self._state


app = create_fastapi_app(SortEnvironment, SortAction, SortObservation, max_concurrent_envs=16)


def boxed(text):
    """An action parser: what is in the box, or everything."""
    found = re.search(r"\\boxed\{(.*?)\}", text)
    return {"answer": found[1] if found else text}


def asked(observation):
    """A prompt builder."""
    return observation["text"]


async def agent(base_url, api_key, model, row, server):
    """An agent with a loop of its own, on the server of the environment."""
    import openai

    async with GenericEnvClient(base_url=server) as env, openai.AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        result, messages, reward = await env.reset(**row["reset"]), [], 0.0
        while not result.done:
            messages.append({"role": "user", "content": result.observation["text"]})
            answer = (await client.chat.completions.create(model=model, messages=messages)).choices[0].message.content or ""
            messages.append({"role": "assistant", "content": answer})
            result = await env.step(boxed(answer))
            reward += result.reward
    return reward
