"""A reward that exists only as a file is judged in the worker processes, with its options, and so is a plain function of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.api import FinishReason, Message, Prompt, Rollout, Segment
from rlcore.contracts.specs import RewardSpec
from rlcore.registry.plugin_registry import Registry
from rlcore.registry.sandboxes import bundle_sandboxes
from rlcore.rewards.judge import Judge
from rlcore.rewards.reward_entry import RewardEntry

MY = '''
from pydantic import BaseModel, ConfigDict
from rlcore.api import Reward, Score

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    scale: float = 1.0

class Scaled(Reward):
    """Length, scaled."""
    Options = Options

    def __init__(self, options):
        assert isinstance(options, Options)
        self.scale = options.scale

    def score(self, item):
        return Score(value=self.scale * len(item.text), accuracy=1.0)

def flat(item):
    return 100.0
'''


def _rollout(text: str) -> Rollout:
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[-0.1], versions=[0], policy_mask=[True])
    return Rollout(prompt_id="p", index=0, segments=(segment,), text=text, finish=FinishReason.STOP)


def test_class_with_options_and_function_of_a_file_are_judged_in_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(MY)
    registry = Registry.discover()
    entries = []
    for name in ("./my.py:Scaled", "./my.py:flat"):
        model = registry.options_model("reward", name)
        spec = registry.spec("reward", name)
        assert isinstance(spec, RewardSpec)
        options = model(scale=3.0) if model else None
        entries.append(RewardEntry(name=name, spec=spec, options=options, payload=registry.payload("reward", name)))
    Path("my.py").unlink()
    judge = Judge(entries, workers=1, error_budget=0.0)
    try:
        prompt = Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="?"),))
        judge.submit(7, prompt, [_rollout("abcd")])
        finished = []
        for _ in range(30):
            finished = judge.poll(1.0)
            if finished:
                break
    finally:
        judge.close()
    ((key, (score,)),) = finished
    assert key == 7
    assert score.value == 112.0, score


BOXED = '''
from pydantic import BaseModel, ConfigDict
from rlcore.api import Reward, Score
from rlcore.api.sandbox import Job, Level, ProgramResult, Sandbox, SandboxOptions, open_sandbox

class Box(Sandbox):
    """Says how long a program is."""
    level = Level.REMOTE

    def __init__(self, options):
        self.scale = options["scale"]

    def run(self, job):
        return ProgramResult(exit_code=0, signal=None, stdout=b"x" * self.scale * len(job.source), stderr=b"")

    def describe(self):
        return "remote (a box)"

    def close(self):
        pass

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    box: SandboxOptions

class Runs(Reward):
    """Length of what the program prints."""
    Options = Options

    def __init__(self, options):
        self.options = options

    def open(self):
        self.box = open_sandbox(self.options.box)

    def score(self, item):
        return Score(value=float(len(self.box.run(Job(source=item.text)).stdout)), accuracy=1.0)
'''


def test_a_sandbox_of_a_file_reaches_the_workers_with_the_reward_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("boxed.py").write_text(BOXED)
    registry = Registry.discover()
    name = "./boxed.py:Runs"
    spec, model = registry.spec("reward", name), registry.options_model("reward", name)
    assert isinstance(spec, RewardSpec)
    assert model is not None
    options = model(box={"backend": "./boxed.py:Box", "backend_options": {"scale": 3}})
    shipped = bundle_sandboxes(options, registry)
    entry = RewardEntry(name=name, spec=spec, options=options, payload=registry.payload("reward", name), sandboxes=shipped)
    Path("boxed.py").unlink()
    judge = Judge([entry], workers=1, error_budget=0.0)
    try:
        prompt = Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="?"),))
        judge.submit(7, prompt, [_rollout("abcd")])
        finished = next(filter(None, (judge.poll(1.0) for _ in range(30))))
    finally:
        judge.close()
    ((_, (score,)),) = finished
    assert score.value == 12.0, score
