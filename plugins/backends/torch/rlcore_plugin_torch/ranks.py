"""Trainer ranks: processes that share one model, or hold a copy each, and sum their gradients with torch.distributed.

A single rank creates no process group and never waits. With several ranks every method is collective. Each collective call is counted in
the group's store, so that a rank whose wait fails can name the rank that did not come.
"""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from rlcore.api import ConfigError, RlcoreError, RunError
from rlcore_plugin_torch.failure_watch import FailureWatch
from rlcore_plugin_torch.gradients import complete, sum_over_data, sum_over_tensor
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.sharding import divided_over, local

Work = TypeVar("Work")

__all__ = ["DeferredRankError", "TorchRanks"]

_LINGER = 2.0
"""Seconds that rank 0 waits for the others to find out about the same failure."""


class DeferredRankError(Exception):
    """The error of a share, as its cause; raised after the rank has made every forward that the others waited for."""


@dataclass(kw_only=True)
class TorchRanks:
    """``deadline``: seconds that one rank waits for another. ``device``: where the gradients are; NCCL on CUDA, otherwise gloo."""

    rank: int = 0
    layout: Layout = field(default_factory=Layout)
    rendezvous: str = ""
    deadline: float = 600.0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seconds: float = field(default=0.0, init=False)
    """Time in collective calls, including waits for slower ranks."""
    saving: Any = field(default=None, init=False)
    """The group for checkpoints that are written in the background; None for one rank."""
    _mesh: DeviceMesh | None = field(default=None, init=False)
    _store: Any = field(default=None, init=False)
    _watch: FailureWatch | None = field(default=None, init=False)
    _lost: bool = field(default=False, init=False)
    _met: int = field(default=0, init=False)

    def open(self) -> None:
        """Meet the others at ``rendezvous`` (tcp://host:port; rank 0 listens there)."""
        if self.size == 1:
            return
        host, _, port = self.rendezvous.removeprefix("tcp://").rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"rendezvous {self.rendezvous!r} of {self.size} trainer ranks is not an address; it must be tcp://host:port")
        limit = timedelta(seconds=self.deadline)
        # A gloo thread frees a collective's tensors after the collective returns, and needs the GIL. If the interpreter is already
        # finalising, that aborts the process (exit code -6).
        atexit.register(self.close)
        with self._waiting(f"meeting at {self.rendezvous}"):
            self._store = dist.TCPStore(host, int(port), self.size, self.rank == 0, limit, wait_for_workers=False)  # type: ignore[attr-defined]
            self._mark()
            if self.device.type == "cuda":
                torch.cuda.init()  # otherwise the mesh chooses a device itself
            backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
            # Numpy arrays use gloo even if gradients use NCCL: gloo raises an error at the deadline, NCCL would abort the process.
            dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.size, timeout=limit)
            self._mesh = self._joined(limit)
            self.saving = dist.new_group(backend="gloo", timeout=limit)
            if self.layout.split:
                self._watch = FailureWatch(self._store.clone(), self.rank, self.size, self._abort)

    def _joined(self, limit: timedelta) -> DeviceMesh:
        """Return the mesh [data, tensor], whose groups have the world's timeout; those of ``init_device_mesh`` would wait for half an
        hour."""
        places = torch.arange(self.size).view(self.layout.data, self.layout.tensor)
        groups = []
        for axis in (places.T, places):  # every rank must create all groups, in the same order
            made = [(dist.new_group(row, timeout=limit), row) for row in axis.tolist()]
            groups += [group for group, row in made if self.rank in row]
        return DeviceMesh.from_group(groups, self.device.type, mesh=places, mesh_dim_names=("data", "tensor"))

    @property
    def size(self) -> int:
        """The number of ranks on all axes of the mesh."""
        return self.layout.size

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh [data, tensor] of several ranks that have met."""
        assert self._mesh is not None, "one rank has no mesh"
        return self._mesh

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of all data-parallel ranks, by place. They have one dtype; their first axes may differ."""
        return self.everyone(values)[:: self.layout.tensor]

    def add(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over all ranks, in their order: the same bits on each."""
        return np.sum(self.everyone(values), axis=0)

    def everyone(self, values: np.ndarray, doing: str = "gathering arrays") -> list[np.ndarray]:
        """Return the arrays of all ranks, by rank. They have one dtype; their first axes may differ."""
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
        """Return the sums by name of the values that ``compute`` returns on each data-parallel rank, in rank order. For errors see
        ``agreed``."""
        if self.size == 1:
            return dict(compute())
        totals: dict[str, float] = {}
        for metrics in self.agreed(compute, "adding up the metrics of the shares")[:: self.layout.tensor]:
            for name, value in metrics.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter], partial: Collection[torch.nn.Parameter] = ()) -> None:
        """Replace every rank's ``grad`` by that of the whole step, bit for bit the same on all ranks that hold the same part.

        A parameter stays without a gradient if it has none on any rank. ``partial``: parameters whose gradient comes only from the
        activations of one tensor rank.
        """
        if self.size == 1:
            return
        doing = "adding up gradients"
        # By gloo, so that an error names the missing rank before NCCL waits for it.
        present = self.everyone(np.array([parameter.grad is not None for parameter in parameters], np.uint8), doing)
        some = [parameter for parameter, anywhere in zip(parameters, np.any(present, axis=0), strict=True) if anywhere]
        with self._waiting(doing):
            complete(some)
            if self.layout.tensor > 1:
                sum_over_tensor(some, partial, self.mesh.get_group("tensor"), "tensor")
            if self.layout.data > 1 and not self.layout.sharded:  # FSDP2 has summed already
                sum_over_data(some, self.mesh.get_group("data"))

    def check_equal(self, model: torch.nn.Module) -> None:
        """Raise RunError, which names tensor and rank, if a rank's weights differ from those of the first rank that holds the same part."""
        if self.size == 1:
            return
        named = sorted(model.state_dict().items())
        found = self.everyone(np.array([_bits(local(tensor)) for _, tensor in named], np.int64), "comparing weights")
        for rank, sums in enumerate(found):
            for place, (name, tensor) in enumerate(named):
                twin = self._twin(rank, tensor)
                if len(sums) != len(found[twin]) or sums[place] != found[twin][place]:
                    raise RunError(
                        f"trainer rank {rank} holds other weights than rank {twin} (tensor {name!r}): all ranks must read the same model; "
                        "compare the model's folder on their machines"
                    )

    def checksums(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
        """Return a checksum of the bits of each whole tensor, by name, even if this rank holds a part of it: the same in every layout."""
        own = [_bits(local(tensor)) if self.counts(tensor) else 0 for tensor in tensors.values()]
        return dict(zip(tensors, self.add(np.array(own, np.int64)).tolist(), strict=True))

    def _twin(self, rank: int, tensor: torch.Tensor) -> int:
        """Return the first rank that holds the same part of ``tensor``."""
        data, slices = self.layout.place(rank)
        axes = divided_over(tensor)
        return (data if "data" in axes else 0) * self.layout.tensor + (slices if "tensor" in axes else 0)

    def counts(self, tensor: torch.Tensor) -> bool:
        """Return whether this rank is the first that holds its part of ``tensor``."""
        return self._twin(self.rank, tensor) == self.rank

    def in_step(self, plan: Callable[[], Sequence[Work]]) -> list[Work | None]:
        """Return this rank's forwards, plus None for each further forward of the rank with the most: forwards of a divided model wait
        for each other."""
        if not self.layout.split:
            return list(plan())
        planned: list[Sequence[Work]] = []

        def count() -> Mapping[str, float]:
            planned.append(plan())
            return {"forwards": len(planned[0])}

        most = int(max(found["forwards"] for found in self.agreed(count, "planning forwards")))
        return [*planned[0], *[None] * (most - len(planned[0]))]

    def write(self, action: Callable[[], None]) -> None:
        """Run the action on rank 0. No rank returns before it is done; its error is raised on all."""
        if self.size == 1:
            action()
            return

        def first() -> Mapping[str, float]:
            if self.rank == 0:
                action()
            return {}

        self.agreed(first, "saving")

    def agree(self, check: Callable[[], None], doing: str) -> None:
        """Run the check on every rank, which must not wait for another rank; an error of one is raised on all, as by ``agreed``."""

        def checked() -> Mapping[str, float]:
            check()
            return {}

        self.agreed(checked, doing)

    def close(self) -> None:
        """Leave the process group and end its threads. Also runs at interpreter exit if the caller did not close.

        The other ranks find out when they next wait for this one.
        """
        atexit.unregister(self.close)
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._store is not None:
            if dist.is_initialized():
                dist.destroy_process_group()
            self._store = self._mesh = self.saving = None

    def agreed(self, compute: Callable[[], Mapping[str, float]], doing: str) -> list[dict[str, float]]:
        """Return the result of ``compute`` on each rank, by rank. ``compute`` must not wait for another rank.

        An error of it is raised on every rank, so that no rank waits for one that has gone. The other ranks raise a RunError that names the
        failed rank.
        """
        if self.size == 1:
            return [dict(compute())]
        failure: Exception | None = None
        message = ""
        try:
            message = json.dumps({"metrics": dict(compute())})
        except Exception as error:
            if self._lost:
                raise
            failure = error.__cause__ if isinstance(error, DeferredRankError) and isinstance(error.__cause__, Exception) else error
            message = json.dumps({"failed": _said(failure)})
        answers = [json.loads(part.tobytes()) for part in self.everyone(np.frombuffer(message.encode(), np.uint8), doing)]
        if failure is not None:
            raise failure
        for rank, answer in enumerate(answers):
            if "failed" in answer:
                raise RunError(f"trainer rank {rank} failed: {answer['failed']}")
        return [answer["metrics"] for answer in answers]

    @contextmanager
    def together(self, doing: str) -> Iterator[None]:
        """Handle errors in forwards and backwards, which wait for each other if the model is divided.

        After an error in the middle of one, this rank can only leave. It reports to the others first, which then raise a RunError that
        names it. The group is unusable afterwards.
        """
        try:
            yield
        except DeferredRankError:
            raise
        except Exception as error:
            if self._watch is None:
                raise
            self._lost = True
            if not _of_torch_distributed(error):
                self._watch.tell(_said(error))
                raise
            raise self._gave_up(doing, error) from error

    @contextmanager
    def _waiting(self, doing: str) -> Iterator[None]:
        """Count this collective call. An error of torch.distributed in it becomes a RunError that names the ranks that did not come."""
        start = time.perf_counter()
        try:
            if self._store is not None:
                self._mark()
            yield
            if self.device.type == "cuda" and self._store is not None:
                torch.cuda.synchronize(self.device)
        except RuntimeError as error:  # DistError and its subclasses are RuntimeErrors
            raise self._gave_up(doing, error) from error
        self.seconds += time.perf_counter() - start

    def _gave_up(self, doing: str, error: Exception) -> RunError:
        if self._watch is not None and (failure := self._watch.failure()) is not None:
            return RunError(f"trainer rank {failure[0]} failed: {failure[1]}")
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        return RunError(f"trainer rank {self.rank} of {self.size} gave up while {doing}: {self._culprit()} ({reason})")

    def _abort(self) -> None:
        """End the waits of NCCL, which does not notice that a rank has gone; gloo does."""
        if self.device.type == "cuda":
            for axis in ("data", "tensor"):
                self.mesh.get_group(axis)._get_backend(self.device).abort()

    def _mark(self) -> None:
        assert self._store is not None
        self._met += 1
        self._store.set(f"rlcore/{self.rank}", str(self._met))

    def _culprit(self) -> str:
        """Return half a sentence about the missing ranks. Asks the store, which is gone if rank 0 is."""
        try:
            absent = [rank for rank in range(self.size) if rank != self.rank and not self._came(rank)]
            self._linger(absent)
        except RuntimeError:
            return "rank 0, which all ranks connect to, has ended or never started"
        if not absent and self.size == 2:
            return f"rank {1 - self.rank} was lost during the call"
        if not absent:
            return "all ranks came, but one was lost during the call"
        return f"rank {', '.join(map(str, absent))} did not come within {self.deadline:g} s, or ended"

    def _came(self, rank: int) -> bool:
        if self._store is None:
            raise RuntimeError("no store")
        key = f"rlcore/{rank}"
        return self._store.check([key]) and int(self._store.get(key)) >= self._met

    def _linger(self, absent: Sequence[int]) -> None:
        """Keep rank 0, which holds the store, alive until the others have read there which rank they waited for."""
        assert self._store is not None
        self._store.set(f"rlcore/{self.rank}/gave up", "")
        if self.rank == 0:
            others = [f"rlcore/{rank}/gave up" for rank in range(1, self.size) if rank not in absent]
            with suppress(RuntimeError):
                self._store.wait(others, timedelta(seconds=_LINGER))


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, RlcoreError) else f"{type(error).__name__}: {error}"


def _of_torch_distributed(error: Exception) -> bool:
    """Return whether torch.distributed raised the error; gloo raises plain RuntimeErrors, which name its source file."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "/gloo/" in str(error))


def _bits(tensor: torch.Tensor) -> int:
    """Return the sum of a tensor's bytes as integers of its own width, modulo 2**64.

    It is exact and does not depend on the order of summation or on how the tensor is cut into parts.
    """
    whole = tensor.detach().contiguous().reshape(-1)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[whole.element_size()]
    return int(whole.view(integers).sum(dtype=torch.int64)) + whole.numel()
