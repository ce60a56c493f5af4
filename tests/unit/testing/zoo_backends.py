"""Engines and trainers with one planted bug each, all of a kind that has been seen in the wild."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from suites_of_fakes import FakeEngineSuite

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import ModelRole, Objective, TrainingContext
from rlcore.contracts.snapshots import Tensor
from rlcore.contracts.types import Completion, FinishReason, Request
from rlcore.testing import FakeInference, FakePolicy, FakeTraining
from rlcore.testing.inference.fake_sampling import noise_stream
from rlcore.testing.inference.faulty_inference import FaultyInference, FaultyInferenceOptions
from rlcore.testing.weights import HostSource

# --- inference ---------------------------------------------------------------------------------------------------------


class RunsToTheEnd(FakeInference):
    """One poll decodes everything: nothing can be admitted, cancelled or updated meanwhile."""

    def poll(self, timeout: float) -> list[Completion]:
        answers: list[Completion] = []
        while self._running or self._waiting:
            answers += super().poll(timeout)
        return answers


class SharesNoise(FakeInference):
    """One generator for the whole engine: draws depend on what else is running."""

    stream = noise_stream((1, 2, 3, 4))

    def _start(self, request: Request) -> Any:
        running = super()._start(request)
        running.stream = self.stream
        return running


class IgnoresNoise(FakeInference):
    """Every sample of a prompt is the same."""

    def _start(self, request: Request) -> Any:
        return super()._start(replace(request, noise=(0, 0, 0, 0)))


class DropsStopToken(FakeInference):
    def poll(self, timeout: float) -> list[Completion]:
        return [self._cut(answer) for answer in super().poll(timeout)]

    def _cut(self, answer: Completion) -> Completion:
        if answer.finish is not FinishReason.STOP:
            return answer
        return replace(answer, token_ids=answer.token_ids[:-1], logprobs=answer.logprobs[:-1], versions=answer.versions[:-1])


class GoesOnAfterStopString(FakeInference):
    def _ended(self, running: Any) -> FinishReason | None:
        running.request = replace(running.request, sampling=replace(running.request.sampling, stop=()))
        return super()._ended(running)


class SamplesAtZero(FakeInference):
    """Greedy by a low temperature."""

    def _start(self, request: Request) -> Any:
        cold = replace(request.sampling, temperature=request.sampling.temperature or 0.7)
        return super()._start(replace(request, sampling=cold))


class ForgetsCancelled(FakeInference):
    def cancel(self, request_ids: Iterable[str]) -> None:
        for name in request_ids:
            self._running.pop(name, None)


class IgnoresCancel(FakeInference):
    def cancel(self, request_ids: Iterable[str]) -> None:
        pass


class LabelsByNewest(FakeInference):
    """Tokens are labelled with the version served when the completion is returned."""

    def poll(self, timeout: float) -> list[Completion]:
        return [replace(answer, versions=np.full(len(answer.versions), self._version)) for answer in super().poll(timeout)]


class AbortsInSilence(FakeInference):
    """Declares finish and aborts."""

    def _on_new_weights(self) -> None:
        self.cancel(list(self._running))


class FaultyEngineSuite(FakeEngineSuite):
    fault: str

    def make(self, prompts_per_forward: int = 8) -> FakeInference:
        engine = super().make(prompts_per_forward)
        return FaultyInference(engine.context, FaultyInferenceOptions(fault=self.fault))  # type: ignore[arg-type]


class DrawsTheUnlikely(FakeInference):
    """Declares min_p, and does not look at it."""

    def _start(self, request: Request) -> Any:
        return super()._start(replace(request, sampling=replace(request.sampling, min_p=0.0)))


class ScoresBeforeMinP(FakeInference):
    """Cuts by min_p, and reports log probabilities over the whole vocabulary."""

    def poll(self, timeout: float) -> list[Completion]:
        cut = {request.request_id for request in self._waiting if request.sampling.min_p}
        answers = super().poll(timeout)
        return [replace(answer, logprobs=answer.logprobs - 0.5) if answer.request_id in cut else answer for answer in answers]


class ClaimsToScoreNothing(FakeInference):
    """Declares otherwise than the spec of its plugin."""

    capabilities = replace(FakeInference.capabilities, scores=False)


# --- training ----------------------------------------------------------------------------------------------------------


class ClaimsPipelines(FakeTraining):
    """Declares otherwise than the spec of its plugin."""

    capabilities = replace(FakeTraining.capabilities, layouts=frozenset({"single", "pipeline"}))


class CostsByItsTokens(FakeTraining):
    """What only the rank knows that has the tokens."""

    def cost(self, batch: TrainBatch, rows: np.ndarray) -> int:
        return sum(len(np.unique(segment.token_ids)) for row in rows for segment in batch.rollouts[row].segments)


class NormalisesPerForward(FakeTraining):
    """Divides by the number of micro-batches, whatever is in them."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        forwards = -(-int(batch.in_loss.sum()) // self.context.rollouts_per_forward)
        return super().update(replace(batch, weights=batch.weights / forwards), objective)


class TrainsMasked(FakeTraining):
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        weights = np.full_like(batch.weights, batch.weights.max())
        return super().update(replace(batch, weights=weights, in_loss=np.ones_like(batch.in_loss)), objective)


class ClimbsTheLoss(FakeTraining):
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        return super().update(replace(batch, advantages=-batch.advantages), objective)


def at_temperatures(batch: TrainBatch, temperatures: Iterable[float]) -> TrainBatch:
    rollouts = zip(batch.rollouts, temperatures, strict=True)
    return replace(batch, rollouts=tuple(replace(rollout, temperature=temperature) for rollout, temperature in rollouts))


class TrainsAtTemperatureOne(FakeTraining):
    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        return super().logprobs(at_temperatures(batch, [1.0] * len(batch)), which)


class TakesTheFirstTemperature(FakeTraining):
    """One temperature for the batch, as where it is a setting of the run."""

    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        return super().logprobs(at_temperatures(batch, [batch.rollouts[0].temperature] * len(batch)), which)


class UpdatesAtTheMeanTemperature(FakeTraining):
    """Log probabilities as they should be, the gradient not."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        return super().update(at_temperatures(batch, [float(batch.temperatures.mean())] * len(batch)), objective)


class UpdatesAtTemperatureOne(FakeTraining):
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        return super().update(at_temperatures(batch, [1.0] * len(batch)), objective)


class OffByOne(FakeTraining):
    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        return np.roll(super().logprobs(batch, which), 1)


class HandsOutTheFirst(FakeTraining):
    """Its source is made once, and never again."""

    first: HostSource | None = None

    def weight_source(self) -> HostSource:
        self.first = self.first or super().weight_source()
        return self.first


class OneBucket(FakeTraining):
    """All tensors at once, whatever may be in a bucket."""

    def weight_source(self) -> HostSource:
        class Whole(HostSource):
            def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
                yield self.tensors

        return Whole(super().weight_source().tensors)


class AnnouncesAnotherOrder(FakeTraining):
    """Its manifest is not what comes."""

    def weight_source(self) -> HostSource:
        class Turned(HostSource):
            def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
                for name in list(self.tensors)[1:]:
                    yield {name: self.tensors[name]}

        return Turned(super().weight_source().tensors)


class SavesWhatItHasThen(FakeTraining):
    """Writes a little later what the policy is by then."""

    def save_model(self, folder: Path) -> Future[None] | None:
        return self._writer.submit(lambda: (time.sleep(0.2), self.policy.save(folder))[1])


class LosesMomentsAsleep(FakeTraining):
    """Its moments stay on the device that it gives back."""

    def sleep(self) -> None:
        super().sleep()
        self.optimizer.first = {name: np.zeros_like(array) for name, array in self.optimizer.first.items()}


class ForgetsMoments(FakeTraining):
    def load(self, folder: Path) -> None:
        steps = self.optimizer.steps
        super().load(folder)
        self.optimizer.first = {name: np.zeros_like(array) for name, array in self.optimizer.first.items()}
        self.optimizer.steps = max(steps, self.optimizer.steps)


class SavesHalfPrecision(FakeTraining):
    def save_model(self, folder: Path) -> None:
        FakePolicy(*(array.astype(np.float16) for array in self.policy.arrays().values())).save(folder)


class ExportsUnrounded(FakeTraining):
    """The export is the model once more."""

    def save_model(self, folder: Path, dtype: str | None = None) -> Future[None] | None:
        return super().save_model(folder)


class NormAfterClipping(FakeTraining):
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = super().update(batch, objective)
        return {**metrics, "grad_norm": min(metrics["grad_norm"], self.context.optimizer.max_grad_norm)}


class ReferenceOfTheCheckpoint(FakeTraining):
    """A run that goes on takes its checkpoint as the reference."""

    def setup(self, context: TrainingContext) -> None:
        super().setup(replace(context, reference=""))


class LoadsTheReference(FakeTraining):
    """What it goes on from is its reference."""

    def load(self, folder: Path) -> None:
        super().load(folder)
        self.reference = self.policy


class SyncsByHalf(FakeTraining):
    """A share of 1 leaves some of the old reference."""

    def sync_reference(self, share: float) -> None:
        super().sync_reference(share / 2)


class SyncsWholly(FakeTraining):
    def sync_reference(self, share: float) -> None:
        super().sync_reference(1.0)


class FollowsThePolicy(FakeTraining):
    """After a sync the reference is the policy, and stays so."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = super().update(batch, objective)
        self.reference = self.policy if self.moved else self.reference
        return metrics


class SavesTheFirstReference(FakeTraining):
    def save(self, folder: Path) -> Future[None] | None:
        self.moved = False
        return super().save(folder)


class SavesTheReferenceOnce(FakeTraining):
    """A resumed run forgets that its reference has moved."""

    def load(self, folder: Path) -> None:
        super().load(folder)
        self.moved = False


class MovesThePolicy(FakeTraining):
    """Both go halfway."""

    def sync_reference(self, share: float) -> None:
        super().sync_reference(share)
        if share < 1.0 and self.reference is not None:
            self.policy = self.reference


class ReferenceMoves(FakeTraining):
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = super().update(batch, objective)
        self.reference = self.policy
        return metrics


class LooksAtTheFirst(FakeTraining):
    """Scales by something of the first rollout, so that order shows."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        scale = np.float32(1.0 + 0.5 * (batch.group[0] == 0))
        return super().update(replace(batch, advantages=batch.advantages * scale), objective)


class KeepsGradients(FakeTraining):
    """Nobody zeroed the gradients of the update before."""

    carried: TrainBatch | None = None

    def _accumulate(self, batch: TrainBatch, row: int, gradient: Mapping[str, np.ndarray]) -> float:
        if self.carried is not None and self.carried is not batch:
            super()._accumulate(self.carried, row, gradient)
        return super()._accumulate(batch, row, gradient)

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = super().update(batch, objective)
        self.carried = batch
        return metrics


class DrawsNoise(FakeTraining):
    """Dropout left on, with a generator that nobody seeded."""

    draws = np.random.default_rng()

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        kept = self.draws.random(len(batch.weights)) > 0.5
        return super().update(replace(batch, weights=batch.weights * kept), objective)
