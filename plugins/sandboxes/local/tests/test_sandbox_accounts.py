"""Memory and disk that no process is charged for, and that count all the same: buffers of sockets, files that only a map still holds, and
what a process holds whose first thread has ended."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from kit_sandbox import run
from rlcore_plugin_sandbox.jail import program_folder, watch
from rlcore_plugin_sandbox.jail.without_namespaces import _Looks

from rlcore.api.sandbox import Level, Limit, SandboxOptions, open_sandbox

MIB = 1 << 20

LARGER = """
import socket
pair = socket.socketpair()
for option in (7, 8, 32, 33):  # SO_SNDBUF, SO_RCVBUF and their forced kinds
    for end in pair:
        try: end.setsockopt(socket.SOL_SOCKET, option, 1 << 22)
        except OSError as error: print(error.errno)
"""


def test_no_socket_gets_a_larger_buffer(box) -> None:
    assert run(box, LARGER).stdout == b"1\n" * 8


def test_no_pipe_gets_a_larger_buffer(box) -> None:
    ran = run(box, "import fcntl, os\ntry: fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)\nexcept OSError as error: print(error.errno)")
    assert ran.stdout == b"1\n"


HONEST = {
    "asyncio": "import asyncio\nasync def f(): await asyncio.sleep(0)\nasyncio.run(f())",
    "connection": "from multiprocessing.connection import Pipe\na, b = Pipe()\na.send([1] * 1000)\nassert len(b.recv()) == 1000",
    "timeouts": "import socket, struct\na, b = socket.socketpair()\na.setsockopt(1, 20, struct.pack('ll', 1, 0))\na.settimeout(5)",
    "many": "import asyncio\nloops = [asyncio.new_event_loop() for _ in range(20)]",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_have_their_sockets(box, name: str) -> None:
    ran = run(box, HONEST[name] + "\nimport time\ntime.sleep(0.2)", memory_bytes=128 * MIB)
    assert (ran.ok, ran.stderr) == (True, b"")


FILLING = """
import os, socket, sys, time
for _ in range(FORKS):
    os.fork()
held, pairs = 0, []
try:
    while True:
        pairs.append(socket.socketpair())
        for end in pairs[-1]:
            try: end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
            except OSError: pass
            end.setblocking(False)
            try:
                while True: held += end.send(block)
            except BlockingIOError: pass
            os.write(1, b"%d\\n" % held)
except OSError: pass
time.sleep(60)
""".replace("held, pairs", "block, held, pairs").replace("= 0, []", "= bytes(1 << 18), 0, []")


@pytest.mark.parametrize("forks", [0, 2])
def test_what_lies_in_sockets_counts_whatever_the_machine_allows_them(box, forks: int) -> None:
    """One process or four: what they hold together is not much more than the limit, the time between two looks included."""
    if forks and box.level is Level.LANDLOCK:
        pytest.skip("no processes at this level")
    ran = run(box, FILLING.replace("FORKS", str(forks)), memory_bytes=80 * MIB)
    assert ran.limit is Limit.MEMORY
    most = max(map(int, ran.stdout.split()))
    assert most * 2**forks < 320 * MIB


MAPPED = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
for n in range(3):
    fd = os.open(f"{n}", os.O_CREAT | os.O_RDWR)
    for _ in range(3): os.write(fd, bytes(1 << 20))
    assert libc.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_long(0)) != ctypes.c_void_p(-1).value
    os.unlink(f"{n}")
    os.close(fd)
print("held", flush=True)
time.sleep(5)
"""


def test_files_that_only_a_map_holds_count_as_disk(box) -> None:
    """Level namespaces: the file system is full."""
    ran = run(box, MAPPED, disk_bytes=4 * MIB)
    if box.level is Level.LANDLOCK:
        assert ran.limit is Limit.DISK
    else:
        assert b"No space left" in ran.stderr


def test_maps_of_files_that_are_there_or_open_are_no_secret(box) -> None:
    program = """
import mmap, os, tempfile, time
with open("a", "w+b") as a, tempfile.TemporaryFile() as b:
    for file in (a, b): file.write(bytes(8192)); file.flush()
    maps = [mmap.mmap(file.fileno(), 8192) for file in (a, b)]
os.link("a", "c (deleted)")
os.unlink("a")
time.sleep(0.4)
"""
    ran = run(box, program, disk_bytes=1 * MIB)
    assert (ran.ok, ran.stderr) == (True, b"")


MAPPING = """
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
"""
DROPPED = f"""{MAPPING}
for _ in range(24):
    area = libc.mmap(None, 16 << 20, 3, 0x21, -1, 0)
    if area == 2**64 - 1: raise SystemExit(f"refused: {{ctypes.get_errno()}}")
    ctypes.memset(area, 7, 16 << 20)
    libc.madvise(area, 16 << 20, 4)  # no longer resident, and still there
print("had it")
"""
TABLES = f"""{MAPPING}
for n in range(20_000):  # a page a gigabyte: each takes two pages of page tables
    area = libc.mmap((1 << 44) + (n << 30), 4096, 1, 0x100022, -1, 0)
    ctypes.c_char.from_address(area).value
time.sleep(60)
"""


def test_shared_memory_that_is_no_longer_resident_is_refused(box) -> None:
    """As a module of Node could hold it, which may reserve more addresses than it may use."""
    ran = run(box, DROPPED, memory_bytes=256 * MIB, address_bytes=1 << 36)
    assert b"had it" not in ran.stdout
    assert b"refused: 1" in ran.stderr


def test_page_tables_count(box) -> None:
    assert run(box, TABLES, memory_bytes=128 * MIB).limit is Limit.MEMORY


def test_swapped_memory_counts(tmp_path) -> None:
    (tmp_path / "status").write_text("Name:\tVmSwap: 9 kB\nVmHWM:\t 900 kB\nVmRSS:\t 100 kB\nVmPTE:\t 20 kB\nVmSwap:\t 3 kB\n")
    assert watch._memory(str(tmp_path)) == 123 << 10


BURNING = """
import os, signal, time
SET
while True:
    try:
        pid = os.fork()
    except OSError:
        os.wait()
        continue
    if pid == 0:
        ONE_MORE
        while time.process_time() < 0.02: pass
        os._exit(0)
"""
NO_ZOMBIES = """
import ctypes
class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]
ctypes.CDLL(None).sigaction(signal.SIGCHLD, ctypes.byref(Action(flags=2)), None)
"""
UNHEARD = {
    "waited for": "",
    "ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "no zombies": NO_ZOMBIES,
    "ignored in a child": "while (pid := os.fork()): os.waitpid(pid, 0)\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)",
}


@pytest.mark.parametrize("orphans", [False, True])
@pytest.mark.parametrize("how", UNHEARD)
def test_cpu_time_of_short_children_counts(box, how: str, orphans: bool) -> None:
    """The kernel forgets the time of children that nobody waits for, if their parent says that it does not care."""
    if box.level is Level.LANDLOCK:
        pytest.skip("no processes at this level")
    program = BURNING.replace("SET", UNHEARD[how]).replace("ONE_MORE", "if os.fork(): os._exit(0)" if orphans else "pass")
    assert run(box, program, cpu_seconds=1).limit is Limit.CPU


def test_short_children_of_an_honest_program_cost_what_they_use(box) -> None:
    if box.level is Level.LANDLOCK:
        pytest.skip("no processes at this level")
    program = "import subprocess, time\nfor _ in range(60): subprocess.run(['/bin/true'], check=True)\ntime.sleep(1.5)\nprint('all')"
    ran = run(box, program, cpu_seconds=1.5)
    assert (ran.stdout, ran.limit) == (b"all\n", None)


def test_a_host_that_ignores_its_children_runs_programs_all_the_same(box) -> None:
    """What it ignores, all that it starts would ignore."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with open_sandbox(SandboxOptions(level=box.level)) as started:
            assert run(started, "print(1)").stdout == b"1\n"
    finally:
        signal.signal(signal.SIGCHLD, before)


HEADLESS = """
import ctypes, os, threading, time
number = {"x86_64": 60}.get(os.uname().machine, 93)
def work():
    time.sleep(0.05)
    ACT
    time.sleep(5)
    os._exit(0)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(number, 0)  # ends the first thread alone
"""


def test_memory_counts_after_the_first_thread_has_ended(box) -> None:
    if box.level is Level.LANDLOCK:
        pytest.skip("one process, whose address space is bounded")
    program = "import os\nos.fork(); os.fork()\n" + HEADLESS.replace("ACT", "x = b'x' * (48 << 20)")
    assert run(box, program, memory_bytes=160 * MIB).limit is Limit.MEMORY


def test_disk_counts_after_the_first_thread_has_ended(box) -> None:
    if box.level is Level.NAMESPACES:
        pytest.skip("the file system itself is small")
    act = "files = [os.open('.', os.O_TMPFILE | os.O_RDWR) for _ in range(4)]; [os.write(file, bytes(2 << 20)) for file in files]"
    assert run(box, HEADLESS.replace("ACT", act), disk_bytes=4 * MIB).limit is Limit.DISK


@pytest.fixture
def sleeper():
    with subprocess.Popen(["/bin/sleep", "300"]) as process:
        yield process
        process.kill()


def test_a_process_that_nobody_may_look_into_is_ended_unless_it_ends_by_itself(sleeper, tmp_path, monkeypatch) -> None:
    """To a user who is not root it looks so for a moment while it ends: its memory has gone, and root owns what is left."""

    def refuse(*_: object) -> None:
        raise PermissionError

    limits = {"disk": 4 * MIB, "files": 100, "processes": 10}
    monkeypatch.setattr(program_folder, "descriptors", refuse)
    assert _Looks(sleeper.pid, str(tmp_path), limits, walled=True)().over == "disk"
    assert _Looks(sleeper.pid, str(tmp_path), limits, walled=False)().over is None
    real = watch._stat
    with monkeypatch.context() as patch:
        patch.setattr(watch, "_stat", lambda folder: [*real(folder)[:20], b"0", b"0"])
        assert _Looks(sleeper.pid, str(tmp_path), limits, walled=True)().over is None
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert _Looks(sleeper.pid, str(tmp_path), limits, walled=True)().over is None


def test_a_program_that_ends_while_it_is_looked_at_is_well(box) -> None:
    """The first look is after a tenth of a second."""
    for wait in range(20):
        ran = run(box, f"import time; time.sleep({0.095 + wait / 4000})")
        assert (ran.ok, ran.limit) == (True, None)
