"""A producer that gives its engine's device back: idle only, woken by the next weights, its time booked to weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import Probe, Snapshot, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Message, Outcome, Prompt, Rollout, Sampling, Score
from rlcore.roles.producer import GroupJob, Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.schedule import Role, TimeAccount
from rlcore.testing import FakeInference, FakePolicy, FakeTokenizer, write_fake_model


class Clock:
    """Time stands still but where an engine moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowSleeper(FakeInference):
    """Says what it was asked for; falls asleep in 3 s and wakes in 5."""

    clock = Clock()

    def __init__(self, context: InferenceContext) -> None:
        super().__init__(context)
        self.asked: list[str] = []

    def sleep(self, level: int = 1) -> None:
        super().sleep(level)
        self.asked.append("sleep")
        self.clock.now += 3

    def wake(self) -> None:
        super().wake()
        self.asked.append("wake")
        self.clock.now += 5

    def wake_cache(self) -> None:
        super().wake_cache()
        self.asked.append("wake the cache")

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        self.asked.append(f"update {version}")
        super().begin_update(version, manifest, in_flight)


class LateJudge:
    """Judges when it is let."""

    ready = False

    def __init__(self) -> None:
        self.waiting: list[tuple[int, tuple[Score, ...]]] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        self.waiting.append((key, tuple(Score(value=1.0, accuracy=1.0, outcome=Outcome.OK) for _ in rollouts)))

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        if not self.ready:
            return []
        answers, self.waiting = self.waiting, []
        return answers


@pytest.fixture
def made(tmp_path: Path) -> tuple[Producer, SlowSleeper, TimeAccount, LateJudge]:
    SlowSleeper.clock = clock = Clock()
    context = InferenceContext(
        model=str(write_fake_model(tmp_path / "model")), tokenizer=FakeTokenizer(), prompts_per_forward=2, max_tokens=64
    )
    engine, account, judge = SlowSleeper(context), TimeAccount(clock), LateJudge()
    return Producer("p0", engine, FakeTokenizer(), judge, account, SingleTurn()), engine, account, judge


def snapshot(version: int) -> Snapshot:
    policy = FakePolicy.random(len(FakeTokenizer()), version)
    ids = np.array([5, 6, 7], np.int32)
    probe = Probe(token_ids=ids, logprobs=policy.logprobs(ids).astype(np.float32), tolerance=1e-4)
    return Snapshot.of(version, dict(policy.tensors()), probe)


JOB = GroupJob(
    key=0,
    prompt=Prompt(prompt_id="q", index=0, messages=(Message(role="user", content="say a"),)),
    samplings=(Sampling(max_new_tokens=4),),
    noise=(0, 0, 0),
)


def test_it_sleeps_once_and_the_next_weights_wake_it(made: tuple[Producer, SlowSleeper, TimeAccount, LateJudge]) -> None:
    producer, engine, account, _ = made
    producer.load(snapshot(1))
    producer.sleep()
    producer.sleep()
    assert producer.asleep
    producer.load(snapshot(2))
    producer.load(snapshot(3))
    assert engine.asked == ["update 1", "sleep", "wake", "update 2", "wake the cache", "update 3"]
    assert not producer.asleep
    assert producer.version == 3
    assert account.report("p", Role.PRODUCER).seconds["weights"] == 8.0


def test_it_does_not_sleep_over_a_job_that_generates_or_waits_for_its_verdict(
    made: tuple[Producer, SlowSleeper, TimeAccount, LateJudge],
) -> None:
    producer, engine, _, judge = made
    producer.accept([JOB])
    with pytest.raises(RunError, match="producer p0 was put to sleep with 1 conversations and 0 jobs open"):
        producer.sleep()
    while producer.busy:
        producer.step(0.01)
    with pytest.raises(RunError, match="0 conversations and 1 jobs open"):
        producer.sleep()
    judge.ready = True
    assert len(producer.step(0.01)) == 1
    producer.sleep()
    assert engine.asked == ["sleep"]


@pytest.mark.parametrize(("kinds", "level"), [({"full"}, 2), ({"full", "adapter"}, 1), ({"full", "delta"}, 1)])
def test_what_the_engine_takes_decides_how_deep_it_sleeps(
    made: tuple[Producer, SlowSleeper, TimeAccount, LateJudge], kinds: set[str], level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, engine, _, _ = made
    engine.capabilities = replace(engine.capabilities, kinds=frozenset(kinds))
    levels: list[int] = []
    monkeypatch.setattr(engine, "sleep", levels.append)
    producer.sleep()
    assert levels == [level]
