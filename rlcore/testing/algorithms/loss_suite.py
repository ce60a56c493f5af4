"""Conformance suite for losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
import torch

from rlcore.contracts.batches import LossBatch, TrainBatch, token_index
from rlcore.contracts.interfaces import Loss, Need
from rlcore.registry.error_context import error_context
from rlcore.testing.records import make_rollout, make_train_batch, with_outlines

__all__ = ["LossSuite"]

LENGTHS = (3, 1, 5, 2, 4)
EXTREMES = (-1e4, -200.0, -90.0, -30.0, -1.0, 0.0, 1.0, 30.0, 90.0, 200.0, 1e4)
_ENTROPY = "prepares_entropy"
DECLARED: Mapping[str, str] = {Need.OLD: "old_logprobs", Need.REFERENCE: "reference_logprobs", _ENTROPY: "entropy"}
"""Fields that ``prepare`` finds in its batch only if the loss declares them: in ``needs``, the last by an attribute."""


class LossSuite(ABC):
    """The rules of a loss: one value for each token, and a gradient that does not depend on the cut into micro-batches.

    A subclass defines how to make the loss, and sets a flag to False only if the loss's paper says so.
    """

    value_is_differentiated: ClassVar[bool] = True
    """The gradient is the derivative of the value; False for a surrogate with a detached factor."""
    follows_advantage: ClassVar[bool] = True
    """At the sampling policy, a positive advantage raises a token's probability and a negative one lowers it."""

    @abstractmethod
    def make(self) -> Loss:
        """Return a fresh loss."""

    def train_batch(self) -> TrainBatch:
        """Return five rollouts of 15 tokens in two groups, with old log probabilities about 0.3 off the policy's.

        All kinds of log probabilities are in it. The suite removes those that the loss does not declare before it calls the loss.
        """
        draw = np.random.default_rng(0)
        rollouts = [
            make_rollout([1, 2], list(draw.integers(0, 9, length)), prompt_id=f"p{int(row > 2)}", index=row - 3 * (row > 2))
            for row, length in enumerate(LENGTHS)
        ]
        tokens = sum(LENGTHS)
        sampled = draw.uniform(-3.0, -0.1, tokens).astype(np.float32)
        batch = make_train_batch(rollouts, [1.5, -0.5, -1.0, 0.75, -2.0], group=[0, 0, 0, 1, 1])
        off = [draw.normal(0, 0.3, tokens).astype(np.float32) for _ in DECLARED]
        given: dict[str, Any] = {name: sampled + moved for name, moved in zip(DECLARED.values(), off, strict=True)}
        return replace(batch, rollout_logprobs=sampled, **{**given, "entropy": np.abs(given["entropy"])})

    def wide_batch(self) -> TrainBatch:
        """Return sixty groups of four rollouts, about 900 tokens. Many tokens tie in advantage and log probability, and one rollout in nine
        does not train, so that choices over the batch are tested."""
        draw = np.random.default_rng(1)
        groups, size = 60, 4
        lengths = draw.integers(1, 7, groups * size)
        rollouts = [
            make_rollout([1, 2], list(draw.integers(0, 9, length)), prompt_id=f"p{row // size}", index=row % size)
            for row, length in enumerate(lengths)
        ]
        batch = make_train_batch(
            rollouts,
            list(draw.choice([1.5, -0.5, -1.0, 0.75, -2.0], len(rollouts))),
            group=[row // size for row in range(len(rollouts))],
            in_loss=[row % 9 != 4 for row in range(len(rollouts))],
        )
        shape = int(lengths.sum())
        sampled = -draw.integers(0, 12, shape).astype(np.float32) / 4
        given: dict[str, Any] = {name: sampled + draw.integers(-1, 2, shape).astype(np.float32) / 4 for name in DECLARED.values()}
        return replace(batch, rollout_logprobs=sampled, **{**given, "entropy": np.abs(given["entropy"])})

    def prepared(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        """Return the arrays of ``prepare``, called as in a run: the batch is read-only and lacks the fields that the loss does not
        declare."""
        needs = self._declared()
        lent = _lent(batch, needs)
        try:
            chosen = self.make().prepare(lent)
        except Exception as error:
            written = self._written(batch)
            if isinstance(error, ValueError) and written:
                raise AssertionError(f"prepare writes into {written} of its batch, which is shared: work on a copy") from error
            missing = [need for need in DECLARED if need not in needs and self._prepares(batch, needs | {need})]
            if missing:
                raise AssertionError(_undeclared(missing[0])) from error
            raise
        # Once more after the fact: an array may be reached around its flag, as torch.from_numpy does.
        changed = _changed(lent, _lent(batch, needs))
        assert not changed, f"prepare writes into {changed} of its batch, which is shared: work on a copy"
        return chosen

    def _declared(self) -> frozenset[str]:
        loss = self.make()
        return frozenset(loss.needs) | ({_ENTROPY} if loss.prepares_entropy else frozenset())

    def _prepares(self, batch: TrainBatch, needs: frozenset[str]) -> bool:
        try:
            self.make().prepare(_lent(batch, needs))
        except Exception:
            return False
        return True

    def _written(self, batch: TrainBatch) -> str:
        """Return the names of the arrays that ``prepare`` writes into if it can. All log probabilities are there, so that it runs to its
        end."""
        own = _lent(batch, frozenset(DECLARED), writeable=True)
        try:
            self.make().prepare(own)
        except Exception:
            return ""
        return _changed(own, _lent(batch, frozenset(DECLARED)))

    def micro_batch(self, batch: TrainBatch, rows: Sequence[int] | None = None, dtype: torch.dtype = torch.float64) -> LossBatch:
        """Return the given rollouts (default all) of the batch as the loss sees them, with the fields that it declares."""
        prepared = {name: np.asarray(value) for name, value in self.prepared(batch).items()}
        order = np.array(range(len(batch)) if rows is None else rows, np.int64)
        index = token_index(batch.offsets, order)
        lengths = batch.lengths[order]
        needs = self.make().needs

        def flat(values: np.ndarray | None) -> torch.Tensor:
            assert values is not None
            return torch.tensor(values[index], dtype=dtype)

        return LossBatch(
            row=torch.tensor(np.repeat(np.arange(len(order)), lengths)),
            lengths=torch.tensor(lengths),
            advantages=flat(batch.advantages),
            old_logprobs=flat(batch.old_logprobs),
            rollout_logprobs=flat(batch.rollout_logprobs),
            weights=flat(batch.weights),
            reference_logprobs=flat(batch.reference_logprobs) if Need.REFERENCE in needs else None,
            entropy=torch.linspace(0.5, 2.0, len(batch.advantages), dtype=dtype)[index] if Need.ENTROPY in needs else None,
            extras={name: torch.tensor(value[index], dtype=dtype) for name, value in prepared.items()},
            normalisers=batch.normalisers,
        )

    def policy(self, batch: TrainBatch, rows: Sequence[int] | None = None, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Return [n] log probabilities of the trained policy, a leaf."""
        order = np.array(range(len(batch)) if rows is None else rows, np.int64)
        values = batch.rollout_logprobs[token_index(batch.offsets, order)]
        return torch.tensor(values, dtype=dtype, requires_grad=True)

    def values(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """Return the loss per token and the named values."""
        result = self.make().per_token(logprobs, batch)
        return result if isinstance(result, tuple) else (result, {})

    def gradient(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        """Return [n]: the gradient of ``sum(weights * per_token)`` with respect to the log probabilities."""
        loss = (batch.weights * self.values(logprobs, batch)[0]).sum()
        (gradient,) = torch.autograd.grad(loss, logprobs)
        return gradient

    def test_shape_and_type(self) -> None:
        """``per_token`` returns [n] values in the dtype of the log probabilities, with a gradient; named values are [n] too."""
        for dtype in (torch.float32, torch.float64):
            batch = self.train_batch()
            logprobs = self.policy(batch, dtype=dtype)
            loss, named = self.values(logprobs, self.micro_batch(batch, dtype=dtype))
            assert loss.shape == logprobs.shape, (
                f"loss has shape {tuple(loss.shape)}, the tokens {tuple(logprobs.shape)}: leave the sum to the core"
            )
            assert loss.dtype == dtype, f"log probabilities are {dtype}, the loss is {loss.dtype}"
            assert loss.requires_grad, "the loss has no gradient"
            for name, value in named.items():
                assert value.shape == logprobs.shape, f"named value {name!r} has shape {tuple(value.shape)}, not one a token"

    def test_finite_at_extreme_ratios(self) -> None:
        """Losses and gradients are finite in float32 for log ratios from -1e4 to 1e4 and advantages of both signs."""
        full = self.train_batch()
        for advantage in (-10.0, 0.0, 10.0):
            batch = self.micro_batch(full, dtype=torch.float32)
            count = len(batch.advantages)
            off = torch.tensor((EXTREMES * 2)[:count])
            batch = replace(batch, advantages=torch.full((count,), advantage), old_logprobs=batch.rollout_logprobs - off)
            logprobs = self.policy(full, dtype=torch.float32)
            loss, named = self.values(logprobs, batch)
            gradient = self.gradient(logprobs, batch)
            for name, value in {"loss": loss, "gradient": gradient, **named}.items():
                bad = ~torch.isfinite(value)
                assert not bad.any(), f"{name} is not finite at log ratio {off[bad].tolist()}, advantage {advantage}"

    def test_rollouts_do_not_influence_each_other(self) -> None:
        """The loss of a token depends on its own rollout alone. A loss compares rollouts in ``prepare``."""
        full = self.train_batch()
        batch, logprobs = self.micro_batch(full), self.policy(full)
        loss, gradient = self.values(logprobs, batch)[0], self.gradient(logprobs, batch)
        first = batch.row == 0
        moved = (logprobs + torch.where(first, 0.7, 0.0)).detach().requires_grad_()
        other = replace(batch, advantages=torch.where(first, -batch.advantages * 3, batch.advantages))
        assert torch.equal(self.values(moved, other)[0][~first], loss[~first]), "another rollout's log probabilities moved this one's loss"
        assert torch.equal(self.gradient(moved, other)[~first], gradient[~first]), "another rollout moved this one's gradient"

    def test_micro_batches_add_up(self) -> None:
        """Each token has the same gradient in every cut into micro-batches."""
        full = self.train_batch()
        whole = self.gradient(self.policy(full), self.micro_batch(full))
        for cut in ([[4, 2], [0], [3, 1]], [[row] for row in range(len(full))], [[0, 1, 2, 3], [4]]):
            for rows in cut:
                part = self.gradient(self.policy(full, rows), self.micro_batch(full, rows))
                expected = whole[torch.tensor(token_index(full.offsets, np.array(rows)))]
                assert torch.allclose(part, expected, rtol=1e-9, atol=1e-12), f"the micro-batch of rollouts {rows} has another gradient"

    def test_a_loss_that_combines_tokens_says_so(self) -> None:
        """Each token has the same gradient if it is a row of its own, because segments of a rollout may be in different forwards. Not
        checked if the loss declares ``whole_rollouts`` or ``sequence_ratio``."""
        made, full = self.make(), self.train_batch()
        if made.whole_rollouts or made.sequence_ratio:
            return
        batch, logprobs = self.micro_batch(full), self.policy(full)
        apart = replace(batch, row=torch.arange(len(batch.row)), lengths=torch.ones_like(batch.row))
        same = torch.allclose(self.gradient(logprobs, apart), self.gradient(logprobs, batch), rtol=1e-9, atol=1e-12)
        assert same, "the loss combines the tokens of a rollout: declare whole_rollouts = True"

    def test_gradient_is_the_derivative(self) -> None:
        """The gradient is the derivative of the loss, compared with central differences in float64. Not checked with
        ``value_is_differentiated = False``."""
        if not self.value_is_differentiated:
            return
        full = self.train_batch()
        batch, logprobs = self.micro_batch(full), self.policy(full)
        gradient = self.gradient(logprobs, batch)
        step = 1e-6
        for token in range(len(logprobs)):
            shift = torch.zeros_like(logprobs)
            shift[token] = step
            ends = [(batch.weights * self.values(logprobs + sign * shift, batch)[0]).sum().item() for sign in (1, -1)]
            slope = (ends[0] - ends[1]) / (2 * step)
            assert abs(slope - gradient[token].item()) < 1e-6, f"token {token}: gradient {gradient[token].item()}, differences {slope}"

    def test_follows_the_advantage(self) -> None:
        """If old and current log probabilities are equal, a positive advantage raises a probability and a negative one lowers it. Not
        checked with ``follows_advantage = False``."""
        if not self.follows_advantage:
            return
        full = self.train_batch()
        full = replace(full, old_logprobs=full.rollout_logprobs)
        gradient = self.gradient(self.policy(full), self.micro_batch(full))
        signs = torch.sign(torch.tensor(full.advantages, dtype=gradient.dtype))
        assert torch.equal(torch.sign(-gradient), signs), "the gradient step does not follow the sign of the advantage"

    def test_inputs_are_not_changed(self) -> None:
        """``per_token`` writes into none of its tensors: the core and the gradient use them afterwards."""
        full = self.train_batch()
        batch, same = self.micro_batch(full), self.micro_batch(full)
        # No leaf: torch itself refuses to write into one, with a message about leaves; in a run it is no leaf either.
        leaf = self.policy(full)
        logprobs = leaf.clone()
        lent = {"logprobs": logprobs, **_tensors(batch)}
        # torch counts the writes into a tensor, also those that happen to change no value here.
        counts = {name: tensor._version for name, tensor in lent.items()}
        self.values(logprobs, batch)
        before = {"logprobs": leaf.detach(), **_tensors(same)}
        now = {"logprobs": logprobs, **_tensors(batch)}
        assert now.keys() == before.keys(), f"per_token changed the names in extras: {sorted(batch.extras)}, not {sorted(same.extras)}"
        for name, tensor in now.items():
            written = tensor is not lent[name] or tensor._version != counts[name] or not torch.equal(tensor.detach(), before[name])
            assert not written, f"per_token writes into {name} in place; it is shared: work on a new tensor (x * 2, not x.mul_(2))"

    def test_deterministic_and_stateless(self) -> None:
        """The same tokens give the same loss, whatever the loss saw before."""
        full = self.train_batch()
        loss, batch, logprobs = self.make(), self.micro_batch(full), self.policy(full)
        first = loss.per_token(logprobs, batch)
        loss.per_token(self.policy(full, [2]), self.micro_batch(full, [2]))
        second = loss.per_token(logprobs, batch)
        pair = [result[0] if isinstance(result, tuple) else result for result in (first, second)]
        assert torch.equal(*pair), "a second call gave another loss"

    def figures(self, step: int) -> Mapping[str, float]:
        """Return metrics of an update, with the values that the loss names."""
        full = self.train_batch()
        result = self.make().per_token(self.policy(full), self.micro_batch(full))
        named = {f"loss/{name}": float(value.detach().mean()) for name, value in (result[1] if isinstance(result, tuple) else {}).items()}
        usual = {"loss": -0.1, "entropy": 1.5, "kl_old": 0.01, "grad_norm": 0.8, "learning_rate": 1e-6, "advantage_abs_mean": 0.7}
        if Need.REFERENCE in self.make().needs:
            usual["kl_reference"] = 0.02
        return {name: value * (1.0 + 0.5 * step) for name, value in {**named, **usual}.items()} | {"optimizer_steps": 1.0}

    def test_state_is_saved_and_restored(self) -> None:
        """``state`` returns numbers and texts, and a loss that restores them continues with the same bits after the next updates. A loss
        that ``updated`` changes has a state."""
        full = self.train_batch()
        batch, logprobs = self.micro_batch(full), self.policy(full)

        def values(loss: Loss) -> torch.Tensor:
            result = loss.per_token(logprobs, batch)
            return (result[0] if isinstance(result, tuple) else result).detach()

        loss = self.make()
        for step in range(3):
            loss.updated(self.figures(step))
        state = {name: np.array(value) for name, value in loss.state().items()}
        strange = [name for name, value in state.items() if value.dtype.kind not in "biufU"]
        assert not strange, f"{strange} of the state cannot be saved: numbers, texts and arrays of them can"
        other = self.make()
        if state:
            other.restore({name: value.copy() for name, value in state.items()})
        assert torch.equal(values(other), values(loss)), "a restored loss continues differently: state() must return what updated() changes"
        for one in (loss, other):
            one.updated(self.figures(3))
        assert torch.equal(values(other), values(loss)), "a restored loss continues differently after the next update"
        again = other.state()
        assert all(np.array_equal(np.asarray(again[name]), value) for name, value in loss.state().items()), "the states differ"

    def test_an_update_may_lack_figures(self) -> None:
        """``updated`` accepts an update that took no step, of which most figures are absent."""
        with error_context("the loss", "observing an update without figures"):
            self.make().updated({"optimizer_steps": 0.0, "skipped_steps": 1.0})

    def test_prepare_gives_arrays_per_token(self) -> None:
        """``prepare`` returns finite float32[N] arrays, the same ones at each call, and leaves the batch unchanged."""
        batch = self.train_batch()
        prepared, again = self.prepared(batch), self.prepared(batch)
        for name, value in prepared.items():
            assert value.shape == batch.advantages.shape, f"prepared {name!r} has shape {value.shape}, not one a token"
            assert value.dtype == np.float32, f"prepared {name!r} is {value.dtype}, not float32"
            assert np.isfinite(value).all(), f"prepared {name!r} is not finite"
            assert np.array_equal(value, again[name]), f"prepared {name!r} differs at a second call: key what is random"

    def test_prepare_reads_what_is_declared(self) -> None:
        """``prepare`` does not depend on log probabilities or entropies that the loss does not declare."""
        batch, needs = self.wide_batch(), self._declared()
        prepared = self.prepared(batch)
        for need in (need for need in DECLARED if need not in needs):
            more = self.make().prepare(_lent(batch, needs | {need}))
            same = more.keys() == prepared.keys() and all(np.array_equal(more[name], prepared[name]) for name in prepared)
            assert same, _undeclared(need)

    def test_prepare_reads_tokens_only_if_it_says_so(self) -> None:
        """With ``reads_tokens = False``, ``prepare`` does not depend on the tokens of rollouts: a rank may have those of its own share
        alone."""
        if self.make().reads_tokens:
            return
        batch = self.wide_batch()
        for seed in range(10):  # a rare choice falls nowhere under most seeds
            whole, outlined = (self.prepared(replace(one, seed=seed)) for one in (batch, with_outlines(batch)))
            same = whole.keys() == outlined.keys() and all(np.array_equal(outlined[name], whole[name]) for name in whole)
            assert same, "prepare looks at what its rollouts say, and the loss declares reads_tokens = False: leave that out"

    def test_prepare_does_not_look_at_places(self) -> None:
        """Each token keeps its prepared value if rollouts are permuted and groups renumbered. Random choices and ties use a key of (seed,
        version, prompt, rollout, token)."""
        batch = self.wide_batch()
        orders = [np.arange(len(batch))[::-1], np.random.default_rng(0).permutation(len(batch))]
        for order in orders:
            tokens = token_index(batch.offsets, order)
            moved = batch.take(order)
            moved = replace(moved, group=int(batch.group.max()) - moved.group)
            for seed in range(10):  # a rare choice falls nowhere under most seeds
                here, there = (self.prepared(replace(one, seed=seed, version=seed)) for one in (batch, moved))
                assert here.keys() == there.keys(), f"prepare gave {sorted(here)}, and {sorted(there)} after a permutation of the rollouts"
                for name, value in here.items():
                    off = ~np.isclose(there[name], value[tokens], rtol=1e-5, atol=1e-6)
                    assert not off.any(), (
                        f"prepared {name!r} depends on where a token stands: a permutation of the rollouts changed it at {int(off.sum())} "
                        f"of {len(off)} tokens; key choices and ties by (seed, version, prompt_id, rollout.index, token)"
                    )


def _lent(batch: TrainBatch, needs: frozenset[str], *, writeable: bool = False) -> TrainBatch:
    """Return a copy of the batch, read-only as in a run, without the log probabilities that are not among ``needs``."""
    arrays = {name: value.copy() for name, value in _arrays(batch).items()}
    for array in arrays.values():
        array.setflags(write=writeable)
    changes: dict[str, Any] = {**arrays, **{name: None for need, name in DECLARED.items() if need not in needs}}
    return replace(batch, **changes)


def _arrays(batch: TrainBatch) -> dict[str, np.ndarray]:
    values = {item.name: getattr(batch, item.name) for item in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _changed(batch: TrainBatch, same: TrainBatch) -> str:
    """Return the names of the arrays that differ."""
    before = _arrays(same)
    return ", ".join(name for name, value in _arrays(batch).items() if name in before and not np.array_equal(value, before[name]))


def _undeclared(need: str) -> str:
    if not isinstance(need, Need):
        return f"prepare uses batch.{DECLARED[need]} and the loss does not declare it: set {need} = True, or a run may come without it"
    return (
        f"prepare uses batch.{DECLARED[need]} and the loss does not declare it: add Need.{need.name} to its needs "
        f"(needs = frozenset({{Need.{need.name}}})), or a run may come without it"
    )


def _tensors(batch: LossBatch) -> dict[str, torch.Tensor]:
    values = {item.name: getattr(batch, item.name) for item in fields(batch)}
    values |= {f"extras[{name!r}]": value for name, value in batch.extras.items()}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
