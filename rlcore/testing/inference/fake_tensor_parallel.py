"""A tensor parallel engine of several processes that writes new weights over the old ones, as vLLM and SGLang do.

The engine has no weights of its own. Each of its workers holds a share of the columns of every weight and cuts it out of each bucket, which
all of them map without a copy, or out of what comes by ``fake_collective``, whose groups they join by themselves. Logits are gathered from
the workers, so its answers are those of ``FakeInference``, bit for bit.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from rlcore.contracts.errors import RunError, WeightsError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import Bucket, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.testing.fake_plugin import FAKE_JOINING_INFERENCE, FAKE_TENSOR_INFERENCE
from rlcore.testing.inference.fake_inference import FakeInference, FakeInferenceOptions
from rlcore.testing.policy import FakePolicy

__all__ = ["FakeJoining", "FakeTensorParallel", "FakeTensorParallelOptions"]

_PATIENCE = 30.0
"""Seconds that a worker may take to answer, and to end."""


class FakeTensorParallelOptions(FakeInferenceOptions):
    """Options of the ``fake-tensor`` inference backend."""

    in_flight: InFlight = Field(default=InFlight.RESUME, description="How running requests are treated when the weights change.")
    kill_file: str = Field(
        default="", description="A file: the first update that finds it removes it and kills the last worker between two of its phases."
    )


class FakeTensorParallel(FakeInference):
    """``context.tensor_parallel`` workers. RunError, naming the worker, at whatever needs one that died."""

    capabilities = FAKE_TENSOR_INFERENCE

    def __init__(self, context: InferenceContext, options: FakeTensorParallelOptions | None = None) -> None:
        self._kill_file = (options or FakeTensorParallelOptions()).kill_file
        super().__init__(context, options if options is not None else FakeTensorParallelOptions())
        self._memory = os.memfd_create("rlcore-fake-bucket")
        whole, size = self._policy, context.tensor_parallel
        self.workers = [_ColumnsWorker(rank, size, self._memory, context.model) for rank in range(size)]
        self._policy = _GatheredPolicy(whole, self.workers)
        self._version_coming = -1
        self._due: set[str] = set()
        self._torn = False
        self._group_patience = 0.0

    def describe(self) -> Mapping[str, Any]:
        """Return the number of ranks: each worker is one."""
        self._ask("lives")
        return {"ranks": len(self.workers)}

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        """Let every worker join, which drops the group before."""
        self._ask("join", dict(info), patience=2 * info["deadline"])
        self._group_patience = 2 * info["deadline"]

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        """Serve nothing until ``finish_update``; refuse weights that do not fit before that."""
        if not self._awake:
            raise RunError("the fake engine sleeps and takes no weights: call wake() first")
        self._policy.check(manifest.tensors)
        self._torn, self._version_coming = True, version
        self._due = {info.name for info in manifest.tensors}

    def receive(self, bucket: Bucket) -> None:
        """Put the bucket into memory that every worker maps, and let each take its columns."""
        if self._version_coming < 0:
            raise RunError("no update of the fake engine has begun: call begin_update first")
        for name in [*bucket.tensors, *(name for name, *_ in bucket.info.get("tensors", ()))]:
            if name not in self._due:
                raise WeightsError(f"bucket {bucket.index} of version {bucket.version} brings tensor {name!r}, which is not due")
            self._due.remove(name)
        self._kill_once()
        if bucket.info:
            self._ask("pull", bucket.version, bucket.info["tensors"], patience=self._group_patience)
            return
        arrays = {name: np.ascontiguousarray(tensor.data, np.float32) for name, tensor in bucket.tensors.items()}
        size = sum(array.nbytes for array in arrays.values())
        os.ftruncate(self._memory, size)
        places, at = [], 0
        with mmap.mmap(self._memory, size) as memory:
            for name, array in arrays.items():
                memory[at : at + array.nbytes] = array.tobytes()
                places.append((name, at, array.shape))
                at += array.nbytes
        self._ask("take", size, places)

    def finish_update(self) -> int:
        """Serve the new weights; WeightsError, naming the tensor, if one did not come."""
        if self._version_coming < 0:
            raise RunError("no update of the fake engine has begun: call begin_update first")
        self._kill_once()
        version, self._version_coming = self._version_coming, -1
        if self._due:
            raise WeightsError(f"tensor {min(self._due)!r} of version {version} did not come")
        self._ask("lives")
        self._version, self._fresh, self._torn = version, True, False
        self._on_new_weights()
        return version

    def close(self) -> None:
        """End the workers."""
        super().close()
        for worker in self.workers:
            worker.close()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _require_weights(self) -> None:
        super()._require_weights()
        if self._torn:
            raise RunError("an update of the fake engine broke off, and its weights are torn: update them first")

    def _ask(self, *order: Any, patience: float = 0.0) -> None:
        for worker in self.workers:
            worker.tell(*order)
        answers = [worker.answer(patience + _PATIENCE) for worker in self.workers]
        for error in filter(None, answers):
            raise error

    def _kill_once(self) -> None:
        if self._kill_file:
            try:
                Path(self._kill_file).unlink()
            except FileNotFoundError:  # not there yet, or another engine found it first
                return
            self.workers[-1].kill()


class FakeJoining(FakeTensorParallel):
    """Takes weights by ``fake_collective`` alone."""

    capabilities = FAKE_JOINING_INFERENCE


class _ColumnsWorker:
    """A process that holds a share of the columns of every weight."""

    def __init__(self, rank: int, size: int, memory: int, model: str) -> None:
        self._called = f"worker {rank} of {size} of the fake engine"
        ours, theirs = socket.socketpair()
        command = [
            sys.executable,
            "-m",
            "rlcore.testing.inference.fake_tensor_worker",
            str(theirs.fileno()),
            str(memory),
            str(rank),
            str(size),
            model,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno(), memory], stdin=subprocess.DEVNULL)
        theirs.close()
        self._channel = Connection(ours.detach())

    def tell(self, *order: Any) -> None:
        try:
            self._channel.send(order)
        except OSError as error:
            raise self._died() from error

    def answer(self, patience: float = _PATIENCE) -> Any:
        try:
            if not self._channel.poll(patience):
                raise RunError(f"{self._called} has not answered for {patience:g} s")
            return self._channel.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error

    def _died(self) -> RunError:
        return RunError(f"{self._called} died with exit code {self.process.wait(_PATIENCE)}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self._channel.close()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()


class _GatheredPolicy(FakePolicy):
    """A policy whose weights are with the workers; it knows their shapes alone."""

    def __init__(self, whole: FakePolicy, workers: Sequence[_ColumnsWorker]) -> None:
        for name in ("last", "pair"):  # read-only views of one zero, shaped as the weights: no memory
            object.__setattr__(self, name, np.broadcast_to(np.float32(0), getattr(whole, name).shape))
        object.__setattr__(self, "_workers", workers)

    def logits(self, token_ids: np.ndarray) -> np.ndarray:
        """Return logits: int32[T] -> float64[T, V], the workers' columns beside each other."""
        workers: Sequence[_ColumnsWorker] = object.__getattribute__(self, "_workers")
        for worker in workers:
            worker.tell("logits", np.asarray(token_ids, np.int64))
        return np.concatenate([worker.answer() for worker in workers], axis=-1)
