"""Adapters over a tiny model, and what every serving engine that takes them must do with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rlcore.api import InferenceBackend, Snapshot, Tensor, WeightsError, WeightsKind
from rlcore.testing import update_engine

__all__ = ["RANK", "SEQUENCE", "adapters_over", "check_misfits_are_refused", "check_swaps_under_running_requests", "scores"]

RANK, ALPHA = 9, 12.0
TOLERANCE = 1e-4
SEQUENCE = np.arange(3, 30, dtype=np.int32)


def adapters_over(model: Callable[[int], Any], folder: str, targets: tuple[str, ...]) -> Callable[..., tuple[Snapshot, Any]]:
    """A function that makes a version and the model that serves it merged: ``adapter(3, over=1)``, over the weights of seed 1."""

    def make(version: int, *, over: int = 0, **said: str):
        merged, draw, tensors = deepcopy(model(over)), torch.Generator().manual_seed(version), {}
        for name, layer in merged.named_modules():
            if name.endswith(targets):
                rows, columns = layer.weight.shape
                low, high = torch.randn(RANK, columns, generator=draw) * 0.1, torch.randn(rows, RANK, generator=draw) * 0.1
                with torch.no_grad():
                    layer.weight += high @ low * (ALPHA / RANK)
                for letter, matrix in (("A", low), ("B", high)):
                    stem = f"base_model.model.{name}.lora_{letter}.weight"
                    tensors[stem] = Tensor(dtype="float32", shape=tuple(matrix.shape), data=matrix.numpy())
        config = json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": list(targets), "bias": "none"})
        extra = {"config": config, "base": folder} | said
        return replace(Snapshot.of(version, tensors), kind=WeightsKind.ADAPTER, extra=extra), merged

    return make


@torch.inference_mode()
def scores(model: Any, token_ids: Any) -> np.ndarray:
    ids = torch.tensor(np.asarray(token_ids), dtype=torch.int64)
    return model(input_ids=ids[None]).logits[0, :-1].double().log_softmax(-1).gather(1, ids[1:, None])[:, 0].numpy()


def check_swaps_under_running_requests(engine: InferenceBackend, adapter: Any, snapshot: Any, model: Any, ask: Any) -> None:
    """Version 10 is the model; then adapters, whole weights, and an adapter over these. Each token is of its version's weights."""
    assert engine.capabilities.kinds == {"full", "adapter"}
    update_engine(engine, snapshot(10, seed=0))
    served = {10: model(0), 13: model(1)}
    sent = {13: snapshot(13, seed=1)}
    for version, over in ((11, 0), (12, 0), (14, 1)):
        sent[version], served[version] = adapter(version, over=over)
    requests = [ask(f"r{n}", [3, 5, 4 + n], noise=n, max_new_tokens=300) for n in range(4)]
    engine.submit(requests)
    answers = {}
    for version in range(11, 15):
        answers |= {completion.request_id: completion for completion in engine.poll(0.05)}
        assert update_engine(engine, sent[version]) == version
        np.testing.assert_allclose(engine.score(SEQUENCE), scores(served[version], SEQUENCE), atol=1e-5)
    while len(answers) < len(requests):
        answers |= {completion.request_id: completion for completion in engine.poll(1.0)}
    for request in requests:
        answer = answers[request.request_id]
        assert len(set(answer.versions.tolist())) > 2
        rows = {version: scores(one, [*request.token_ids, *answer.token_ids])[2:] for version, one in served.items()}
        expected = np.array([rows[version][place] for place, version in enumerate(answer.versions.tolist())])
        assert np.abs(expected - answer.logprobs).max() <= TOLERANCE


def check_misfits_are_refused(engine: InferenceBackend, adapter: Any, folder: str) -> None:
    """By name, and the engine goes on as before."""
    before, (good, _) = engine.score(SEQUENCE), adapter(1)
    name = next(iter(good.tensors))
    bare = {stem: tensor for stem, tensor in good.tensors.items() if stem != name}
    low = good.tensors[name]
    broad = replace(low, shape=(RANK + 1, low.shape[1]), data=np.zeros((RANK + 1, low.shape[1]), np.float32))
    head = "base_model.model.model.norm.lora_A.weight"
    for spoilt, said in (
        (adapter(1, base="another")[0], f"over model 'another', but the engine was loaded from '{folder}'"),
        (adapter(1, config='{"r": 10}')[0], "of rank 10, but the engine was created for rank 9"),
        (adapter(1, config="rank 9")[0], "is not PEFT's adapter_config.json: 'rank 9'"),
        (replace(good, tensors=bare), f"lacks '{name}'"),
        (replace(good, tensors={**bare, name: broad}), rf"'{name}' is float32 \[10, 64\]; it must be a float of \[9, 64\]"),
        (replace(good, tensors={**good.tensors, head: low}), f"'{head}', which belongs to no matrix of the model"),
    ):
        with pytest.raises(WeightsError, match=said):
            update_engine(engine, spoilt)
        np.testing.assert_array_equal(engine.score(SEQUENCE), before)
