"""Weights that are wrong are found at the first synchronisation, on every transport, and a process that dies or stands still is named."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

import numpy as np
import pytest

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import Probe, Snapshot, Tensor
from rlcore.contracts.types import Prompt, Rollout, Score
from rlcore.roles.producer import Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeInference, FakeInferenceOptions, FakePolicy, FakeTokenizer, write_fake_model
from rlcore.weights import manifest, shared
from rlcore.weights.memory import MemoryPublisher, MemoryReceiver
from rlcore.weights.shared import SharedPublisher
from rlcore.weights.shared_receiver import SharedReceiver

PATIENCE = 60.0
VERSION = 5
FAULTS = {
    "dropped tensor": r"without tensor 'pair.weight'",
    "torn half": r"tensor 'pair.weight' has another checksum",
    "wrong dtype": r"tensor 'last.weight' has another checksum.* arrived as bfloat16",
    "swapped names": r"tensor '(last|pair).weight' has another checksum.* carries what was sent as '(pair|last).weight'",
    "not sealed": r"with tensor 'extra', which its sender did not seal",
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


def faulty(fault: str) -> Snapshot:
    """What a trainer with this fault publishes as VERSION; ``stale`` is whole and sealed, but of another version."""
    old, new = good(VERSION - 1, 1), good(VERSION, 2)
    tensors: dict[str, Tensor] = dict(new.tensors)
    match fault:
        case "dropped tensor":
            del tensors["pair.weight"]
        case "torn half":
            data = np.array(tensors["pair.weight"].data)
            data[len(data) // 2 :] = old.tensors["pair.weight"].data[len(data) // 2 :]
            tensors["pair.weight"] = replace(tensors["pair.weight"], data=data)
        case "wrong dtype":
            bits = tensors["last.weight"].data.view(np.uint32)
            tensors["last.weight"] = replace(tensors["last.weight"], dtype="bfloat16", data=(bits >> 16).astype(np.uint16))
        case "swapped names":
            tensors = {"last.weight": tensors["pair.weight"], "pair.weight": tensors["last.weight"]}
        case "not sealed":
            tensors["extra"] = tensors["last.weight"]
        case "stale snapshot":
            return Snapshot.of(VERSION, old.tensors, new.probe)
    return replace(new, tensors=tensors)


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


@pytest.mark.parametrize("fault", FAULTS)
def test_memory_finds_it(fault: str, tmp_path: Path) -> None:
    publisher, made = MemoryPublisher(), producer(tmp_path)
    publisher.publish(faulty(fault))
    snapshot = MemoryReceiver("p0", publisher, lambda: None).newer_than(0)
    assert snapshot is not None
    with pytest.raises(WeightsError, match=FAULTS[fault]):
        made.load(snapshot)


@pytest.mark.parametrize("fault", FAULTS)
def test_shared_memory_finds_it(fault: str, tmp_path: Path) -> None:
    made = producer(tmp_path)
    publisher = SharedPublisher(PATIENCE)
    receiver = SharedReceiver("p0", publisher.address(), PATIENCE, News())
    publisher.publish(faulty(fault))
    with pytest.raises(WeightsError, match=FAULTS[fault]) as found:
        made.load(next_of(receiver, VERSION))
    assert "producer p0" in str(found.value)
    del found
    receiver.close()
    publisher.close()


def test_good_weights_are_taken(tmp_path: Path) -> None:
    made = producer(tmp_path)
    publisher = SharedPublisher(PATIENCE)
    receiver = SharedReceiver("p0", publisher.address(), PATIENCE, News())
    publisher.publish(good(VERSION, 2))
    made.load(next_of(receiver, VERSION))
    assert made.version == VERSION
    receiver.close()
    publisher.close()


# --- processes that die or stand still, shared memory

KIT = """
import pickle, sys, time, threading
import numpy as np
from rlcore.contracts.snapshots import Snapshot, Tensor
from rlcore.weights import manifest, shared
from rlcore.weights.shared import SharedPublisher
from rlcore.weights.shared_receiver import SharedReceiver

def say(what):
    print(what, flush=True)

def snapshot(version):
    data = np.full(5_000_000, version, np.float32)
    return Snapshot.sealed_late(version, {"w": Tensor(dtype="float32", shape=data.shape, data=data)})
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
while True:
    time.sleep(60)
"""
PUBLISHER = """
write = shared.write_tensors

def half(*arguments):
    for count, reached in enumerate(write(*arguments)):
        yield reached
        if count == 3 and arguments[0].version == 1:
            say("half")
            time.sleep(1000)

shared.write_tensors = half
publisher = SharedPublisher(60.0)
say(pickle.dumps(publisher.address()).hex())
for line in sys.stdin:
    publisher.publish(snapshot(int(line)))
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


def large(version: int) -> Snapshot:
    data = np.full(5_000_000, version, np.float32)
    return Snapshot.sealed_late(version, {"w": Tensor(dtype="float32", shape=data.shape, data=data)})


@contextmanager
def both_ends(deadline: float, failures: list[WeightsError]) -> Iterator[tuple[SharedPublisher, SharedReceiver]]:
    publisher = SharedPublisher(deadline, failures.append)
    receiver = SharedReceiver("p1", publisher.address(), PATIENCE, News())
    try:
        yield publisher, receiver
    finally:
        receiver.close()
        publisher.close()


@pytest.mark.parametrize("when", ["in the middle", "while it holds two versions"])
def test_a_receiver_that_is_killed_disturbs_nobody(when: str, start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch) -> None:
    middle, go_on = threading.Event(), threading.Event()
    write = shared.write_tensors

    def stopping(*arguments: Any) -> Iterator[int]:
        for reached in write(*arguments):
            yield reached
            middle.set()
            assert go_on.wait(PATIENCE)

    monkeypatch.setattr(shared, "write_tensors", stopping)
    failures: list[WeightsError] = []
    with both_ends(PATIENCE, failures) as (publisher, receiver):
        victim = start(RECEIVER, pickle.dumps(publisher.address()).hex(), "1" if when != "in the middle" else "0")
        assert victim.hear() == "here"
        if when == "in the middle":
            publisher.publish(large(0))
            assert middle.wait(PATIENCE)
            victim.kill()
            go_on.set()
        else:
            go_on.set()
            for version in (0, 1):
                publisher.publish(large(version))
                assert victim.hear() == str(version)
                next_of(receiver, version)
                receiver.release(version)
            publisher.publish(large(2))
            assert receiver.newer_than(1) is None  # the victim holds both buffers
            victim.kill()
        for version in range(1 if when == "in the middle" else 3, 7):
            next_of(receiver, version - 1)
            receiver.release(version - 1)
            publisher.publish(large(version))
        assert float(next_of(receiver, 6).tensors["w"].data[-1]) == 6.0
    assert failures == []


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_publisher_that_ends_in_the_middle_is_named(how: str, start: Callable[..., Child]) -> None:
    child = start(PUBLISHER)
    address = pickle.loads(bytes.fromhex(child.hear()))
    receiver = SharedReceiver("p1", address, PATIENCE, News())
    child.tell("0")
    assert float(next_of(receiver, 0).tensors["w"].data[-1]) == 0.0
    if how == "stopped":
        receiver._deadline = 0.5  # for the transfer that stands still, not for the one before it
    child.tell("1")
    assert child.hear() == "half"
    if how == "killed":
        child.kill()
    else:
        child.process.send_signal(SIGSTOP)
    while receiver._follower is not None or not receiver._failure:
        receiver.on_news.wait()  # type: ignore[attr-defined]
    said = "is gone in the middle of" if how == "killed" else "sent nothing for 0.5 s in the middle of"
    with pytest.raises(
        WeightsError, match=rf"producer p1: the trainer \(process {child.process.pid} on .* {said} version 1, at tensor 'w', \d"
    ):
        receiver.newer_than(0)
    receiver.close()


def test_a_publisher_that_is_killed_between_transfers_leaves_what_it_sent(start: Callable[..., Child]) -> None:
    child = start(PUBLISHER)
    receiver = SharedReceiver("p1", pickle.loads(bytes.fromhex(child.hear())), PATIENCE, News())
    child.tell("0")
    got = next_of(receiver, 0)
    child.kill()
    receiver._thread.join(PATIENCE)
    got.verify()
    assert receiver.newer_than(0) is None
    del got
    receiver.close()


@pytest.mark.parametrize("when", ["holding", "before it looks"])
def test_a_receiver_that_is_stopped_is_named_at_the_deadline(when: str, start: Callable[..., Child]) -> None:
    failures: list[WeightsError] = []
    failed = threading.Event()
    publisher = SharedPublisher(0.5, lambda error: (failures.append(error), failed.set())[0])
    victim = start(RECEIVER, pickle.dumps(publisher.address()).hex(), "0")
    assert victim.hear() == "here"
    if when == "holding":
        publisher.publish(large(0))
        assert victim.hear() == "0"
    while not publisher._readers.present():
        time.sleep(0.01)
    victim.process.send_signal(SIGSTOP)
    version = 1
    while not failed.wait(0.2):
        with suppress(WeightsError):
            publisher.publish(large(version))
        version += 1
        assert version < 200
    with pytest.raises(WeightsError, match=rf"producer victim \(process {victim.process.pid}\) since version \d.*--weights-deadline"):
        publisher.publish(large(version))
    assert len(failures) == 1
    victim.process.send_signal(SIGCONT)
    publisher.close()


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


def test_the_chunks_are_smaller_than_what_is_sent_here() -> None:
    assert large(0).tensors["w"].data.nbytes > manifest.CHUNK * 4
