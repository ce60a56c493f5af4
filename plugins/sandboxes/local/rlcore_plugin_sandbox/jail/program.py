"""The last steps of a jailed process: set resource limits, drop privileges, then run the program. None of them returns to the zygote."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import marshal
import os
import resource
import signal
import sys
from _sitebuiltins import Quitter, _Helper
from collections.abc import Mapping
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from rlcore_plugin_sandbox.jail.shown_packages import seed_again

__all__ = [
    "confine",
    "end_with_parent",
    "give_up",
    "keep_only",
    "like_python",
    "no_privileges",
    "read_all",
    "run_program",
    "unpack",
    "write_files",
]

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 38, 47
_CAPABILITY_VERSION_3 = 0x20080522
_STACK = 512 << 20
_THREAD_STACK = 64 << 20  # of a command: the C library gives each of its threads as much as the first one may use
_SIGNALS = 1024  # the number of queued signals; timers count, because they use kernel memory
_NAME = "solution.py"
_SETUP_FAILED = 121
_LARGEST_CODE = (1 << 63) - 1  # Python treats a larger one as -1
_library = ctypes.CDLL(None, use_errno=True)


def confine(limits: Mapping[str, Any], *, processes: int, descriptors: int = 256) -> None:
    """Set hard resource limits, so that no code inside can raise them again."""
    seconds = int(limits["cpu"]) + 1
    bounds = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_AS: limits["addresses"],
        resource.RLIMIT_FSIZE: limits["disk"],
        resource.RLIMIT_NOFILE: descriptors,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 1 << 20,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: _SIGNALS,
    }
    for which, bound in bounds.items():
        _, hard = resource.getrlimit(which)
        value = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(which, (value, value))
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK if hard == resource.RLIM_INFINITY else min(_STACK, hard), hard))


def no_privileges() -> None:
    """Drop every capability, and every way to regain one."""
    if _library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs refused")
    _library.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    if _library.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")


def read_all(descriptor: int) -> bytes:
    """Return the content of a file from its start."""
    size = os.fstat(descriptor).st_size
    parts = []
    done = 0
    while done < size:
        part = os.pread(descriptor, min(size - done, 1 << 24), done)
        if not part:
            break
        parts.append(part)
        done += len(part)
    return b"".join(parts)


def give_up(error: BaseException) -> NoReturn:
    """Report on standard error that the jail could not be built, and exit with the code that the zygote knows."""
    try:
        os.write(2, f"jail: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(_SETUP_FAILED)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the zygote dies. The filter keeps the program from undoing this."""
    _library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(_SETUP_FAILED)  # it died before


def keep_only(*descriptors: int) -> None:
    """Close every descriptor except the first three and these."""
    last = 2
    for descriptor in sorted(descriptors):
        os.closerange(last + 1, descriptor)
        last = descriptor
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))


def like_python(home: str) -> None:
    """Make the zygote's interpreter look like ``python solution.py``, once for all programs that are forked from it.

    The streams are opened on descriptors of the same kinds as those that replace them in each run.
    """
    pipe, end = os.pipe()
    os.dup2(os.memfd_create("stdin"), 0)
    os.dup2(end, 1)
    os.close(pipe)
    own = {"encoding": "utf-8", "closefd": False}
    sys.stdin = sys.__stdin__ = open(0, errors="surrogateescape", **own)  # type: ignore[call-overload, misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", **own)  # type: ignore[call-overload, misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", **own)  # type: ignore[call-overload, misc]  # noqa: SIM115
    builtins.exit, builtins.quit = Quitter("exit", "Ctrl-D"), Quitter("quit", "Ctrl-D")  # the site module would have defined these
    builtins.help = _Helper()
    sys.argv = [_NAME]
    sys.path.insert(0, home)
    for name in [name for name in sys.modules if name.split(".")[0] == "rlcore"]:
        del sys.modules[name]


def unpack(payload: bytes) -> dict[str, Any]:
    """Return the owner's job."""
    job: dict[str, Any] = marshal.loads(payload)
    return job


def write_files(files: Mapping[str, bytes]) -> None:
    """Write the owner's files into the present folder."""
    for name, content in files.items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)  # noqa: PTH103, PTH120
        with open(name, "wb") as file:  # noqa: PTH123
            file.write(content)


def run_program(payload: bytes, memory_flag: Any, home: str, is_ready: int) -> NoReturn:
    """Run the owner's job. ``memory_flag``: one shared byte, set if the program dies of MemoryError. ``is_ready`` receives a byte and is
    closed when the walls are complete and only the program can fail. After that it cannot claim that the jail was at fault."""
    job = unpack(payload)
    os.chdir(home)
    write_files(job["files"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.write(is_ready, b"r")
    os.close(is_ready)
    if job["argv"]:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        _, hard = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (_THREAD_STACK if hard == resource.RLIM_INFINITY else min(_THREAD_STACK, hard), hard))
        try:
            os.execv(job["argv"][0], job["argv"])
        except OSError as error:
            os.write(2, f"{job['argv'][0]}: {error.strerror}\n".encode())
            os._exit(127)
    _run_python(job["source"], memory_flag)


# --- Python programs, in the present interpreter --------------------------------------------------------------------------


def _run_python(source: bytes, memory_flag: Any) -> NoReturn:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __file__=_NAME)
    sys.modules["__main__"] = main
    seed_again()
    code = 0
    try:
        exec(compile(source, _NAME, "exec", dont_inherit=True), main.__dict__)
    except BaseException as error:
        code = _report(error, memory_flag)
    _finish(code)


def _report(error: BaseException, memory_flag: Any) -> int:
    """Print what Python would print, and return the exit code with which it would end."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF if abs(error.code or 0) <= _LARGEST_CODE else 0xFF
        _complain(str(error.code))
        return 1
    if isinstance(error, MemoryError):
        memory_flag[0] = 1
    trace: TracebackType | None = error.__traceback__
    try:
        own = trace.tb_next if trace else None
        sys.excepthook(type(error), error.with_traceback(own), own)
    except BaseException as second:  # the program has its own hook
        _complain(f"{type(second).__name__} in excepthook")
    return 1


def _complain(text: str) -> None:
    os.write(2, text.encode("utf-8", "backslashreplace") + b"\n")


def _finish(code: int) -> NoReturn:
    """Wait for threads, run exit handlers, and flush. Output that cannot be written is an error, as in Python."""
    try:
        if threading := sys.modules.get("threading"):
            threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException as error:
        code = code or _report(error, bytearray(1))
    with contextlib.suppress(BaseException):
        sys.stderr.flush()
    try:
        if not sys.stdout.closed:
            sys.stdout.flush()
    except AttributeError:
        pass  # the program has replaced the stream
    except BaseException as error:
        _complain(f"{type(error).__name__}: {error}")
        code = code or 120
    os._exit(code)
