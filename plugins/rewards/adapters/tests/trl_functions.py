"""Reward functions as TRL's documentation has people write them, and some that misbehave."""

import asyncio
import re
import time


def box_is_right(completions, solution, **kwargs):
    """Conversational, with a column by name."""
    contents = [completion[0]["content"] for completion in completions]
    found = [re.search(r"\\boxed\{(.*?)\}", content) for content in contents]
    return [1.0 if match and match[1] == gold else 0.0 for match, gold in zip(found, solution, strict=True)]


def text_is_long(prompts, completions, completion_ids, log_metric=None, **kwargs):
    """Text form, with token ids and a metric."""
    if log_metric is not None:
        log_metric("tokens", sum(map(len, completion_ids)) / len(completion_ids))
    return [len(prompt) / 10 + len(completion) / 100 for prompt, completion in zip(prompts, completions, strict=True)]


def only_mathematics(prompts, completions, task, **kwargs):
    """None where the task is another."""
    return [1.0 if kind == "math" else None for kind in task]


async def waits(prompts, completions, **kwargs):
    """Asynchronous, as TRL allows."""
    await asyncio.sleep(0)
    return [float(completion[0]["content"] == "yes") for completion in completions]


def different(completions, **kwargs):
    """Looks at the other responses of the batch."""
    texts = [completion[0]["content"] for completion in completions]
    return [1.0 / texts.count(text) for text in texts]


def hidden_column(completions, **kwargs):
    """Reads a column that its signature does not name."""
    return [float(gold == "5") for gold in kwargs["solution"]]


def by_step(completions, trainer_state, **kwargs):
    """Asks for what only a trainer has."""
    return [float(trainer_state.global_step)] * len(completions)


def too_few(completions, **kwargs):
    return []


def hangs(completions, **kwargs):
    if completions[0][0]["content"] == "hang":
        time.sleep(1000)
    return [1.0] * len(completions)


def other_names(texts, answers):
    return [1.0] * len(texts)


def no_prompts(completions, solution):
    return [1.0] * len(completions)


class Rewarding:
    def method(self, completions, **kwargs):
        return [1.0] * len(completions)


def a_set(completions, **kwargs):
    return {float(place) for place in range(len(completions))}


def texts(completions, **kwargs):
    return ["nan"] * len(completions)
