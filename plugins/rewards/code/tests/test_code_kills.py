"""Workers and zygotes killed at random moments: every program still gets its own verdict, or the accident its name; nothing is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rlcore_plugin_code import rlcore_register_rewards
from rlcore_plugin_code.options import CodeOptions

from rlcore.api import FinishReason, Message, Outcome, Prompt, Rollout, Score, Segment
from rlcore.api.sandbox import SandboxOptions
from rlcore.testing import Judge, RewardEntry
from tests.levels import LEVELS, need

Children = Callable[[int], list[int]]
ITEMS, KILLS = 300, 12
TEST_CASES = {"inputs": ["1\n", "2\n"], "outputs": ["2\n", "3\n"]}


def command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def targets(pid: int, children: Children, others: frozenset[int] = frozenset()) -> list[int]:
    """Workers, and bubblewraps and zygotes below them; not the programs, which are forks of a zygote, nor what other tests left."""
    found = []
    for child in set(children(pid)) - others:
        found.append(child)
        is_zygote = b"jail.zygote" in command(child) and b"bwrap" not in command(child)[:20]
        found += [] if is_zygote else targets(child, children)
    return found


def kill_at_random(seed: int, stop: threading.Event, children: Children, others: frozenset[int]) -> int:
    """How many were killed until ``stop``."""
    source, killed = random.Random(seed), 0
    while not stop.wait(source.uniform(0.02, 0.2)) and killed < KILLS:
        alive = targets(os.getpid(), children, others)
        if alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(source.choice(alive), signal.SIGKILL)
                killed += 1
    return killed


def rollout(key: int) -> Rollout:
    right = key % 3 != 0
    text = f"```python\n# {key}\nprint(int(input()) {'+' if right else '-'} 1)\n```"
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[0.0], versions=[0], policy_mask=[True])
    return Rollout(prompt_id=str(key), index=0, segments=(segment,), text=text, finish=FinishReason.STOP)


def judged(sandbox: SandboxOptions, seed: int, children: Children) -> tuple[dict[int, Score], int]:
    """(verdicts, kills)."""
    spec = next(spec for spec in rlcore_register_rewards() if spec.name == "code")
    entry = RewardEntry(name="code", spec=spec, deadline=20.0, options=CodeOptions(sandbox=sandbox))
    stop, killed, others = threading.Event(), [], frozenset(children(os.getpid()))
    scores: dict[int, Score] = {}
    with Judge([entry], workers=2, error_budget=1.0) as judge:
        killer = threading.Thread(target=lambda: killed.append(kill_at_random(seed, stop, children, others)))
        killer.start()
        for key in range(ITEMS):
            prompt = Prompt(
                prompt_id=str(key), index=key, messages=(Message(role="user", content="?"),), columns={"test_cases": TEST_CASES}
            )
            judge.submit(key, prompt, [rollout(key)])
        limit = time.monotonic() + 240
        while len(scores) < ITEMS and time.monotonic() < limit:
            scores |= {key: of[0] for key, of in judge.poll(5.0)}
        stop.set()
        killer.join()
    return scores, killed[0]


@pytest.mark.full
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_verdict_is_wrong_whatever_is_killed(level: str, seed: int, mark, children) -> None:
    need(level)
    before = set(children(os.getpid()))
    scores, killed = judged(SandboxOptions(level=level, readable=(mark.folder,)), seed, children)
    assert len(scores) == ITEMS
    assert killed >= KILLS // 3  # a quick machine is done before the last of them
    judged_well = {key: score for key, score in scores.items() if score.outcome is not Outcome.INFRA}
    assert len(judged_well) >= ITEMS - KILLS
    assert all((score.outcome is Outcome.OK) == (key % 3 != 0) for key, score in judged_well.items())
    assert all(score.outcome.judged for score in judged_well.values())
    limit = time.monotonic() + 60
    while mark.processes() and time.monotonic() < limit:
        time.sleep(0.05)
    assert mark.processes() == set()
    assert set(children(os.getpid())) <= before  # those of earlier tests may have ended since
