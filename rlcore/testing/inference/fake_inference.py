"""An inference backend in numpy: it generates in steps, takes weights meanwhile, and draws with counter-based noise.

It decodes one token of every running request a step, ``steps_per_poll`` steps a poll. A request that runs while the weights change
is finished on the old ones, resumed on the new ones, or aborted, as the option ``in_flight`` says.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.contracts.errors import ConfigError, RunError
from rlcore.contracts.interfaces import InferenceBackend, InferenceContext
from rlcore.contracts.snapshots import Bucket, WeightsKind, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, FinishReason, Request, TokenDetails
from rlcore.testing.fake_plugin import FAKE_INFERENCE
from rlcore.testing.inference.fake_sampling import draw, kept_tokens, noise_stream
from rlcore.testing.phases import note_phase
from rlcore.testing.policy import ComingPolicy, FakePolicy

__all__ = ["FakeInference", "FakeInferenceOptions", "fake_experts"]


class FakeInferenceOptions(BaseModel):
    """Options of the ``fake`` inference backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps_per_poll: int = Field(default=4, ge=1, description="Decode steps of every running request in one poll.")
    in_flight: InFlight = Field(default=InFlight.FINISH, description="How running requests are treated when the weights change.")
    tells: bool = Field(default=False, description="Whether each token comes with the ids that it was drawn from, and with experts.")
    phases: str = Field(default="", description="File that gets a line when the engine sleeps, wakes, takes weights or generates.")
    continues: bool = Field(default=False, description="Whether an answer that was aborted can be gone on with.")


@dataclass
class Running:
    """A request, the tokens drawn for it so far, and the weights that they were drawn from."""

    request: Request
    policy: FakePolicy
    version: int
    limit: int
    stream: np.random.Generator
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    kept: list[np.ndarray] = field(default_factory=list)
    experts: list[np.ndarray] = field(default_factory=list)

    def completion(self, finish: FinishReason) -> Completion:
        """Return the tokens so far as a completion."""
        return Completion(
            request_id=self.request.request_id,
            token_ids=np.array(self.tokens, np.int32),
            logprobs=np.array(self.logprobs, np.float32),
            versions=np.array(self.versions, np.int32),
            finish=finish,
            details=self._details(),
        )

    def _details(self) -> TokenDetails | None:
        if not self.kept:
            return None
        offsets = np.cumsum([0, *map(len, self.kept)])
        return TokenDetails(kept_ids=np.concatenate(self.kept), kept_offsets=offsets, experts=np.stack(self.experts))


def fake_experts(before: int, token: int) -> np.ndarray:
    """Return int16[2, 2]: the experts, of eight, that two layers without weights would choose for a token behind another one."""
    return np.array([[before % 8, token % 8], [(before + token) % 8, (before * 3 + 1) % 8]], np.int16)


class FakeInference(InferenceBackend):
    """InferenceBackend over a FakePolicy that it loads from ``context.model`` (a folder of ``write_fake_model``)."""

    capabilities = FAKE_INFERENCE

    def __init__(self, context: InferenceContext, options: FakeInferenceOptions | None = None) -> None:
        self.context = context
        self.options = options if options is not None else FakeInferenceOptions()
        told = frozenset({"kept", "experts"} if self.options.tells else ())
        in_flight, continues = self.options.in_flight, self.options.continues
        self.capabilities = replace(type(self).capabilities, in_flight=in_flight, continues=continues, details=told)
        self._policy = FakePolicy.load(context.model)
        self._base: FakePolicy | None = self._policy
        self._version = 0
        self._coming: ComingPolicy | None = None
        self._awake = True
        self._fresh = True
        self._waiting: deque[Request] = deque()
        self._running: dict[str, Running] = {}
        self._finished: list[Completion] = []

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests; RunError for an id in use, ConfigError for a context that leaves no room for a token."""
        self._require_weights()
        known = {request.request_id for request in self._waiting} | set(self._running)
        for request in requests:
            if request.request_id in known:
                raise RunError(f"request {request.request_id!r} is in flight already")
            if len(request.token_ids) >= self.context.max_tokens:
                raise ConfigError(
                    f"request {request.request_id!r} has {len(request.token_ids)} tokens, the bound is {self.context.max_tokens}"
                )
            known.add(request.request_id)
        self._waiting.extend(requests)

    def poll(self, timeout: float) -> list[Completion]:
        """Decode ``steps_per_poll`` steps, and on until something has finished or ``timeout`` seconds have passed."""
        self._require_weights()
        if self._waiting:
            note_phase(self.options.phases, "engine generates")
        deadline = time.monotonic() + timeout
        while self._waiting or self._running:
            for _ in range(self.options.steps_per_poll):
                self._admit()
                self._step()
            if self._finished or time.monotonic() >= deadline:
                break
        finished, self._finished = self._finished, []
        return finished

    def cancel(self, request_ids: Iterable[str]) -> None:
        """Drop requests; each comes back as ABORTED with the tokens it has."""
        dropped = set(request_ids)
        for request in [request for request in self._waiting if request.request_id in dropped]:
            self._waiting.remove(request)
            self._finished.append(self._start(request).completion(FinishReason.ABORTED))
        for request_id in [request_id for request_id in self._running if request_id in dropped]:
            self._finished.append(self._running.pop(request_id).completion(FinishReason.ABORTED))

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        """Collect a version beside the one that is served; one that broke off before is forgotten. RunError while it sleeps."""
        if not self._awake:
            raise RunError("the fake engine sleeps and takes no weights: call wake() first")
        self._coming = ComingPolicy(self._policy, version, manifest, self._base, self._version)
        note_phase(self.options.phases, "engine takes weights")

    def receive(self, bucket: Bucket) -> None:
        """Copy the bucket's tensors."""
        self._update_under_way().take(bucket)

    def finish_update(self) -> int:
        """Swap the weights; WeightsError, the old ones still served, if a tensor did not come."""
        coming, self._coming = self._update_under_way(), None
        self._policy = coming.whole()
        if coming.kind is not WeightsKind.ADAPTER:
            self._base = self._policy
        self._version = coming.version
        self._fresh = True
        self._on_new_weights()
        return self._version

    def score(self, token_ids: np.ndarray) -> np.ndarray:
        """Return log probabilities: int32[T] -> float32[T - 1], at temperature 1, on the weights now served."""
        self._require_weights()
        return self._policy.logprobs(token_ids).astype(np.float32)

    def sleep(self, level: int = 1) -> None:
        """Refuse work until ``wake`` and an update, at level 2 of whole weights; RunError with requests in flight."""
        if self._waiting or self._running:
            raise RunError(f"the fake engine was put to sleep with {len(self._waiting) + len(self._running)} requests in flight")
        self._awake = self._fresh = False
        self._base = self._base if level == 1 else None
        note_phase(self.options.phases, f"engine sleeps at level {level}")

    def wake(self) -> None:
        """Take weights again."""
        self._awake = True
        note_phase(self.options.phases, "engine wakes for weights")

    def wake_cache(self) -> None:
        """Do nothing: there is no cache."""
        note_phase(self.options.phases, "engine wakes for its cache")

    def close(self) -> None:
        """Forget every request."""
        self._waiting.clear()
        self._running.clear()
        self._finished.clear()

    def _require_weights(self) -> None:
        if not (self._awake and self._fresh):
            raise RunError("the fake engine sleeps: call wake() and update its weights first")

    def _update_under_way(self) -> ComingPolicy:
        if self._coming is None:
            raise RunError("no update of the fake engine has begun: call begin_update first")
        return self._coming

    def _on_new_weights(self) -> None:
        """Let running requests keep their own weights (finish), take the new ones (resume), or abort them, as the options say."""
        if self.options.in_flight is InFlight.ABORT:
            self.cancel([*self._running, *(request.request_id for request in self._waiting)])
        elif self.options.in_flight is InFlight.RESUME:
            for running in self._running.values():
                running.policy, running.version = self._policy, self._version

    def _start(self, request: Request) -> Running:
        limit = min(request.sampling.max_new_tokens, self.context.max_tokens - len(request.token_ids))
        stream = noise_stream(request.noise)
        stream.random(request.continued)  # the numbers of the tokens that it goes on from
        return Running(request, self._policy, self._version, limit, stream)

    def _admit(self) -> None:
        """Start waiting requests in order while no more than ``prompts_per_forward`` different prompts run."""
        prompts = {running.request.token_ids.tobytes() for running in self._running.values()}
        while self._waiting:
            prompts.add(self._waiting[0].token_ids.tobytes())
            if len(prompts) > self.context.prompts_per_forward:
                return
            request = self._waiting.popleft()
            self._running[request.request_id] = self._start(request)

    def _step(self) -> None:
        """Draw one token for each running request."""
        for request_id, running in list(self._running.items()):
            sampling = running.request.sampling
            context = np.concatenate([running.request.token_ids[-2:], np.array(running.tokens[-2:], np.int32)])[-2:]
            logits = running.policy.logits(context)[-1]
            if not np.isfinite(logits).all():
                raise RunError(f"request {request_id!r}: weights of version {running.version} give logits that are not finite")
            token, logprob = draw(logits, sampling, running.stream.random())
            if self.options.tells:
                running.kept.append(kept_tokens(logits, sampling))
                running.experts.append(fake_experts(int(context[-1]), token))
            running.tokens.append(token)
            running.logprobs.append(logprob)
            running.versions.append(running.version)
            finish = self._ended(running)
            if finish is not None:
                self._finished.append(self._running.pop(request_id).completion(finish))

    def _ended(self, running: Running) -> FinishReason | None:
        if running.tokens[-1] in self.context.tokenizer.stop_ids:
            return FinishReason.STOP
        stop, request = running.request.sampling.stop, running.request
        kept = request.token_ids[len(request.token_ids) - request.continued :].tolist()
        if stop and any(string in self.context.tokenizer.decode(kept + running.tokens) for string in stop):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(running.tokens) >= running.limit else None
