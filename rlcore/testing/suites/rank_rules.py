"""Rules of data-parallel ranks: what one rank says of itself, and what two real processes must have in common with one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import RlcoreError
from rlcore.contracts.interfaces import Objective, TrainingBackend, TrainingContext, Which
from rlcore.contracts.snapshots import Tensor
from rlcore.host.targets import load_target
from rlcore.testing.rank_processes import run_ranks
from rlcore.testing.suites.trainer import TrainerSuite
from rlcore.testing.weights import handed_out

__all__ = ["RankRules", "train_share"]

Shares = Sequence[Sequence[TrainBatch]]
"""Of each optimizer step, the share of each rank."""


@dataclass(frozen=True, kw_only=True)
class RankOutcome:
    """What one rank has after some steps: metrics of each, log probabilities of its shares before the first step, weights before the first
    and after the last (on rank 0, which alone must have them), the probe of one sequence after the last, the arrays it gathered, and what
    it found in the folder that all ranks saved into."""

    place: tuple[int, int]
    metrics: list[Mapping[str, float]]
    logprobs: list[np.ndarray]
    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray]
    probed: np.ndarray
    gathered: list[np.ndarray]
    saved: dict[str, int]


def train_share(
    rank: int, size: int, rendezvous: str, target: str, options: Any, context: TrainingContext, steps: Shares, goal: Objective, folder: str
) -> RankOutcome:
    """One rank from ``setup`` to ``close``; the body of the processes of ``RankRules``."""
    own = replace(context, rank=rank, world_size=size, rendezvous=rendezvous)
    backend: TrainingBackend = load_target(target, f"the backend {target!r}")(own, options)
    try:
        backend.setup(own)
        shares = [step[rank] for step in steps]
        segment = steps[0][0].rollouts[0].segments[0]
        before = _weights(backend)
        logprobs = [backend.logprobs(share, Which.POLICY) for share in shares]
        metrics = [backend.update(share, goal) for share in shares]
        gathered = backend.gather(np.arange(3 * rank, dtype=np.float32))
        saving, saved = backend.save_model(Path(folder)), _listed(folder)
        if any(flag.any() for flag in backend.gather(np.array([saving is not None], np.float32))):
            if saving is not None:
                saving.result()
            backend.gather(np.zeros(0, np.float32))
            saved = _listed(folder)
        return RankOutcome(
            place=backend.data_parallel,
            metrics=metrics,
            logprobs=logprobs,
            before=before,
            after=_weights(backend),
            probed=backend.probe(np.concatenate([segment.context_ids, segment.token_ids])),
            gathered=gathered,
            saved=saved,
        )
    finally:
        backend.close()


def _listed(folder: str) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(Path(folder).iterdir())}


def _weights(backend: TrainingBackend) -> dict[str, np.ndarray]:
    """float64 of each tensor."""
    return {name: _values(tensor) for name, tensor in handed_out(backend).items()}


def _values(tensor: Tensor) -> np.ndarray:
    bits = (tensor.data.astype(np.uint32) << 16).view(np.float32) if tensor.dtype == "bfloat16" else tensor.data
    return bits.astype(np.float64)


class RankRules(TrainerSuite):
    """Data parallelism."""

    rank_timeout: float = 120.0
    """Seconds that two processes may take to start and train."""

    rank_drift: float = 0.05
    """How far the weights of two ranks may be from those of one after two steps, as a share of the way that these went. AdamW makes whole
    steps of gradients that are but rounding."""

    def rank_target(self, backend: TrainingBackend) -> tuple[str, Any]:
        """How another process makes ``backend``: ``module:name`` of something to call with ``(context, options)``, importable by name,
        and the options. By default its class and its attribute ``options``."""
        return f"{type(backend).__module__}:{type(backend).__qualname__}", getattr(backend, "options", None)

    def test_one_rank_is_the_whole(self) -> None:
        """Place 0 of 1, and ``gather`` gives back what it was given."""
        backend = self.ready()
        assert backend.data_parallel == (0, 1), f"one rank says that it is place and size {backend.data_parallel}"
        values = np.array([0.5, -2.0], np.float32)
        (gathered,) = backend.gather(values)
        assert np.array_equal(gathered, values), f"one rank gathered {gathered}, it gave {values}"

    def test_an_empty_share_has_no_log_probabilities(self) -> None:
        """float32[0]: a rank may have nothing to do."""
        empty = self.batch().take(np.zeros(0, np.int64))
        logprobs = self.ready().logprobs(empty, Which.POLICY)
        assert len(logprobs) == 0, f"an empty share gives log probabilities of shape {logprobs.shape}"
        assert logprobs.dtype == np.float32, f"log probabilities of an empty share are {logprobs.dtype}"

    def test_two_ranks_are_one(self) -> None:
        """Where layout "data" is declared: two processes with a share each (one of them empty in the second step) take the steps that one
        rank takes on the whole: same figures, same weights; both get all arrays and find the saved model whole."""
        backend = self.make(self.context())
        if "data" not in backend.capabilities.layouts:
            return
        first, second = self.off_policy(self.batch()), self.off_policy(self.batch(seed=1))
        groups = [np.flatnonzero(first.group == group) for group in (0, 1)]
        whole = [[first], [second]]
        cut = [[first.take(rows) for rows in groups], [second, second.take(np.zeros(0, np.int64))]]
        (one,), two = self._trained(backend, whole), self._trained(backend, cut)
        self._check_exchange(two, one)
        for rank, got in enumerate(two):
            for step, (mine, theirs) in enumerate(zip(got.metrics, one.metrics, strict=True), start=1):
                self._check_metrics(mine, theirs, f"rank {rank} of 2, step {step}")
        self._check_policy(two, one)

    def _trained(self, backend: TrainingBackend, steps: Shares) -> list[RankOutcome]:
        size = len(steps[0])
        folder = self.scratch / f"of-{size}-ranks"
        folder.mkdir()
        target, options = self.rank_target(backend)
        arguments = (target, options, self.context(), steps, self.objective(), str(folder))
        if size == 1:
            return [train_share(0, 1, "", *arguments)]
        answers = run_ranks(f"{__name__}:train_share", size, *arguments, timeout=self.rank_timeout)
        for rank, answer in enumerate(answers):
            assert not isinstance(answer, RlcoreError), f"rank {rank} of {size} ended with an error: {answer}"
        return answers

    def _check_exchange(self, two: Sequence[RankOutcome], one: RankOutcome) -> None:
        places = [got.place for got in two]
        assert places == [(0, 2), (1, 2)], f"two ranks say that they are places and sizes {places}"
        for rank, got in enumerate(two):
            lengths = [len(values) for values in got.gathered]
            assert lengths == [0, 3], f"rank {rank} gathered arrays of lengths {lengths}, the ranks gave 0 and 3 values"
            assert np.array_equal(got.gathered[1], np.arange(3)), f"rank {rank} gathered {got.gathered[1]}, rank 1 gave 0, 1, 2"
            assert got.saved == one.saved, f"save_model returned on rank {rank} with {got.saved} in the folder, one rank writes {one.saved}"
        for step, whole in enumerate(one.logprobs):
            shared = np.concatenate([got.logprobs[step] for got in two])
            off = float(np.abs(shared - whole).max())
            assert off <= self.tolerance, f"log probabilities of the shares of step {step + 1} are off by {off:.2g} nats"

    def _check_metrics(self, mine: Mapping[str, float], theirs: Mapping[str, float], who: str) -> None:
        assert set(mine) == set(theirs), f"{who}: figures in one only: {sorted(set(mine) ^ set(theirs))}"
        for name, value in theirs.items():
            close = math.isclose(mine[name], value, rel_tol=self.tolerance * 10, abs_tol=self.tolerance)
            assert close, f"{who}: {name} is {mine[name]:.6g}, of one rank {value:.6g}: shares add up, they are not averaged"

    def _check_policy(self, two: Sequence[RankOutcome], one: RankOutcome) -> None:
        for name, copy in two[1].after.items():
            assert np.array_equal(two[0].after[name], copy), f"after two steps tensor {name!r} differs between the ranks"
        mine = two[0].after
        assert set(mine) == set(one.after), f"rank 0 of 2 hands out other tensors than one rank: {sorted(set(mine) ^ set(one.after))}"
        off = {name: float(np.linalg.norm(mine[name] - whole)) for name, whole in one.after.items()}
        moved = math.hypot(*(float(np.linalg.norm(whole - one.before[name])) for name, whole in one.after.items()))
        share = math.hypot(*off.values()) / moved
        worst = max(off, key=lambda name: off[name])
        assert share <= self.rank_drift, (
            f"after two steps the weights of two ranks differ from one rank's by {share:.0%} of what the steps moved, {worst!r} the most"
        )
        for rank, got in enumerate(two):
            nats = float(np.abs(got.probed - one.probed).max())
            assert nats <= self.tolerance * 10, f"after two steps the policy of rank {rank} of 2 is off by {nats:.2g} nats from one rank's"
