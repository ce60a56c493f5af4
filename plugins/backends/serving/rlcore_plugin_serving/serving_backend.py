"""An inference backend over a serving engine: the code that all such engines share. A specific engine is a ``ServingEngine``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from rlcore.api import (
    Bucket,
    Completion,
    ConfigError,
    FinishReason,
    InferenceBackend,
    InferenceContext,
    InFlight,
    Request,
    RunError,
    WeightsError,
    WeightsKind,
    WeightsManifest,
)
from rlcore_plugin_serving.adapter_rules import check_adapter
from rlcore_plugin_serving.checkpoint import HEAD, CheckpointShapes
from rlcore_plugin_serving.engine_sleep import EngineSleep
from rlcore_plugin_serving.incoming_weights import IncomingWeights
from rlcore_plugin_serving.partial_completions import NewTokens, PartialCompletion, seed_of
from rlcore_plugin_serving.serving_engine import EngineRequest, ServingEngine

__all__ = ["ServingBackend"]

_FINISHES = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORTED}


class ServingBackend(InferenceBackend):
    """An inference backend that passes requests and weights to an engine and returns its answers.

    New weights are collected in host memory while the old ones are served until ``finish_update``. Then requests continue, and each token
    carries the version that drew it (RESUME).

    A subclass for an engine sets ``who``, declares ``capabilities``, and passes the engine and the shapes of its model's tensors. Its
    ``unsupported`` refuses requests that the engine would sample differently than asked.
    """

    who = "the engine"
    """The engine's name in a sentence."""

    def __init__(self, context: InferenceContext, engine: ServingEngine, shapes: Mapping[str, tuple[int, ...]], *, tied: bool) -> None:
        self._context, self._engine = context, engine
        self._residence = EngineSleep(engine, self.who)
        self._shapes = dict(shapes)
        self._checkpoint = CheckpointShapes(shapes, tied=tied)
        self._answers: dict[str, PartialCompletion] = {}
        self._done: list[Completion] = []
        self._arriving: IncomingWeights | None = None
        self._torn = ""
        self._version = 0

    # --- requests ------------------------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests with the engine's scheduler. Raises RunError for an id that is in flight, and ConfigError for a request that
        cannot be served."""
        self._require_ready("take requests")
        known = set(self._answers) | {completion.request_id for completion in self._done}
        for request in requests:
            self._check(request, known)
            known.add(request.request_id)
        self._engine.add([self._ask(request) for request in requests])
        self._answers |= {request.request_id: PartialCompletion(request) for request in requests}

    def poll(self, timeout: float) -> list[Completion]:
        """Wait until a request finishes or ``timeout`` seconds have passed; return [] if nothing is in flight."""
        deadline = time.monotonic() + timeout
        while self._answers and not self._done:
            self._require_ready("generate")
            self._add(self._engine.take(max(0.0, deadline - time.monotonic())))
            if time.monotonic() >= deadline:
                break
        done, self._done = self._done, []
        return done

    def cancel(self, request_ids: Iterable[str]) -> None:
        """Drop requests; ``poll`` returns them as ABORTED with the tokens that they have."""
        names = [name for name in request_ids if name in self._answers]
        for name in names:
            self._answers[name].cancelled = True
        self._add(self._engine.abort(names))

    def score(self, token_ids: np.ndarray) -> np.ndarray:
        """int32[T] -> float32[T-1], by a separate request that bypasses the prefix cache; other requests continue meanwhile."""
        self._require_ready("score")
        ids = np.asarray(token_ids, np.int32)
        if len(ids) < 2:
            return np.zeros(0, np.float32)
        self._check_tokens(ids, "the sequence to score")
        if len(ids) > self._context.max_tokens:
            raise ConfigError(
                f"the sequence to score has {len(ids)} tokens, but prompt and response together may have only {self._context.max_tokens}"
            )
        return self._engine.score(ids.tolist())

    def unsupported(self, request: Request) -> str:
        """Return the part of the request that the engine does not support, and what to type instead; "" if it supports all of it."""
        return ""

    # --- weights -------------------------------------------------------------------------------------------------------

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        """Begin to collect a version while the old one is served.

        Raises WeightsError if the manifest does not fit the model; the engine then continues as before.
        """
        if self._residence.asleep:
            raise RunError(f"{self.who} sleeps and takes no weights: call wake() first")
        if manifest.kind is WeightsKind.ADAPTER and manifest.kind in self.capabilities.kinds:
            check_adapter(version, manifest, self._shapes, model=self._context.model, most=self._context.adapter_rank)
        else:
            self._checkpoint.check(version, manifest)
        self._arriving = IncomingWeights(version, manifest)

    def receive(self, bucket: Bucket) -> None:
        """Copy a bucket's tensors."""
        self._under_way().take(bucket)

    def finish_update(self) -> int:
        """Load the weights into the engine, drop all keys and values of the old ones, and serve. Raises WeightsError if one did not
        come."""
        incoming, self._arriving = self._under_way(), None
        tensors = incoming.whole()
        if incoming.manifest.kind is WeightsKind.FULL and (embedding := self._checkpoint.head_of) is not None:
            incoming.repeat(HEAD, embedding)  # an engine may keep a copy for its head, which would not be updated
            if HEAD in tensors and not torch.equal(_bits(tensors[HEAD]), _bits(tensors[embedding])):  # bits: NaN is not equal to itself
                raise WeightsError(f"version {incoming.version}: tensor {HEAD!r} is not {embedding!r}, but the model ties the two")
        self._tear(incoming.version)
        self._load(incoming)
        return self._serve(incoming.version)

    def _load(self, incoming: IncomingWeights) -> None:
        """Write a whole version over the old one."""
        self._engine.load(incoming)

    def _tear(self, version: int) -> None:
        """Mark the weights as incomplete until an update has finished, and pause the engine."""
        self._torn = f"holds an unfinished version {version} of the weights"
        self._engine.pause()

    def _serve(self, version: int) -> int:
        self._engine.serve(version)
        self._torn, self._version = "", version
        return version

    # --- the device ----------------------------------------------------------------------------------------------------

    def sleep(self, level: int = 1) -> None:
        """Release the GPU; keys and values are lost. Raises RunError with requests in flight, and NotImplementedError if the engine
        cannot sleep."""
        if not self.capabilities.sleeps:
            super().sleep(level)
        if self._answers or self._done:
            raise RunError(f"{self.who} cannot sleep with {len(self._answers) + len(self._done)} requests in flight")
        self._residence.begin(level)
        self._arriving, self._torn = None, "sleeps, or has just woken,"

    def wake(self) -> None:
        """Take back the memory of the weights; an update then brings their values."""
        if not self.capabilities.sleeps:
            super().wake()
        self._residence.wake_weights()

    def wake_cache(self) -> None:
        """Take back the memory of keys and values."""
        self._residence.wake_cache()

    def close(self) -> None:
        """End the engine; requests in flight are discarded."""
        self._answers, self._done = {}, []
        self._engine.end()

    # --- small parts ---------------------------------------------------------------------------------------------------

    def _add(self, parts: Sequence[NewTokens]) -> None:
        """Add new tokens to their answers. Raises RunError, once all are added, if one cannot be used.

        An answer that a stop string has ended takes no more tokens, and waits until the engine has dropped it. If the engine withdraws the
        tokens with that string, the request is sent again.
        """
        stopped, again, wrong = [], [], ""
        for part in parts:
            answer = self._answers.get(part.name)
            if answer is None:
                continue
            if answer.add(part, self._context.tokenizer) and not part.finish:
                answer.dropped = True
                stopped.append(part.name)
            if part.finish == "abort" and answer.dropped and not answer.stopped and not answer.cancelled:
                answer.dropped = False
                again.append(self._ask(answer.request).after(answer.tokens))
            elif part.finish:
                wrong = self._complete(part.name, "stop" if answer.stopped else part.finish) or wrong
        if again:
            self._engine.add(again)
        if stopped:
            self._add(self._engine.abort(stopped))
        if wrong:
            raise RunError(wrong)

    def _complete(self, name: str, finish: str) -> str:
        """Keep a completion for ``poll``; return a sentence if it cannot be used."""
        answer = self._answers.pop(name)
        if finish not in _FINISHES:
            return f"request {name}: {self.who} ended it with {finish!r}, and its log says why"
        # The engine may have completed an answer before it received the cancellation.
        completion = answer.completion(FinishReason.ABORTED if answer.cancelled else _FINISHES[finish])
        if not np.isfinite(completion.logprobs).all():
            return f"request {name}: the model of version {self._version} gives logits that are not finite; training diverged"
        self._done.append(completion)
        return ""

    def _ask(self, request: Request) -> EngineRequest:
        stops = self._context.tokenizer.stop_ids
        return EngineRequest(
            name=request.request_id,
            token_ids=tuple(request.token_ids.tolist()),
            sampling=request.sampling,
            seed=seed_of(request.noise),
            max_tokens=min(request.sampling.max_new_tokens, self._context.max_tokens - len(request.token_ids)),
            stop_token_ids=tuple(sorted(token for token in stops if 0 <= token < self._engine.vocabulary)),
            rollout=(*request.noise[:3], request.noise[3] & 0xFFFFFFFF),  # the rest is the number of the turn
        )

    def _check(self, request: Request, known: set[str]) -> None:
        ids, name = request.token_ids, f"request {request.request_id}"
        if request.request_id in known:
            raise RunError(f"{name} is in flight already; a request id is used once")
        if not len(ids):
            raise ConfigError(f"{name} has no context; the chat template must give at least one token")
        if len(ids) >= self._context.max_tokens:
            raise ConfigError(
                f"{name}: its context has {len(ids)} tokens, but prompt and response together may have only {self._context.max_tokens}; "
                "raise --max-prompt-tokens or --max-new-tokens"
            )
        self._check_tokens(ids, name)
        if problem := self.unsupported(request):
            raise ConfigError(f"{name}: {problem}")
        if request.sampling.max_new_tokens < 1 or "" in request.sampling.stop:
            raise ConfigError(f"{name}: max_new_tokens must be at least 1 and stop strings must not be empty, got {request.sampling}")

    def _check_tokens(self, ids: np.ndarray, name: str) -> None:
        outside = ids[(ids < 0) | (ids >= self._engine.vocabulary)]
        if len(outside):
            raise ConfigError(
                f"{name}: token {int(outside[0])} is not one of the model's {self._engine.vocabulary}; use the tokenizer that belongs to "
                "the model"
            )

    def _under_way(self) -> IncomingWeights:
        if self._arriving is None:
            raise RunError(f"no update of {self.who} has begun: call begin_update first")
        return self._arriving

    def _require_ready(self, doing: str) -> None:
        """Raise RunError if there are no whole weights, or no memory for keys and values."""
        if self._torn:
            raise RunError(f"the engine {self._torn} and cannot {doing}; update its weights first")
        self._residence.require_cache(doing)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)
