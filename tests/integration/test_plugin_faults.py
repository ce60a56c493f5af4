"""What a plugin raises while a run goes on: one sentence that names the plugin, and never the run folder, which did nothing wrong."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from rlcore.testing import RunOutcome, RunTester
from tests.ray_in_one_process import ray_in_one_process

RUNTIME = (Path(__file__).parents[1] / "stranger/acme_rlcore/runtime.py").read_text()
ENTRY = """
from rlcore.api import RuntimeSpec, WeightTransferSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_runtimes():
    path = "rlcore_plugin_bad.runtime:"
    return [RuntimeSpec(name="lost", target=path + "Lost", config=path + "PoolOptions", summary="Broken")]

@hookimpl
def rlcore_register_weight_transfers():
    return [
        WeightTransferSpec(name=name, target="rlcore_plugin_bad.transfer:Lame", summary="Broken", reach=reach, preference=-1)
        for name, reach in (("process", "process"), ("cluster", "cluster"))
    ]
"""
LOST = """

class Lost(PoolCrew):
    def {call}(self, *arguments, **named):
        raise {error}
"""
LAME = """
import numpy as np
from rlcore.api.weights import HostLayout, Publisher, Receiver, WeightTransfer

FAULT = {fault!r}

class Sender(Publisher):
    newest = None
    ears = ()

    def __reduce__(self):  # to another process: one that has nothing
        return Sender, ()

    def address(self):
        if FAULT == "address raises":
            raise ConnectionError("no network today")
        return self

    def publish(self, version, source, probe=None):
        if FAULT == "publish raises":
            raise FileNotFoundError(2, "No such file or directory", "/nowhere/weights")
        layout = HostLayout(version=version, manifest=source.manifest(), probe=probe)
        memory = np.zeros(layout.size, np.uint8)
        layout.fill(source, memory, 1 << 20)
        self.newest = layout.verified(memory, layout.seal(memory, range(len(layout.offsets))))
        for ear in self.ears:
            ear.on_news()

    def close(self):
        if FAULT == "close raises":
            raise OSError("no network today")

class Getter(Receiver):
    def newer_than(self, version):
        if FAULT == "newer_than raises":
            raise ConnectionError("no network today")
        newest = self.sender.newest
        if newest is None or newest.version <= version:
            return None
        return 3 if FAULT == "newer_than returns a number" else newest

    def release(self, version):
        if FAULT == "release raises":
            raise ValueError("never heard of it")

    def close(self): ...

class Lame(WeightTransfer):
    def publisher(self, *, deadline, bucket_bytes, device="cpu", on_failure=None):
        if FAULT == "publisher raises":
            raise OSError("no network today")
        return None if FAULT == "publisher returns None" else Sender(on_failure)

    def receiver(self, *, name, address, deadline, on_news):
        if FAULT == "receiver raises":
            raise KeyError(name)
        if FAULT == "receiver returns None":
            return None
        made = Getter(name, on_news)
        made.sender = address
        address.ears = (*address.ears, made)
        return made
"""
NONE = "TypeError: the result of {0}() is of type NoneType, it must be a {1}"
UNMADE = {
    "publisher raises": "failed while making its publisher: OSError: no network today",
    "publisher returns None": "failed while making its publisher: " + NONE.format("publisher", "Publisher"),
    "receiver raises": "failed while making its receiver: KeyError: 'producer-0'",
    "receiver returns None": "failed while making its receiver: " + NONE.format("receiver", "Receiver"),
}
LATER = {
    "address raises": "failed while returning the address of its publisher: ConnectionError: no network today",
    "publish raises": "failed while publishing version 0: FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/weights'",
    "newer_than raises": "failed while receiving weights: ConnectionError: no network today",
    "newer_than returns a number": "failed while receiving weights: TypeError: the result of newer_than() is of type int",
}
LOCAL = ("--runtime", "local", "--transport", "process")
PROCESSES = ("--runtime", "local", "--max-staleness", "1", "--producer-restarts", "0", "--transport", "cluster")
RAY = ("--runtime", "ray", "--producer-restarts", "0", "--transport", "cluster")


def project(tmp_path: Path, *, fault: str = "", call: str = "status", error: str = "RuntimeError()") -> RunTester:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    files = {"runtime.py": RUNTIME + LOST.format(call=call, error=error), "transfer.py": LAME.format(fault=fault)}
    tester.plugins.install("bad", ENTRY, files=files)
    return tester


def sentence(done: RunOutcome, code: int) -> str:
    """The last line of both streams, without what it says of tracebacks: they must say the same, and never blame the run folder."""
    said = done.stderr.splitlines()[-1]
    assert done.exit_code == code, done
    assert said == f"error: {json.loads(done.stdout.splitlines()[-1])['error']}"
    assert "cannot be written" not in done.stderr
    return said.removeprefix("error: ").removesuffix(" (RLCORE_TRACEBACK=1 shows the traceback)")


def blamed(words: tuple[str, ...]) -> str:
    return f"weight transfer {words[-1]!r} of rlcore-plugin-bad"


def lame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, *words: str) -> RunOutcome:
    tester = project(tmp_path, fault=fault)
    with ray_in_one_process(monkeypatch):
        return tester.run("train", tester.fake_run(), "--json", *words)


@pytest.mark.parametrize("runtime", [LOCAL, RAY], ids=["local", "ray"])
@pytest.mark.parametrize("fault", UNMADE)
def test_an_end_of_a_transfer_that_cannot_be_made_refuses_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, runtime: tuple[str, ...]
) -> None:
    done = lame(tmp_path, monkeypatch, fault, *runtime)
    assert sentence(done, 2) == f"{blamed(runtime)} {UNMADE[fault]}"
    assert "Traceback" not in done.stderr
    assert not done.written


@pytest.mark.parametrize("words", [LOCAL, RAY], ids=["local", "ray"])
@pytest.mark.parametrize("fault", LATER)
def test_an_end_of_a_transfer_that_raises_later_ends_the_run_and_names_the_transfer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, words: tuple[str, ...]
) -> None:
    assert f"{blamed(words)} {LATER[fault]}" in sentence(lame(tmp_path, monkeypatch, fault, *words), 1)


@pytest.mark.parametrize("fault", ["address raises", "publish raises", "newer_than raises"])
def test_so_does_one_between_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    assert f"{blamed(PROCESSES)} {LATER[fault]}" in sentence(lame(tmp_path, monkeypatch, fault, *PROCESSES), 1)


def test_a_receiver_that_cannot_release_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = lame(tmp_path, monkeypatch, "release raises", *RAY)
    assert f"{blamed(RAY)} failed while releasing version 0: ValueError: never heard of it" in sentence(done, 1)


def test_an_end_of_a_transfer_that_cannot_close_is_told_and_the_run_stays_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rlcore"):
        lame(tmp_path, monkeypatch, "close raises", *LOCAL).assert_ok()
    assert f"{blamed(LOCAL)} failed while closing: OSError: no network today" in caplog.text


def test_the_same_transfer_without_a_fault_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lame(tmp_path, monkeypatch, "", *RAY).assert_ok()


@pytest.mark.parametrize("call", ["begin", "next_batch", "train"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("FileNotFoundError(2, 'No such file or directory', '/nowhere/list')", "[Errno 2] No such file or directory: '/nowhere/list'"),
        ("ConnectionError('no network today')", "no network today"),
    ],
)
def test_a_connection_or_a_file_that_fails_a_runtime_is_said_of_the_runtime(tmp_path: Path, call: str, error: str, said: str) -> None:
    tester = project(tmp_path, call=call, error=error)
    told = sentence(tester.run("train", tester.fake_run(run={"runtime": "lost"}), "--json"), 1)
    assert told.startswith(
        f"runtime 'lost' of rlcore-plugin-bad failed while training: {error.partition('(')[0]}: {said} (runtime.py, line "
    )
    assert told.endswith("; nothing was saved yet")


def test_a_tokenizer_that_cannot_be_saved_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(self: object, folder: Path) -> None:
        raise ConnectionError("no network today")

    tester = RunTester(tmp_path, in_process=True).with_fakes()
    config = tester.fake_run()
    monkeypatch.setattr("rlcore.testing.tokens.FakeTokenizer.save", save)
    told = sentence(tester.run("train", config, "--json"), 1)
    assert told.startswith("the tokenizer failed while saving into ")
    assert "model: ConnectionError: no network today" in told


def test_a_training_backend_that_cannot_save_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(self: object, folder: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/nowhere/state")

    monkeypatch.setattr("rlcore.testing.training.fake_training.FakeTraining.save", save)
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    told = sentence(tester.run("train", tester.fake_run(), "--json"), 1)
    assert told.startswith("the training backend FakeTraining failed while saving into ")


def test_a_run_folder_that_goes_away_is_said_of_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr("rlcore.runlog.checkpoint.sync_folder", gone)
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    done = tester.run("train", tester.fake_run(), "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout.splitlines()[-1])["error"].endswith(
        ".step-3.partial: cannot be written (No such file or directory); nothing was saved yet"
    )
    assert "Traceback" not in done.stderr


def test_a_defect_of_a_transfer_of_rlcore_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def publisher(self: object, **named: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr("rlcore.weights.memory.MemoryTransfer.publisher", publisher)
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    done = tester.run("train", tester.fake_run(), "--json")
    assert sentence(done, 1) == "weight transfer 'memory' of rlcore failed while making its publisher: ValueError: a defect"
    assert "Traceback" in done.stderr
