"""A sandbox that answers from a script, and a reward that uses it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rlcore_plugin_code.options import CodeOptions
from rlcore_plugin_code.reward import CodeReward

from rlcore.api.sandbox import Job, Level, Ran, Sandbox


class Scripted(Sandbox):
    """Notes every job; ``answer`` says what became of it."""

    level = Level.NONE

    def __init__(self, answer: Callable[[Job], Ran]) -> None:
        self.answer = answer
        self.jobs: list[Job] = []
        self.closed = 0

    def run(self, job: Job) -> Ran:
        self.jobs.append(job)
        return self.answer(job)

    def describe(self) -> str:
        return "a script"

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def scripted(monkeypatch):
    """``scripted(answer, **options)``: an opened reward, and its sandbox."""

    def make(answer, **options):
        sandbox = Scripted(answer)
        monkeypatch.setattr("rlcore_plugin_code.reward.open_sandbox", lambda _: sandbox)
        reward = CodeReward(CodeOptions(**options))
        reward.open()
        return reward, sandbox

    return make
