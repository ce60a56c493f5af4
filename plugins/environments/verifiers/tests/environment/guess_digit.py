"""A taskset as users of verifiers write it: guess the greatest of four digits. After a wrong guess, the user names those that are left."""

import random
import re

import verifiers.v1 as vf

__all__ = ["GuessEnv", "GuessTaskset"]


class GuessConfig(vf.TasksetConfig):
    split: str = "train"
    count: int = 100


class GuessData(vf.TaskData):
    digits: list[int]


class GuessTask(vf.Task[GuessData, vf.State, vf.TaskConfig]):
    def guess(self, reply: str) -> int | None:
        """The first digit of a reply."""
        digit = re.search(r"\d", reply)
        return int(digit[0]) if digit else None

    @vf.reward(weight=1.0)
    async def solved(self, trace: vf.Trace) -> float:
        return float(self.guess(trace.last_reply) == max(self.data.digits)) / max(trace.num_turns, 1)

    @vf.metric
    async def accuracy(self, trace: vf.Trace) -> float:
        first = trace.assistant_messages[:1]
        return float(bool(first) and self.guess(first[0].content or "") == max(self.data.digits))

    @vf.metric
    async def guesses(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class GuessTaskset(vf.Taskset[GuessTask, GuessConfig]):
    def load(self):
        if self.config.split not in ("train", "test"):
            raise ValueError(f"split is {self.config.split!r}; it must be train or test")
        draws = random.Random(self.config.split)
        for number in range(self.config.count):
            digits = draws.sample(range(10), 4)
            data = GuessData(name=f"{self.config.split}-{number}", prompt=question(digits), digits=digits)
            yield GuessTask(data, self.config.task)


class GuessEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessEnvConfig]):
    """The environment answers as the user, so that an episode has up to three turns."""

    async def run(self, task, agents):
        left = list(task.data.digits)
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            for _ in range(2):
                guess = task.guess(segment.last_reply)
                if segment.terminated or guess == max(left):
                    break
                left = [digit for digit in left if digit != guess]
                segment = await interaction.turn(question(left))


def question(digits):
    return f"sort {' '.join(map(str, digits))}"
