"""The zygote killed, the owner killed, the sandbox closed, shared, forked: no wrong verdict, no hang, nothing left."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit_sandbox import FUSE, HELD, alive, children, gone, opened, run, while_it_runs
from rlcore_plugin_sandbox import zygote_process
from rlcore_plugin_sandbox.zygote_process import ZygoteDied, ZygoteProcess

from rlcore.api import SandboxError
from rlcore.api.sandbox import Job, Level, Limit, Limits, ProgramResult, Sandbox
from tests.levels import LEVELS, need


@pytest.fixture(params=LEVELS)
def own(request, tmp_path, monkeypatch):
    """A sandbox for one test alone, as these tests break it; its folder lies with no other's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with opened(request.param) as sandbox:
        yield sandbox


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def homes() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("rlcore-jail-*")}


def kill_zygote(box: Sandbox) -> None:
    kill_all_of(box.pid)


def kill_all_of(zygote: int) -> None:
    """Level namespaces has bubblewrap around and in between."""
    for pid in [zygote, *children(zygote)]:
        if alive(pid):
            with contextlib.suppress(ProcessLookupError):  # gone with the one before it
                os.kill(pid, signal.SIGKILL)


def during(seconds: float, act) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def test_a_zygote_that_died_in_between_is_replaced(own) -> None:
    gc.collect()  # what an earlier test left unclosed is not closed in between
    for _ in range(3):
        before, first = open_descriptors(), own.pid
        kill_zygote(own)
        assert run(own, "print(input())", b"x").stdout == b"x\n"
        assert own.pid != first
        assert open_descriptors() <= before


def test_a_run_whose_zygote_dies_is_tried_once_more(own, monkeypatch) -> None:
    first = own.pid
    while_it_runs(monkeypatch, lambda: kill_zygote(own))
    ran = run(own, HELD, b"word")
    assert (ran.stdout.split(), ran.exit_code) == ([b"word"], 0)
    assert own.pid != first
    assert not alive(first)


def test_twice_is_the_sandbox_s_own_error(own, monkeypatch) -> None:
    while_it_runs(monkeypatch, lambda: kill_zygote(own), times=2)
    with pytest.raises(SandboxError, match="died twice"):
        run(own, HELD, b"word")
    assert run(own, "print(1)").stdout == b"1\n"


@pytest.mark.parametrize("level", LEVELS)
def test_one_that_is_killed_while_it_starts_says_nothing_about_the_walls(level: str, monkeypatch) -> None:
    need(level)
    killed: list[int] = []
    real = ZygoteProcess._await_ready

    def await_ready(self: ZygoteProcess):
        if len(killed) < 2:
            killed.append(self.pid)
            kill_all_of(self.pid)
        return real(self)

    monkeypatch.setattr(ZygoteProcess, "_await_ready", await_ready)
    with opened(level) as sandbox:
        assert (sandbox.level, run(sandbox, "print(1)").stdout) == (level, b"1\n")
    assert not any(alive(pid) for pid in killed)


def test_what_a_killed_bubblewrap_leaves_is_ended_at_once(tmp_path, monkeypatch) -> None:
    """Killed before it has told its child who it is inside, it leaves that child waiting for ever, with the socket open."""
    left = tmp_path / "left"
    monkeypatch.setattr(zygote_process, "_START_SECONDS", 600.0)
    with pytest.raises(ZygoteDied, match="code -9") as caught:
        ZygoteProcess(lambda control: ["sh", "-c", f"sleep 600 & echo $! > {left}; kill -9 $$"], {"PATH": os.environ["PATH"]})
    assert caught.value.killed
    assert gone(int(left.read_text()))


@pytest.mark.full
def test_only_the_middle_of_it_dies(own, monkeypatch) -> None:
    """Of bubblewrap's processes, or the zygote's, any one alone."""
    for pid in [own.pid, *children(own.pid)]:
        if alive(pid):
            while_it_runs(monkeypatch, partial(kill_if_alive, pid))  # it may die of the one before at any moment
            assert run(own, HELD, b"word").stdout.split() == [b"word"]


def kill_if_alive(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.full
@pytest.mark.serial  # counts the descriptors of this process, which has few if no other tests ran in it before
def test_killed_at_any_moment_the_verdicts_are_right(own) -> None:
    chance = random.Random(7)
    run(own, "print(0)")
    gc.collect()  # what an earlier test left unclosed is not closed in between
    before, folders, threads = open_descriptors(), len(homes()), threading.active_count()
    for number in range(60):
        run(own, "print(0)")  # the one before may have died after its run
        timer = during(chance.uniform(0.0, 0.04), partial(kill_all_of, own.pid))
        ran = run(own, f"print({number} * int(input()))", b"3\n")
        timer.join()
        assert (ran.stdout, ran.exit_code, ran.limit) == (f"{number * 3}\n".encode(), 0, None)
    run(own, "print(0)")
    assert (open_descriptors(), len(homes()), threading.active_count()) == (before, folders, threads)


def freeze(zygote: list[int]) -> None:
    for pid in zygote:
        os.kill(pid, signal.SIGSTOP)


def test_a_frozen_zygote_does_not_hang_the_host(own, monkeypatch) -> None:
    frozen, real = own._zygote, ZygoteProcess._collect

    def collect(self: ZygoteProcess, *arguments) -> ProgramResult:
        """The host waits a tenth of a second for the frozen one, and for the next as long as it always does."""
        with monkeypatch.context() as patch:
            if self is frozen:
                patch.setattr(zygote_process, "_GRACE_SECONDS", 0.1 - FUSE)
            return real(self, *arguments)

    monkeypatch.setattr(ZygoteProcess, "_collect", collect)
    freeze([own.pid, *children(own.pid)])
    assert run(own, "print(1)").stdout == b"1\n"
    assert own._zygote is not frozen


def test_a_frozen_zygote_and_a_program_that_writes_on_do_not_hang_the_host(own, monkeypatch) -> None:
    """The host's clock passes the limit once the host has read some of that; the next zygote's program ends by what it computes."""
    zygote, calls = [own.pid, *children(own.pid)], 0
    frozen, real = threading.Event(), time.monotonic

    def freeze_it() -> None:
        freeze(zygote)
        frozen.set()

    def clock() -> float:
        nonlocal calls
        calls += frozen.is_set()
        return real() + (3600.0 if calls > 20 else 0.0)

    monkeypatch.setattr(zygote_process, "time", SimpleNamespace(monotonic=clock))
    while_it_runs(monkeypatch, freeze_it)
    ran = run(own, "import os\nos.write(2, b'begun\\n')\nos.write(1, b'x')\nwhile True: os.write(2, b'x' * 65536)", cpu_seconds=0.3)
    assert (ran.limit, ran.stdout, own.pid != zygote[0]) == (Limit.CPU, b"x", True)


@pytest.mark.parametrize("lacks", ["memory", "pipes", "processes", "sockets", "disk"])
def test_a_machine_that_runs_out_is_no_program_s_fault(own, monkeypatch, lacks: str) -> None:
    """What the host's end of a run needs is refused: SandboxError, never an OSError that a reward's own code could have raised."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    before, folders = open_descriptors(), len(homes())
    if lacks in ("processes", "sockets", "disk"):
        kill_zygote(own)
    with monkeypatch.context() as patch:
        if lacks == "pipes":
            real, left = os.pipe, iter([True])
            patch.setattr(os, "pipe", lambda: real() if next(left, False) else refuse())
        else:
            at = {"memory": (os, "memfd_create"), "processes": (subprocess, "Popen"), "sockets": (zygote_process.socket, "socketpair")}
            patch.setattr(*at.get(lacks, (tempfile, "mkdtemp")), refuse)
        if lacks == "disk" and own.level is Level.NAMESPACES:
            assert run(own, "print(1)").stdout == b"1\n"  # it keeps nothing on the disk
        else:
            with pytest.raises(SandboxError, match=r"died twice with the same program .*Too many open files"):
                run(own, "print(1)")
    assert run(own, "print(2)").stdout == b"2\n"
    assert (open_descriptors(), len(homes())) == (before, folders)


@pytest.mark.parametrize("level", LEVELS)
def test_a_sandbox_that_cannot_be_opened_for_want_of_descriptors_says_so(level: str, monkeypatch, tmp_path) -> None:
    need(level)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    folders = len(homes())
    for module, name in ((zygote_process.socket, "socketpair"), (tempfile, "TemporaryDirectory")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, refuse)
            with pytest.raises(SandboxError, match=f"no sandbox can be made.*{level}: .*Too many open files"):
                opened(level)
    assert len(homes()) == folders


ENDS_LATE = "import sys, time\nprint('begun', file=sys.stderr, flush=True)\ntime.sleep(0.25)\nprint('old')"


@contextlib.contextmanager
def alarmed(monkeypatch: pytest.MonkeyPatch, handler) -> Iterator[None]:
    """The alarm rings while the host waits for a program that runs."""
    old = signal.signal(signal.SIGALRM, handler)
    while_it_runs(monkeypatch, lambda: signal.setitimer(signal.ITIMER_REAL, 0.05))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_an_alarm_of_the_caller_s_stays_what_it_is(own, monkeypatch) -> None:
    """TimeoutError is an OSError, too; no program and no sandbox raised this one."""

    def ring(*_: object) -> None:
        raise TimeoutError("the caller's")

    with alarmed(monkeypatch, ring), pytest.raises(TimeoutError, match="the caller's"):
        run(own, ENDS_LATE)
    assert run(own, "print('new')").stdout == b"new\n"


def test_a_group_is_killed_while_its_number_is_taken(own, monkeypatch) -> None:
    """A zygote that was reaped has given its number back: a group of that number would be somebody else's."""
    taken: list[bool] = []
    real = os.killpg

    def killpg(group: int, number: int) -> None:
        taken.append(Path(f"/proc/{group}").exists())
        real(group, number)

    first = own.pid
    kill_zygote(own)
    assert gone(first)
    monkeypatch.setattr(os, "killpg", killpg)
    assert run(own, "print(1)").stdout == b"1\n"
    assert taken == [True]


def test_an_interrupted_run_does_not_answer_for_the_next(own, monkeypatch) -> None:
    """Ctrl-C, or a worker's alarm, in the middle of a run."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with alarmed(monkeypatch, interrupt), pytest.raises(KeyboardInterrupt):
        run(own, ENDS_LATE)
    assert run(own, "import time; time.sleep(0.3); print('new')").stdout == b"new\n"


def test_after_close_there_is_nothing_and_nothing_runs(own) -> None:
    pids = [own.pid, *children(own.pid)]
    own.close()
    own.close()
    assert own.pid is None
    assert all(gone(pid) for pid in pids)
    with pytest.raises(SandboxError, match="is closed; open a new one"):
        run(own, "print(1)")


def test_close_waits_for_the_run(own, monkeypatch) -> None:
    said: list[bytes] = []
    running, closing = threading.Event(), threading.Event()

    def meanwhile() -> None:
        running.set()
        closing.wait()

    while_it_runs(monkeypatch, meanwhile)
    thread = threading.Thread(target=lambda: said.extend(run(own, HELD, b"x").stdout.split()))
    thread.start()
    running.wait()
    closer = threading.Thread(target=own.close)
    closer.start()
    closer.join(0.5)
    waits = closer.is_alive() and own.pid is not None
    closing.set()
    closer.join()
    thread.join()
    assert waits
    assert said == [b"x"]
    assert own.pid is None


def test_many_threads_share_it(own) -> None:
    said: dict[int, bytes] = {}

    def work(number: int) -> None:
        for _ in range(3):
            said[number] = run(own, "print(input())", str(number).encode()).stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {number: f"{number}\n".encode() for number in range(8)}


FORKING = """
import os, select, sys, time
from rlcore.api.sandbox import Job, SandboxOptions, open_sandbox
from rlcore.api import SandboxError
sandbox = open_sandbox(SandboxOptions(level=sys.argv[1]))
if sys.argv[2] == "fork":
    first, child = sandbox.pid, os.fork()
    if child == 0:
        try: sandbox.run(Job(source="print(1)"))
        except SandboxError as error: assert "belongs to the process that opened it" in str(error)
        else: os._exit(9)
        sandbox.close()
        del sandbox
        sys.exit(0)
    print(os.waitpid(child, 0)[1], sandbox.run(Job(source="open('/tmp/x', 'w'); print(2)")).stdout, sandbox.pid == first)
    sandbox.close()
if sys.argv[2] == "orphan":
    if os.fork() == 0:
        time.sleep(60)
    print(os.getpid(), sandbox.pid, flush=True)
    sandbox.run(Job(source="open('/tmp/x', 'w'); print(2)"))
    def collect(zygote, stdout, stderr, job):
        select.select([zygote._channel if sys.argv[3] == "unread" else stderr], [], [])  # its answer, or the word of a program that stays
        print("now", flush=True)
        time.sleep(60)
    type(sandbox._zygote)._collect = collect
    if sys.argv[3] == "unread":
        sandbox.run(Job(source="open('/tmp/z', 'w')"))
    if sys.argv[3] != "idle":
        sandbox.run(Job(source="open('/tmp/y', 'w')\\nimport sys, time; print('begun', file=sys.stderr, flush=True); time.sleep(60)"))
    print("now", flush=True)
    time.sleep(60)
"""


def owner(level: str, *words: str, temporary: Path) -> subprocess.Popen[bytes]:
    need(level)
    return subprocess.Popen(
        [sys.executable, "-c", FORKING, level, *words],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )


@pytest.mark.parametrize("level", LEVELS)
def test_a_fork_of_the_owner_leaves_it_alone(level: str, tmp_path) -> None:
    with owner(level, "fork", temporary=tmp_path) as process:
        said, _ = process.communicate()
    assert (said, process.returncode) == (b"0 b'2\\n' True\n", 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", [pytest.param("idle", marks=pytest.mark.full), "running", "unread", "both"])
@pytest.mark.parametrize("level", LEVELS)
def test_an_owner_that_is_killed_leaves_nothing_though_a_fork_of_it_lives(level: str, state: str, tmp_path) -> None:
    process = owner(level, "orphan", state, temporary=tmp_path)
    assert process.stdout is not None
    with process.stdout:
        pid, zygote = map(int, process.stdout.readline().split())
        assert process.stdout.readline() == b"now\n"
        below = children(zygote)
        try:
            if state == "both":
                os.kill(below[-1] if level == "namespaces" else zygote, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
            process.wait()
            assert all(gone(each) for each in [zygote, *below])
        finally:
            os.killpg(pid, signal.SIGKILL)  # the fork
    if (level, state) != ("landlock", "both"):  # there nobody is left to remove its folder
        assert list(tmp_path.iterdir()) == []


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


@pytest.mark.full
@pytest.mark.serial  # counts the descriptors of this process, which has few if no other tests ran in it before
def test_two_thousand_runs_leave_no_trace(own) -> None:
    job = Job(source="print(int(input()) + 1)", stdin=b"1\n", files={"a/b": b"x"})
    bad = Job(source="x = open('left', 'w')\n1 / 0", limits=Limits(wall_seconds=5))

    def some(number: int) -> None:
        for _ in range(number):
            assert own.run(job).stdout == b"2\n"
            assert own.run(bad).exit_code == 1

    some(100)
    pids = [os.getpid(), own.pid, *children(own.pid)]

    def state() -> tuple[list[int], list[int]]:
        now = [os.getpid(), own.pid, *children(own.pid)]
        return now, [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in now]

    gc.collect()  # what an earlier test left unclosed is not closed in between
    (before, descriptors), pages = state(), [resident(pid) for pid in pids]
    some(900)
    now, opened = state()
    assert now == before
    assert all(count <= limit for count, limit in zip(opened, descriptors, strict=True)), (opened, descriptors)
    for pid, count in zip(pids, pages, strict=True):
        assert resident(pid) < count + 512, pid  # pages: 2 MiB
