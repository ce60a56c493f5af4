"""The code that runs in the engine's own processes. vLLM takes all of it as arguments: a class of executor, which starts the workers,
and a class that adds methods to a worker. Both ensure that no process of an engine outlives the process that started it, even if it is
stopped."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlcore_plugin_serving.incoming_weights import Place, mapped

from rlcore_plugin_vllm.vllm_api import MultiprocExecutor, UniProcExecutor

__all__ = ["DependentEngine", "DependentMultiprocEngine", "MappedWeightsExtension", "die_with_parent"]

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let the kernel kill this process as soon as the thread that started it ends, whatever both are doing."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() == 1:  # the parent ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def _depend_on_producer() -> None:
    die_with_parent()
    os.setpgid(0, 0)  # Ctrl-C in a terminal is for the run, which ends the engine itself


class DependentEngine(UniProcExecutor):
    """An executor whose process also computes."""

    def _init_executor(self) -> None:
        _depend_on_producer()
        super()._init_executor()


class DependentMultiprocEngine(MultiprocExecutor):
    """An executor whose process schedules; each of its children computes a shard of the model."""

    def _init_executor(self) -> None:
        _depend_on_producer()
        super()._init_executor()

    def _post_init_executor(self) -> None:
        super()._post_init_executor()
        self.collective_rpc("end_with_the_engine")


class MappedWeightsExtension:
    """Methods that are added to each worker; ``self`` is also vLLM's worker."""

    def end_with_the_engine(self) -> None:
        """End this worker's process with the engine; called once the worker has met the others."""
        die_with_parent()
        # On the CPU, workers share named memory, which nothing removes if a worker is killed. All workers have mapped it by now, so it
        # needs no name.
        if ident := os.environ.get("VLLM_DIST_IDENT"):
            for entry in Path("/dev/shm").glob(f"*{ident}*-cpushm_*"):
                entry.unlink(missing_ok=True)

    def load_mapped(self, path: str, places: Sequence[Place]) -> None:
        """Load whole weights from a file that the producer's process provides."""
        worker: Any = self
        worker.reload_weights(weights_iterator=iter(mapped(path, places).items()))
