"""Trainer ranks: processes that hold the whole model each and add their gradients up, with torch.distributed.

One rank makes no process group and waits for nobody. With several every method is collective. All of them are counted in the group's
store, so that whoever waited in vain can say for which rank.
"""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from rlcore.api import ConfigError, RlcoreError, RunError

__all__ = ["TorchRanks"]

_BUCKET = 1 << 24
"""Elements that are summed at a time: 64 MB of float32, enough to fill a network, little beside a model."""

_LINGER = 2.0
"""Seconds that rank 0 waits for the others to find out what it found out."""


@dataclass(kw_only=True)
class TorchRanks:
    """``deadline``: seconds that one rank waits for another. ``device``: where the gradients are; NCCL on CUDA, gloo else."""

    rank: int = 0
    size: int = 1
    rendezvous: str = ""
    deadline: float = 600.0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seconds: float = field(default=0.0, init=False)
    """Spent in collective calls, waits for slower ranks included."""
    _store: Any = field(default=None, init=False)
    _met: int = field(default=0, init=False)

    def open(self) -> None:
        """Meet the others at ``rendezvous`` (tcp://host:port; rank 0 listens there)."""
        if self.size == 1:
            return
        host, _, port = self.rendezvous.removeprefix("tcp://").rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"rendezvous {self.rendezvous!r} of {self.size} trainer ranks is no address; it must be tcp://host:port")
        limit = timedelta(seconds=self.deadline)
        # A gloo thread frees a collective's tensors after the collective returns, and needs the GIL. If the interpreter is already
        # finalising, that aborts the process (exit code -6).
        atexit.register(self.close)
        with self._waiting(f"meeting at {self.rendezvous}"):
            self._store = dist.TCPStore(host, int(port), self.size, self.rank == 0, limit, wait_for_workers=False)  # type: ignore[attr-defined]
            self._mark()
            backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
            # Arrays of numpy go by gloo also where gradients go by NCCL: gloo raises at the deadline, NCCL would abort the process.
            dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.size, timeout=limit)

    def gather(self, values: np.ndarray, doing: str = "gathering arrays") -> list[np.ndarray]:
        """The arrays of all ranks, by rank; of one dtype, their first axes may differ."""
        if self.size == 1:
            return [values]
        own = torch.from_numpy(np.array(values, order="C").reshape(-1).view(np.uint8))
        with self._waiting(doing):
            lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            dist.all_gather(lengths, torch.tensor([len(own)]))
            longest = max(int(length) for length in lengths)
            buffers = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            if longest:
                dist.all_gather(buffers, torch.nn.functional.pad(own, (0, longest - len(own))))
        cut = [buffer[: int(length)].numpy() for buffer, length in zip(buffers, lengths, strict=True)]
        return [part.view(values.dtype).reshape(-1, *values.shape[1:]) for part in cut]

    def sum_metrics(self, compute: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        """What ``compute`` gives on each rank, added up by name in the order of the ranks.

        An error of it is raised on every rank, so that none waits for one that has gone; elsewhere as RunError that names the rank.
        """
        if self.size == 1:
            return dict(compute())
        totals: dict[str, float] = {}
        for metrics in self._agreed(compute, "adding up what the shares gave"):
            for name, value in metrics.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Every rank's ``grad`` becomes the sum over the ranks, bit for bit the same on all; a parameter stays without one where no rank
        has one."""
        if self.size == 1:
            return
        doing = "adding up gradients"
        # By gloo, so that whoever is missing is named before NCCL waits for it.
        present = self.gather(np.array([parameter.grad is not None for parameter in parameters], np.uint8), doing)
        some = [parameter for parameter, anywhere in zip(parameters, np.any(present, axis=0), strict=True) if anywhere]
        with self._waiting(doing):
            for bucket in _buckets(some):
                parts = [torch.zeros_like(item) if item.grad is None else item.grad for item in bucket]
                flat = torch.cat([part.reshape(-1) for part in parts])
                dist.all_reduce(flat)
                totals = torch.split(flat, [part.numel() for part in parts])
                for item, total in zip(bucket, totals, strict=True):
                    item.grad = total.view_as(item).clone()

    def check_equal(self, model: torch.nn.Module) -> None:
        """RunError, naming tensor and rank, where a rank holds other weights than rank 0."""
        if self.size == 1:
            return
        named = sorted(model.state_dict().items())
        for rank, sums in enumerate(self.gather(np.array([_bits(tensor) for _, tensor in named], np.int64), "comparing weights")):
            if rank == 0:
                first = sums
            elif len(sums) != len(first) or not np.array_equal(sums, first):
                at = int(np.flatnonzero(sums != first)[0]) if len(sums) == len(first) else 0
                raise RunError(
                    f"trainer rank {rank} holds other weights than rank 0 (tensor {named[at][0]!r}): all ranks must read the same model; "
                    "compare the model's folder on their machines"
                )

    def write(self, action: Callable[[], None]) -> None:
        """Rank 0 does it, and no rank returns before it is done; its error is raised on all."""
        if self.size == 1:
            action()
            return

        def first() -> Mapping[str, float]:
            if self.rank == 0:
                action()
            return {}

        self._agreed(first, "saving")

    def close(self) -> None:
        """Leave the process group and end its threads. Also runs at interpreter exit if the caller did not close.

        The other ranks find out when they next wait for this one.
        """
        atexit.unregister(self.close)
        if self._store is not None:
            if dist.is_initialized():
                dist.destroy_process_group()
            self._store = None

    def _agreed(self, compute: Callable[[], Mapping[str, float]], doing: str) -> list[dict[str, float]]:
        failure: Exception | None = None
        message = ""
        try:
            message = json.dumps({"metrics": dict(compute())})
        except Exception as error:
            failure = error
            said = str(error) if isinstance(error, RlcoreError) else f"{type(error).__name__}: {error}"
            message = json.dumps({"failed": said})
        answers = [json.loads(part.tobytes()) for part in self.gather(np.frombuffer(message.encode(), np.uint8), doing)]
        if failure is not None:
            raise failure
        for rank, answer in enumerate(answers):
            if "failed" in answer:
                raise RunError(f"trainer rank {rank} failed: {answer['failed']}")
        return [answer["metrics"] for answer in answers]

    @contextmanager
    def _waiting(self, doing: str) -> Iterator[None]:
        """Count this meeting; whatever torch.distributed raises in it becomes a RunError that names who did not come."""
        start = time.perf_counter()
        try:
            if self._store is not None:
                self._mark()
            yield
            if self.device.type == "cuda" and self._store is not None:
                torch.cuda.synchronize(self.device)
        except RuntimeError as error:  # DistError and its children are RuntimeErrors
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
            raise RunError(f"trainer rank {self.rank} of {self.size} gave up while {doing}: {self._culprit()} ({reason})") from error
        self.seconds += time.perf_counter() - start

    def _mark(self) -> None:
        assert self._store is not None
        self._met += 1
        self._store.set(f"rlcore/{self.rank}", str(self._met))

    def _culprit(self) -> str:
        """Half a sentence; asks the store, which is gone where rank 0 is."""
        try:
            absent = [rank for rank in range(self.size) if rank != self.rank and not self._came(rank)]
            self._linger(absent)
        except RuntimeError:
            return "rank 0, where all of them meet, is gone or was never there"
        if not absent:
            return "all ranks came, and one was lost on the way"
        return f"rank {', '.join(map(str, absent))} did not come within {self.deadline:g} s, or ended"

    def _came(self, rank: int) -> bool:
        if self._store is None:
            raise RuntimeError("no store")
        key = f"rlcore/{rank}"
        return self._store.check([key]) and int(self._store.get(key)) >= self._met

    def _linger(self, absent: Sequence[int]) -> None:
        """Rank 0 holds the store, and leaves last: the others must be able to read there whom they waited for."""
        assert self._store is not None
        self._store.set(f"rlcore/{self.rank}/gave up", "")
        if self.rank == 0:
            others = [f"rlcore/{rank}/gave up" for rank in range(1, self.size) if rank not in absent]
            with suppress(RuntimeError):
                self._store.wait(others, timedelta(seconds=_LINGER))


def _buckets(parameters: Sequence[torch.nn.Parameter]) -> Iterator[list[torch.nn.Parameter]]:
    """Neighbours of one dtype, some ``_BUCKET`` elements together."""
    bucket: list[torch.nn.Parameter] = []
    held = 0
    for parameter in parameters:
        if bucket and (held + parameter.numel() > _BUCKET or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket, held = [], 0
        bucket.append(parameter)
        held += parameter.numel()
    if bucket:
        yield bucket


def _bits(tensor: torch.Tensor) -> int:
    """The sum of a tensor's bytes as integers of its own width: exact, whatever the order of summation."""
    whole = tensor.detach().contiguous().reshape(-1)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[whole.element_size()]
    return int(whole.view(integers).sum(dtype=torch.int64)) + whole.numel()
