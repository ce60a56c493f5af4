"""Locks in sessions: on files of the session they work, on all others they tell nothing."""

from __future__ import annotations

import os

from kit_sessions import job, line, ran
from rlcore_plugin_sandbox.jail import program, seccomp

from rlcore.api.sandbox import Sandbox

START = """
import errno, fcntl, os, signal, sys, time
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock

def told(file, operation):
    try: flock(file, operation)
    except OSError as error: return errno.errorcode[error.errno]
    return "locked"

one, other = open("f", "w"), open("f")
"""


def said(walled: Sandbox, source: str) -> list[str]:
    result, output = ran(walled, START + source)
    assert result.ok, result
    return output.splitlines()


def test_locks_exclude_each_other_as_in_the_kernel(walled: Sandbox) -> None:
    source = """
print(told(one, LOCK_SH), told(other, LOCK_SH), told(other, LOCK_EX | LOCK_NB))
print(told(one, LOCK_UN), told(other, LOCK_EX | LOCK_NB), told(one, LOCK_SH | LOCK_NB))
other.close()
print(told(one, LOCK_EX), told(77, LOCK_EX), told(one, 64))
"""
    assert said(walled, source) == ["locked locked EAGAIN", "locked locked EAGAIN", "locked EBADF EINVAL"]


def test_a_process_waits_for_a_lock_and_gets_it_when_it_is_free(walled: Sandbox) -> None:
    source = """
flock(one, LOCK_EX)
for _ in range(3):
    if os.fork() == 0:
        with open("f") as own:
            flock(own, LOCK_EX)
            print("child", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.3)
print("parent", flush=True)
flock(one, LOCK_UN)
for _ in range(3): os.wait()
print(told(other, LOCK_EX | LOCK_NB))
"""
    assert said(walled, source) == ["parent", "child", "child", "child", "locked"]


def test_a_signal_ends_the_wait_and_leaves_no_lock(walled: Sandbox) -> None:
    source = """
def stop(number, frame): raise TimeoutError
signal.signal(signal.SIGALRM, stop)
flock(one, LOCK_EX)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try: flock(other, LOCK_EX)
except TimeoutError: print("stopped")
flock(one, LOCK_UN)
time.sleep(0.3)
print(told(one, LOCK_EX | LOCK_NB))
"""
    assert said(walled, source) == ["stopped", "locked"]


def test_a_process_that_cannot_be_dumped_has_locks(walled: Sandbox) -> None:
    source = """
import ctypes
ctypes.CDLL(None).prctl(4, 0)
print(told(one, LOCK_EX), told(other, LOCK_EX | LOCK_NB))
"""
    assert said(walled, source) == ["locked EAGAIN"]


def test_threads_and_other_folders_of_the_session_have_locks(walled: Sandbox) -> None:
    source = """
import threading
found = []
for path in ("/tmp/x", "/tmp/home/x", "/dev/shm/x"):
    thread = threading.Thread(target=lambda: found.append(told(open(path, "w"), LOCK_EX)))
    thread.start()
    thread.join()
print(*found)
"""
    assert said(walled, source) == ["locked locked locked"]


def test_on_files_that_others_can_open_there_are_no_locks(walled: Sandbox) -> None:
    source = """
files = [open(path) for path in (sys.executable, os.__file__, "/etc/passwd", "/dev/null", "/proc/self/status")]
files += [os.open("/usr", os.O_RDONLY), 0, 1, *os.pipe()]
print({told(file, how) for file in files for how in (LOCK_SH, LOCK_EX, LOCK_SH | LOCK_NB)})
"""
    assert said(walled, source) == ["{'ENOSYS'}"]


def test_five_thousand_calls_beside_one_that_waits_leave_no_descriptor_open(walled: Sandbox) -> None:
    """The supervisor may have 4,096."""
    source = """
flock(one, LOCK_EX)
waiting = os.fork()
if waiting == 0:
    flock(open("f"), LOCK_EX)
free, shared = open("free", "w"), open(sys.executable)
print({(told(free, LOCK_SH), told(shared, LOCK_SH)) for _ in range(5000)})
flock(one, LOCK_UN)
os.waitpid(waiting, 0)
"""
    assert said(walled, source)[0] == "{('locked', 'ENOSYS')}"


def test_a_descriptor_that_is_exchanged_during_the_call_locks_no_file_of_others(walled: Sandbox) -> None:
    """A thread exchanges it all the time. A lock on the shared file would refuse the other kind on a second descriptor of it."""
    source = """
import threading
shared, busy = os.open(sys.executable, os.O_RDONLY), True
place = os.dup(one.fileno())

def exchange():
    while busy:
        os.dup2(shared, place)
        os.dup2(one.fileno(), place)

thread = threading.Thread(target=exchange)
thread.start()
found = {told(place, LOCK_EX) for _ in range(300)}
busy = False
thread.join()
print(*sorted(found))
print(open("/proc/locks").read().count("FLOCK"))
"""
    assert said(walled, source) == ["ENOSYS locked", "1"]


RECORDS = """
import struct

def asked(file, kind=fcntl.F_WRLCK, whence=0, start=0, length=0, command=fcntl.F_GETLK):
    try: found = struct.unpack("hhqqi4x", fcntl.fcntl(file, command, struct.pack("hhqqi4x", kind, whence, start, length, 0)))
    except OSError as error: return errno.errorcode[error.errno]
    return "free" if found[0] == fcntl.F_UNLCK else found[:1] + found[2:4] + (found[4] == child,)
"""


def test_a_process_learns_of_record_locks_of_others_and_not_of_its_own(walled: Sandbox) -> None:
    source = (
        RECORDS
        + """
one.write("x" * 50); one.flush()
(mine, theirs), child = os.pipe(), os.fork()
if child == 0:
    own = open("f", "r+")
    fcntl.lockf(own, LOCK_EX, 10, 20)
    fcntl.lockf(own, LOCK_SH, 0, 100)
    os.write(theirs, b"x")
    time.sleep(99)
os.read(mine, 1)
for start in (0, 5, 15, 40, 90): fcntl.lockf(one, LOCK_EX, 2, start)
print(asked(one), asked(one, length=20), asked(one, start=21, length=3), asked(one, start=30, length=70), asked(one, start=30))
print(asked(one, 0), asked(one, 0, start=50), asked(one, whence=1, start=-25, length=1), asked(one, whence=2, start=-20, length=-1))
print(asked(77), asked(one, kind=9), asked(one, whence=7), asked(one, start=-5), fcntl.fcntl(one, fcntl.F_GETFD))
os.kill(child, signal.SIGKILL); os.wait()
print(asked(one))
import ctypes
library = ctypes.CDLL(None, use_errno=True)
print(library.fcntl(one.fileno(), 5, ctypes.c_void_p(16)), ctypes.get_errno() == errno.EFAULT)
for start in range(0, 1000, 2): fcntl.lockf(one, LOCK_EX, 1, start)
print(asked(one))
"""
    )
    assert said(walled, source) == [
        "(1, 20, 10, True) free (1, 20, 10, True) free (0, 100, 0, True)",
        "(1, 20, 10, True) free (1, 20, 10, True) (1, 20, 10, True)",
        "EBADF EINVAL EINVAL EINVAL 1",
        "free",
        "-1 True",
        "ENOLCK",
    ]


def test_a_database_on_a_file_of_the_session_excludes_other_processes(walled: Sandbox) -> None:
    source = """
import sqlite3
for mode in ("delete", "wal"):
    base = sqlite3.connect(f"{mode}.db", isolation_level=None, timeout=0)
    print(*base.execute(f"pragma journal_mode={mode}").fetchone(), end=" ", flush=True)
    base.execute("create table t (x)")
    base.execute("begin immediate")
    base.execute("insert into t values (1)")
    child = os.fork()
    if child == 0:
        other = sqlite3.connect(f"{mode}.db", isolation_level=None, timeout=0)
        try: other.execute("insert into t values (2)")
        except sqlite3.OperationalError as error: print(error, end=" ", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
    base.execute("commit")
    print(*sqlite3.connect(f"{mode}.db").execute("select count(*) from t").fetchone(), flush=True)
"""
    assert said(walled, source) == ["delete database is locked 1", "wal database is locked 1"]


def test_another_session_learns_nothing_of_locks_on_files_that_both_can_open(walled: Sandbox) -> None:
    source = (
        RECORDS
        + """
child = 0
shared, null = open(sys.executable, "rb"), open("/dev/null", "r+b", buffering=0)
fcntl.lockf(shared, LOCK_SH, 7, 1234)
found = [asked(shared), asked(shared, 0), asked(null), asked(shared, command=36), asked(shared, 0, command=37), asked(one, command=38)]
for device in ("null", "full", "random", "urandom"):
    for how in (LOCK_EX, LOCK_SH):
        file = open(f"/dev/{device}", "r+b", buffering=0)
        try: fcntl.lockf(file, how | LOCK_NB)
        except OSError as error: found.append(errno.errorcode[error.errno])
told(null, LOCK_EX)  # the supervisor opens it, too
asked(null)
for command in (fcntl.F_SETLEASE, fcntl.F_NOTIFY):
    try: fcntl.fcntl(os.open(os.path.dirname(os.__file__), 0), command, 0)
    except OSError as error: found.append(errno.errorcode[error.errno])
print(*found, [line for line in open("/proc/locks") if " POSIX " in line and str(os.getpid()) not in line.split()], flush=True)
sys.stdin.read()
"""
    )
    right = "ENOSYS ENOSYS ENOSYS EINVAL EINVAL EINVAL EAGAIN EAGAIN EAGAIN EAGAIN EPERM EPERM []"
    with walled.session(job(START + source)) as first:
        assert line(first) == right
        with walled.session(job(START + source)) as second:
            assert line(second) == right


def test_without_such_descriptors_calls_of_flock_do_not_exist() -> None:
    """The first filter refuses the call that makes one."""
    pid = os.fork()
    if pid == 0:
        try:
            program.no_privileges()
            first, second = seccomp.install_session(), seccomp.install_session()
            import fcntl

            fcntl.flock(0, fcntl.LOCK_SH)
        except OSError as error:
            os._exit(error.errno if first >= 0 > second else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 38
