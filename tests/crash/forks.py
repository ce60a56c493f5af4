"""Programs of Python that a run starts, as forks of the process that starts them: it has imported what they need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import NoReturn
from unittest import mock

from rlcore_plugin_processes import launcher

from rlcore.rewards import process

__all__ = ["programs_forked"]


class ForkedProgram:
    """As much of ``subprocess.Popen`` as runs use, for ``python -P -c PROGRAM WORD…`` in a session of its own."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        env: Mapping[str, str],
        pass_fds: Sequence[int],
        start_new_session: bool,
    ) -> None:
        assert (*command[:3], stdin, start_new_session) == (sys.executable, "-P", "-c", subprocess.DEVNULL, True)
        self.returncode: int | None = None
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(command[3:], {1: stdout, 2: stderr}, writing, env, pass_fds)
        os.close(writing)
        self.stdout = self.stderr = os.fdopen(reading, "rb")  # one of them, or both

    def wait(self) -> int:
        """Its exit code."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def _become(words: Sequence[str], streams: Mapping[int, int], writing: int, env: Mapping[str, str], passed: Sequence[int]) -> NoReturn:
    """Run the program in this fork, and end."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        for stream, where in streams.items():
            os.dup2({subprocess.DEVNULL: 0, subprocess.PIPE: writing, subprocess.STDOUT: 1}[where], stream)
        first = 3
        for kept in (*sorted(passed), 1 << 16):
            os.closerange(first, kept)
            first = kept + 1
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["-c", *words[1:]]
        exec(compile(words[0], "<forked>", "exec"), {"__name__": "__main__"})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@contextmanager
def programs_forked() -> Iterator[None]:
    """Inside, reward workers and the workers of the runtime ``local`` are forks."""
    stand_in = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedProgram})
    with ExitStack() as patches:
        for module in (process, launcher):
            patches.enter_context(mock.patch.object(module, "subprocess", stand_in))
        yield
