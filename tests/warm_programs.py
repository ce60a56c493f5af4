"""Programs of rlcore that tests start, as forks of a process that has imported what they need.

A fresh interpreter spends half a second on numpy and pydantic, and five on torch and transformers; a fork has them. It is a child of the
process that starts it, as any other, so its end, its number and its signals are real, and /proc shows its own command line and environment.
What differs: modules are there that it did not import, and all forks of one process have its seed of hashes. A test whose subject that is,
or how an interpreter begins and ends, is marked ``interpreter``.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import io
import json
import os
import platform
import random
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

__all__ = ["SERVERS", "fork_programs", "warm_programs"]

LIGHT: tuple[str, ...] = (
    "numpy",
    "rlcore.rewards.worker",
    "rlcore.rewards.async_worker",
    "rlcore.registry.plugin_registry",
    "rlcore.testing",
    "rlcore.testing.inference.faulty_inference",
    "rlcore.testing.training.faulty_training",
)
WORKERS = ("rlcore_plugin_processes.worker_link", "rlcore_plugin_torch.backend", "rlcore_plugin_transformers.engine")
MODELS = ("transformers.models.qwen2.modeling_qwen2", "transformers.models.qwen3.modeling_qwen3", "peft")
HEAVY = (*LIGHT, "rlcore.cli.train", *WORKERS, "rlcore.testing.training.layout_runs", *MODELS)
COLOSSALAI = ("rlcore_plugin_colossalai.colossal_backend", "transformers.models.llama.modeling_llama")
RANKS = COLOSSALAI if find_spec("colossalai") else HEAVY
TESTER = ("rlcore.testing.run_tester", "PROGRAM")
OWNERS = {
    ("rlcore.rewards.worker_process", "_BOOT"): LIGHT,
    ("rlcore_plugin_processes.launcher", "_BOOT"): HEAVY,
    TESTER: HEAVY,
    ("rlcore.testing.training.rank_processes", "PROGRAM"): RANKS,
}
"""The module that starts a program, and its name there -> what the program imports. Nothing of rlcore is imported here: each test would
read it, and no group of tests could be left out after a change in it."""
PROGRAMS: dict[str, tuple[str, ...]] = {}
"""Programs of tests -> what they import."""
THREADS = {**dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"), "TOKENIZERS_PARALLELISM": "false"}
PR_SET_PDEATHSIG = 1
SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine(), 0) if sys.platform == "linux" else 0
"""Number of the system call; 0 where programs are started as ever."""
CLONE_PARENT, CLONE_CHILD_SETTID = 0x8000, 0x1000000
"""The new process is a child of the caller's parent, and its number is written into its memory (``man 2 clone``)."""
ROOT = Path(__file__).resolve().parents[1]
BOOT = """
import os, socket, sys
if not socket.socket(fileno=os.dup(int(sys.argv[2]))).recv(1, socket.MSG_PEEK):
    sys.exit()
sys.path.insert(0, sys.argv[1])
from tests.warm_programs import main
main(*sys.argv[2:])
"""
"""It imports what programs need when the first is asked for, or finds that nobody needs it."""
ROOM = " " * 65536
"""For the command line and the environment of a fork, which /proc shows."""
_ordinary = subprocess.Popen._execute_child  # type: ignore[attr-defined]


class ForkServer:
    """The other end of a process that forks."""

    def __init__(self, modules: Sequence[str], channel: socket.socket | None = None, ended: Callable[[], object] = lambda: None) -> None:
        self._modules, self._channel, self._ended, self._owner, self._lock = modules, channel, ended, os.getpid(), threading.Lock()

    def begin(self) -> None:
        """Start the process, if there is none: before a test counts its children."""
        if self._channel is None or self._owner != os.getpid():
            self._channel, self._owner = self._begun(), os.getpid()

    def start(self, program: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """The process id of a new child of this process, which runs ``program`` with these descriptors as its own."""
        with self._lock:
            self.begin()
            assert self._channel is not None
            said = json.dumps(program).encode()
            socket.send_fds(self._channel, [len(said).to_bytes(8, "big")], list(descriptors))
            self._channel.sendall(said)
            answer = int.from_bytes(self._channel.recv(8, socket.MSG_WAITALL), "big", signed=True)
        if answer <= 0:
            raise OSError(-answer, os.strerror(-answer))
        return answer

    def close(self) -> None:
        """End it."""
        if self._channel is not None and self._owner == os.getpid():
            self._channel.close()
            self._ended()
            self._channel = None

    def _begun(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        words = [sys.executable, "-P", "-c", BOOT, str(ROOT), str(theirs.fileno()), *self._modules, ROOM]
        variables = {**os.environ, **THREADS, "ROOM": ROOM}
        with theirs:
            self._ended = subprocess.Popen(words, env=variables, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL).wait
        return ours


SERVERS = {modules: ForkServer(modules) for modules in set(OWNERS.values())}


def _program_of(owner: tuple[str, str]) -> str | None:
    """None if the module is not loaded: then nobody starts its program."""
    module, name = owner
    return getattr(sys.modules.get(module), name, None)


def _modules_of(program: str) -> tuple[str, ...] | None:
    return PROGRAMS.get(program) or next((modules for owner, modules in OWNERS.items() if program == _program_of(owner)), None)


def _execute_child(self: Any, *given: Any, **named: Any) -> None:
    """What ``subprocess.Popen`` calls to start a program."""
    asked = SimpleNamespace(**inspect.signature(_ordinary).bind(self, *given, **named).arguments)
    words = [word for word in asked.args if word != "-P"] if isinstance(asked.args, list) else []
    modules = _modules_of(words[2]) if len(words) > 2 and words[:2] == [sys.executable, "-c"] else None
    if modules is None or not SYS_CLONE or asked.preexec_fn:
        return _ordinary(self, *given, **named)
    streams = [number if one == -1 else one for number, one in enumerate((asked.p2cread, asked.c2pwrite, asked.errwrite))]
    program = {
        "command": list(map(str, asked.args)),
        "words": words[2:],
        "environment": dict(os.environ if asked.env is None else asked.env),
        "folder": str(asked.cwd or Path.cwd()),
        "session": bool(asked.start_new_session),
        "safe": "-P" in asked.args,
        "numbers": [0, 1, 2, *asked.pass_fds],
    }
    self.pid = SERVERS[modules].start(program, [*streams, *asked.pass_fds])
    self._child_created = True
    self._close_pipe_fds(asked.p2cread, asked.p2cwrite, asked.c2pread, asked.c2pwrite, asked.errread, asked.errwrite)
    return None


@contextmanager
def warm_programs() -> Iterator[None]:
    """Inside, the programs above are forks."""
    for server in SERVERS.values():
        server.begin()
    with mock.patch.object(subprocess.Popen, "_execute_child", _execute_child):
        yield


# --- the process that forks ---------------------------------------------------------------------------------------------


def serve(channel: socket.socket) -> None:
    """Fork for whoever is at the other end, until that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # what forks share stays shared
    while True:
        size, descriptors, _, _ = socket.recv_fds(channel, 8, 64)
        if not size:
            os._exit(0)
        program = json.loads(channel.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        leads, led = os.pipe()
        pid = _cloned()
        if pid == 0:
            if program["session"]:
                os.setsid()
            os.close(led)
            _become(program, descriptors)
        os.close(led)
        os.read(leads, 1)  # until the child leads its group, which may be killed at once, or has ended
        os.close(leads)
        channel.sendall(pid.to_bytes(8, "big", signed=True))
        for descriptor in descriptors:
            os.close(descriptor)


def _cloned() -> int:
    """As ``os.fork``, but the child's parent is the parent of this process; -errno if it fails."""
    python = ctypes.PyDLL(None, use_errno=True)
    place = ctypes.c_void_p(_number_of_the_thread())
    python.PyOS_BeforeFork()
    pid = python.syscall(SYS_CLONE, CLONE_PARENT | CLONE_CHILD_SETTID | signal.SIGCHLD, 0, 0, place, place)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    return pid if pid > 0 else -ctypes.get_errno()


def _number_of_the_thread() -> int:
    """Where glibc keeps the number of this thread, which ``pthread_kill`` reads: in the record that ``pthread_self`` points to."""
    libc = ctypes.CDLL(None)
    libc.pthread_self.restype = ctypes.c_void_p
    record = libc.pthread_self()
    return record + 4 * list((ctypes.c_int * 512).from_address(record)).index(threading.get_native_id())


def _become(program: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Run the program in this process as a fresh interpreter would, and end."""
    _take(descriptors, program["numbers"])
    os.chdir(program["folder"])
    os.environ.clear()
    os.environ.update(program["environment"])
    _show(program["command"], [f"{name}={value}" for name, value in program["environment"].items()])
    _prepare(program)
    nested = fork_programs() if program["words"][0] == _program_of(TESTER) else None
    main = sys.modules["__main__"] = ModuleType("__main__")
    code = 1
    try:
        exec(compile(program["words"][0], "<string>", "exec"), main.__dict__)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    _end(code, nested)


def _prepare(program: Mapping[str, Any]) -> None:
    """What an interpreter makes of its words, variables and streams before it runs a program."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    now = "PYTHONUNBUFFERED" in os.environ
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        raw = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 - for the life of the process
        errors = "backslashreplace" if number == 2 else "strict"
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=number == 2 or raw.isatty(), write_through=now)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _draw_anew()
    sys.argv = ["-c", *program["words"][1:]]
    extra = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:] = [*([] if program["safe"] else [""]), *extra, *(folder for folder in sys.path if folder not in extra)]


def _draw_anew() -> None:
    """Random states and threads as an interpreter begins with: forks that share those of their server would hide a missing seed."""
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.seed()
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))


def _show(command: Sequence[str], environment: Sequence[str]) -> None:
    """What /proc shows as the command line and the first environment: the memory where the kernel put them, which nobody else reads."""
    places = [int(word) for word in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]]
    for words, start, end in ((command, *places[:2]), (environment, *places[2:])):
        text = "".join(f"{word}\0" for word in words).encode("utf-8", "surrogateescape")
        if len(text) >= end - start:
            return  # a fork of a program that was started without this room shows that program
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))


def _end(code: int, nested: ForkServer | None) -> NoReturn:
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    if nested:
        nested.close()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)


def _take(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Make each descriptor the one of its number, and close all others."""
    above = max(numbers) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in descriptors]
    for descriptor, number in zip(moved, numbers, strict=True):
        os.dup2(descriptor, number)
    for number in {int(path.name) for path in Path("/proc/self/fd").iterdir()} - set(numbers):
        with suppress(OSError):  # the one that listed them
            os.close(number)


def fork_programs() -> ForkServer:
    """Programs that this process starts are forks from here on: of a fork of this process as it is now."""
    ours, theirs = socket.socketpair()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        ours.close()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        weakref.finalize._registry.clear()  # type: ignore[attr-defined]  # a program that ends must not remove this process's folders
        serve(theirs)
    theirs.close()
    nested = ForkServer(HEAVY, ours, lambda: os.waitpid(pid, 0))
    SERVERS.update(dict.fromkeys(SERVERS, nested))
    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
    return nested


def main(descriptor: str, *modules: str) -> None:
    """The program of a server of forks."""
    for name in modules[:-1]:
        importlib.import_module(name)
    del sys.path[0]
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads cannot be forked"
    serve(socket.socket(fileno=int(descriptor)))
