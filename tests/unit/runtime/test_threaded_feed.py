"""The feed of overlapping local runs: evaluations that several requests ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import Probe, Snapshot
from rlcore.contracts.types import Message, Prompt, Rollout, Sampling, Score
from rlcore.roles.evaluator import Evaluator
from rlcore.roles.producer import Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.runtime.delivery import AnnealedSampling, JobMaker
from rlcore.runtime.starvation import FilterWatch
from rlcore.runtime.threaded_feed import ThreadedFeed
from rlcore.schedule import Coordinator, ScheduleSettings, TimeAccount
from rlcore.testing import FakeInference, FakePolicy, FakeTokenizer, write_fake_model
from rlcore.weights.memory import MemoryPublisher, MemoryReceiver

PROMPTS = tuple(Prompt(prompt_id=f"q{index}", index=index, messages=(Message(role="user", content="?"),)) for index in range(3))


class OneJudge:
    """Judges in the next poll; every rollout is right."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, tuple[Score, ...]]] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        self._waiting.append((key, tuple(Score(value=1.0, accuracy=1.0) for _ in rollouts)))

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        waiting, self._waiting = self._waiting, []
        return waiting


def snapshot(version: int) -> Snapshot:
    policy = FakePolicy.random(len(FakeTokenizer()), seed=version)
    ids = np.array([5, 6, 7], np.int32)
    return Snapshot.of(
        version, dict(policy.tensors()), Probe(token_ids=ids, logprobs=policy.logprobs(ids).astype(np.float32), tolerance=1e-4)
    )


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[ThreadedFeed]:
    """Of a run with three prompts, which are its held-out task as well."""
    context = InferenceContext(
        model=str(write_fake_model(tmp_path / "model")), tokenizer=FakeTokenizer(), prompts_per_forward=2, max_tokens=64
    )
    sampling, account = Sampling(max_new_tokens=4), TimeAccount()
    publisher = MemoryPublisher()
    made = ThreadedFeed(
        Coordinator(ScheduleSettings(prompts=3, train_batch_size=3, n_sampled=2, buffer_limit=9, episodes=1, max_staleness=1)),
        Producer("p", FakeInference(context), FakeTokenizer(), OneJudge(), account, SingleTurn()),
        JobMaker(PROMPTS, AnnealedSampling(sampling=sampling, end=None, updates=1), 0, "accuracy"),
        Evaluator({"held": PROMPTS}, sampling, 0),
        publisher,
        MemoryReceiver("p", publisher, lambda: None),
        2,
        FilterWatch(bounds=None, by="accuracy", batch_size=3, limit=10),
        lambda line: None,
    )
    yield made
    made.stop()


def test_a_version_is_evaluated_once_however_many_requests_it_answers(feed: ThreadedFeed) -> None:
    """The requests of steps 9 and 12 both find version 12, as they do where training is ahead of the producer."""
    feed.publish(snapshot(12))
    feed.evaluate(9)
    feed.evaluate(12)
    assert [step for step, _ in feed.take_evaluations(wait=True)] == [12]
    feed.evaluate(12)
    assert feed.take_evaluations(wait=True) == []


def test_a_newer_version_is_evaluated_again(feed: ThreadedFeed) -> None:
    feed.publish(snapshot(12))
    feed.evaluate(12)
    first = feed.take_evaluations(wait=True)
    feed.publish(snapshot(13))
    feed.evaluate(13)
    assert [step for step, _ in [*first, *feed.take_evaluations(wait=True)]] == [12, 13]
