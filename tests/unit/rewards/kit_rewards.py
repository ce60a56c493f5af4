"""What the tests of rewards share. Rewards are made inside functions, so that cloudpickle ships them by value."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path

import cloudpickle
import pytest

from rlcore.contracts.specs import RewardSpec
from rlcore.contracts.types import FinishReason, Message, Prompt, RewardInput, Rollout, Segment
from rlcore.rewards.reward_entry import RewardEntry
from rlcore.rewards.worker_protocol import Call, Task


def rollout(text, finish=FinishReason.STOP, index=0):
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[0.0], versions=[0], policy_mask=[True])
    return Rollout(prompt_id="p", index=index, segments=(segment,), text=text, finish=finish)


def prompt(index=0, reward=None, **columns):
    message = Message(role="user", content="?")
    return Prompt(
        prompt_id=f"p{index}", index=index, messages=(message,), columns=columns, reward=reward, source=f"train.jsonl:{index + 1}"
    )


def entry(target, name="reward", *, requires=(), **more):
    spec = RewardSpec(name=name, target="unpackaged:target", summary="a test", requires=requires)
    return RewardEntry(name=name, spec=spec, payload=cloudpickle.dumps(target), **more)


def task(number, text="fine", deadline=10.0, reward=0):
    item = RewardInput(messages=(), columns={}, text=text)
    return Task(task_id=number, reward=reward, call=Call.SCORE, items=(item,), deadline=deadline)


def results(pool, count):
    found = []
    while len(found) < count:
        arrived = pool.poll(60.0)
        assert arrived, "no result within a minute"
        found += arrived
    return found


def kill(pid):
    """SIGKILL, where it is not gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_for(condition):
    for _ in range(12_000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never happened")


def collect(judge, keys):
    """All groups named, by key."""
    found = {}
    while not set(keys) <= set(found):
        groups = judge.poll(60.0)
        assert groups, "no group within a minute"
        found.update(groups)
    return found


def _no_verdicts():
    """A function of the text that returns what is no verdict, None where the text asks for none. Nested, so that it travels by value."""

    def no_verdict(text):
        from rlcore.contracts.types import Score

        made = {
            "nan": lambda: float("nan"),
            "infinite": lambda: Score(value=float("inf")),
            "text": lambda: "10",
            "accuracy": lambda: Score(value=1.0, accuracy=1.5),
            "own timeout": lambda: Score(value=1.0, outcome="timeout"),
            "outcome": lambda: Score(value=1.0, outcome="splendid"),
            "part": lambda: Score(value=1.0, parts={"a": "b"}),
        }
        return made[text]() if text in made else None

    return no_verdict


def misbehaving(folder=None):
    """A reward that does what its text says."""
    path = str(folder) if folder else ""
    no_verdict = _no_verdicts()

    def reward(item):
        import os
        import signal
        import sys
        import time
        from pathlib import Path

        from rlcore.contracts.errors import InfrastructureError

        class LibraryTimeout(BaseException):
            pass

        def deeper():
            return deeper() + 1

        def first_time():
            marker = Path(path) / item.text.replace(" ", "_")
            known = marker.exists()
            marker.touch()
            return not known

        if item.text == "none" or no_verdict(item.text) is not None:
            return no_verdict(item.text)
        match item.text:
            case "hang":
                while True:
                    time.sleep(60)
            case "hang with children":
                child = os.fork()
                if child:
                    (Path(path) / "child").write_text(str(child))
                time.sleep(600)
            case "hang once" if first_time():
                while True:
                    pass
            case "die once" if first_time():
                os.kill(os.getpid(), signal.SIGKILL)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "leave":
                os._exit(3)
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exit":
                sys.exit(3)
            case "raise":
                raise ValueError("this reward is at fault")
            case "timeout class":
                raise LibraryTimeout
            case "recurse":
                deeper()
            case "memory":
                return bytearray(1 << 60)[0]
            case "print":
                print("x" * 100_000, flush=True)
                os.write(1, b"y" * 100_000)
                os.write(2, b"z" * 100_000)
            case "read":
                sys.stdin.read()
            case "alarm":
                signal.setitimer(signal.ITIMER_REAL, 0.05)
            case "slow":
                time.sleep(0.1)
            case "no machine once" if first_time():
                raise InfrastructureError("the sandbox died")
            case "no machine":
                raise InfrastructureError("the sandbox died")
        return float(len(item.text))

    return reward


@pytest.fixture
def no_leak():
    """Fails where the test leaves descriptors or children behind, zombies included."""
    descriptors, before = _descriptors(), children()
    yield
    assert children() <= before
    assert _descriptors() <= descriptors


def _descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def children():
    """Ids of the processes that any thread of this one started and nobody has reaped."""
    found = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread ended meanwhile
            found |= {int(pid) for pid in path.read_text().split()}
    return found
