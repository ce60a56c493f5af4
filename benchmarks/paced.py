"""Backends whose speed is set: they sleep as long as real ones would take and compute next to nothing.

What a schedule costs, and what it gains by overlapping, can be measured with them on any machine. Their weights are those of a FakePolicy,
so that transfer, versions and probes are the real ones; their tokens are valid and mean nothing.
"""

from __future__ import annotations

import heapq
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.paced_plugin import PACED_INFERENCE
from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import InferenceBackend, InferenceContext, ModelRole, Objective, TrainingBackend, TrainingContext
from rlcore.contracts.snapshots import Bucket, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, FinishReason, Request
from rlcore.learning.lr_schedule import learning_rate
from rlcore.testing.fake_plugin import FAKE_TRAINING
from rlcore.testing.lengths import LengthKind, Lengths
from rlcore.testing.policy import ComingPolicy, FakePolicy
from rlcore.testing.training.star_ranks import StarRanks
from rlcore.testing.weights import HostSource

__all__ = ["PacedInference", "PacedInferenceOptions", "PacedTraining", "PacedTrainingOptions", "response_tokens"]

STATE = "paced_trainer.npz"
FIRST_CHARACTER = 5
"""The first id of the fake tokenizer that is a character and not a special token."""


class PacedInferenceOptions(BaseModel):
    """Options of the ``paced`` inference backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: int = Field(default=16, ge=1, description="Requests that run at once; the others wait in order.")
    seconds_per_token: float = Field(default=1e-3, gt=0, description="Of one request, however many run.")
    lengths: LengthKind = Field(default=LengthKind.CONSTANT, description="How long responses are: constant or lognormal.")
    mean_length: float = Field(default=64.0, ge=1, description="Tokens of a response, on average.")
    sigma: float = Field(default=1.0, gt=0, description="Standard deviation of the logarithm of a lognormal length.")
    cut: float = Field(default=8.0, gt=1, description="Longest lognormal response, in means.")
    batch_synchronous: bool = Field(default=False, description="Requests start, and are answered, a whole batch at a time.")
    update_seconds: float = Field(default=0.0, ge=0, description="What taking new weights costs; nothing is generated meanwhile.")
    in_flight: Literal[InFlight.FINISH, InFlight.RESUME] = Field(
        default=InFlight.RESUME, description="What becomes of running requests when the weights change."
    )
    seed: int = Field(default=0, ge=0, description="Of the lengths, beside the noise key of the request.")

    def distribution(self) -> Lengths:
        """Of the lengths of responses, before the limits of a request."""
        return Lengths(kind=self.lengths, mean=self.mean_length, sigma=self.sigma, cut=self.cut)


def response_tokens(noise: tuple[int, int, int, int], options: PacedInferenceOptions) -> int:
    """How long the response to a request with this noise key is, before the limits of the request."""
    return options.distribution().tokens(_stream(noise, options.seed, 0))


def _stream(noise: tuple[int, int, int, int], seed: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((*noise, seed, purpose))))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request and when it came, in the engine's time; ``length`` tokens will answer it."""

    request: Request
    at: float
    length: int
    limited: bool


@dataclass(frozen=True, slots=True, order=True)
class _Running:
    """A request in a slot, ordered by when it ends; ``number`` settles ties in the order of their starts."""

    end: float
    number: int
    start: float
    asked: _Asked


class PacedInference(InferenceBackend):
    """Continuous batching over ``slots`` in virtual time: a request that starts at ``t`` has ended at ``t + length * seconds_per_token``
    and the next one takes its slot at that moment, whenever somebody polls. A request's length is a function of its noise key alone."""

    capabilities = PACED_INFERENCE

    def __init__(self, context: InferenceContext, options: PacedInferenceOptions | None = None) -> None:
        self.context = context
        self.options = options if options is not None else PacedInferenceOptions()
        self.capabilities = replace(type(self).capabilities, in_flight=self.options.in_flight)
        self._policy = FakePolicy.load(context.model)
        self._coming: tuple[ComingPolicy, float] | None = None  # the update under way, and when it began
        self._versions: list[tuple[float, int]] = [(-math.inf, 0)]  # since when each version is served
        self._halted = 0.0  # seconds in which weights were taken: the engine's time stood still
        self._waiting: deque[_Asked] = deque()
        self._running: list[_Running] = []  # a heap
        self._starts = 0
        self._finished: list[Completion] = []
        self._withheld: list[Completion] = []  # of a batch that goes on

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests; ValueError for a context that leaves no room for a token."""
        now = self._now()
        self._advance(now)
        for request in requests:
            room = self.context.max_tokens - len(request.token_ids)
            if room < 1:
                raise ValueError(
                    f"request {request.request_id!r} has {len(request.token_ids)} tokens, the bound is {self.context.max_tokens}"
                )
            limit = min(room, request.sampling.max_new_tokens)
            length = response_tokens(request.noise, self.options)
            self._waiting.append(_Asked(request, now, min(length, limit), length > limit))
        if not self.options.batch_synchronous or not self._running:
            self._fill(now)

    def poll(self, timeout: float) -> list[Completion]:
        """Sleep until something has finished, for at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            self._advance(self._now())
            left = deadline - time.monotonic()
            if self._finished or not self._running or left <= 0:
                finished, self._finished = self._finished, []
                return finished
            last = max(self._running) if self.options.batch_synchronous else self._running[0]
            time.sleep(max(0.0, min(left, last.end - self._now())))

    def cancel(self, request_ids: Iterable[str]) -> None:
        """Drop requests; each comes back as ABORTED with the tokens it has."""
        dropped, now = set(request_ids), self._now()
        self._advance(now)
        for asked in [asked for asked in self._waiting if asked.request.request_id in dropped]:
            self._waiting.remove(asked)
            self._finished.append(self._completion(asked, now, 0, FinishReason.ABORTED))
        for running in [running for running in self._running if running.asked.request.request_id in dropped]:
            self._running.remove(running)
            tokens = min(running.asked.length, int((now - running.start) / self.options.seconds_per_token))
            self._finished.append(self._completion(running.asked, running.start, tokens, FinishReason.ABORTED))
        heapq.heapify(self._running)
        self._after_a_slot(now)

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        """Note when the update began; the engine's time stands still from here on."""
        start = self._now()
        self._advance(start)
        self._coming = (ComingPolicy(self._policy, version, manifest), start)

    def receive(self, bucket: Bucket) -> None:
        """Copy the bucket's tensors."""
        self._under_way()[0].take(bucket)

    def finish_update(self) -> int:
        """Swap the weights after ``update_seconds``; WeightsError, naming the tensor, if one did not come."""
        coming, start = self._under_way()
        self._policy = coming.whole()
        self._coming = None
        time.sleep(self.options.update_seconds)
        self._halted += self._now() - start
        since = min((running.start for running in self._running), default=start)
        first = max(0, bisect_right(self._versions, since, key=lambda served: served[0]) - 1)  # what no running token needs is dropped
        self._versions = [*self._versions[first:], (start, coming.version)]
        return coming.version

    def score(self, token_ids: np.ndarray) -> np.ndarray:
        """int32[T] -> float32[T - 1], at temperature 1, on the weights now served."""
        return self._policy.logprobs(token_ids).astype(np.float32)

    def close(self) -> None:
        """Forget every request."""
        self._waiting.clear()
        self._running.clear()
        self._finished.clear()
        self._withheld.clear()

    def _under_way(self) -> tuple[ComingPolicy, float]:
        if self._coming is None:
            raise RunError("no update of the paced engine has begun: call begin_update first")
        return self._coming

    def _now(self) -> float:
        """The engine's time: it stands still while weights are taken."""
        return time.monotonic() - self._halted

    def _advance(self, now: float) -> None:
        """Let everything happen that has happened by ``now``, in its order."""
        while self._running and self._running[0].end <= now:
            ended = heapq.heappop(self._running)
            finish = FinishReason.LENGTH if ended.asked.limited else FinishReason.STOP
            answers = self._withheld if self.options.batch_synchronous else self._finished
            answers.append(self._completion(ended.asked, ended.start, ended.asked.length, finish))
            self._after_a_slot(ended.end)

    def _after_a_slot(self, at: float) -> None:
        """A slot is free: the next request takes it, or, batch by batch, the next batch once the last request has ended."""
        if self.options.batch_synchronous:
            if self._running:
                return
            self._finished += self._withheld
            self._withheld = []
        self._fill(at)

    def _fill(self, at: float) -> None:
        """Start waiting requests in the free slots, at the moment ``at`` or when they came."""
        while self._waiting and len(self._running) < self.options.slots:
            asked = self._waiting.popleft()
            start = max(at, asked.at)
            self._starts += 1
            heapq.heappush(self._running, _Running(start + asked.length * self.options.seconds_per_token, self._starts, start, asked))

    def _completion(self, asked: _Asked, start: float, tokens: int, finish: FinishReason) -> Completion:
        drawn = _stream(asked.request.noise, self.options.seed, 1).integers(FIRST_CHARACTER, self._policy.vocabulary, tokens)
        if finish is FinishReason.STOP:
            drawn[-1] = min(self.context.tokenizer.stop_ids)
        return Completion(
            request_id=asked.request.request_id,
            token_ids=drawn,
            logprobs=np.full(tokens, -math.log(self._policy.vocabulary)),
            versions=self._versions_of(start, tokens),
            finish=finish,
        )

    def _versions_of(self, start: float, tokens: int) -> np.ndarray:
        """int32[tokens]: what was served when each token was begun, or when the first one was."""
        begun = start + self.options.seconds_per_token * np.arange(tokens)
        if self.options.in_flight is InFlight.FINISH:
            begun = np.full(tokens, start)
        since, versions = zip(*self._versions, strict=True)
        return np.asarray(np.array(versions)[np.searchsorted(since, begun, side="right") - 1])


class PacedTrainingOptions(BaseModel):
    """Options of the ``paced`` training backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    update_seconds: float = Field(default=0.1, ge=0, description="Of one optimizer step.")


class PacedTraining(TrainingBackend):
    """Sleeps through every optimizer step and moves the weights a little, by the number of the step alone: the same on every rank.

    Ranks wait for each other at the end of a step, as they do where gradients are added up; more of them are not faster.
    """

    capabilities = FAKE_TRAINING
    ranks = StarRanks(0, 1, "")

    def __init__(self, context: TrainingContext | None = None, options: PacedTrainingOptions | None = None) -> None:
        self.options = options if options is not None else PacedTrainingOptions()

    def setup(self, context: TrainingContext) -> None:
        """Load the weights; with several ranks, wait for the others."""
        self.context = context
        self.ranks = StarRanks(context.rank, context.world_size, context.rendezvous)
        self.policy = FakePolicy.load(context.model)
        self.steps = 0

    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        """float32[N]: the sampler's own."""
        return batch.rollout_logprobs

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """One step; metrics that are the same on every rank. The objective is not called."""
        time.sleep(self.options.update_seconds)
        self._meet()
        rate = learning_rate(self.context.optimizer, self.steps)
        self.steps += 1
        moved = np.random.default_rng(self.steps).normal(0, 1e-3, self.policy.last.shape)
        self.policy = replace(self.policy, last=self.policy.last + moved)
        return {"loss": 0.0, "grad_norm": 1.0, "learning_rate": rate}

    def weight_source(self) -> HostSource:
        """The weights as they stand; the arrays never change afterwards."""
        return HostSource(dict(self.policy.tensors()))

    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """int32[T] -> float32[T - 1], at temperature 1."""
        return self.policy.logprobs(token_ids).astype(np.float32)

    def save_model(self, folder: Path, dtype: str | None = None) -> None:
        """Write the weights in the form that ``setup`` loads; one rank does."""
        if self.ranks.rank == 0:
            self.policy.save(folder)
        self._meet()

    def save(self, folder: Path) -> None:
        """Write the number of the step; one rank does."""
        if self.ranks.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / STATE, steps=np.array(self.steps))
        self._meet()

    def load(self, folder: Path) -> None:
        """Read the number of the step; the weights come from ``context.model``."""
        with np.load(folder / STATE) as stored:
            self.steps = int(stored["steps"])

    @property
    def data_parallel(self) -> tuple[int, int]:
        """Every rank holds all weights."""
        return self.ranks.rank, self.ranks.size

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """The arrays of all ranks, by rank."""
        return self.ranks.gather(values)

    def close(self) -> None:
        """Leave the other ranks."""
        self.ranks.close()

    def _meet(self) -> None:
        self.ranks.gather(np.zeros(0))
