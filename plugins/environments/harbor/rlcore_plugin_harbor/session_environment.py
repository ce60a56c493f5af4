"""Harbor's environment of a trial as a session of the sandbox: no Docker, no network, no process left."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import sys
import tarfile
from itertools import count
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any, ClassVar

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from rlcore_plugin_sandbox.local_sandbox import open_local
from rlcore_plugin_sandbox.options import LocalSandboxOptions

from rlcore.api.sandbox import Limits, Sandbox, Session, SessionJob
from rlcore_plugin_harbor.images import FOLDERS, setup_of
from rlcore_plugin_harbor.options import HarborOptions

__all__ = ["SessionEnvironment", "open_sessions"]

_MADE = ("/logs/agent", "/logs/verifier", "/logs/artifacts")
_DAY = 86400.0
_SERVER = Path(__file__).with_name("session_commands.py").read_text(encoding="utf-8")


def open_sessions(given: HarborOptions) -> Sandbox:
    """Open the sandbox of a process. Raise SandboxError if this machine has no sessions."""
    shown = _shown(given)
    folders = tuple(folder for folder in FOLDERS if not any(path.is_relative_to(folder) for path in shown))  # they would hide these
    return open_local(LocalSandboxOptions(level="namespaces", packages=(), session_folders=folders, session_terminals=32))


def _shown(given: HarborOptions) -> tuple[Path, ...]:
    return tuple(dict.fromkeys((Path(sys.prefix), *given.path, *given.readable)))


class SessionEnvironment(BaseEnvironment):
    """A session. Commands run in it one after the other or at the same time, and what they leave running stays until the trial ends.

    ``sandbox``, ``given``: of this process. ``reach``: a Unix socket that the session reaches, None unless its agent runs
    inside. Harbor makes the instances, so they are attributes of the class.
    """

    sandbox: ClassVar[Sandbox]
    given: ClassVar[HarborOptions]
    reach: ClassVar[Path | None] = None
    PORT: ClassVar[int] = 9471

    _session: Session | None = None
    _end = ""

    @staticmethod
    def type() -> str:
        return "rlcore-session"

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(memory_limit=True, fractional_cpus=True)

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        """Raise ValueError if the task needs an image."""
        self._setup = setup_of(self.environment_dir, self.task_env_config)

    async def start(self, force_build: bool) -> None:
        self._number, self._answers = count(), dict[int, asyncio.Future[dict[str, Any]]]()
        self._session = await asyncio.to_thread(self.sandbox.session, self._job())
        self._reading = asyncio.create_task(self._read(self._session))
        await self._checked(f"mkdir -p {' '.join(map(quote, (*_MADE, self._setup.workdir)))}")
        for source, target in self._setup.copies:
            await (self.upload_dir if source.is_dir() else self.upload_file)(source, target)

    async def stop(self, delete: bool) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await asyncio.to_thread(session.kill)
            await self._reading
            await asyncio.to_thread(session.close)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """See BaseEnvironment. A session has one user, so ``user`` has no effect."""
        answer = await self._ran(command, cwd, env, timeout_sec)
        texts = {name: answer[name].decode(errors="replace") for name in ("stdout", "stderr")}
        return ExecResult(return_code=answer["code"], **texts)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target, data = quote(target_path), Path(source_path).read_bytes()
        mode = "755" if os.access(source_path, os.X_OK) else "644"
        await self._checked(f"mkdir -p $(dirname {target}) && cat > {target} && chmod {mode} {target}", data)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(source_dir, ".", filter=_ours)
        target = quote(target_dir)
        made = " ".join((*_MADE, target))  # the policy may have removed the folders of the tests
        await self._checked(f"mkdir -p {made} && tar -x --no-same-permissions -f - -C {target}", buffer.getvalue())

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        data = await self._checked(f"cat {quote(source_path)}")
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        Path(target_path).write_bytes(data)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        data = await self._checked(f"tar -c -f - -C {quote(source_dir)} .")
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(target_dir, filter=_safe)

    def _job(self) -> SessionJob:
        given = self.given
        path = [*map(str, given.path), "/usr/bin", "/bin", str(Path(sys.base_prefix) / "bin")]
        return SessionJob(
            argv=(sys.executable, "-I", "-c", _SERVER),
            env={"PATH": os.pathsep.join(path), **self._setup.env},
            readable=_shown(given),
            reach=self.reach,
            port=self.PORT,
            limits=Limits(
                cpu_seconds=_DAY,
                wall_seconds=_DAY,
                memory_bytes=(self._effective_memory_mb or given.memory_mb) << 20,
                disk_bytes=given.disk_mb << 20,
                files=1 << 16,
                processes=given.processes,
                address_bytes=1 << 40,
            ),
        )

    async def _checked(self, command: str, stdin: bytes = b"") -> bytes:
        """Run a command of ours and return its standard output. Raise RuntimeError if it fails."""
        answer = await self._ran(command, "/", None, None, stdin)
        if answer["code"]:
            raise RuntimeError(f"{command[:200]} failed in the session: {answer['stderr'].decode(errors='replace').strip()[:500]}")
        output: bytes = answer["stdout"]
        return output

    async def _ran(
        self, command: str, cwd: str | None, env: dict[str, str] | None, seconds: int | None, stdin: bytes = b""
    ) -> dict[str, Any]:
        """Return code, stdout and stderr. Raise RuntimeError if the command is too late, or if the session cannot run it or has ended."""
        if self._session is None or self._reading.done():
            raise RuntimeError(self._end or "the session of the trial has not started, or was stopped")
        number = next(self._number)
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        asked = {"command": command, "cwd": cwd or self._setup.workdir, "env": self._merge_env(env) or {}}
        try:
            await self._send({"id": number, "stdin": base64.b64encode(stdin).decode(), **asked})
            said = await asyncio.wait_for(asyncio.shield(answer), seconds)
        except TimeoutError:
            await self._send({"kill": number})
            raise RuntimeError(f"Command timed out after {seconds} seconds") from None
        except asyncio.CancelledError:
            await self._send({"kill": number})
            raise
        finally:
            self._answers.pop(number, None)
        if "error" in said:
            raise RuntimeError(said["error"])
        return {"code": said["code"], **{name: base64.b64decode(said[name]) for name in ("stdout", "stderr")}}

    async def _send(self, message: dict[str, Any]) -> None:
        if self._session is not None:
            await asyncio.to_thread(_write, self._session, json.dumps(message).encode() + b"\n")

    async def _read(self, session: Session) -> None:
        """Pass the answers on until the session ends; then every command that still waits fails."""
        try:
            while line := await asyncio.to_thread(session.stdout.readline):
                said = json.loads(line)
                if (answer := self._answers.pop(said["id"], None)) is not None and not answer.done():
                    answer.set_result(said)
        finally:
            await asyncio.to_thread(session.kill)  # it closed its output, or wrote something else
            self._end = _end_of(session)
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_result({"error": self._end})


def _end_of(session: Session) -> str:
    """Return how a session has ended, in words."""
    result = session.wait()
    if result.limit is not None:
        return f"the session has ended: it reached its limit {result.limit}"
    errors = result.stderr.decode(errors="replace").strip().splitlines()
    how = f"by signal {result.signal}" if result.signal else f"with exit code {result.exit_code}"
    return f"the session has ended: its first process ended {how}{f', {errors[-1][:200]}' if errors else ''}"


def _write(session: Session, line: bytes) -> None:
    view = memoryview(line)
    try:
        while view:
            view = view[session.stdin.write(view) :]
    except (BrokenPipeError, ValueError):  # it has ended, and the reader says so
        return


def _ours(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave owners and devices out."""
    member.uid = member.gid = 1000
    member.uname = member.gname = ""
    return None if member.isdev() else member


def _safe(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Extract only files and folders: what an agent wrote may hold links and pipes."""
    if not (member.isfile() or member.isdir()) or PurePosixPath(member.name).is_absolute():
        return None
    return tarfile.data_filter(member, folder)
