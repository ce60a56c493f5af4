"""A snapshot is loaded whole or not at all, and what is wrong with it is named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from rlcore.api import Snapshot, Tensor, WeightsError

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
    sealed = Snapshot.of(snapshot.version, tensors)
    if how == "damaged":
        tensors[TENSOR] = dataclasses.replace(whole, data=whole.data + 1)
        return dataclasses.replace(sealed, tensors=tensors)
    return sealed


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("absent", "'model.layers.1.mlp.up_proj.weight' of the model was not sent"),
        ("unknown", "no tensor 'model.extra'"),
        ("shape", r"'model.layers.1.mlp.up_proj.weight' has shape \(64, 96\)"),
        ("dtype", "'model.layers.1.mlp.up_proj.weight' has dtype 'int4'"),
        ("data", "'model.layers.1.mlp.up_proj.weight' carries 64 values"),
        ("untied", "lm_head.weight are one tensor"),
        ("damaged", "'model.layers.1.mlp.up_proj.weight' has another checksum"),
    ],
)
def test_a_wrong_snapshot_is_refused_by_tensor_and_changes_nothing(qwen2, backend, plain, snapshot_of, how, words):
    engine = backend(qwen2)
    before = weights_of(engine)
    with pytest.raises(WeightsError, match=words):
        engine.update(broken(snapshot_of(plain(qwen2), 4, shift=0.1), how))
    assert all(torch.equal(value, before[name]) for name, value in weights_of(engine).items())
    engine.submit([])
    assert engine._version == 0


def test_a_tied_head_may_be_left_out(qwen2, backend, plain, snapshot_of):
    engine, model = backend(qwen2), plain(qwen2)
    sent = snapshot_of(model, 2, shift=0.1)
    engine.update(Snapshot.of(2, {name: tensor for name, tensor in sent.tensors.items() if name != "lm_head.weight"}))
    assert torch.equal(engine._model.lm_head.weight.cpu(), model.lm_head.weight)


def test_an_own_head_must_be_sent(llama, backend, plain, snapshot_of):
    engine = backend(llama)
    sent = snapshot_of(plain(llama), 2, shift=0.1)
    with pytest.raises(WeightsError, match=r"lm_head\.weight"):
        engine.update(Snapshot.of(2, {name: tensor for name, tensor in sent.tensors.items() if name != "lm_head.weight"}))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bfloat16_travels_as_uint16_into_either_dtype(qwen2, backend, plain, dtype):
    engine, model = backend(qwen2, dtype=dtype), plain(qwen2).to(torch.bfloat16)
    tensors = {}
    for name, value in model.state_dict().items():
        data = value.view(torch.uint16).numpy().copy()
        data.setflags(write=False)
        tensors[name] = Tensor(dtype="bfloat16", shape=tuple(value.shape), data=data)
    engine.update(Snapshot.of(1, tensors))
    expected = model.state_dict()
    assert all(torch.equal(value.cpu().to(torch.bfloat16), expected[name]) for name, value in engine._model.state_dict().items())


def test_the_arrays_of_a_snapshot_are_not_kept(qwen2, backend, plain, snapshot_of):
    engine = backend(qwen2)
    sent = snapshot_of(plain(qwen2), 1)
    engine.update(sent)
    for tensor in sent.tensors.values():
        tensor.data[...] = np.nan
    assert all(torch.isfinite(value).all() for value in weights_of(engine).values())
