"""A version is handed to an engine bucket by bucket; an update that breaks off leaves a producer that generates nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.contracts.errors import GroupBrokenError, RunError, WeightsError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import BUCKET_BYTES, Bucket, Probe, RemoteSnapshot, Snapshot, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Message, Prompt, Rollout, Sampling, Score
from rlcore.roles.producer import GroupJob, Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeInference, FakePolicy, FakeTokenizer, update_engine, write_fake_model
from rlcore.testing.inference.faulty_inference import FaultyInference, FaultyInferenceOptions

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
        (lambda buckets: [buckets[0], buckets[0]], "bucket 0 of version 3 arrived instead of bucket 1 of version 3"),
        (lambda buckets: [buckets[1]], "bucket 1 of version 3 arrived instead of bucket 0 of version 3"),
        (lambda buckets: [buckets[0], replace(buckets[1], version=2)], "bucket 1 of version 2 arrived instead of bucket 1 of version 3"),
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
        with pytest.raises(RunError, match="an update of the weights of producer p0 was interrupted; it cannot generate until a"):
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


class Joining(Recording):
    """Writes down the groups that it joins; weights come with its buckets all the same."""

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        self._note(f"connect {dict(info)} {epoch}")


class Carried(RemoteSnapshot):
    """Brings the tensors along, for an engine that has no transfer."""

    def buckets(self, max_bytes: int) -> Iterator[Bucket]:
        whole = list(snapshot(self.version).buckets(max_bytes))
        yield from (replace(mine, tensors=theirs.tensors) for mine, theirs in zip(self.parts, whole, strict=True))


def remote(version: int, epoch: int, *epochs: int) -> RemoteSnapshot:
    """``epochs``: those of its buckets, if they are others."""
    whole = snapshot(version)
    parts = [Bucket(version=version, index=index, epoch=of) for index, of in enumerate(epochs or (epoch, epoch))]
    return Carried(
        version=version, probe=whole.probe, infos=whole.manifest().tensors, epoch=epoch, info={"port": epoch}, parts=tuple(parts)
    )


def test_an_engine_joins_before_the_first_update_and_whenever_the_epoch_rose(context: InferenceContext) -> None:
    engine = Joining(context)
    for version, epoch in ((1, 4), (2, 4), (3, 6)):
        assert update_engine(engine, remote(version, epoch), 1) == version
    joined = [(place, what) for place, what in enumerate(engine.asked) if what.startswith("connect")]
    assert [what for _, what in joined] == ["connect {'port': 4} 4", "connect {'port': 6} 6"]
    assert [engine.asked[place + 1] for place, _ in joined] == ["begin 1 finish", "begin 3 finish"]


def test_an_engine_whose_connect_failed_has_not_joined(context: InferenceContext) -> None:
    engine = Joining(context)
    engine.fails = "connect {'port': 4} 4"
    with pytest.raises(RuntimeError):
        update_engine(engine, remote(1, 4), 1)
    engine.fails = ""
    update_engine(engine, remote(1, 4), 1)
    assert engine.asked.count("connect {'port': 4} 4") == 2


def test_an_epoch_that_goes_back_is_refused_before_the_engine_hears_of_it(context: InferenceContext) -> None:
    engine = Joining(context)
    update_engine(engine, remote(1, 4), 1)
    heard = list(engine.asked)
    with pytest.raises(WeightsError, match=r"version 2 comes by epoch 3 of its transfer, and Joining is a member of epoch 4; epochs must"):
        update_engine(engine, remote(2, 3), 1)
    assert engine.asked == heard


def test_a_bucket_of_another_epoch_is_named_and_not_handed_over(context: InferenceContext) -> None:
    engine = Joining(context)
    with pytest.raises(WeightsError, match="bucket 1 of version 2 is of epoch 3, and the version is of epoch 4"):
        update_engine(engine, remote(2, 4, 4, 3), 1)
    assert engine.asked[-1] == "bucket 0"
    whole = snapshot(3)

    class Mixed(Snapshot):
        def buckets(self, max_bytes: int) -> Iterator[Bucket]:
            yield from (replace(bucket, epoch=4) for bucket in super().buckets(max_bytes))

    with pytest.raises(WeightsError, match="bucket 0 of version 3 is of epoch 4, and the version is of epoch -1"):
        update_engine(engine, Mixed(version=3, tensors=whole.tensors, checksums=whole.checksums), 1)


def test_a_sleeping_engine_is_woken_once_if_the_group_breaks(context: InferenceContext) -> None:
    class Breaks(Joining):
        def wake(self) -> None:
            self._note("wake")
            super().wake()

        def connect(self, info: Mapping[str, Any], epoch: int) -> None:
            super().connect(info, epoch)
            if epoch == 1:
                raise GroupBrokenError("gone")

    engine = Breaks(context)
    made = producer(engine)
    made.sleep()
    with pytest.raises(GroupBrokenError):
        made.load(remote(1, 1))
    assert made.asleep
    made.load(remote(1, 2))
    assert engine.asked.count("wake") == 1
    assert made.serves
