"""Rules of log probabilities and of one optimizer step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlcore.contracts.batches import LossBatch, Normalisers, TrainBatch
from rlcore.contracts.interfaces import ModelRole, Need, Objective, TrainingBackend
from rlcore.contracts.specs import TrainingCapabilities
from rlcore.testing.policy import log_softmax
from rlcore.testing.records import with_outlines
from rlcore.testing.training.trainer_suite import TrainerSuite
from rlcore.testing.weights import weights_of

__all__ = ["UpdateRules"]

LOW, HIGH = 0.5, 1.5
MIXED = (LOW, HIGH, LOW, HIGH, HIGH, LOW)
"""Both temperatures in either group."""


class _SeesSources:
    """Another objective, and the places, the sources and the normalisers of every micro-batch."""

    def __init__(self, objective: Objective) -> None:
        self.objective, self.needs = objective, objective.needs
        self.seen: list[tuple[np.ndarray, list[int] | None, Normalisers | None]] = []

    def __call__(self, logprobs: Any, batch: LossBatch) -> tuple[Any, Mapping[str, Any]]:
        """Return what the other objective returns."""
        place = np.array(batch.extras["place"].tolist(), np.int64)
        self.seen.append((place, None if batch.source is None else batch.source.tolist(), batch.normalisers))
        return self.objective(logprobs, batch)


class UpdateRules(TrainerSuite):
    """Log probabilities, and one optimizer step."""

    def test_capabilities_are_declared(self) -> None:
        """The class has ``capabilities``, a ``TrainingCapabilities`` that names the tested dtype."""
        capabilities = type(self.make(self.context())).capabilities
        assert isinstance(capabilities, TrainingCapabilities), "capabilities must be a TrainingCapabilities, on the class"
        assert self.dtype in capabilities.dtypes, f"dtype {self.dtype} is tested and not declared"

    def test_the_spec_declares_the_capabilities_of_the_class(self) -> None:
        """The spec declares the capabilities of the class: a plan is checked against the spec before the class is imported."""
        declared = type(self.make(self.context())).capabilities
        assert self.spec is None or self.spec.capabilities == declared, f"the spec has {self.spec}, and the class {declared}"

    def test_the_vocabulary_is_no_multiple_of_64(self) -> None:
        """The vocabulary of the tested model is not a multiple of 64, so that mistakes of padding show."""
        assert self.vocabulary % 64, f"vocabulary {self.vocabulary} is a multiple of 64, which hides mistakes of padding; try another model"

    def test_cost_needs_no_tokens(self) -> None:
        """``cost`` depends on lengths and masks alone: ranks divide a batch before they have its tokens."""
        backend, batch = self.ready(), self.batch()
        for group in np.unique(batch.group):
            whole, outlined = (backend.cost(one, np.flatnonzero(batch.group == group)) for one in (batch, with_outlines(batch)))
            assert outlined == whole, f"group {group} costs {whole}, and {outlined} without its tokens: lengths and masks alone may count"

    def test_logprobs_are_those_of_the_probe(self) -> None:
        """``logprobs`` returns float32[N] for the policy tokens, in the order of the batch, equal to ``probe`` at temperature 1."""
        backend, batch = self.ready(), self.batch()
        logprobs = backend.logprobs(batch, ModelRole.POLICY)
        assert logprobs.shape == batch.advantages.shape, (
            f"{len(batch.advantages)} policy tokens, log probabilities of shape {logprobs.shape}"
        )
        assert logprobs.dtype == np.float32, f"log probabilities are {logprobs.dtype}"
        for row, rollout in enumerate(batch.rollouts):
            (segment,) = rollout.segments
            probed = backend.probe(np.concatenate([segment.context_ids, segment.token_ids]))
            expected = probed[len(segment.context_ids) - 1 :][segment.policy_mask]
            got = logprobs[batch.offsets[row] : batch.offsets[row + 1]]
            assert np.allclose(got, expected, atol=self.tolerance), f"rollout {row}: log probabilities {got}, probe {expected}"

    def test_logprobs_are_those_of_the_model(self) -> None:
        """``logprobs`` equals the model's forward pass at the start, and that of the saved model after two updates. Checked if the suite
        gives ``forward``."""
        backend, folder = self.ready(), self.model()
        for when in ("at the start", "after two updates"):
            for batch in (self.batch(), self.batch(temperature=0.7)):
                off = self._off(folder, batch, backend.logprobs(batch, ModelRole.POLICY))
                assert off <= 2 * self.tolerance, f"{when} a log probability is off by {off:.2g} nats from the model's forward pass"
            if when == "at the start":
                for seed in range(2):
                    backend.update(self.batch(seed=seed), self.objective())
                folder = str(self.scratch / "forward")
                Path(folder).mkdir()
                saving = backend.save_model(Path(folder))
                if saving is not None:
                    saving.result()

    def _off(self, folder: str, batch: TrainBatch, logprobs: np.ndarray) -> float:
        """Return the largest difference to the log probabilities of ``forward``; 0 if there is none."""
        worst = 0.0
        for row, rollout in enumerate(batch.rollouts):
            (segment,) = rollout.segments
            logits = self.forward(folder, np.concatenate([segment.context_ids, segment.token_ids]))
            if logits is None:
                return 0.0
            rows = log_softmax(np.asarray(logits[len(segment.context_ids) - 1 : -1], np.float64) / rollout.temperature)
            due = rows[np.arange(len(rows)), segment.token_ids][segment.policy_mask]
            worst = max(worst, float(np.abs(logprobs[batch.offsets[row] : batch.offsets[row + 1]] - due).max()))
        return worst

    def test_logprobs_are_at_the_temperature(self) -> None:
        """At temperature 0.5, log probabilities are log softmax of logits / 0.5 over the full vocabulary. Not checked with
        ``checks_temperature = False``."""
        if not self.checks_temperature:
            return
        backend, batch = self.ready(), self.batch(temperature=0.5)
        segment = batch.rollouts[0].segments[0]
        sequences = [np.append(segment.context_ids, token) for token in range(self.vocabulary)]
        logits = np.array([backend.probe(sequence)[-1] for sequence in sequences], np.float64) / 0.5
        expected = logits[segment.token_ids[0]] - np.log(np.exp(logits).sum())
        off = abs(float(backend.logprobs(batch, ModelRole.POLICY)[0]) - expected)
        assert off <= 2 * self.tolerance, f"a log probability at temperature 0.5 is off by {off:.2g} nats"

    def test_each_rollout_is_scored_at_its_own_temperature(self) -> None:
        """In a batch of two temperatures, each rollout is scored at its own, in every cut."""
        low, high, mixed = self.batch(LOW), self.batch(HIGH), self.batch(MIXED)
        backend = self.ready()
        cold, hot = backend.logprobs(low, ModelRole.POLICY), backend.logprobs(high, ModelRole.POLICY)
        assert not np.allclose(cold, hot, atol=self.tolerance), f"temperatures {LOW} and {HIGH} give the same log probabilities"
        expected = np.where(np.repeat(mixed.temperatures == LOW, mixed.lengths), cold, hot)
        for changes in ({}, {"rollouts_per_forward": 1}, {"rollouts_per_forward": 4}):
            got = self.ready(**changes).logprobs(mixed, ModelRole.POLICY)
            off = float(np.abs(got - expected).max())
            assert off <= self.tolerance, f"beside another temperature a log probability is off by {off:.2g} nats ({changes or 'uncut'})"

    def test_each_rollout_trains_at_its_own_temperature(self) -> None:
        """In a batch of two temperatures, each rollout trains at its own, in every cut."""
        mixed = self.batch(MIXED)
        for own, other in ((LOW, HIGH), (HIGH, LOW)):
            theirs = np.repeat(mixed.temperatures == own, mixed.lengths)
            advantages = np.where(theirs, mixed.advantages, np.float32(0))
            alone, elsewhere = (self.stepped(replace(self.batch(value), advantages=advantages)) for value in (own, other))
            for changes in ({}, {"rollouts_per_forward": 1}, {"rollouts_per_forward": 4}):
                backend = self.ready(**changes)
                norm = backend.update(replace(mixed, advantages=advantages), self.objective())["grad_norm"]
                after = backend.logprobs(self.batch(own), ModelRole.POLICY)
                self.assert_same((norm, after), alone, f"rollouts of temperature {own} beside others of {other} ({changes or 'uncut'})")
            assert not math.isclose(alone[0], elsewhere[0], rel_tol=self.tolerance * 10), (
                f"temperatures {own} and {other} give the same gradient: the update ignores the temperature"
            )

    def test_logprobs_do_not_depend_on_the_cut(self) -> None:
        """Log probabilities do not depend on rollouts a forward, tokens a forward, or the order of rollouts."""
        batch = self.batch()
        whole = self.ready().logprobs(batch, ModelRole.POLICY)
        for changes in ({"rollouts_per_forward": 1}, {"rollouts_per_forward": 4}, {"tokens_per_forward": 13}):
            part = self.ready(**changes).logprobs(batch, ModelRole.POLICY)
            assert np.allclose(part, whole, atol=self.tolerance), f"{changes} gives other log probabilities"
        turned = self.ready().logprobs(batch.take(np.arange(len(batch))[::-1]), ModelRole.POLICY)
        back = np.concatenate(
            [turned[len(whole) - end : len(whole) - start] for start, end in zip(batch.offsets, batch.offsets[1:], strict=False)]
        )
        assert np.allclose(back, whole, atol=self.tolerance), "the order of the rollouts gives other log probabilities"

    def test_entropies_are_those_of_an_update(self) -> None:
        """``logprobs_and_entropies`` gives ``logprobs`` and, at each token, the entropy that an update hands to its objective. Checked with
        ``capabilities.entropies``."""
        if not self.make(self.context()).capabilities.entropies:
            return
        for temperature in (1.0, MIXED):
            batch = self.batch(temperature)
            for changes in ({}, {"rollouts_per_forward": 1}):
                backend, objective = self.ready(**changes), self.watching()
                logprobs, entropies = backend.logprobs_and_entropies(batch)
                assert entropies.shape == logprobs.shape == batch.advantages.shape, f"shapes {logprobs.shape} and {entropies.shape}"
                assert entropies.dtype == np.float32, f"entropies are {entropies.dtype}"
                assert np.allclose(logprobs, backend.logprobs(batch, ModelRole.POLICY), atol=self.tolerance), "other log probabilities"
                places = np.arange(len(logprobs), dtype=np.float32)
                backend.update(replace(batch, extras={"place": places}), objective)
                off = max(abs(float(entropies[int(place)]) - value) for place, value in objective.seen)
                assert off <= 2 * self.tolerance, f"an entropy is off by {off:.2g} nats from that of the update ({changes or 'uncut'})"

    def test_every_token_keeps_its_source(self) -> None:
        """In a batch of several sources, each micro-batch has the source of its tokens and the normalisers of each source, in every
        cut. Not checked for a backend that does not call its objective."""
        plain = self.batch()
        batch = replace(
            plain,
            source=plain.group,
            normalisers=replace(plain.normalisers, sources={0: plain.normalisers, 1: plain.normalisers}),
            extras={"place": np.arange(len(plain.advantages), dtype=np.float32)},
        )
        due = np.repeat(plain.group, plain.lengths)
        for changes in ({}, {"rollouts_per_forward": 1}, {"rollouts_per_forward": 4}):
            objective = _SeesSources(self.objective())
            self.ready(**changes).update(batch, objective)
            for place, source, normalisers in objective.seen:
                cut, lost = changes or "uncut", "a run with several sources cannot train (LossBatch.source and normalisers)"
                assert source is not None, f"the source of its tokens is lost in a micro-batch ({cut}): {lost}"
                assert normalisers == batch.normalisers, f"the normalisers are {normalisers} in a micro-batch ({cut}): {lost}"
                wrong = place[np.array(source) != due[place]]
                assert not len(wrong), f"the tokens {wrong.tolist()} have the source of another token ({cut}): {lost}"

    def test_logprobs_leave_the_weights_alone(self) -> None:
        """``logprobs`` changes no weight and gives the same answer again."""
        backend, batch = self.ready(), self.batch()
        first, before = backend.logprobs(batch, ModelRole.POLICY), self.checksums(backend)
        assert np.array_equal(backend.logprobs(batch, ModelRole.POLICY), first), "the same question gets two answers"
        assert self.checksums(backend) == before, "logprobs changed the weights"

    def test_update_lowers_the_objective(self) -> None:
        """Five updates on one batch lower the objective, on-policy and off-policy."""
        for batch in (self.batch(), self.off_policy(self.batch())):
            backend = self.ready()
            start = replace(batch, old_logprobs=backend.logprobs(batch, ModelRole.POLICY)) if batch.old_logprobs is None else batch
            before = self.loss(backend, start)
            for _ in range(5):
                backend.update(start, self.objective())
            after = self.loss(backend, start)
            assert after < before, f"the objective rose from {before:.6g} to {after:.6g} in five updates"

    def test_every_weight_is_trained(self) -> None:
        """Two updates change each tensor, except those that ``untrained`` names. Not checked with adapters, which have rules of their
        own."""
        if self.context().lora is not None or not (dtype := self.full_precision()):
            return
        backend = self.ready(dtype=dtype)
        before = self.checksums(backend)
        for seed in range(2):
            backend.update(self.batch(seed=seed), self.objective())
        still = sorted(
            name for name, checksum in self.checksums(backend).items() if checksum == before[name] and name not in self.untrained
        )
        assert not still, f"two updates did not move {still}: a tensor that no gradient reaches belongs into the suite's `untrained`"

    def test_metrics(self) -> None:
        """``update`` returns finite floats, among them ``grad_norm`` before clipping and the ``learning_rate`` of the step."""
        metrics = self.ready().update(self.batch(), self.objective())
        for name, value in metrics.items():
            assert isinstance(value, float), f"metric {name!r} is a {type(value).__name__}"
            assert math.isfinite(value), f"metric {name!r} is {value}"
        assert {"grad_norm", "learning_rate"} <= set(metrics), f"metrics lack grad_norm or learning_rate: {sorted(metrics)}"
        assert math.isclose(metrics["learning_rate"], self.learning_rate), (
            f"learning rate {metrics['learning_rate']}, set {self.learning_rate}"
        )
        clipped = self.ready(max_grad_norm=1e-3).update(self.batch(), self.objective())
        assert math.isclose(clipped["grad_norm"], metrics["grad_norm"], rel_tol=1e-3), "grad_norm is the one after clipping"

    def test_gradient_does_not_depend_on_the_cut(self) -> None:
        """The gradient does not depend on rollouts a forward, tokens a forward, or prompts a slice."""
        batch = self.off_policy(self.batch())
        whole = self.stepped(batch)
        for changes in ({"rollouts_per_forward": 1}, {"rollouts_per_forward": 4}, {"tokens_per_forward": 13}, {"prompts_per_slice": 1}):
            self.assert_same(self.stepped(batch, **changes), whole, str(changes))

    def test_order_of_rollouts_does_not_matter(self) -> None:
        """The gradient does not depend on the order of rollouts."""
        batch = self.off_policy(self.batch())
        order = np.arange(len(batch))[::-1]
        norm, logprobs = self.stepped(batch)
        turned_norm, turned = self.stepped(batch.take(order))
        parts = [logprobs[batch.offsets[row] : batch.offsets[row + 1]] for row in order]
        self.assert_same((turned_norm, turned), (norm, np.concatenate(parts)), "the reversed batch")

    def test_masked_rollouts_do_not_train(self) -> None:
        """A rollout with ``in_loss`` False has no gradient, whatever its advantages are."""
        batch = self.off_policy(self.batch())
        masked = np.repeat(~batch.in_loss, batch.lengths)
        other = replace(batch, advantages=np.where(masked, np.float32(1e3), batch.advantages))
        self.assert_same(self.stepped(other), self.stepped(batch), "another advantage of a masked rollout")

    def test_forced_tokens_do_not_train(self) -> None:
        """The gradient is 0 if no policy token has an advantage: context and forced tokens have no gradient."""
        batch = self.batch()
        metrics = self.ready().update(replace(batch, advantages=np.zeros_like(batch.advantages)), self.objective())
        assert metrics["grad_norm"] == 0.0, f"no advantage anywhere, and a gradient of norm {metrics['grad_norm']}"

    def test_reference_stays(self) -> None:
        """Updates do not change the reference; in a resumed run it is the model that ``context.reference`` names."""
        backend, batch = self.ready(needs=frozenset({Need.REFERENCE})), self.batch()
        start = backend.logprobs(batch, ModelRole.POLICY)
        for _ in range(2):
            backend.update(batch, self.objective())
        reference = backend.logprobs(batch, ModelRole.REFERENCE)
        assert np.allclose(reference, start, atol=self.tolerance), "the reference moved with the policy"
        assert not np.array_equal(backend.logprobs(batch, ModelRole.POLICY), start), "two updates did not move the policy"
        if self.context().lora is None:  # with adapters the model of both is the same
            (folder := self.scratch / "gone-on").mkdir()
            (state := self.scratch / "gone-on-state").mkdir()
            for saving in (backend.save_model(folder), backend.save(state)):
                if saving is not None:
                    saving.result()
            resumed = self.ready(model=str(folder), reference=self.model(), needs=frozenset({Need.REFERENCE}))
            reference = resumed.logprobs(batch, ModelRole.REFERENCE)
            assert np.allclose(reference, start, atol=self.tolerance), "context.reference is not what the reference was loaded from"
            resumed.load(state)
            reference = resumed.logprobs(batch, ModelRole.REFERENCE)
            assert np.allclose(reference, start, atol=self.tolerance), "after load the reference is no longer that of context.reference"

    def checksums(self, backend: TrainingBackend) -> dict[str, int]:
        """Return the checksum of every weight."""
        return {name: tensor.checksum for name, tensor in weights_of(backend).items()}

    def stepped(self, batch: TrainBatch, **changes: Any) -> tuple[float, np.ndarray]:
        """Return the gradient norm of one update and the policy's log probabilities after it."""
        backend = self.ready(**changes)
        norm = backend.update(batch, self.objective())["grad_norm"]
        return norm, backend.logprobs(batch, ModelRole.POLICY)

    def assert_same(self, got: tuple[float, np.ndarray], expected: tuple[float, np.ndarray], what: str) -> None:
        assert math.isclose(got[0], expected[0], rel_tol=self.tolerance * 10), f"{what}: gradient norm {got[0]} against {expected[0]}"
        off = float(np.abs(got[1] - expected[1]).max())
        assert off <= self.tolerance * 10, f"{what}: log probabilities after the update are off by {off:.2g} nats"
