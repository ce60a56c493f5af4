"""The process group of the trainer ranks, and the exchange of small arrays between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from rlcore.api import ConfigError, RlcoreError, RunError, TrainingContext

__all__ = ["RankGroup"]


class RankGroup:
    """All ranks; every method except ``close`` is collective.

    A single rank has a group of itself, which other backends of its process share.
    """

    def __init__(self, context: TrainingContext, deadline: float, device: torch.device) -> None:
        self.rank, self.size = context.rank, context.world_size
        limit = timedelta(seconds=deadline)
        if self.size == 1:
            if not dist.is_initialized():
                dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=limit)
            return
        if not context.rendezvous.startswith("tcp://"):
            raise ConfigError(
                f"rendezvous {context.rendezvous!r} of {self.size} trainer ranks is not an address; it must be tcp://host:port"
            )
        if dist.is_initialized():
            dist.destroy_process_group()
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        try:
            dist.init_process_group(backend, init_method=context.rendezvous, rank=self.rank, world_size=self.size, timeout=limit)
        except RuntimeError as error:
            raise self._gave_up(f"meeting at {context.rendezvous}", error) from error

    def everyone(self, values: np.ndarray, doing: str = "gathering arrays") -> list[np.ndarray]:
        """Return the arrays of all ranks, by rank. They have one dtype; their first axes may differ."""
        if self.size == 1:
            return [values]
        own = torch.from_numpy(np.array(values, order="C").reshape(-1).view(np.uint8))
        try:
            lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            dist.all_gather(lengths, torch.tensor([len(own)]))
            longest = max(int(length) for length in lengths)
            buffers = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            if longest:
                dist.all_gather(buffers, torch.nn.functional.pad(own, (0, longest - len(own))))
        except RuntimeError as error:  # DistError and its subclasses are RuntimeErrors
            raise self._gave_up(doing, error) from error
        cut = [buffer[: int(length)].numpy() for buffer, length in zip(buffers, lengths, strict=True)]
        return [part.view(values.dtype).reshape(-1, *values.shape[1:]) for part in cut]

    def agreed(self, compute: Callable[[], Mapping[str, float]], doing: str) -> list[dict[str, float]]:
        """Return the result of ``compute`` on each rank, by rank.

        An error of one rank is raised on all; the other ranks raise a RunError that names it.
        """
        failure: Exception | None = None
        answer: dict[str, object] = {}
        try:
            answer = {"found": dict(compute())}
        except Exception as error:
            failure = error
            answer = {"failed": str(error) if isinstance(error, RlcoreError) else f"{type(error).__name__}: {error}"}
        answers = [json.loads(part.tobytes()) for part in self.everyone(np.frombuffer(json.dumps(answer).encode(), np.uint8), doing)]
        if failure is not None:
            raise failure
        for rank, each in enumerate(answers):
            if "failed" in each:
                raise RunError(f"trainer rank {rank} failed: {each['failed']}")
        return [each["found"] for each in answers]

    def together(self, action: Callable[[], None], doing: str) -> None:
        """Run the action on every rank; no rank returns before all are done. For errors see ``agreed``."""

        def done() -> Mapping[str, float]:
            action()
            return {}

        self.agreed(done, doing)

    def close(self) -> None:
        """Leave the other ranks, without waiting for them."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def _gave_up(self, doing: str, error: Exception) -> RunError:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        return RunError(
            f"trainer rank {self.rank} of {self.size} gave up while {doing}: another rank ended, or did not come within "
            f"training.options.ranks_deadline ({reason})"
        )
