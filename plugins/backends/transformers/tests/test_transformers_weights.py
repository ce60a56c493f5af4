"""Weights that do not fit are refused before anything is touched; what breaks off on the way leaves an engine that refuses work."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from rlcore.api import InFlight, RunError, Sampling, Snapshot, Tensor, WeightsError, WeightsKind
from rlcore.testing import update_engine

TENSOR = "model.layers.1.mlp.up_proj.weight"


def weights_of(engine):
    return {name: value.to("cpu", copy=True) for name, value in engine._model.state_dict().items()}


def broken(snapshot: Snapshot, how: str) -> Snapshot:
    tensors = dict(snapshot.tensors)
    whole = tensors[TENSOR]
    if how == "absent":
        del tensors[TENSOR]
    elif how == "unknown":
        tensors["model.extra"] = whole
    elif how == "shape":
        tensors[TENSOR] = dataclasses.replace(whole, shape=whole.shape[::-1])
    elif how == "dtype":
        tensors[TENSOR] = dataclasses.replace(whole, dtype="int4")
    elif how == "data":
        tensors[TENSOR] = dataclasses.replace(whole, data=whole.data[:1])
    elif how == "untied":
        tensors["lm_head.weight"] = dataclasses.replace(tensors["lm_head.weight"], data=tensors["lm_head.weight"].data + 1)
    return Snapshot.of(snapshot.version, tensors)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("absent", "'model.layers.1.mlp.up_proj.weight' of the model was not sent"),
        ("unknown", "no tensor 'model.extra'"),
        ("shape", r"'model.layers.1.mlp.up_proj.weight' has shape \(64, 96\)"),
        ("dtype", "'model.layers.1.mlp.up_proj.weight' has dtype 'int4'"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused_by_tensor_and_changes_nothing(qwen2, backend, plain, snapshot_of, how, words):
    engine = backend(qwen2)
    before = weights_of(engine)
    with pytest.raises(WeightsError, match=words):
        update_engine(engine, broken(snapshot_of(plain(qwen2), 4, shift=0.1), how))
    assert all(torch.equal(value, before[name]) for name, value in weights_of(engine).items())
    engine.submit([])
    assert engine._version == 0


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("data", "'model.layers.1.mlp.up_proj.weight' carries 64 values"),
        ("untied", r"model.embed_tokens.weight and lm_head.weight are one tensor in the model and were sent unequal"),
    ],
)
@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_a_bucket_that_does_not_fit_is_refused_by_tensor_and_leaves_an_engine_that_refuses_work(
    qwen2, backend, plain, prompts, requests_of, drain, snapshot_of, how, words, max_bytes
):
    engine, model = backend(qwen2), plain(qwen2)
    engine.submit(requests_of(prompts([5]), [2], Sampling(max_new_tokens=6)))
    engine.poll(0.0)
    with pytest.raises(WeightsError, match=words):
        update_engine(engine, broken(snapshot_of(model, 4, shift=0.1), how), max_bytes)
    calls = (
        lambda: engine.submit(requests_of(prompts([5]), [2], Sampling(), name="more-")),
        lambda: engine.score(prompts([5])[0]),
        lambda: engine.poll(0.0),
    )
    for call in calls:
        with pytest.raises(RunError, match=r"holds an unfinished version 4 of the weights and cannot .*; update its weights first"):
            call()
    update_engine(engine, snapshot_of(model, 5))
    assert len(drain(engine)) == 2
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(engine).items())


def test_a_tied_head_that_is_sent_twice_is_taken_from_two_buckets_even_if_it_is_not_a_number(qwen2, backend, plain, snapshot_of):
    engine, model = backend(qwen2), plain(qwen2)
    with torch.no_grad():
        model.lm_head.weight[0, 0] = torch.nan
    assert update_engine(engine, snapshot_of(model, 1), max_bytes=1) == 1
    assert torch.isnan(engine._model.lm_head.weight[0, 0])


def test_an_adapter_is_refused_by_its_kind(qwen2, backend, plain, snapshot_of):
    engine, manifest = backend(qwen2), snapshot_of(plain(qwen2), 1).manifest()
    with pytest.raises(WeightsError, match="version 1 is of kind adapter; this backend takes whole weights"):
        engine.begin_update(1, dataclasses.replace(manifest, kind=WeightsKind.ADAPTER), InFlight.RESUME)
    engine.submit([])


def test_a_tied_head_may_be_left_out(qwen2, backend, plain, snapshot_of):
    engine, model = backend(qwen2), plain(qwen2)
    sent = snapshot_of(model, 2, shift=0.1)
    update_engine(engine, Snapshot.of(2, {name: tensor for name, tensor in sent.tensors.items() if name != "lm_head.weight"}))
    assert torch.equal(engine._model.lm_head.weight.cpu(), model.lm_head.weight)


def test_an_own_head_must_be_sent(llama, backend, plain, snapshot_of):
    engine = backend(llama)
    sent = snapshot_of(plain(llama), 2, shift=0.1)
    with pytest.raises(WeightsError, match=r"lm_head\.weight"):
        update_engine(engine, Snapshot.of(2, {name: tensor for name, tensor in sent.tensors.items() if name != "lm_head.weight"}))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bfloat16_travels_as_uint16_into_either_dtype(qwen2, backend, plain, dtype):
    engine, model = backend(qwen2, dtype=dtype), plain(qwen2).to(torch.bfloat16)
    tensors = {}
    for name, value in model.state_dict().items():
        data = value.view(torch.uint16).numpy().copy()
        data.setflags(write=False)
        tensors[name] = Tensor(dtype="bfloat16", shape=tuple(value.shape), data=data)
    update_engine(engine, Snapshot.of(1, tensors))
    expected = model.state_dict()
    assert all(torch.equal(value.cpu().to(torch.bfloat16), expected[name]) for name, value in engine._model.state_dict().items())


def test_the_arrays_of_a_snapshot_are_not_kept(qwen2, backend, plain, snapshot_of):
    engine = backend(qwen2)
    sent = snapshot_of(plain(qwen2), 1)
    update_engine(engine, sent)
    for tensor in sent.tensors.values():
        tensor.data[...] = np.nan
    assert all(torch.isfinite(value).all() for value in weights_of(engine).values())
