"""The owner's end of a zygote: it starts the zygote, sends it one run at a time, and collects the output. File contents are sent only as
descriptors."""

from __future__ import annotations

import array
import fcntl
import json
import marshal
import os
import select
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from rlcore.api.sandbox import Job, Limit, Limits, ProgramResult

__all__ = ["JailProcess", "ZygoteDied", "ZygoteProcess", "boot_arguments", "limits_of", "memory_file", "pipe", "result_of"]

# The jail's modules import each other by their full names; only the jail of this package exists inside.
_BOOT = """
import sys, types
sys.modules["rlcore_plugin_sandbox"] = package = types.ModuleType("rlcore_plugin_sandbox")
package.__path__ = [sys.argv[1]]
from importlib import import_module
import_module("rlcore_plugin_sandbox.jail." + sys.argv[4]).main(int(sys.argv[2]), sys.argv[3])
"""
_START_SECONDS = 20.0
_GRACE_SECONDS = 5.0
_ENDING_SECONDS = 0.5  # from a closed socket to the end of the process
_STDERR = 4096
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_CHUNK = 1 << 16


_CHANNELS: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_channels() -> None:
    """Close the channels in a fork of this process: the fork's copies would hide the owner's end from the zygotes."""
    for channel in list(_CHANNELS):
        channel.close()


os.register_at_fork(after_in_child=_close_channels)


class ZygoteDied(Exception):
    """The zygote ended or did not answer; the result of the program of that run is not known.

    :param killed: another process or the kernel killed it, for example because memory was short; another zygote may survive.
    """

    def __init__(self, words: str, *, killed: bool = False) -> None:
        super().__init__(words)
        self.killed = killed


def boot_arguments(folder: str, control: int, setup: Mapping[str, Any], module: str = "zygote") -> list[str]:
    """Return arguments for an interpreter that becomes a zygote, or runs another module; ``folder`` holds the package ``jail``."""
    return ["-S", "-s", "-P", "-B", "-X", "utf8", "-c", _BOOT, folder, str(control), json.dumps(dict(setup)), module]


class JailProcess:
    """A process inside a jail, and the channel to it. Not thread-safe.

    :param command: a function that receives the number of the control descriptor and returns the command line.
    :param pass_on: further descriptors that the command inherits.
    """

    def __init__(self, command: Callable[[int], list[str]], environment: Mapping[str, str], pass_on: Sequence[int] = ()) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, ExitStack() as unless_started:
            unless_started.callback(ours.close)
            self._popen = subprocess.Popen(
                command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=dict(environment),
                pass_fds=[theirs.fileno(), *pass_on],
                # A separate session: if the owner's group is killed, the zygote must have time to end its program and clean up.
                start_new_session=True,
            )
            unless_started.pop_all()
        self._channel = ours
        self.received: list[int] = []
        """The descriptors that came with the message that it is ready."""
        _CHANNELS.add(self._channel)

    @property
    def pid(self) -> int:
        """The process id of the started process (level namespaces: bubblewrap)."""
        return self._popen.pid

    def close(self) -> None:
        """Close the zygote's channel, which makes it end its program and clean up. Kill it if it has not ended within two seconds."""
        self._channel.close()
        try:
            self._popen.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self.kill()
        assert self._popen.stderr is not None
        self._popen.stderr.close()

    def kill(self) -> None:
        """Kill the zygote now, with all processes of its session."""
        if self._popen.returncode is None:  # else another process may have its number by now
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()

    def _await_ready(self) -> dict[str, Any]:
        ended = os.pidfd_open(self._popen.pid)
        try:
            in_time = _wait(_START_SECONDS, self._channel.fileno(), ended)
        finally:
            os.close(ended)
        said = b""
        with suppress(OSError):  # if bubblewrap is killed early, a silent process remains that waits for ever with the socket open
            flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC  # socket.recv_fds of Python 3.11 ignores its flags
            said, ancillary, _, _ = self._channel.recvmsg(1 << 16, socket.CMSG_SPACE(4), flags)
            self.received += [number for _, _, data in ancillary for number in array.array("i", data)]
        if said:
            ready: dict[str, Any] = json.loads(said)
            return ready
        died = self._died() if in_time else ZygoteDied(f"it was not ready after {_START_SECONDS:g} s")
        self.kill()
        self.close()
        raise died

    def _died(self) -> ZygoteDied:
        """Return the error of a zygote that has closed its socket: its last line on standard error, or how it ended."""
        assert self._popen.stderr is not None
        code = self._code()
        os.set_blocking(self._popen.stderr.fileno(), False)
        words = (self._popen.stderr.read() or b"").decode(errors="replace").strip().splitlines()
        how = f"it ended with code {code}" if code is not None else "it closed its socket"
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)  # bubblewrap reports the signal of its child as the second code
        return ZygoteDied(words[-1][:300] if words else how, killed=killed)

    def _code(self) -> int | None:
        """Return the exit code or -signal, None if the process still runs. Do not reap it: ``kill`` uses its id, which no other process may
        get."""
        if self._popen.returncode is not None:
            return self._popen.returncode
        handle = os.pidfd_open(self._popen.pid)
        try:
            if not _wait(_ENDING_SECONDS, handle):
                return None
        finally:
            os.close(handle)
        ended = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


class ZygoteProcess(JailProcess):
    """One zygote. Not thread-safe.

    :raises ZygoteDied: it does not start; the message has its last line on standard error.
    """

    def __init__(self, command: Callable[[int], list[str]], environment: Mapping[str, str]) -> None:
        super().__init__(command, environment)
        said = self._await_ready()
        self.imported: list[str] = said["imported"]
        """The packages that the zygote has imported for programs."""
        self.mapped: int = said["mapped"]
        """The bytes of address space with which every program begins."""

    def run(self, job: Job) -> ProgramResult:
        """Run one job. :raises ZygoteDied: the zygote cannot be used any more; kill it."""
        with ExitStack() as closing, ExitStack() as once_sent:
            stdin, payload = (memory_file(content, closing) for content in (job.stdin, _payload(job)))
            stdout, stdout_end = pipe(closing, once_sent)
            stderr, stderr_end = pipe(closing, once_sent)
            ends = array.array("i", [stdin, payload, stdout_end, stderr_end])
            request = limits_of(job.limits)
            try:
                self._channel.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ends)])
            except OSError as error:
                raise self._died() from error
            once_sent.close()
            return self._collect(stdout, stderr, job)

    # --- private ----------------------------------------------------------------------------------------------------

    def _collect(self, stdout: int, stderr: int, job: Job) -> ProgramResult:
        output, errors, too_much, answer = bytearray(), b"", False, None
        limit = time.monotonic() + job.limits.wall_seconds + _GRACE_SECONDS
        poll = select.poll()
        for descriptor in (stdout, stderr, self._channel.fileno()):
            poll.register(descriptor, select.POLLIN)
        waiting = {stdout, stderr}
        while answer is None or waiting:
            # After the answer every process of the run is gone, and the pipes hold their final content. After the limit nothing is read:
            # processes that escaped at level none could write for ever.
            left = limit - time.monotonic()
            ready = poll.poll(0 if answer is not None else left * 1000) if left > 0 else []
            if not ready:
                if answer is not None:
                    break
                raise ZygoteDied("no answer in time")
            for descriptor, _ in ready:
                if descriptor == self._channel.fileno():
                    said = self._answer()
                    if "cleaning" in said:
                        limit = time.monotonic() + _GRACE_SECONDS
                        continue
                    answer = said
                    poll.unregister(descriptor)
                    continue
                data = os.read(descriptor, _CHUNK)
                if not data:
                    poll.unregister(descriptor)
                    waiting.discard(descriptor)
                elif descriptor == stderr:
                    errors = (errors + data)[-_STDERR:]
                elif not too_much:
                    output += data
                    too_much = len(output) > job.limits.output_bytes
                    if too_much and answer is None:
                        self._stop()
        return result_of(answer, bytes(output[: job.limits.output_bytes]), errors, too_much)

    def _stop(self) -> None:
        try:
            self._channel.send(b"stop")
        except OSError as error:
            raise self._died() from error

    def _answer(self) -> dict[str, Any]:
        try:
            said = self._channel.recv(1 << 16)
        except OSError as error:
            raise self._died() from error
        if not said:
            raise self._died()
        answer: dict[str, Any] = json.loads(said)
        return answer


def _wait(seconds: float, *descriptors: int) -> bool:
    """Wait until one of the descriptors is readable or closed; return False after ``seconds``."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def limits_of(limits: Limits) -> dict[str, Any]:
    """Return the limits as the processes inside a jail read them."""
    return {
        "cpu": limits.cpu_seconds,
        "wall": limits.wall_seconds,
        "memory": limits.memory_bytes,
        "addresses": max(limits.memory_bytes, limits.address_bytes),
        "disk": limits.disk_bytes,
        "files": limits.files,
        "processes": limits.processes,
    }


def result_of(answer: Mapping[str, Any], output: bytes, errors: bytes, too_much: bool = False) -> ProgramResult:
    """Return the result that an answer of the jail describes. :raises ZygoteDied: the jail itself failed."""
    if "error" in answer:
        words = errors.decode(errors="replace").strip().splitlines()
        raise ZygoteDied(f"{answer['error']}{f' ({words[-1]})' if words else ''}")
    limit = Limit.OUTPUT if too_much else Limit(answer["limit"]) if answer["limit"] else None
    return ProgramResult(
        exit_code=answer["exit"],
        signal=answer["signal"],
        stdout=output,
        stderr=errors,
        limit=limit,
        wall_seconds=answer["wall"],
        cpu_seconds=answer["cpu"],
        memory_bytes=answer["memory"],
    )


def _payload(job: Job) -> bytes:
    source = job.source.encode("utf-8", "surrogatepass") if isinstance(job.source, str) else job.source
    return marshal.dumps({"source": source, "argv": list(job.argv), "files": dict(job.files)})


def memory_file(content: bytes, closing: ExitStack) -> int:
    """Return the descriptor of a sealed file in memory with this content."""
    descriptor = os.memfd_create("rlcore", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    closing.callback(os.close, descriptor)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)  # else a program could open its input for writing and keep data there
    return descriptor


def pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    """Return the two ends of a pipe, each of which is closed with its stack."""
    read, write = os.pipe()
    reading.callback(os.close, read)
    writing.callback(os.close, write)
    return read, write
