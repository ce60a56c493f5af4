"""Each limit, met by a program that goes beyond it, and by one that stays just below."""

from __future__ import annotations

import pytest
from kit_sandbox import run, run_begun

from rlcore.api import SandboxError
from rlcore.api.sandbox import Job, Level, Limit, Limits

MIB = 1 << 20


def test_a_loop_ends_at_its_cpu_time(box) -> None:
    ran = run(box, "print('before', flush=True)\nwhile True: pass", cpu_seconds=0.4)
    assert (ran.limit, ran.exit_code, ran.signal, ran.stdout) == (Limit.CPU, None, None, b"before\n")
    assert 0.3 < ran.cpu_seconds < 5


def test_cpu_time_of_threads_counts_together(box) -> None:
    program = "import threading\ndef f():\n    while True: sum(range(1000))\nfor _ in range(4): threading.Thread(target=f).start()"
    assert run(box, program, cpu_seconds=0.4).limit is Limit.CPU


def test_cpu_time_of_processes_counts_together(box) -> None:
    if box.level is Level.LANDLOCK:
        pytest.skip("no processes at this level")
    assert run(box, "import os\nos.fork(); os.fork()\nwhile True: pass", cpu_seconds=0.5).limit is Limit.CPU


def test_sleeping_ends_at_the_wall_clock(box) -> None:
    ran, _ = run_begun(box, "import time; time.sleep(1e6)", wall_seconds=0.3)
    assert (ran.limit, ran.exit_code, ran.signal) == (Limit.WALL, None, None)
    assert ran.wall_seconds >= 0.3
    assert ran.cpu_seconds < 0.3


@pytest.mark.parametrize("program", ["x = bytearray(10**10)", "x = 'x' * 10**11", "x = []\nwhile True: x.append(bytearray(10**6))"])
def test_memory_of_a_process(box, program: str) -> None:
    ran = run(box, program, memory_bytes=128 * MIB)
    assert (ran.limit, ran.ok) == (Limit.MEMORY, False)


def test_a_program_that_copes_with_too_little_memory_is_well(box) -> None:
    ran = run(box, "try: bytearray(10**10)\nexcept MemoryError: print('coped')", memory_bytes=128 * MIB)
    assert (ran.ok, ran.stdout) == (True, b"coped\n")


def test_memory_of_a_tree_counts_together(box) -> None:
    if box.level is Level.LANDLOCK:
        pytest.skip("no processes at this level")
    program = "import os, time\nfor _ in range(3): os.fork()\nx = b'x' * (48 << 20)\ntime.sleep(30)"
    ran = run(box, program, memory_bytes=128 * MIB)
    assert ran.limit is Limit.MEMORY
    assert ran.memory_bytes > 128 * MIB


def test_memory_in_sockets_counts(box) -> None:
    """Nobody's resident size shows what lies in them."""
    if box.level is Level.LANDLOCK:
        pytest.skip("one process, which has few descriptors")
    program = """
import os, socket, time
for _ in range(5): os.fork()
pairs = []
try:
    while True: pairs.append(socket.socketpair())
except OSError: pass
time.sleep(20)
"""
    assert run(box, program, memory_bytes=512 * MIB).limit is Limit.MEMORY


@pytest.mark.parametrize("how", ["mmap.mmap(-1, 1 << 20)", "mmap.mmap(os.open('/dev/zero', os.O_RDWR), 1 << 20)"])
def test_no_memory_is_shared_that_counts_for_none(box, how: str) -> None:
    """A process, or several, could drop it from what is resident and keep it."""
    assert run(box, f"import mmap, os\n{how}").exit_code == 1


def test_output_ends_the_program_and_is_cut(box) -> None:
    ran = run(box, "import sys\nwhile True: sys.stdout.write('x' * 65536)", output_bytes=100_000)
    assert (ran.limit, ran.stdout, ran.exit_code) == (Limit.OUTPUT, b"x" * 100_000, None)


@pytest.mark.parametrize(("size", "limit"), [(1000, None), (1001, Limit.OUTPUT)])
def test_output_up_to_the_limit_is_allowed(box, size: int, limit) -> None:
    ran = run(box, f"print('x' * {size}, end='')", output_bytes=1000)
    assert (ran.limit, len(ran.stdout)) == (limit, 1000)


def test_no_output_may_be_all_that_is_allowed(box) -> None:
    assert run(box, "pass", output_bytes=0).ok
    assert run(box, "print()", output_bytes=0).limit is Limit.OUTPUT


def test_standard_error_is_cut_and_no_reason_to_stop(box) -> None:
    ran = run(box, "import sys\nfor n in range(2000): sys.stderr.write('e' * 1024)\nsys.stderr.write('END')\nprint(1)")
    assert (ran.ok, ran.stdout, len(ran.stderr), ran.stderr[-3:]) == (True, b"1\n", 4096, b"END")


FILLING = """
import os, time
try:
    for n in range(64):
        with open(f'/tmp/{n}', 'wb') as file: file.write(b'x' * (1 << 20))
except OSError as error: print(error.errno, flush=True)
else: time.sleep(60)
"""


def test_the_disk_is_small(box) -> None:
    """Level namespaces: a file system that is full; level landlock: the program is ended."""
    ran = run(box, FILLING, disk_bytes=4 * MIB)
    if box.level is Level.NAMESPACES:
        assert (ran.limit, ran.stdout) == (None, b"28\n")
    else:
        assert ran.limit is Limit.DISK


def test_one_file_may_not_be_larger_than_the_disk(box) -> None:
    ran = run(box, "try: open('/tmp/x', 'wb').truncate(1 << 30)\nexcept OSError as error: print(error.errno)", disk_bytes=4 * MIB)
    assert ran.stdout in (b"27\n", b"28\n")


HIDING = {
    "unlinked": """
import os
files = []
for n in range(200):
    files.append(open(f'{n}', 'wb')); os.unlink(f'{n}'); files[-1].write(b'x' * (1 << 20)); files[-1].flush()
""",
    "deep": """
import os
for n in range(30): os.mkdir('d' * 250); os.chdir('d' * 250)
open('x', 'wb').write(b'x' * (3 << 20))
""",
    "many": "import os\nfor n in range(1000): open(f'{n}', 'wb').close()",
}


@pytest.mark.parametrize("how", HIDING)
def test_nothing_is_hidden_from_the_disk_limit(box, how: str) -> None:
    """Level namespaces: the file system refuses what is too much, and sees what lies deep for as little as it is."""
    stays = box.level is Level.LANDLOCK
    ran = run(box, HIDING[how] + "\nimport time; time.sleep(600)" * stays, disk_bytes=4 * MIB, files=64)
    assert (ran.limit, ran.ok) == ((Limit.DISK, False) if stays else (None, how == "deep"))


def test_processes_and_threads_are_few(box) -> None:
    program = """
import threading, time
n = 0
try:
    while n < 300: threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); n += 1
except RuntimeError: pass
print(n, flush=True)
time.sleep(60 if n == 300 else 0)
"""
    ran = run(box, program, processes=20, memory_bytes=8 << 30)
    if box.level is Level.NAMESPACES:
        assert 10 <= int(ran.stdout) <= 20
    else:
        assert ran.limit is Limit.MEMORY


def test_a_fork_bomb_is_held(box) -> None:
    program = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    ran = run(box, program, wall_seconds=0.5, cpu_seconds=60, processes=30)
    assert ran.limit in (Limit.WALL, Limit.CPU)


def test_what_was_used_is_told(box) -> None:
    ran = run(box, "x = bytearray(200 << 20)\nsum(range(3_000_000))")
    assert ran.ok
    assert 200 * MIB < ran.memory_bytes < 400 * MIB
    assert 0.01 < ran.cpu_seconds < 10
    assert ran.wall_seconds > ran.cpu_seconds / 4


def test_limits_at_their_edges_work(box) -> None:
    least = Limits(memory_bytes=64 * MIB, disk_bytes=4096, files=16, processes=1, output_bytes=1)
    most = Limits(
        cpu_seconds=86400,
        wall_seconds=86400,
        memory_bytes=1 << 50,
        disk_bytes=1 << 50,
        files=1 << 50,
        processes=1 << 50,
        output_bytes=1 << 50,
    )
    for limits in (least, most):
        ran = box.run(Job(source="open('x', 'w').write('x'); print(end='1')", limits=limits))
        assert (ran.ok, ran.stdout) == (True, b"1"), ran


@pytest.mark.full
def test_a_program_not_begun_in_time_says_nothing_about_itself(box) -> None:
    """The jail was slow, not the program: no limit of the program's, but the sandbox's error."""
    if box.level is Level.LANDLOCK:
        pytest.skip("the input is not copied at this level, so that nothing takes long")
    with pytest.raises(SandboxError, match="not built in time"):
        run(box, "print(1)", bytes(256 << 20), wall_seconds=0.01)
    assert run(box, "print(1)").ok
