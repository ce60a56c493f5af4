"""The owner's end of a session: it starts a supervisor in a jail, holds the pipes, and reads the working folder."""

from __future__ import annotations

import json
import marshal
import os
import select
import signal
import socket
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from rlcore.api import SandboxError
from rlcore.api.sandbox import ProgramResult, Session, SessionJob
from rlcore_plugin_sandbox import bubblewrap
from rlcore_plugin_sandbox.jail.supervisor import HOME
from rlcore_plugin_sandbox.persistent_zygote import Isolation
from rlcore_plugin_sandbox.zygote_process import JailProcess, ZygoteDied, boot_arguments, limits_of, memory_file, pipe, result_of

__all__ = ["LocalSession"]

_ENDING_SECONDS = 10.0
_DEEPEST = 64  # folders inside each other; a session could nest as many as its disk holds
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_ETC = {
    "passwd": f"agent:x:1000:1000::{HOME}:/bin/sh\n",
    "group": "agent:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",  # else each look-up of a name would wait for a server
}


class _Supervisor(JailProcess):
    """The supervisor's process."""

    def begin(self, message: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Send the job; return the descriptor of the working folder. :raises ZygoteDied: it does not start; it is gone."""
        with suppress(OSError):  # if it has died, the next line tells why
            socket.send_fds(self._channel, [json.dumps(message).encode()], list(descriptors))
        said = self._await_ready()
        if "error" in said:
            self.close()
            raise ZygoteDied(said["error"])
        return self.received.pop()

    def ask_to_end(self) -> None:
        """Ask it to kill the session and answer."""
        with suppress(OSError):
            self._channel.send(b"kill")

    def answer(self, seconds: float | None) -> dict[str, Any] | None:
        """Return its answer; None if there is none after ``seconds``. :raises ZygoteDied: there will be none."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        if not poll.poll(None if seconds is None else seconds * 1000):
            return None
        try:
            said = self._channel.recv(1 << 17)
        except ConnectionResetError:  # it has ended, and had not read everything; what it sent before comes next
            said = self._channel.recv(1 << 17)
        if not said:
            raise self._died()
        answer: dict[str, Any] = json.loads(said)
        return answer


class LocalSession(Session):
    """A session in a jail of its own.

    :param walls: those of the sandbox, with the folders that its options show in addition to the job's.
    :raises SandboxError: the session cannot be started.
    """

    def __init__(self, user: bubblewrap.JailUser, walls: Isolation, job: SessionJob) -> None:
        self._lock = threading.Lock()
        self._result: ProgramResult | None = None
        self._failure, self._owner = "", os.getpid()
        with ExitStack() as unless_started, ExitStack() as once_sent:
            try:
                ends = self._pipes(unless_started, once_sent)
                descriptors = [memory_file(_payload(job), once_sent), *ends]
                if job.reach is not None:
                    descriptors.append(os.open(job.reach, os.O_PATH | os.O_CLOEXEC))
                    once_sent.callback(os.close, descriptors[-1])
                etc = {name: memory_file(text.encode(), once_sent) for name, text in _ETC.items()}
                self._process = _Supervisor(lambda control: _command(user, walls, job, etc, control), _path(), list(etc.values()))
                more = {"port": job.port, "folders": walls.session_folders, "terminals": walls.session_terminals}
                self._folder = self._process.begin({**limits_of(job.limits), **more}, descriptors)
            except (OSError, ZygoteDied) as error:
                raise SandboxError(f"the session cannot be started: {error}") from error
            self._over = os.pidfd_open(self._process.pid)
            unless_started.pop_all()

    def poll(self) -> ProgramResult | None:
        if os.getpid() != self._owner:
            raise SandboxError("the session belongs to the process that started it")
        with self._lock:
            self._look(0)
            if self._failure:
                raise SandboxError(self._failure)
            return self._result

    def wait(self, seconds: float | None = None) -> ProgramResult:
        ended = select.poll()
        ended.register(self._over, select.POLLIN)
        if self._running() and not ended.poll(None if seconds is None else seconds * 1000):
            raise TimeoutError(f"the session still runs after {seconds:g} s")
        result = self.poll()
        assert result is not None
        return result

    def fileno(self) -> int:
        return self._over

    def kill(self) -> None:
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._running():
                self._process.ask_to_end()
                self._look(_ENDING_SECONDS)
            if self._running():  # it is frozen, or starved
                self._process.kill()
                self._process.close()
                self._result = ProgramResult(exit_code=None, signal=signal.SIGKILL, stdout=b"", stderr=b"")

    def names(self) -> tuple[str, ...]:
        top = self._opened(".", _FOLDER)
        try:
            return tuple(sorted(_files_below(top)))
        finally:
            os.close(top)

    def read(self, name: str) -> bytes:
        SessionJob(argv=("/",), files={name: b""})  # no other path may be opened
        try:
            descriptor = self._opened(name, _FILE)
        except OSError as error:
            raise FileNotFoundError(f"the session has no file {name!r}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileNotFoundError(f"the session has no regular file {name!r}")
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def close(self) -> None:
        self.kill()
        with self._lock:
            self.stdin.close()
            self.stdout.close()
            for descriptor in (self._folder, self._over):
                if descriptor >= 0:
                    os.close(descriptor)
            self._folder = self._over = -1

    # --- private ----------------------------------------------------------------------------------------------------

    def _pipes(self, unless_started: ExitStack, once_sent: ExitStack) -> tuple[int, int]:
        """Make the pipes; return the command's ends."""
        with ExitStack() as owned:
            stdin_end, stdin = pipe(once_sent, owned)
            stdout, stdout_end = pipe(owned, once_sent)
            owned.pop_all()
        self.stdin = unless_started.enter_context(cast("BinaryIO", os.fdopen(stdin, "wb", 0)))
        self.stdout = unless_started.enter_context(os.fdopen(stdout, "rb"))
        return stdin_end, stdout_end

    def _running(self) -> bool:
        return self._result is None and not self._failure

    def _look(self, seconds: float) -> None:
        """Take the supervisor's answer, if it comes in time. If the supervisor has ended without one, remember that."""
        if not self._running():
            return
        try:
            answer = self._process.answer(seconds)
            if answer is None and select.select([self._over], [], [], 0)[0] and (answer := self._process.answer(0)) is None:
                raise ZygoteDied("bubblewrap was killed")
            if answer is None:
                return
            self._result = result_of(answer, b"", answer.pop("stderr", "").encode("latin-1"))
        except (OSError, ZygoteDied) as error:
            self._failure = f"the supervisor of the session died: {error}"
            self._process.kill()
        self._process.close()

    def _opened(self, name: str, flags: int) -> int:
        """Open a path of the working folder. No part of it may be a link, which could lead out of the folder."""
        if self._folder < 0:
            raise SandboxError("the session is closed; read its files before")
        *folders, last = name.split("/")
        at = os.dup(self._folder)
        try:
            for folder in folders:
                inner = os.open(folder, _FOLDER, dir_fd=at)
                os.close(at)
                at = inner
            return os.open(last, flags, dir_fd=at)
        finally:
            os.close(at)


def _files_below(folder: int, prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the paths of the regular files below an open folder. A session can rename and remove its files meanwhile."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)) for entry in entries]
    for name, is_folder, is_file in found:
        if is_file:
            yield prefix + name
        elif is_folder and depth < _DEEPEST:
            with ExitStack() as closing:
                try:
                    inner = os.open(name, _FOLDER, dir_fd=folder)
                except OSError:  # the session has removed it, or lets nobody read it
                    continue
                closing.callback(os.close, inner)
                yield from _files_below(inner, f"{prefix}{name}/", depth + 1)


def _path() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath)}


def _payload(job: SessionJob) -> bytes:
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": HOME, "TMPDIR": "/tmp", "USER": "agent", "LOGNAME": "agent"} | dict(job.env)
    return marshal.dumps({"argv": list(job.argv), "env": env, "files": dict(job.files)})


def _command(user: bubblewrap.JailUser, walls: Isolation, job: SessionJob, etc: Mapping[str, int], control: int) -> list[str]:
    further = ["--as-pid-1", *(word for folder in walls.session_folders for word in ("--perms", "0755", "--dir", folder))]
    for name, descriptor in etc.items():
        os.lseek(descriptor, 0, os.SEEK_SET)
        further += ["--perms", "0644", "--file", str(descriptor), f"/etc/{name}"]
    shown = [at for folder in job.readable for at in _with_interpreter(folder)]
    further += bubblewrap.show((str(at.resolve()), path) for at in shown for path in dict.fromkeys((str(at), str(at.resolve()))))
    setup = {"uid": user.uid, "gid": user.gid}
    boot = boot_arguments(bubblewrap.JAIL, control, setup, "supervisor")
    return bubblewrap.command(user, walls.readable, (), boot, further, terminals=walls.session_terminals > 0)


def _with_interpreter(folder: Path) -> Iterator[Path]:
    """Yield the folder or file, and the folders of its interpreter if it is a virtual environment."""
    yield folder
    with suppress(FileNotFoundError, NotADirectoryError):
        for line in (folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            home = Path(value.strip())
            if name.strip() == "home" and home.is_absolute() and home.parent not in (Path("/usr"), Path("/")):
                yield from (path for path in (home, home.parent / "lib", home.parent / "lib64") if path.is_dir())
