"""A version is handed to an engine bucket by bucket; an update that breaks off leaves a producer that generates nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlcore.contracts.errors import RunError, WeightsError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import BUCKET_BYTES, Bucket, Probe, Snapshot, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Message, Prompt, Rollout, Sampling, Score
from rlcore.roles.producer import GroupJob, Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeInference, FakePolicy, FakeTokenizer, FaultyInference, update_engine, write_fake_model
from rlcore.testing.faulty import FaultyInferenceOptions

TENSORS = 2


class NoJudge:
    """Nothing is generated here."""

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        raise AssertionError

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        return []


class Recording(FakeInference):
    """Writes down what it was asked for; the call that is written down as ``fails`` raises."""

    def __init__(self, context: InferenceContext) -> None:
        super().__init__(context)
        self.asked: list[str] = []
        self.fails = ""

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        self._note(f"begin {version} {in_flight}")
        super().begin_update(version, manifest, in_flight)

    def receive(self, bucket: Bucket) -> None:
        self._note(f"bucket {bucket.index}")
        super().receive(bucket)

    def finish_update(self) -> int:
        self._note("finish")
        return super().finish_update()

    def score(self, token_ids: np.ndarray) -> np.ndarray:
        self._note("score")
        return super().score(token_ids)

    def _note(self, what: str) -> None:
        self.asked.append(what)
        if what == self.fails:
            raise RuntimeError(f"lost at {what}")


@pytest.fixture
def context(tmp_path: Path) -> InferenceContext:
    model = str(write_fake_model(tmp_path / "model"))
    return InferenceContext(model=model, tokenizer=FakeTokenizer(), prompts_per_forward=2, max_tokens=64)


def snapshot(version: int) -> Snapshot:
    policy = FakePolicy.random(len(FakeTokenizer()), version)
    ids = np.array([5, 6, 7], np.int32)
    probe = Probe(token_ids=ids, logprobs=policy.logprobs(ids).astype(np.float32), tolerance=1e-4)
    return Snapshot.of(version, dict(policy.tensors()), probe)


def producer(engine: FakeInference, bucket_bytes: int = 1) -> Producer:
    return Producer("p0", engine, FakeTokenizer(), NoJudge(), TimeAccount(), SingleTurn(), bucket_bytes)


JOB = GroupJob(
    key=0,
    prompt=Prompt(prompt_id="q", index=0, messages=(Message(role="user", content="say a"),)),
    samplings=(Sampling(max_new_tokens=4),),
    noise=(0, 0, 0),
)


@pytest.mark.parametrize(("max_bytes", "buckets"), [(1, TENSORS), (BUCKET_BYTES, 1)])
def test_an_update_begins_receives_every_bucket_in_order_and_finishes(context: InferenceContext, max_bytes: int, buckets: int) -> None:
    engine = Recording(context)
    assert update_engine(engine, snapshot(3), max_bytes) == 3
    assert engine.asked == ["begin 3 finish", *(f"bucket {index}" for index in range(buckets)), "finish"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda buckets: [buckets[0], buckets[0]], "bucket 0 of version 3 came where bucket 1 of version 3 was due"),
        (lambda buckets: [buckets[1]], "bucket 1 of version 3 came where bucket 0 of version 3 was due"),
        (lambda buckets: [buckets[0], replace(buckets[1], version=2)], "bucket 1 of version 2 came where bucket 1 of version 3 was due"),
    ],
    ids=["repeated", "missing", "of another version"],
)
def test_a_bucket_that_is_not_the_next_one_is_named_and_not_handed_over(
    context: InferenceContext, spoil: Callable[[list[Bucket]], list[Bucket]], words: str
) -> None:
    class Spoilt(Snapshot):
        def buckets(self, max_bytes: int) -> Iterator[Bucket]:
            yield from spoil(list(super().buckets(max_bytes)))

    engine, whole = Recording(context), snapshot(3)
    with pytest.raises(WeightsError, match=words):
        update_engine(engine, Spoilt(version=3, tensors=whole.tensors, checksums=whole.checksums), 1)
    assert engine.asked in (["begin 3 finish", "bucket 0"], ["begin 3 finish"])


def test_a_producer_cuts_its_buckets_as_it_was_told(context: InferenceContext) -> None:
    for bucket_bytes, buckets in ((1, TENSORS), (BUCKET_BYTES, 1)):
        engine = Recording(context)
        producer(engine, bucket_bytes).load(snapshot(1))
        assert sum(what.startswith("bucket") for what in engine.asked) == buckets


@pytest.mark.parametrize("place", ["bucket 0", "bucket 1", "finish", "score"])
def test_a_producer_whose_update_broke_off_generates_nothing_until_a_whole_one_has_landed(context: InferenceContext, place: str) -> None:
    engine = Recording(context)
    made = producer(engine)
    made.load(snapshot(1))
    engine.fails = place
    with pytest.raises(RunError, match=f"Recording of producer p0 failed while loading version 2: RuntimeError: lost at {place}"):
        made.load(snapshot(2))
    for call in (lambda: made.accept([JOB]), lambda: made.step(0.0)):
        with pytest.raises(RunError, match="an update of the weights of producer p0 broke off; it generates nothing before a"):
            call()
    assert made.torn
    engine.fails = ""
    made.load(snapshot(3))
    assert not made.torn
    made.accept([JOB])
    assert made.busy == 1


def test_a_producer_whose_engine_refused_a_version_goes_on_with_the_old_one(context: InferenceContext) -> None:
    engine = Recording(context)
    made = producer(engine)
    made.load(snapshot(1))
    whole = snapshot(2)
    with pytest.raises(WeightsError, match=r"pair\.weight"):
        made.load(Snapshot.of(2, {"last.weight": whole.tensors["last.weight"]}, whole.probe))
    assert (made.version, made.torn) == (1, False)
    made.accept([JOB])
    assert made.busy == 1


@pytest.mark.parametrize("bucket_bytes", [1, BUCKET_BYTES])
def test_the_torn_fake_dies_in_its_second_update_half_way(context: InferenceContext, bucket_bytes: int) -> None:
    engine = FaultyInference(context, FaultyInferenceOptions(fault="torn"))
    made = producer(engine, bucket_bytes)
    made.load(snapshot(1))
    with pytest.raises(RunError, match="failed while loading version 2: RuntimeError: the faulty engine died between two buckets"):
        made.load(snapshot(2))
    assert made.torn
    served = engine.score(np.array([5, 6, 7], np.int32))
    assert not np.allclose(served, snapshot(1).probe.logprobs)  # type: ignore[union-attr]
