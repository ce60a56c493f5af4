"""Conformance suite for corrections of the mismatch between engine and trainer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf

import torch

from rlcore.contracts.batches import LossBatch
from rlcore.contracts.loss_wrappers import Correction

__all__ = ["CorrectionSuite"]


class CorrectionSuite(ABC):
    """The rules of a correction for the mismatch between the engine that sampled and the trainer.

    A subclass defines how to make the correction with given bounds.
    """

    @abstractmethod
    def make(self, bounds: tuple[float, float]) -> Correction:
        """Return a fresh correction; ``bounds`` is (0, inf) if it has none."""

    def made(self) -> Correction:
        """Return the correction with its usual bounds."""
        usual = self.make((0.0, inf)).usual_range
        return self.make((usual[0], usual[1]) if usual else (0.0, inf))

    def batch(self, gaps: Sequence[Sequence[float]]) -> LossBatch:
        """Return a batch with one rollout a row; each number is the old minus the sampler log probability of a token."""
        flat = torch.tensor([gap for row in gaps for gap in row], dtype=torch.float64)
        sampler = -1.0 - 0.1 * torch.arange(len(flat), dtype=torch.float64)
        return LossBatch(
            row=torch.tensor([number for number, row in enumerate(gaps) for _ in row], dtype=torch.int64),
            lengths=torch.tensor([len(row) for row in gaps], dtype=torch.int64),
            advantages=torch.ones_like(flat),
            old_logprobs=sampler + flat,
            rollout_logprobs=sampler,
            weights=torch.full_like(flat, 1.0 / max(len(flat), 1)),
        )

    def test_shapes(self) -> None:
        """``weights`` returns one weight and one boolean for each token; the boolean says whether the weight was cut."""
        weights, cut = self.made().weights(self.batch([[0.4, -0.3], [2.0]]))
        assert tuple(weights.shape) == tuple(cut.shape) == (3,), f"shapes {tuple(weights.shape)} and {tuple(cut.shape)} for 3 tokens"
        assert cut.dtype == torch.bool, f"where it acted is {cut.dtype}, it must be bool"

    def test_fresh_data_have_weight_one(self) -> None:
        """Weights are 1, and none is cut, if old and sampler log probabilities are equal."""
        weights, cut = self.made().weights(self.batch([[0.0, 0.0], [0.0]]))
        assert weights.tolist() == [1.0] * 3, f"weights of fresh data are {weights.tolist()}"
        assert not cut.any(), "fresh data are cut"

    def test_finite_however_far_two_engines_differ(self) -> None:
        """Weights are finite and not negative, however far the log probabilities differ."""
        for gap in (-1e4, -90.0, 21.0, 90.0, 1e4):
            weights, _ = self.made().weights(self.batch([[gap, gap], [0.1]]))
            assert weights.isfinite().all(), f"a gap of {gap} nats has weights {weights.tolist()}"
            assert (weights >= 0).all(), f"a gap of {gap} nats has weights {weights.tolist()}"

    def test_the_weights_stay_within_their_bounds(self) -> None:
        """Each weight is within the bounds, or 0 if the correction masks; a ratio far outside is marked as cut."""
        correction = self.made()
        if not correction.usual_range:
            return
        low, high = correction.usual_range
        weights, cut = correction.weights(self.batch([[-3.0], [-0.1], [0.1], [3.0]]))
        for weight in weights.tolist():
            inside = low <= weight <= high
            assert inside or (correction.masks and weight == 0.0), f"a weight of {weight} outside {low} … {high}"
        assert cut[-1], "a ratio of exp(3) was not cut"
        assert not cut[1:3].any(), "a ratio near 1 was cut"

    def test_a_weight_carries_no_gradient(self) -> None:
        """Weights have no gradient: in the only optimizer step of a batch, old log probabilities are the policy's own."""
        batch = self.batch([[0.4, -0.3]])
        batch.old_logprobs.requires_grad_()
        assert not self.made().weights(batch)[0].requires_grad, "the weights are differentiable in old_logprobs"

    def test_other_rollouts_do_not_matter(self) -> None:
        """A rollout has the same weights in every micro-batch."""
        rows = [[0.4, -0.3, 0.2], [1.5], [-0.8, 0.1]]
        whole = self.made().weights(self.batch(rows))[0]
        apart = torch.cat([self.made().weights(self.batch([row]))[0] for row in rows])
        assert torch.allclose(whole, apart, rtol=1e-12), f"{whole.tolist()} together, {apart.tolist()} alone"

    def test_one_weight_a_rollout_if_it_says_so(self) -> None:
        """All tokens of a rollout have one weight if ``per`` is "rollout"."""
        first, second, _ = self.made().weights(self.batch([[0.3, -0.1], [0.2]]))[0].tolist()
        if self.made().per == "rollout":
            assert first == second, f"two tokens of a rollout have the weights {first} and {second}"

    def test_the_batch_is_not_changed(self) -> None:
        """The batch is unchanged afterwards: it is shared with the loss."""
        batch, same = self.batch([[0.4, -0.3]]), self.batch([[0.4, -0.3]])
        self.made().weights(batch)
        for name in ("old_logprobs", "rollout_logprobs", "advantages", "weights"):
            assert torch.equal(getattr(batch, name), getattr(same, name)), f"weights() changed {name}"
