"""What runs in the engine's own processes. vLLM takes all of it as arguments: a class of executor, which starts the workers, and a class
that adds methods to a worker. Both see to it that no process of an engine outlives the one that started it, even one that is stopped."""

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
    """Have the kernel kill this process as soon as the thread that started it ends, whatever both are doing."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() == 1:  # it ended before
        os.kill(os.getpid(), signal.SIGKILL)


def _depend_on_producer() -> None:
    die_with_parent()
    os.setpgid(0, 0)  # Ctrl-C in a terminal is for the run, which ends the engine when it has no more use for it


class DependentEngine(UniProcExecutor):
    """The engine's process computes as well."""

    def _init_executor(self) -> None:
        _depend_on_producer()
        super()._init_executor()


class DependentMultiprocEngine(MultiprocExecutor):
    """The engine's process schedules; each of its children computes a shard of the model."""

    def _init_executor(self) -> None:
        _depend_on_producer()
        super()._init_executor()

    def _post_init_executor(self) -> None:
        super()._post_init_executor()
        self.collective_rpc("end_with_the_engine")


class MappedWeightsExtension:
    """Methods of each worker; ``self`` is vLLM's worker, too."""

    def end_with_the_engine(self) -> None:
        """Of a worker that is a process of its own, once it has met the others."""
        die_with_parent()
        # On the CPU workers share memory whose name nobody removes if one is killed. All have mapped it by now, so it needs no name.
        if ident := os.environ.get("VLLM_DIST_IDENT"):
            for entry in Path("/dev/shm").glob(f"*{ident}*-cpushm_*"):
                entry.unlink(missing_ok=True)

    def load_mapped(self, path: str, places: Sequence[Place]) -> None:
        """Load whole weights out of a file that the producer's process lends."""
        worker: Any = self
        worker.reload_weights(weights_iterator=iter(mapped(path, places).items()))
