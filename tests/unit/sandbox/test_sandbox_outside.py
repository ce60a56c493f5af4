"""A program that is killed from outside gets no verdict; one that arranges its own SIGKILL gets one."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from kit_sandbox import run

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
    assert run(box, source, cpu_seconds=1.5, wall_seconds=10.0).limit is Limit.CPU


def test_the_limit_of_cpu_time_can_be_read(box: Sandbox) -> None:
    assert run(box, "import resource\nprint(resource.getrlimit(resource.RLIMIT_CPU)[0] > 0)").stdout == b"True\n"


def leaf(pid: int) -> int:
    """The last process below this one: the program, while one runs."""
    children = [word for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()]
    return leaf(int(children[-1])) if children else pid


def killed(box: Sandbox, most: int) -> tuple[str, int]:
    """(what became of a program of one second that is killed up to ``most`` times, how often it was)."""
    over, count = threading.Event(), 0

    def kill() -> None:
        nonlocal count
        while count < most and not over.wait(0.1):
            try:
                program = leaf(box.pid)  # type: ignore[attr-defined]
                if sleeping(program):
                    os.kill(program, signal.SIGKILL)
                    count += 1
            except (OSError, TypeError):
                continue  # the zygote is being replaced

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        return run(box, "import time\ntime.sleep(1)\nprint('done')").stdout.decode(), count
    except SandboxError as error:
        return str(error), count
    finally:
        over.set()
        killer.join()


def sleeping(pid: int) -> bool:
    """True where it is in the sleep of the program above: a zygote that waits is in another call."""
    return "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may see what a jailed process waits for")


@needs_root
def test_a_program_killed_from_outside_runs_once_more(box: Sandbox) -> None:
    assert killed(box, 1) == ("done\n", 1)


@needs_root
def test_one_that_is_killed_again_gets_no_verdict(box: Sandbox) -> None:
    said, count = killed(box, 2)
    assert "killed from outside" in said
    assert count == 2
    assert run(box, "print(1)").stdout == b"1\n"
