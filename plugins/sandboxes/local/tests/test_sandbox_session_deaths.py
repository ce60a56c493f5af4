"""Sessions that are killed, whose supervisor or owner is killed, or whose sandbox is closed: nothing is left, and nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit_sandbox import FUSE, alive, children, gone, opened
from kit_sessions import job, line
from rlcore_plugin_sandbox import session as session_module

from rlcore.api import SandboxError
from rlcore.api.sandbox import Sandbox, Session

TREE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for kind in ("child", "daemon", "stopped"):
    if os.fork() == 0:
        if kind == "daemon":
            os.setsid()
            if os.fork(): os._exit(0)
        if kind == "stopped": os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
print("begun", flush=True)
time.sleep(600)
"""


def pids_of(session: Session) -> list[int]:
    """Every process of the session, as this machine numbers them: bubblewrap, the supervisor, and those below it."""
    first = session._process.pid  # type: ignore[attr-defined]
    return [first, *children(first)]


def begun(session: Session) -> list[int]:
    assert line(session) == "begun"
    found: list[int] = []
    while len(found) < 6:  # bubblewrap, the supervisor, the command and its three; the daemon's parent ends
        found = pids_of(session)
    return found


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_result_is_read_although_the_supervisor_ended_before_it_read_everything(sandbox: Sandbox) -> None:
    with sandbox.session(job("import time; print('begun', flush=True); time.sleep(600)")) as session:
        assert line(session) == "begun"
        for _ in range(2):  # it reads one
            session._process.ask_to_end()  # type: ignore[attr-defined]
        assert session.wait(FUSE).signal == signal.SIGKILL


def test_kill_ends_every_process(sandbox: Sandbox) -> None:
    before = open_descriptors()
    with sandbox.session(job(TREE + "\n")) as session:
        pids = begun(session)
        session.kill()
        assert not any(alive(pid) for pid in pids)
        result = session.poll()
        assert result is not None
        assert (result.exit_code, result.signal, result.limit) == (None, signal.SIGKILL, None)
        session.kill()
        assert session.wait(0) is result
    session.close()
    assert open_descriptors() == before


def test_what_a_session_has_said_is_not_lost_when_it_is_killed(sandbox: Sandbox) -> None:
    source = """
import sys, time
print("out", flush=True); print("err", file=sys.stderr, flush=True); open("made", "w").write("x"); print("begun", flush=True)
time.sleep(600)
"""
    with sandbox.session(job(source)) as session:
        assert (line(session), line(session)) == ("out", "begun")
        session.kill()
        result = session.poll()
        assert result is not None
        assert (result.stderr, session.read("made")) == (b"err\n", b"x")


def test_the_end_of_the_command_ends_its_children(sandbox: Sandbox) -> None:
    with sandbox.session(job(TREE.replace("\ntime.sleep(600)\n", "\ninput()\nos._exit(5)\n"))) as session:
        pids = begun(session)
        session.stdin.write(b"\n")
        assert session.wait(FUSE).exit_code == 5
        assert not any(alive(pid) for pid in pids)


def test_close_of_the_sandbox_ends_its_sessions() -> None:
    with opened("namespaces") as own:
        session = own.session(job(TREE))
        pids = begun(session)
    assert not any(alive(pid) for pid in pids)
    with pytest.raises(SandboxError, match="the sandbox is closed"):
        own.session(job(""))


def test_a_fork_of_the_owner_cannot_end_it(sandbox: Sandbox) -> None:
    with sandbox.session(job("print(input())")) as session:
        child = os.fork()
        if child == 0:
            session.close()
            try:
                session.poll()
            except SandboxError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        session.stdin.write(b"still here\n")
        assert line(session) == "still here"
        assert session.wait(FUSE).ok


@pytest.mark.parametrize("which", [0, 1], ids=["bubblewrap", "the supervisor"])
def test_a_killed_supervisor_is_the_sandbox_s_failure_and_leaves_nothing(sandbox: Sandbox, which: int) -> None:
    with sandbox.session(job(TREE)) as session:
        pids = begun(session)
        os.kill(pids[which], signal.SIGKILL)
        with pytest.raises(SandboxError, match="the supervisor of the session died"):
            session.wait(FUSE)
        with pytest.raises(SandboxError, match="the supervisor of the session died"):
            session.poll()
        assert all(gone(pid) for pid in pids)
        session.kill()


def test_a_command_that_is_killed_from_outside_has_that_signal(sandbox: Sandbox) -> None:
    with sandbox.session(job(TREE)) as session:
        pids = begun(session)
        os.kill(pids[2], signal.SIGKILL)
        assert session.wait(FUSE).signal == signal.SIGKILL
        assert not any(alive(pid) for pid in pids)


def test_a_frozen_supervisor_is_killed(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_ENDING_SECONDS", 0.1)
    with sandbox.session(job(TREE)) as session:
        pids = begun(session)
        os.kill(pids[1], signal.SIGSTOP)
        session.kill()
        assert all(gone(pid) for pid in pids)
        result = session.poll()
        assert result is not None
        assert result.signal == signal.SIGKILL


OWNER = """
import os, sys, time
from rlcore.api.sandbox import SandboxOptions, open_sandbox
sys.path.insert(0, sys.argv[1])
from kit_sessions import job
from test_sandbox_session_deaths import TREE, begun, children
sandbox = open_sandbox(SandboxOptions(level="namespaces"))
first = sandbox.session(job(TREE))
second = sandbox.session(job("print('begun', flush=True)\\ninput()\\nwhile True: pass"))
second.stdout.readline()
pids = [*begun(first), *children(second._process.pid)]
if sys.argv[2] == "forked" and os.fork() == 0: time.sleep(600)
print(*pids, flush=True)
if sys.argv[2] == "ends": os._exit(0)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["killed", "ends", "forked"])
def test_sessions_end_with_their_owner(how: str) -> None:
    """A killed owner runs no code of its own. A fork of it that lives on must not keep its sessions alive."""
    command = [sys.executable, "-c", OWNER, str(Path(__file__).parent), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) >= 8
        if how != "ends":
            owner.kill()
        owner.wait()
        assert all(gone(pid) for pid in pids)
        if how == "forked":
            os.killpg(owner.pid, signal.SIGKILL)


def test_many_sessions_run_at_once(sandbox: Sandbox) -> None:
    count = 12
    sessions: list[Session] = []
    lock = threading.Lock()

    def start() -> None:
        session = sandbox.session(job("print(input())"))
        with lock:
            sessions.append(session)

    threads = [threading.Thread(target=start) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # a session outlives the thread that started it
    for number, session in enumerate(sessions):
        session.stdin.write(f"{number}\n".encode())
    assert [line(session) for session in sessions] == [str(number) for number in range(count)]
    for session in sessions:
        assert session.wait(FUSE).ok
        session.close()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(children(os.getpid()))
    yield
    assert all(gone(pid) for pid in set(children(os.getpid())) - before)
