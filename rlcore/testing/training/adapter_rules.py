"""Rules of adapters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rlcore.contracts.training_settings import LoraSettings
from rlcore.testing.training.trainer_suite import TrainerSuite
from rlcore.testing.weights import handed_out

__all__ = ["AdapterRules"]

RANK, ALPHA = 2, 8.0
_NOISE = 1e-3
"""A singular value below this share of the largest one is rounding: some 1e-6 in float32."""

Changes = Mapping[str, np.ndarray]


class AdapterRules(TrainerSuite):
    """Adapters: ``W + alpha / rank * B A``, and nothing else changes.

    Checked if ``capabilities.lora`` is set, on merged weights in full precision.
    """

    def test_adapters_alone_are_trained(self) -> None:
        """Each changed matrix changes by a matrix of the adapters' rank at most; vectors, embedding and head keep their bits."""
        changes = self._changes(LoraSettings(rank=RANK, alpha=ALPHA), steps=3)
        if changes is None:
            return
        assert changes, "three steps with adapters changed no weight"
        wide = {name: change.shape for name, change in changes.items() if change.ndim != 2 or self.vocabulary in change.shape}
        assert not wide, f"with adapters, tensors changed that get none (vectors, embedding, head): {wide}"
        values = {name: np.linalg.svd(change, compute_uv=False) for name, change in changes.items()}
        ranks = {name: int((each > _NOISE * each[0]).sum()) for name, each in values.items()}
        above = [name for name, rank in ranks.items() if rank > RANK]
        assert not above, f"adapters of rank {RANK} changed {above[0]!r} by a matrix of rank {ranks[above[0]]}"
        assert max(ranks.values()) == RANK, f"adapters of rank {RANK} changed every weight by a matrix of rank 1: {sorted(ranks)}"

    def test_adapters_have_their_targets_and_scale(self) -> None:
        """Only layers whose names end with a target change, and twice the ``alpha`` moves the weights twice as far in the first step."""
        changes = self._changes(LoraSettings(rank=RANK, alpha=ALPHA), steps=1)
        if changes is None:
            return
        target = next(iter(changes)).removesuffix(".weight").rpartition(".")[2]
        due = {name for name in changes if name.removesuffix(".weight").endswith(target)}
        doubled = self._changes(LoraSettings(rank=RANK, alpha=2 * ALPHA), steps=1)
        named = self._changes(LoraSettings(rank=RANK, alpha=ALPHA, targets=(target,)), steps=1)
        assert named is not None
        assert set(named) == due, f"with targets {target!r} these changed: {sorted(named)}"
        assert doubled is not None
        for name, change in changes.items():
            times = float((doubled[name] * change).sum() / (change**2).sum()) if name in doubled else 0.0
            assert abs(times - 2.0) <= 0.01, f"twice the alpha changed {name!r} {times:.3g} times as far in the first step, 2 is due"

    def test_the_rank_divides_alpha(self) -> None:
        """At four times the rank, one ``alpha`` moves the weights about half as far in the first step. The first step moves B alone, so B A
        grows with the root of the rank, and alpha / rank is a quarter."""
        low, high = (self._changes(LoraSettings(rank=rank, alpha=ALPHA), steps=1) for rank in (RANK, 4 * RANK))
        if low is None or high is None:
            return
        lengths = [math.sqrt(sum(float((change**2).sum()) for change in changes.values())) for changes in (low, high)]
        times = lengths[1] / lengths[0]
        assert 0.35 <= times <= 0.71, (
            f"rank {4 * RANK} changed the weights {times:.3g} times as far as rank {RANK} in the first step: about 0.5 is due, with "
            "alpha / rank; 1 is alpha / sqrt(rank), and 2 is alpha alone"
        )

    def _changes(self, lora: LoraSettings, steps: int) -> Changes | None:
        """Return the changes that the steps made, float64, by name of the tensors that changed. None for a backend without adapters."""
        context = self.context()
        capabilities = self.make(context).capabilities
        if not capabilities.lora or "float32" not in capabilities.dtypes:
            return None
        context = replace(context, dtype="float32", lora=lora, optimizer=replace(context.optimizer, weight_decay=0.1))
        backend = self.make(context)
        backend.setup(context)
        before = handed_out(backend)
        for seed in range(steps):
            backend.update(self.batch(seed=seed), self.objective())
        after = handed_out(backend)
        backend.close()
        both = {name: (tensor.data.astype(np.float64), before[name].data) for name, tensor in after.items()}
        return {name: late - early for name, (late, early) in both.items() if not np.array_equal(late, early)}
