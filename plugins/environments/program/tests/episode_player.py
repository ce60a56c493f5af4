"""Plays episodes with a fake engine in this process, and a real gateway process with real workers."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rlcore_gateway.environment_server import free_port
from rlcore_plugin_agents.agent import Agent
from rlcore_plugin_agents.agent_options import AgentOptions

from rlcore.api import Completion, InferenceContext, Message, PluginKind, Prompt, Request, Rollout, Sampling, Score
from rlcore.api.conversations import ConversationContext
from rlcore.api.environments import ChosenEnvironment
from rlcore.api.runtime import GroupJob, Producer, TimeAccount
from rlcore.testing import FakeInference, FakeInferenceOptions, FakeTokenizer, Registry, write_fake_model

__all__ = ["GUESSING", "EpisodePlayer", "app_served", "descendants", "words_of"]

TOKENS = " 0123456789abcdefghijklmnopqrstuvwxyz:."

GUESSING = """
import json, sys, urllib.error, urllib.request

def asked(said, messages, **more):
    body = json.dumps({"model": said["model"], "messages": messages, "max_tokens": 3, **more}).encode()
    headers = {"Authorization": "Bearer " + said["key"], "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(said["base_url"] + "/chat/completions", body, headers)) as answer:
        return json.load(answer)

for line in sys.stdin:
    said = json.loads(line)
    if "cancel" in said:
        continue
    messages = list(said["row"]["messages"])
    turns, calls = said["row"].get("turns", 7), {}
    for turn in range(turns):
        answer = asked(said, messages)
        text = answer["choices"][0]["message"]["content"]
        calls[answer["id"]] = float(turn)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "higher" if turn % 2 else "lower"}]
    end = {"episode": said["episode"], "reward": float(turns), "turn_rewards": calls, "extra": {"path": sys.prefix}}
    print(json.dumps(end), flush=True)
"""
"""A program that needs nothing but Python. It plays seven turns, or those of the row."""


class LoggedEngine(FakeInference):
    """Keeps its completions. While it is ``held``, it makes no progress. It answers the ``texts`` in turn, None for random ones."""

    held = False
    texts: Iterator[str] | None = None

    def __init__(self, context: InferenceContext, options: FakeInferenceOptions) -> None:
        super().__init__(context, options)
        self.log: list[Completion] = []
        self.open: set[str] = set()

    def submit(self, requests: Sequence[Request]) -> None:
        self.open.update(request.request_id for request in requests)
        super().submit(requests)

    def poll(self, timeout: float) -> list[Completion]:
        if self.held:
            time.sleep(timeout)
            return []
        done = super().poll(timeout)
        if self.texts is not None:
            done = [self._saying(one, next(self.texts)) for one in done]
        self.log += done
        self.open.difference_update(one.request_id for one in done)
        return done

    def _saying(self, one: Completion, text: str) -> Completion:
        ids = np.array(self.context.tokenizer.encode(text), np.int32)
        zeros = np.zeros(len(ids))
        return replace(one, token_ids=ids, logprobs=zeros.astype(np.float32), versions=zeros.astype(np.int32))


class ScoreKeeper:
    """Scores an episode by its verdict, or with its own reward."""

    def __init__(self) -> None:
        self._ready: list[tuple[int, tuple[Score, ...]]] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        scores = tuple(one.verdict or Score(value=one.extra["reward"]) for one in rollouts)
        self._ready.append((key, scores))

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        ready, self._ready = self._ready, []
        return ready


class EpisodePlayer(ExitStack):
    """Owns a producer with the conversation ``agent``.

    :param environment: a name, or source of Python with a class ``Game`` or a function ``play``.
    """

    def __init__(self, folder: Path, environment: str, environment_options: Any = None, *, tokens: str = TOKENS, **options: Any) -> None:
        super().__init__()
        self.said: list[str] = []
        model = write_fake_model(folder / "model", tokens)
        tokenizer = FakeTokenizer(tokens)
        registry = Registry.discover()
        name = environment
        if "\n" in environment:
            (folder / "game.py").write_text(environment)
            name = f"{folder / 'game.py'}:{'Game' if 'class Game' in environment else 'play'}"
        kind = PluginKind.ENVIRONMENT
        spec = registry.spec(kind, name)
        chosen = ChosenEnvironment(
            name=spec.name,
            owner=registry.owner(kind, name),
            spec=spec,  # type: ignore[arg-type]  # of this kind
            payload=registry.payload(kind, name),
            options=environment_options,
        )
        context = InferenceContext(model=str(model), tokenizer=tokenizer, prompts_per_forward=64, max_tokens=4000)
        self.engine = LoggedEngine(context, FakeInferenceOptions())
        self.agent = Agent(AgentOptions(**{"cancel_seconds": 0.5, **options}))
        self.agent.who = "conversation 'agent'"
        self.agent.max_context_tokens = 2000
        self.agent.open(
            ConversationContext(
                producer="producer-0",
                tokenizer=tokenizer,
                seed=0,
                max_context_tokens=2000,
                max_new_tokens=200,
                lease_deadline=3600.0,
                environment=chosen,
                say=self.said.append,
            )
        )
        self.callback(self.agent.close)
        self.producer = Producer("producer-0", self.engine, tokenizer, ScoreKeeper(), TimeAccount(), self.agent)
        self.callback(self.producer.close)

    def answering(self, texts: Iterable[str]) -> None:
        """Let the policy write these texts, one after the other: a fake one calls no tool."""
        self.engine.texts = iter(texts)

    def begin(self, rows: Iterable[Mapping[str, Any]], copies: int = 1, max_new_tokens: int = 200, first: int = 0) -> None:
        """Start an episode, or several copies, for each row of columns. Rows are numbered from ``first``."""
        sampling = Sampling(max_new_tokens=max_new_tokens)
        messages = (Message(role="user", content="guess"),)
        self.producer.accept(
            [
                GroupJob(
                    key=place,
                    prompt=Prompt(prompt_id=f"p{place}", index=place, messages=messages, columns=row),
                    samplings=(sampling,) * copies,
                    noise=(0, 0, place),
                )
                for place, row in enumerate(rows, first)
            ]
        )

    def step_until(self, done: Callable[[], object], seconds: float = 60.0) -> list[tuple[Rollout, Score]]:
        """Generate until a condition holds. AssertionError if it does not after so many seconds."""
        found = []
        until = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < until, f"it took longer than {seconds:g} s: {self.said}"
            for group in self.producer.step(0.05):
                found += list(zip(group.rollouts, group.scores, strict=True))
        return found

    def play(self, *rows: Mapping[str, Any], **settings: Any) -> list[tuple[Rollout, Score]]:
        """Play an episode for each row; check that nothing of them is left in the engine."""
        self.begin(rows, **settings)
        found = self.step_until(lambda: self.producer.idle)
        assert not self.engine.open
        return sorted(found, key=lambda pair: (pair[0].prompt_id, pair[0].index))


@contextmanager
def app_served(environment: Path, app: str, folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Serve an app in a Python environment as its author would, and wait until it answers; yield its address and its process."""
    port = free_port()
    words = [str(environment / "bin" / "python"), "-m", "uvicorn", app, "--port", str(port), "--log-level", "warning"]
    with subprocess.Popen(words, cwd=folder) as process:
        try:
            while not _answers(port):
                assert process.poll() is None, f"the server {app} ended with exit code {process.returncode}"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
        finally:
            process.kill()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


EARLIER: set[int] = set()
"""The processes below this one when the present test began."""


def descendants() -> list[psutil.Process]:
    """Return what lives below this process and began with this test, but for the servants of the tests.

    A process says when it began only to a second, because the time at which a machine was started is a whole number of seconds.
    """
    found = [child for child in psutil.Process().children(recursive=True) if child.pid not in EARLIER and _lives(child)]
    return [child for child in found if "warm_programs" not in words_of(child)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def words_of(process: psutil.Process) -> str:
    """Return the command of a process, "" if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def program(source: str) -> tuple[str, ...]:
    """Return the command of a program in Python."""
    return (sys.executable, "-u", "-c", source)
