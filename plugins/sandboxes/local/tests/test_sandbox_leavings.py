"""What a program leaves in the folder of level landlock: counted when it has ended, removed at its cost, never the sandbox's failure."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import pytest
from kit_sandbox import run
from rlcore_plugin_sandbox import zygote_process
from rlcore_plugin_sandbox.jail import program_folder, watch, without_namespaces
from rlcore_plugin_sandbox.jail.without_namespaces import _Looks
from rlcore_plugin_sandbox.zygote_process import ZygoteProcess
from test_sandbox_accounts import sleeper  # noqa: F401

from rlcore.api.sandbox import Job, Level, Limit, Limits

MIB = 1 << 20
LIMITS = {"cpu": 60, "wall": 120, "memory": 1 << 30, "addresses": 1 << 30, "disk": 64 * MIB, "files": 100, "processes": 64}

MANY = {
    "files": "for n in range(150): open(str(n), 'w').close()",
    "folders": "for n in range(150): os.mkdir(str(n), 0)",
    "deep": "for _ in range(150): os.mkdir('d'); os.chdir('d')",
    "deeper than a path": "for _ in range(150): os.mkdir('d' * 200); os.chdir('d' * 200)",
    "links": "open('x', 'w').close()\nfor n in range(150): os.symlink('/etc', str(n))",
}


@pytest.mark.parametrize("what", MANY)
def test_a_program_that_leaves_too_much_is_over_its_limit_however_soon_it_ends(box, what: str) -> None:
    """Before the first look, too. Level namespaces: its file system is full."""
    ran = run(box, f"import os\n{MANY[what]}", files=100, disk_bytes=4 * MIB)
    if box.level is Level.LANDLOCK:
        assert (ran.limit, ran.exit_code, ran.signal) == (Limit.DISK, None, None)
    else:
        assert not ran.ok
    assert run(box, "import os\nprint(os.listdir('.'))").stdout == b"[]\n"


def test_a_program_that_leaves_what_it_may_is_well(box) -> None:
    ran = run(box, "import os\nfor n in range(90): os.mkdir(str(n))\nopen('x', 'wb').write(bytes(1 << 20))", files=100, disk_bytes=4 * MIB)
    assert (ran.ok, ran.limit, ran.stderr) == (True, None, b"")


@pytest.mark.parametrize(
    ("source", "limit", "code"),
    [
        ("import os\nfor n in range(150): os.mkdir(str(n))", "disk", None),
        ("import os\nfor n in range(50): os.mkdir(str(n))", None, 0),
        ("import os\nfor n in range(150): os.mkdir(str(n))\nos.kill(os.getpid(), 24)", "disk", None),
    ],
)
def test_the_host_hears_while_what_was_left_is_removed(tmp_path, monkeypatch, source: str, limit: str | None, code: int | None) -> None:
    """And the time that it takes is the program's."""
    monkeypatch.setattr(watch, "_TELLING", 0.0)
    clock = count(1000.0)
    monkeypatch.setattr(watch.time, "monotonic", lambda: next(clock) / 1e4)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    job = Job(source=source)
    with ours, theirs, ExitStack() as closing:
        stdin, payload = (zygote_process.memory_file(content, closing) for content in (b"", zygote_process._payload(job)))
        null = os.open("/dev/null", os.O_WRONLY)
        closing.callback(os.close, null)
        (home := tmp_path / "home").mkdir()
        answer = without_namespaces.run({**LIMITS}, [stdin, payload, null, null], theirs, str(home), None)
        said = [json.loads(ours.recv(100)) for _ in range(50)]
    assert said == [{"cleaning": True}] * 50
    assert (answer["limit"], answer["exit"]) == (limit, code)
    assert answer["wall"] > 50 / 1e4  # each entry took a tick of the clock
    assert list(home.iterdir()) == []


@pytest.fixture
def told(monkeypatch) -> Iterator[tuple[ZygoteProcess, socket.socket]]:
    """(the host's end of a zygote, the zygote's end of its channel), by a clock that moves a second whenever it is looked at."""
    clock = count(0.0)
    monkeypatch.setattr(zygote_process.time, "monotonic", lambda: next(clock))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    zygote = object.__new__(ZygoteProcess)
    zygote._channel = ours
    with ours, theirs:
        yield zygote, theirs


def test_a_zygote_that_removes_for_long_is_not_dead(told) -> None:
    zygote, channel = told
    for _ in range(30):
        channel.send(b'{"cleaning": true}')
    channel.send(json.dumps({"exit": None, "signal": None, "limit": "disk", "wall": 30.0, "cpu": 0.1, "memory": 1}).encode())
    with ExitStack() as reading:
        ends = [zygote_process.pipe(reading, writing) for writing in [ExitStack()] for _ in range(2)]
        for _, end in ends:
            os.close(end)
        ran = zygote._collect(ends[0][0], ends[1][0], Job(source="", limits=Limits(wall_seconds=1)))
    assert (ran.limit, ran.wall_seconds) == (Limit.DISK, 30.0)


def test_a_folder_that_moves_while_it_is_counted_is_seen(tmp_path, monkeypatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").touch()
    real = os.scandir

    def moving(path: str):
        if path.endswith("/a"):
            (tmp_path / "a").rename(tmp_path / "b")
        return real(path)

    monkeypatch.setattr(program_folder.os, "scandir", moving)
    with pytest.raises(FileNotFoundError):
        program_folder.stored(str(tmp_path), 100)


@pytest.mark.parametrize(("walled", "over"), [(True, "disk"), (False, None)])
def test_a_process_that_moves_its_folders_is_stopped_while_they_are_counted(sleeper, tmp_path, monkeypatch, walled, over) -> None:  # noqa: F811
    calls = count()

    def moved(*_: object) -> tuple[int, int]:
        if next(calls) == 1:
            os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)  # returns once it is stopped
        raise FileNotFoundError

    monkeypatch.setattr(program_folder, "stored", moved)
    assert _Looks(sleeper.pid, str(tmp_path), LIMITS, walled=walled)().over == over
    assert next(calls) == 101
    os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED)
    sleeper.send_signal(signal.SIGTERM)
    assert sleeper.wait(60) == -signal.SIGTERM


MOVING = """
import os, signal, threading, time
os.makedirs("a/b"); inside = os.open("a/b", os.O_RDONLY)
def move(parent, names):
    folder = os.open(parent, os.O_RDONLY)
    while True:
        for name, new in zip(names, [*names[1:], names[0]]): os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
for parent, first in ((".", "a"), ("a", "b")):
    threading.Thread(target=move, args=(parent, [first, *(f"n{n}" for n in range(40))]), daemon=True).start()
def go_on():
    while True: os.kill(os.getpid(), signal.SIGCONT)
if GOES_ON: threading.Thread(target=go_on, daemon=True).start()
for n in range(100_000):
    os.close(os.open(str(n), os.O_CREAT | os.O_WRONLY, dir_fd=inside))
"""


@pytest.mark.parametrize("goes_on", [False, True])
def test_folders_that_move_hide_nothing(box, goes_on: bool) -> None:
    """Nor if the program undoes its stop."""
    ran = run(box, MOVING.replace("GOES_ON", str(goes_on)), files=200)
    assert ran.limit is Limit.DISK if box.level is Level.LANDLOCK else not ran.ok
