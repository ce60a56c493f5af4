"""What the tests of rewards share. Rewards are made inside functions, so that cloudpickle ships them by value."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import pytest

from rlcore.rewards import RewardEntry
from rlcore.specs import RewardSpec
from rlcore.types import Finish, Message, Prompt, Rollout, Segment


def rollout(text, finish=Finish.STOP, index=0):
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[0.0], versions=[0], policy_mask=[True])
    return Rollout(prompt_id="p", index=index, segments=(segment,), text=text, finish=finish)


def prompt(index=0, reward=None, **columns):
    message = Message(role="user", content="?")
    return Prompt(
        prompt_id=f"p{index}", index=index, messages=(message,), columns=columns, reward=reward, source=f"train.jsonl:{index + 1}"
    )


def entry(target, name="reward", *, weight=1.0, deadline=10.0, requires=(), options=None):
    spec = RewardSpec(name=name, target="unpackaged:target", summary="a test", requires=requires)
    return RewardEntry(name=name, spec=spec, weight=weight, deadline=deadline, options=options, payload=cloudpickle.dumps(target))


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
        from rlcore.types import Score

        made = {
            "nan": lambda: float("nan"),
            "infinite": lambda: Score(value=float("inf")),
            "text": lambda: "10",
            "accuracy": lambda: Score(value=1.0, accuracy=1.5),
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
        return float(len(item.text))

    return reward


@pytest.fixture
def no_leak():
    """Fails where the test leaves descriptors or children behind, zombies included."""
    descriptors, children = _descriptors(), _children()
    yield
    assert _children() <= children
    assert _descriptors() <= descriptors


def _descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def _children():
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}
