"""Two builds at a time, builds that are killed, and what the disk refuses. Python and pip are a shell script that can be held up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rlcore_plugin_workers import environment_locks
from rlcore_plugin_workers.environment_folders import MARKER, build, folder_of, is_whole, kept, named_folder, remove
from rlcore_plugin_workers.environment_locks import HERE, Lock
from rlcore_plugin_workers.python_check import installing

from rlcore.api import ConfigError, RunError, UsageError

PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; fi
echo "$*" >> "$FAKE/asked"
echo Collecting it
if [ -e "$FAKE/fails" ]; then cat "$FAKE/fails"; exit 1; fi
if [ -e "$FAKE/hold" ]; then
  sleep 60 >/dev/null 2>&1 & echo $! > "$FAKE/pid"
  while [ -e "$FAKE/hold" ]; do sleep 0.1; done
  kill $(cat "$FAKE/pid")
fi
"""
BUILD = """
import sys
from pathlib import Path
from rlcore_plugin_workers.environment_folders import build
from rlcore_plugin_workers.environment_locks import Lock
sys.executable = sys.argv[1]
print(build(Lock("acme-cpu", "acme", Path(sys.argv[2])), lambda line: print(line, file=sys.stderr, flush=True)))
"""


class Bench:
    """A lock, and a Python of which tests say what it does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, folder / "python"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)
        self.lock = self.locked("acme-part==1.0\n")
        self.said: list[str] = []

    def locked(self, text: str) -> Lock:
        (self.folder / "acme-cpu.lock").write_text(text)
        return Lock("acme-cpu", "acme", self.folder / "acme-cpu.lock")

    def build(self) -> bool:
        return build(self.lock, self.said.append)

    def start(self) -> subprocess.Popen[str]:
        """A build in a process of its own."""
        words = [REAL, "-c", BUILD, str(self.python), str(self.lock.path)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def held(self) -> subprocess.Popen[str]:
        """One whose pip waits until the file ``hold`` is gone."""
        (self.folder / "hold").touch()
        started = self.start()
        until((self.folder / "pid").exists)
        return started

    def files(self) -> list[str]:
        return sorted(path.name for path in folder_of(self.lock).parent.iterdir())


REAL = sys.executable


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(made.python))
    return made


def test_a_second_build_says_whom_it_waits_for_and_finds_it_made(bench: Bench) -> None:
    first = bench.held()
    second = bench.start()
    assert second.stderr is not None
    assert f"acme-cpu: waiting for process {first.pid}, or the pip" in second.stderr.readline()
    (bench.folder / "hold").unlink()
    assert (first.communicate()[0], second.communicate()[0]) == ("True\n", "False\n")
    folder = folder_of(bench.lock).name
    assert bench.files() == [folder, f"{folder}.log"]


def test_after_a_kill_the_next_build_waits_for_the_pip_that_is_left(bench: Bench) -> None:
    first = bench.held()
    first.kill()
    first.communicate()
    second = bench.start()
    assert second.stderr is not None
    assert f"waiting for process {first.pid}, or the pip" in second.stderr.readline()
    assert (folder_of(bench.lock) / "bin" / "python").exists()
    (bench.folder / "hold").unlink()
    assert second.communicate()[0] == "True\n"
    assert is_whole(folder_of(bench.lock))


def test_an_interrupted_build_ends_what_pip_has_started(bench: Bench) -> None:
    started = bench.held()
    until(lambda: (bench.folder / "pid").read_text().endswith("\n"))
    child = Path("/proc", (bench.folder / "pid").read_text().strip(), "cmdline")
    assert child.read_bytes()
    started.send_signal(signal.SIGINT)
    started.communicate()
    until(lambda: not child.exists() or not child.read_bytes())
    assert not folder_of(bench.lock).exists()


def test_what_pip_says_is_in_the_log_at_once(bench: Bench) -> None:
    started = bench.held()
    folder = folder_of(bench.lock)
    until(lambda: folder.with_name(f"{folder.name}.log").read_text() == "Collecting it\n")
    (bench.folder / "hold").unlink()
    started.communicate()


def test_a_full_disk_is_told_with_the_folder_and_the_way_out(bench: Bench) -> None:
    folder = folder_of(bench.lock)
    folder.parent.mkdir(parents=True)
    folder.with_name(f"{folder.name}.log").symlink_to("/dev/full")
    said = rf"^environment acme-cpu cannot be made: {folder.parent}: No space left on device \(\S+ GB are free .*; type XDG_CACHE_HOME="
    with pytest.raises(RunError, match=said):
        bench.build()
    assert not folder.exists()


def test_no_space_for_pip_is_told_the_same_way(bench: Bench) -> None:
    (bench.folder / "fails").write_text("ERROR: [Errno 28] No space left on device\n")
    with pytest.raises(RunError, match=rf"{folder_of(bench.lock)}: ERROR: .*GB are free without it\); type XDG_CACHE_HOME="):
        bench.build()


def test_a_package_of_an_index_is_asked_of_that_index_alone_and_first(bench: Bench) -> None:
    plain = bench.lock.key
    bench.lock = bench.locked("acme-part==1.0  # index: https://example.org/cpu\nother==1.0\n")
    bench.build()
    first, second = (bench.folder / "asked").read_text().splitlines()
    assert first.endswith("install --no-deps --extra-index-url=https://example.org/cpu acme-part==1.0")
    assert second.endswith("install --no-deps other==1.0")
    assert plain == bench.locked("acme-part==1.0  # index: https://example.org/cpu\n").key


def test_a_version_that_no_index_has_is_told_with_what_to_type(bench: Bench) -> None:
    bench.lock = bench.locked("acme-part==1.0  # index: https://example.org/cpu\n")
    (bench.folder / "fails").write_text("ERROR: No matching distribution found for acme-part==1.0\n")
    said = r"acme-part==1.0; https://example.org/cpu has it, if .*; type PIP_EXTRA_INDEX_URL=ADDRESS before the command"
    with pytest.raises(RunError, match=said):
        bench.build()


def test_an_environment_of_another_python_is_neither_old_nor_removed(bench: Bench) -> None:
    bench.build()
    mine = folder_of(bench.lock)
    other = mine.with_name("acme-cpu-0123456789ab")
    other.mkdir()
    (other / MARKER).write_text(json.dumps({"for": "Python 2.7 on plan9 mips"}))
    assert kept(bench.lock) == [mine]
    assert not remove(bench.lock, other, bench.said.append)
    assert other.exists()
    (other / MARKER).write_text(json.dumps({"for": HERE}))
    assert remove(bench.lock, other, bench.said.append)
    assert bench.files() == [mine.name, f"{mine.name}.log"]


def test_what_cannot_be_deleted_is_not_called_removed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.build()

    def refuse(path: str, **_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(RunError, match=r"^environment acme-cpu cannot be deleted: .*Permission denied; delete .* by hand$"):
        remove(bench.lock, folder_of(bench.lock), bench.said.append)


def test_a_lock_may_ask_for_another_python(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench.lock = bench.locked("# python: 3.99\nacme-part==1.0\n")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    with pytest.raises(UsageError, match=r"environment acme-cpu needs Python 3.99, and there is no python3.99 on PATH or in pyenv"):
        bench.build()
    chosen = tmp_path / "pyenv" / "versions" / "3.99.1" / "bin" / "python3.99"
    chosen.parent.mkdir(parents=True)
    chosen.write_text(PYTHON)
    chosen.chmod(0o755)
    assert bench.build()
    assert json.loads((folder_of(bench.lock) / MARKER).read_text())["for"].startswith("Python 3.99 on ")
    assert folder_of(bench.lock) != folder_of(bench.locked("acme-part==1.0\n"))


def test_an_environment_is_named_by_its_folder_or_as_it_was_built(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_locks, "find_locks", lambda: {"acme-cpu": [bench.lock]})
    with pytest.raises(ConfigError, match="environment acme-cpu has not been made; type: rlcore env build acme-cpu"):
        named_folder("acme-cpu")
    bench.build()
    assert named_folder("acme-cpu") == folder_of(bench.lock)
    assert named_folder("venvs/acme-cpu") == Path("venvs/acme-cpu").absolute()
    assert named_folder("./acme-cpu") == Path("acme-cpu").absolute()
    with pytest.raises(ConfigError, match=r"there is no folder .*/acme-cp, and 'acme-cp' is not .*; did you mean acme-cpu"):
        named_folder("acme-cp")


def test_what_an_environment_of_a_lock_lacks_belongs_in_the_lock(bench: Bench) -> None:
    python = folder_of(bench.lock) / "bin" / "python"
    assert installing(python, "tomli_w") == f"type {python} -m pip install tomli-w"
    bench.build()
    assert installing(python, "tomli_w") == "it was built from a lock: add tomli-w to the lock, and build it again with rlcore env build"
