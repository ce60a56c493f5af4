"""A reward that exists only as a file is judged in the worker processes, with its options, and so is a plain function of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.api import Finish, Message, Prompt, Rollout, Segment
from rlcore.registry import Registry
from rlcore.rewards import Judge, RewardEntry
from rlcore.specs import RewardSpec

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
    return Rollout(prompt_id="p", index=0, segments=(segment,), text=text, finish=Finish.STOP)


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
