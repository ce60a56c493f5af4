"""Weights that are wrong are found at the first synchronisation, on every transport, and a process that dies or stands still is named."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import SIGKILL, SIGSTOP
from typing import Any
from unittest import mock

import numpy as np
import pytest
from rlcore_plugin_processes.shared import SharedPublisher
from rlcore_plugin_processes.shared_receiver import SharedReceiver

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import BUCKET_BYTES, Probe, Snapshot, Tensor
from rlcore.contracts.types import Prompt, Rollout, Score
from rlcore.contracts.weight_transfer import Publisher
from rlcore.roles.producer import Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeInference, FakeInferenceOptions, FakePolicy, FakeTokenizer, write_fake_model
from rlcore.testing.weights import HostSource, publish
from rlcore.weights.host_layout import HostLayout
from rlcore.weights.memory import MemoryPublisher, MemoryReceiver

PATIENCE = 60.0
VERSION = 5
AT_THE_TRAINER = {
    "dropped tensor": r"tensor 'pair.weight' of version 5, .* was not published",
    "wrong dtype": r"tensor 'last.weight' of version 5, .* is bfloat16\[.*, its manifest says float32",
    "not announced": r"tensor 'extra' of version 5, .* is not in its manifest",
}
ON_THE_WAY = {
    "torn half": r"tensor 'pair.weight' does not have the checksum",
    "swapped names": r"tensor '(last|pair).weight' does not have the checksum.* carries the data that was sent as '(pair|last).weight'",
    "stale snapshot": rf"producer p0 does not serve version {VERSION}: its probe log probabilities differ",
}


class NoJudge:
    """Nothing is generated here."""

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        raise AssertionError

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        return []


def good(version: int, seed: int) -> Snapshot:
    """Weights drawn by the seed, with the log probabilities of a probe."""
    policy = FakePolicy.random(len(FakeTokenizer()), seed, 0.5)
    ids = np.array([5, 6, 7, 3], np.int32)
    return Snapshot.of(
        version, dict(policy.tensors()), Probe(token_ids=ids, logprobs=policy.logprobs(ids).astype(np.float32), tolerance=1e-3)
    )


class Odd(HostSource):
    """Announces the weights of VERSION and hands out others."""

    def __init__(self, fault: str) -> None:
        super().__init__(good(VERSION, 2).tensors)
        self.handed = dict(self.tensors)
        if fault == "dropped tensor":
            del self.handed["pair.weight"]
        elif fault == "not announced":
            self.handed["extra"] = self.handed["last.weight"]
        else:
            bits = self.handed["last.weight"].data.view(np.uint32)
            self.handed["last.weight"] = replace(self.handed["last.weight"], dtype="bfloat16", data=(bits >> 16).astype(np.uint16))

    def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
        yield self.handed


@contextmanager
def going_wrong(fault: str) -> Iterator[Snapshot]:
    """What to publish as VERSION, where this happens to it between trainer and producer; ``stale`` is whole, but of another version."""
    old, new, seal = good(VERSION - 1, 1), good(VERSION, 2), HostLayout.seal

    def damaged(layout: HostLayout, memory: np.ndarray, places: Sequence[int]) -> np.ndarray:
        sealed = seal(layout, memory, places)
        if fault == "torn half":
            place = [tensor.name for tensor in layout.manifest.tensors].index("pair.weight")
            size = layout.manifest.tensors[place].nbytes
            memory[layout.offsets[place] + size // 2 :][: size // 2] = old.tensors["pair.weight"].flat[size // 2 :]
        return sealed[::-1].copy() if fault == "swapped names" else sealed

    with mock.patch.object(HostLayout, "seal", damaged):
        yield replace(old, version=VERSION, probe=new.probe) if fault == "stale snapshot" else new


def producer(folder: Path) -> Producer:
    """A producer p0 that serves version 0."""
    model = write_fake_model(folder / "model")
    context = InferenceContext(model=str(model), tokenizer=FakeTokenizer(), prompts_per_forward=2, max_tokens=64)
    return Producer("p0", FakeInference(context, FakeInferenceOptions()), FakeTokenizer(), NoJudge(), TimeAccount(), SingleTurn())


class News:
    """What ``on_news`` of a receiver is: it can be waited for."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> None:
        self._event.set()

    def wait(self) -> None:
        if not self._event.wait(60.0):
            raise AssertionError("nothing came")
        self._event.clear()


def next_of(receiver: Any, version: int) -> Snapshot:
    """This version or a newer one."""
    while (snapshot := receiver.newer_than(version - 1)) is None:
        receiver.on_news.wait()
    return snapshot  # type: ignore[no-any-return]


def processes_maps(pid: int | str) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/maps").read_text()
    return ""


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = set(Path("/dev/shm").iterdir())
    yield
    assert "rlcore-weights" not in processes_maps("self"), "a buffer is still mapped"
    left = {path.name for path in set(Path("/dev/shm").iterdir()) - before if "rlcore" in path.name}
    assert not left, f"left in /dev/shm: {left}"


# --- wrong weights, in one process


@pytest.mark.parametrize("fault", AT_THE_TRAINER)
@pytest.mark.parametrize("publisher", [MemoryPublisher, partial(SharedPublisher, PATIENCE)], ids=["memory", "shared"])
def test_a_trainer_that_hands_out_other_weights_than_it_announces_is_told(publisher: Callable[[int], Publisher], fault: str) -> None:
    made = publisher(BUCKET_BYTES)
    with pytest.raises(WeightsError, match=AT_THE_TRAINER[fault]):
        made.publish(VERSION, Odd(fault))
    made.close()


@pytest.mark.parametrize("fault", ON_THE_WAY)
def test_memory_finds_it(fault: str, tmp_path: Path) -> None:
    publisher, made = MemoryPublisher(BUCKET_BYTES), producer(tmp_path)
    with going_wrong(fault) as sent:
        publish(publisher, sent)
    with pytest.raises(WeightsError, match=ON_THE_WAY[fault]) as found:
        made.load(next_of(MemoryReceiver("p0", publisher, News()), VERSION))
    assert "producer p0" in str(found.value)


@pytest.mark.parametrize("fault", ON_THE_WAY)
def test_shared_memory_finds_it(fault: str, tmp_path: Path) -> None:
    made = producer(tmp_path)
    publisher = SharedPublisher(PATIENCE, BUCKET_BYTES)
    receiver = SharedReceiver("p0", publisher.address(), PATIENCE, News())
    with going_wrong(fault) as sent:
        publish(publisher, sent)
        with pytest.raises(WeightsError, match=ON_THE_WAY[fault]) as found:
            made.load(next_of(receiver, VERSION))
    assert "producer p0" in str(found.value)
    del found
    receiver.close()
    publisher.close()


def test_good_weights_are_taken(tmp_path: Path) -> None:
    made = producer(tmp_path)
    publisher = SharedPublisher(PATIENCE, BUCKET_BYTES)
    receiver = SharedReceiver("p0", publisher.address(), PATIENCE, News())
    publish(publisher, good(VERSION, 2))
    made.load(next_of(receiver, VERSION))
    assert made.version == VERSION
    receiver.close()
    publisher.close()


# --- processes that die or stand still, shared memory

KIT = """
import pickle, sys, time, threading
import numpy as np
from rlcore.contracts.snapshots import Tensor
from rlcore.testing.weights import HostSource
from rlcore.weights.host_layout import HostLayout
from rlcore_plugin_processes.shared import SharedPublisher
from rlcore_plugin_processes.shared_receiver import SharedReceiver

def say(what):
    print(what, flush=True)

def source(version):
    data = np.full(1_000_000, version, np.float32)
    return HostSource({f"w{index}": Tensor(dtype="float32", shape=data.shape, data=data) for index in range(5)})
"""
RECEIVER = """
news = threading.Event()
receiver = SharedReceiver("victim", pickle.loads(bytes.fromhex(sys.argv[1])), 60.0, news.set)
say("here")
version = -1
while version < int(sys.argv[2]):
    if (got := receiver.newer_than(version)) is None:
        news.wait()
        news.clear()
    else:
        version = got.version
        say(version)
        if len(sys.argv) > 3:
            receiver.release(version)
while True:
    time.sleep(60)
"""
PUBLISHER = """
seal = HostLayout.seal

def half(layout, memory, places):
    if layout.version == 1 and places[0] == 3:
        say("half")
        time.sleep(1000)
    return seal(layout, memory, places)

HostLayout.seal = half
publisher = SharedPublisher(60.0, 4_000_000)
say(pickle.dumps(publisher.address()).hex())
for line in sys.stdin:
    publisher.publish(int(line), source(int(line)))
"""


class Child:
    """A process that runs a script after KIT and says what happens, line by line."""

    def __init__(self, script: str, *arguments: str) -> None:
        command = [sys.executable, "-c", KIT + script, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(SIGKILL)
        self.process.wait(PATIENCE)


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """Starts children, and ends them with the test."""
    children: list[Child] = []

    def one(script: str, *arguments: str) -> Child:
        children.append(Child(script, *arguments))
        return children[-1]

    yield one
    for child in children:
        child.kill()
        for pipe in (child.process.stdin, child.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


WEIGHTS_BYTES = 5 * 4_000_000


def large(version: int) -> Snapshot:
    data = np.full(1_000_000, version, np.float32)
    return Snapshot.of(version, {f"w{index}": Tensor(dtype="float32", shape=data.shape, data=data) for index in range(5)})


@contextmanager
def both_ends(deadline: float, failures: list[WeightsError], drops: list[str]) -> Iterator[tuple[SharedPublisher, SharedReceiver]]:
    publisher = SharedPublisher(deadline, 4_000_000, failures.append)
    publisher.on_drop = drops.append
    receiver = SharedReceiver("p1", publisher.address(), PATIENCE, News())
    try:
        yield publisher, receiver
    finally:
        receiver.close()
        publisher.close()


@pytest.mark.parametrize("when", ["in the middle", "while it holds a version"])
def test_a_receiver_that_is_killed_disturbs_nobody(when: str, start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch) -> None:
    middle, go_on, seal = threading.Event(), threading.Event(), HostLayout.seal

    def stopping(layout: HostLayout, memory: np.ndarray, places: Sequence[int]) -> Any:
        if places[0] == 2:
            middle.set()
            assert go_on.wait(PATIENCE)
        return seal(layout, memory, places)

    monkeypatch.setattr(HostLayout, "seal", stopping)
    failures: list[WeightsError] = []
    drops: list[str] = []
    with both_ends(PATIENCE, failures, drops) as (publisher, receiver):
        victim = start(RECEIVER, pickle.dumps(publisher.address()).hex(), "0")
        assert victim.hear() == "here"
        publish(publisher, large(0))
        assert middle.wait(PATIENCE)
        if when == "in the middle":
            victim.kill()
        go_on.set()
        if when != "in the middle":
            assert victim.hear() == "0"
            victim.kill()
        for version in range(1, 7):
            next_of(receiver, version - 1)
            receiver.release(version - 1)
            publish(publisher, large(version))
        assert float(next_of(receiver, 6).tensors["w4"].data[-1]) == 6.0
    assert failures == []
    assert drops == []


def rewritten(publisher: SharedPublisher) -> list[str]:
    """Receivers whose buffer no longer holds the version that they may be reading."""
    with publisher._changed:
        held = [(str(one), one.holds) for one in publisher._readers.present() if one.holds is not None]
        return [name for name, offer in held if (offer.memory.flat[:WEIGHTS_BYTES].view(np.float32) != offer.version).any()]


@pytest.mark.parametrize("when", ["holding", "before it looks"])
def test_a_receiver_that_is_stopped_is_ended_and_the_others_go_on(when: str, start: Callable[..., Child]) -> None:
    """SIGSTOP: it says nothing and lets go of nothing. Publishing goes on, nobody else waits, its process is ended at the deadline."""
    failures: list[WeightsError] = []
    drops: list[str] = []
    with both_ends(2.0, failures, drops) as (publisher, other):
        victim = start(RECEIVER, pickle.dumps(publisher.address()).hex(), "100000", "releases")
        assert victim.hear() == "here"
        version = 0
        if when == "holding":
            publish(publisher, large(0))
            assert victim.hear() == "0"
        while len(publisher._readers.present()) < 2:
            time.sleep(0.01)
        victim.process.send_signal(SIGSTOP)
        while not drops:
            version += 1
            publish(publisher, large(version))
            got = next_of(other, version)
            assert rewritten(publisher) == []
            assert all((tensor.data == got.version).all() for tensor in got.tensors.values())
            assert len(publisher._buffers) <= 3
            other.release(got.version)
            del got
        assert victim.process.wait(PATIENCE) == -SIGKILL
        for later in range(version + 1, version + 5):
            publish(publisher, large(later))
            assert next_of(other, later).version == later
            other.release(later)
        with publisher._changed:
            assert publisher._changed.wait_for(lambda: len(publisher._readers.present()) == 1, PATIENCE)
    assert failures == []
    (said,) = drops
    assert re.search(rf"producer victim \(process {victim.process.pid}\) (kept|verified nothing of) version", said)


def test_a_receiver_that_is_stopped_with_nothing_in_its_hands_is_ended_by_one_version(start: Callable[..., Child]) -> None:
    """The trainer may have nothing to publish before the work of the stopped producer is done by another one."""
    failures: list[WeightsError] = []
    drops: list[str] = []
    with both_ends(2.0, failures, drops) as (publisher, other):
        victim = start(RECEIVER, pickle.dumps(publisher.address()).hex(), "100000", "releases")
        assert victim.hear() == "here"
        publish(publisher, large(0))
        assert victim.hear() == "0"
        with publisher._changed:
            assert publisher._changed.wait_for(
                lambda: all(one.holds is None for one in publisher._readers.present() if one.name == "victim")
            )
        victim.process.send_signal(SIGSTOP)
        other.release(next_of(other, 0).version)
        publish(publisher, large(1))
        assert next_of(other, 1).version == 1
        assert victim.process.wait(PATIENCE) == -SIGKILL
    assert failures == []
    (said,) = drops
    assert f"producer victim (process {victim.process.pid}) verified nothing of version 1 for 2 s" in said


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_publisher_that_ends_in_the_middle_is_named(how: str, start: Callable[..., Child]) -> None:
    child = start(PUBLISHER)
    address = pickle.loads(bytes.fromhex(child.hear()))
    receiver = SharedReceiver("p1", address, PATIENCE, News())
    child.tell("0")
    assert float(next_of(receiver, 0).tensors["w4"].data[-1]) == 0.0
    receiver.release(0)
    if how == "stopped":
        receiver._deadline = 0.5  # for the transfer that stands still, not for the one before it
    child.tell("1")
    assert child.hear() == "half"
    if how == "killed":
        child.kill()
    else:
        child.process.send_signal(SIGSTOP)
    receiver._thread.join(PATIENCE)  # it ends with what it has to say
    said = "is gone in the middle of" if how == "killed" else "sent nothing for 0.5 s in the middle of"
    with pytest.raises(
        WeightsError, match=rf"producer p1: the trainer \(process {child.process.pid} on .* {said} version 1, with 3 buckets verified"
    ):
        receiver.newer_than(0)
    receiver.close()


def test_a_publisher_that_is_killed_between_transfers_is_named_and_leaves_what_it_sent(start: Callable[..., Child]) -> None:
    child = start(PUBLISHER)
    receiver = SharedReceiver("p1", pickle.loads(bytes.fromhex(child.hear())), PATIENCE, News())
    child.tell("0")
    got = next_of(receiver, 0)
    child.kill()
    receiver._thread.join(PATIENCE)
    got.verify()
    with pytest.raises(WeightsError, match=rf"producer p1: the trainer \(process {child.process.pid} .* disconnected between two versions"):
        receiver.newer_than(0)
    del got
    receiver.close()


def test_a_killed_process_leaves_no_memory_behind(start: Callable[..., Child]) -> None:
    """Nothing has a name: when the last process is gone, so is the memory."""
    child = start(PUBLISHER)
    receiver = SharedReceiver("p1", pickle.loads(bytes.fromhex(child.hear())), PATIENCE, News())
    child.tell("0")
    next_of(receiver, 0)
    assert "memfd:rlcore-weights" in processes_maps(child.process.pid)
    assert "memfd:rlcore-weights" in processes_maps("self")
    child.kill()
    receiver.close()
    assert "memfd:rlcore-weights" not in processes_maps("self")
