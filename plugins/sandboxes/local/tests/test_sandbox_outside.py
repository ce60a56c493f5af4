"""A program that is killed from outside gets no verdict; one that arranges its own SIGKILL gets one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from kit_sandbox import HELD, run, while_it_runs

from rlcore.api.sandbox import Limit, Sandbox, SandboxError

OWN = {
    "lower cpu limit": "import resource\ntry: resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nexcept Exception: pass\nwhile True: pass",
    "prlimit": "import resource\ntry: resource.prlimit(0, resource.RLIMIT_CPU, (1, 1))\nexcept Exception: pass\nwhile True: pass",
    "timer": """
import ctypes, platform, struct, time
create, settime = (222, 223) if platform.machine() == 'x86_64' else (107, 110)
libc = ctypes.CDLL(None)
timer = ctypes.c_int()
libc.syscall(create, 1, struct.pack('=qii', 0, 9, 0) + bytes(48), ctypes.byref(timer))
libc.syscall(settime, timer, 0, struct.pack('=qqqq', 0, 0, 0, 100_000_000), None)
while True: pass
""",
    "raise": "import signal\ntry: signal.raise_signal(signal.SIGKILL)\nexcept Exception: pass\nwhile True: pass",
    "kill": "import os\ntry: os.kill(os.getpid(), 9)\nexcept Exception: pass\nwhile True: pass",
}


@pytest.mark.parametrize("source", OWN.values(), ids=OWN.keys())
def test_a_program_cannot_have_itself_killed(box: Sandbox, source: str) -> None:
    seconds = 1.5 if "RLIMIT_CPU" in source else 0.4  # more than the program asks for
    assert run(box, source, cpu_seconds=seconds).limit is Limit.CPU


def test_the_limit_of_cpu_time_can_be_read(box: Sandbox) -> None:
    assert run(box, "import resource\nprint(resource.getrlimit(resource.RLIMIT_CPU)[0] > 0)").stdout == b"True\n"


def leaf(pid: int) -> int:
    """The last process below this one: the program, while one runs."""
    children = [word for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()]
    return leaf(int(children[-1])) if children else pid


def kill_the_program(box: Sandbox, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    while_it_runs(monkeypatch, lambda: os.kill(leaf(box.pid), signal.SIGKILL), times)  # type: ignore[attr-defined]


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may kill the programs of every level")


@needs_root
def test_a_program_killed_from_outside_runs_once_more(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_the_program(box, monkeypatch, times=1)
    assert run(box, HELD, b"word").stdout.split() == [b"word"]


@needs_root
def test_one_that_is_killed_again_gets_no_verdict(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_the_program(box, monkeypatch, times=2)
    with pytest.raises(SandboxError, match="killed from outside"):
        run(box, HELD, b"word")
    assert run(box, "print(1)").stdout == b"1\n"
