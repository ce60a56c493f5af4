"""Ranks of tests that are forks of one process, which has imported what takes long: fresh interpreters would each spend seconds on it."""

from __future__ import annotations

import faulthandler
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, get_context
from pathlib import Path
from types import SimpleNamespace
from typing import IO
from unittest import mock

from rlcore.testing import rank_processes

__all__ = ["OF_TORCH", "warm_ranks"]

OF_TORCH = (
    "rlcore_plugin_torch.backend",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.models.qwen3.modeling_qwen3",
    "peft",
)
"""Modules that ranks of the torch trainer import."""
FORKS = get_context("forkserver")


class WarmRank:
    """As much of ``subprocess.Popen`` as ``run_ranks`` uses. What it writes at exit (``atexit``) is lost."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], stdout: IO[bytes], stderr: int) -> None:
        call, answer = command[-2:]
        self._process = FORKS.Process(target=_answer, args=(call, answer, stdout.name, dict(env)))
        with mock.patch.dict(os.environ, env):  # libraries read their number of threads when they are imported
            forkserver.ensure_running()
        self._process.start()

    def poll(self) -> int | None:
        """Its exit code, None if it runs."""
        return self._process.exitcode

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def wait(self) -> None:
        """Until it has ended."""
        self._process.join()


def _answer(call: str, answer: str, said: str, env: Mapping[str, str]) -> None:
    stream = os.open(said, os.O_WRONLY | os.O_APPEND)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    faulthandler.enable()  # a crash says where
    os.environ.clear()
    os.environ.update(env)
    rank_processes._answer(Path(call), Path(answer))


@contextmanager
def warm_ranks(*modules: str) -> Iterator[None]:
    """Inside, ``run_ranks`` starts forks of a process that has imported ``modules``; it lives as long as this process."""
    FORKS.set_forkserver_preload(["rlcore.testing.suites.layout_lives", *modules])
    stand_in = SimpleNamespace(**{**vars(subprocess), "Popen": WarmRank})
    with mock.patch.object(rank_processes, "subprocess", stand_in):
        yield
