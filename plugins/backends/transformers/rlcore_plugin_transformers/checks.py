"""The engine's refusals: a request that it cannot serve, and a model that its decode loop would compute incorrectly."""

from __future__ import annotations

from collections.abc import Container, Mapping

import numpy as np
import torch

from rlcore.api import ConfigError, InferenceBackend, InferenceContext, Request, RunError, Sampling

__all__ = ["check_decoding", "check_request"]

_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
# Largest gap in nats between the decode loop and a plain forward pass of one model: 2e-5 was seen in fp32, a few 1e-2 in bf16.


def check_request(request: Request, known: Container[str], *, max_tokens: int, vocabulary: int) -> None:
    """Raise RunError for an id that is in ``known``, and ConfigError for a context or sampling that cannot be served."""
    ids, name = request.token_ids, f"request {request.request_id}"
    if request.request_id in known:
        raise RunError(f"{name} is in flight already; a request id is used once")
    if not len(ids):
        raise ConfigError(f"{name} has no context; the chat template must give at least one token")
    if len(ids) >= max_tokens:
        raise ConfigError(
            f"{name}: its context has {len(ids)} tokens, but prompt and response together may have only {max_tokens}; "
            "raise --max-prompt-tokens or --max-new-tokens"
        )
    outside = ids[(ids < 0) | (ids >= vocabulary)]
    if len(outside):
        raise ConfigError(
            f"{name}: token {int(outside[0])} is not one of the model's {vocabulary}; use the tokenizer that belongs to the model"
        )
    if request.sampling.max_new_tokens < 1 or "" in request.sampling.stop:
        raise ConfigError(f"{name}: max_new_tokens must be at least 1 and stop strings must not be empty, got {request.sampling}")


def check_decoding(backend: InferenceBackend, context: InferenceContext, vocabulary: int, kind: str, window: int | None = None) -> None:
    """Decode three tokens of two prompts of different lengths and compare with a plain forward pass.

    Raises ConfigError for a model that needs another loop. One of the prompts is longer than ``window``, the sliding window of the model.
    Call this before the stop tokens are set, so that both prompts run to full length.
    """
    if context.max_tokens < 8:
        return
    sizes = (2, 5 if window is None else min(window + 2, context.max_tokens - 3))
    prompts = {f"check-{size}": np.arange(size) % vocabulary for size in sizes}
    try:
        gap = _largest_gap(backend, prompts)
    except torch.OutOfMemoryError:
        raise
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(_unserved(context, kind, f"decoding fails with {type(error).__name__}: {error}")) from error
    if not gap <= _TOLERANCE[context.dtype]:
        why = f"its log probabilities differ by {gap:.3g} nats between decoding and a plain forward pass"
        raise ConfigError(_unserved(context, kind, why))


def _unserved(context: InferenceContext, kind: str, why: str) -> str:
    return f"model {context.model!r} ({kind}) is not supported by the transformers backend: {why}; use another backend"


def _largest_gap(backend: InferenceBackend, prompts: Mapping[str, np.ndarray]) -> float:
    sampling = Sampling(temperature=0.0, max_new_tokens=3)
    backend.submit([Request(request_id=name, token_ids=ids, sampling=sampling) for name, ids in prompts.items()])
    gap = 0.0
    while completions := backend.poll(60.0):
        for completion in completions:
            start = len(prompts[completion.request_id])
            scored = backend.score(np.concatenate([prompts[completion.request_id], completion.token_ids]))[start - 1 :]
            gap = max(gap, float(np.abs(scored - completion.logprobs).max()))
    return gap
