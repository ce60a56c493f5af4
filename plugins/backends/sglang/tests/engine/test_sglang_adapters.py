"""Adapters in an engine: swapped by name under requests that run, over whole weights that came before, refused by name, torn if a swap
fails. Every rule of an engine is kept with adapters too: ``TestAdapters`` in test_sglang_conforms, nightly."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from rlcore_plugin_sglang.options import SglangOptions
from rlcore_plugin_sglang.owned_engine import OwnedEngine
from rlcore_plugin_sglang.sglang_backend import SglangBackend

from rlcore.api import InferenceContext, RunError, Snapshot, Tensor, WeightsError, WeightsKind
from rlcore.testing import FakeTokenizer, update_engine

ENDLESS = FakeTokenizer()
ENDLESS.stop_ids = frozenset()
RANK, ALPHA = 9, 12.0
TOLERANCE = 1e-4
SEQUENCE = np.arange(3, 30, dtype=np.int32)
TARGETS = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")
"""Some of those that SGLang computes as one: of queries, keys and values, and of gate and up."""


@pytest.fixture
def adapted(folder):
    """A function that makes engines for adapters, which end with the test: ``adapted(own_process=True)``."""
    made = []

    def make(*, rank: int = RANK, tensor_parallel: int = 1, **options):
        context = InferenceContext(
            model=folder,
            tokenizer=ENDLESS,
            prompts_per_forward=8,
            max_tokens=900,
            device="cpu",
            tensor_parallel=tensor_parallel,
            adapter_rank=rank,
        )
        made.append(SglangBackend(context, SglangOptions(**options)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def adapter(model, folder):
    """A function that makes a version and the model that serves it merged: ``adapter(3, over=1)``, over the weights of seed 1."""

    def make(version: int, *, over: int = 0, **said: str):
        merged, draw, tensors = deepcopy(model(over)), torch.Generator().manual_seed(version), {}
        for name, layer in merged.named_modules():
            if name.endswith(TARGETS):
                rows, columns = layer.weight.shape
                low, high = torch.randn(RANK, columns, generator=draw) * 0.1, torch.randn(rows, RANK, generator=draw) * 0.1
                with torch.no_grad():
                    layer.weight += high @ low * (ALPHA / RANK)
                for letter, matrix in (("A", low), ("B", high)):
                    stem = f"base_model.model.{name}.lora_{letter}.weight"
                    tensors[stem] = Tensor(dtype="float32", shape=tuple(matrix.shape), data=matrix.numpy())
        config = json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": list(TARGETS), "bias": "none"})
        extra = {"config": config, "base": folder} | said
        return replace(Snapshot.of(version, tensors), kind=WeightsKind.ADAPTER, extra=extra), merged

    return make


@torch.inference_mode()
def scores(model, token_ids) -> np.ndarray:
    ids = torch.tensor(np.asarray(token_ids), dtype=torch.int64)
    return model(input_ids=ids[None]).logits[0, :-1].double().log_softmax(-1).gather(1, ids[1:, None])[:, 0].numpy()


def fails_at(order, what: str):
    def ordered(engine, method: str, *arguments):
        if method == what:
            raise RunError("no room")
        return order(engine, method, *arguments)

    return ordered


@pytest.mark.parametrize("form", [{}, pytest.param({"tensor_parallel": 2}, marks=pytest.mark.nightly)], ids=["alone", "split"])
def test_adapters_are_swapped_under_running_requests_and_over_whole_weights(form, adapted, adapter, snapshot, model, ask):
    """Version 0 is the model; then adapters, whole weights, and an adapter over these. Each token is of its version's weights."""
    engine = adapted(**form)
    assert engine.capabilities.kinds == {"full", "adapter"}
    served = {0: model(0), 3: model(1)}
    sent = {3: snapshot(3, seed=1)}
    for version, over in ((1, 0), (2, 0), (4, 1)):
        sent[version], served[version] = adapter(version, over=over)
    requests = [ask(f"r{n}", [3, 5, 4 + n], noise=n, max_new_tokens=300) for n in range(4)]
    engine.submit(requests)
    answers = {}
    for version in range(1, 5):
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


def test_an_adapter_that_does_not_fit_is_refused_by_name_and_one_that_fails_tears_the_engine(adapted, adapter, folder, monkeypatch):
    engine, (good, merged) = adapted(), adapter(1)
    before = engine.score(SEQUENCE)
    name = next(iter(good.tensors))
    bare = {stem: tensor for stem, tensor in good.tensors.items() if stem != name}
    low = good.tensors[name]
    broad = replace(low, shape=(RANK + 1, low.shape[1]), data=np.zeros((RANK + 1, low.shape[1]), np.float32))
    head = "base_model.model.model.norm.lora_A.weight"
    for spoilt, said in (
        (adapter(1, base="another")[0], f"over model 'another', and the engine was loaded from '{folder}'"),
        (adapter(1, config='{"r": 10}')[0], "of rank 10, and the engine was made for rank 9"),
        (adapter(1, config="rank 9")[0], "is no adapter_config.json of PEFT: 'rank 9'"),
        (replace(good, tensors=bare), f"lacks '{name}'"),
        (replace(good, tensors={**bare, name: broad}), rf"'{name}' is float32 \[10, 64\]; a float of \[9, 64\] is due"),
        (replace(good, tensors={**good.tensors, head: low}), f"'{head}', which belongs to no matrix of the model"),
    ):
        with pytest.raises(WeightsError, match=said):
            update_engine(engine, spoilt)
        np.testing.assert_array_equal(engine.score(SEQUENCE), before)
    with monkeypatch.context() as broken:
        broken.setattr(OwnedEngine, "_order", fails_at(OwnedEngine._order, "load_adapter"))
        with pytest.raises(WeightsError, match="version 1: no room"):
            update_engine(engine, good)
    with pytest.raises(RunError, match="holds an unfinished version 1 of the weights and cannot score"):
        engine.score(SEQUENCE)
    update_engine(engine, replace(good, version=2))
    np.testing.assert_allclose(engine.score(SEQUENCE), scores(merged, SEQUENCE), atol=1e-5)


@pytest.mark.nightly
def test_an_engine_that_no_adapter_comes_to_takes_whole_weights_alone(backend, adapter):
    engine = backend()
    assert engine.capabilities.kinds == {"full"}
    with pytest.raises(WeightsError, match=r"version 1 is of kind adapter, and SglangBackend takes full \(capabilities.kinds\)"):
        update_engine(engine, adapter(1)[0])
