"""Sleep gives the device back, really: weights, keys and values are freed, and nothing is served before they are whole again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from rlcore_plugin_transformers.engine import TransformersBackend
from rlcore_plugin_transformers.options import TransformersOptions

from rlcore.api import InferenceContext, RunError, Sampling, Snapshot, WeightsError
from rlcore.testing import update_engine


@pytest.fixture
def frozen_heap() -> Iterator[None]:
    """Takes what is there already out of sight of the collector: in the whole suite it walks millions of objects otherwise."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def live_bytes() -> int:
    """Bytes of every torch tensor that the collector sees, a storage counted once."""
    gc.collect()
    storages = {}
    for found in gc.get_objects():
        if issubclass(type(found), torch.Tensor) and found.device.type != "meta":
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def weights_of(engine) -> dict[str, torch.Tensor]:
    return {name: value.to("cpu", copy=True) for name, value in engine._model.state_dict().items()}


@pytest.mark.usefixtures("frozen_heap")
def test_sleep_frees_the_weights_and_the_cache_and_wake_takes_them_back(wide, backend, prompts, requests_of):
    before = live_bytes()
    engine = backend(wide)
    awake = live_bytes() - before
    weights = sum(parameter.numel() * parameter.element_size() for parameter in engine._model.parameters())
    assert awake >= weights > 10_000_000
    requests = requests_of(prompts([40, 50]), [4, 4], Sampling(max_new_tokens=40))
    engine.submit(requests)
    engine.poll(0.0)
    assert live_bytes() - before > awake, "keys and values of requests in flight are counted"
    while engine.poll(60.0):
        pass
    engine.sleep()
    asleep = live_bytes() - before
    assert asleep < 0.01 * weights, f"{asleep} bytes are left of {awake}"
    engine.wake()
    assert live_bytes() - before == pytest.approx(awake, abs=0.01 * weights)


@pytest.mark.parametrize("model", ["qwen2", "llama"])
def test_what_it_serves_after_wake_is_the_same_to_the_bit(model, request, backend, plain, prompts, requests_of, drain, snapshot_of):
    path = request.getfixturevalue(model)
    engine, snapshot = backend(path), snapshot_of(plain(path), 1, shift=0.05)
    requests = requests_of(prompts([5, 7]), [2, 2], Sampling(max_new_tokens=6))
    update_engine(engine, snapshot)
    engine.submit(requests)
    before, scores = drain(engine), engine.score(prompts([20])[0])
    for _ in range(2):
        engine.sleep()
        engine.wake()
        update_engine(engine, snapshot)
        assert np.array_equal(engine.score(prompts([20])[0]), scores)
        engine.submit(requests)
        after = drain(engine)
        assert all(np.array_equal(after[name].token_ids, one.token_ids) for name, one in before.items())
        assert all(np.array_equal(after[name].logprobs, one.logprobs) for name, one in before.items())


def test_a_tied_head_is_still_tied_after_wake(qwen2, backend, plain, snapshot_of):
    engine = backend(qwen2)
    engine.sleep()
    engine.wake()
    sent = snapshot_of(plain(qwen2), 2, shift=0.1)
    update_engine(engine, Snapshot.of(2, {name: tensor for name, tensor in sent.tensors.items() if name != "lm_head.weight"}))
    assert engine._model.lm_head.weight is engine._model.get_input_embeddings().weight
    assert all(torch.equal(value, plain(qwen2).state_dict()[name]) for name, value in weights_of(backend(qwen2)).items())


def test_tables_that_no_snapshot_carries_survive(llama, backend):
    engine = backend(llama)
    carried = set(engine._model.state_dict())
    tables = {name: buffer.clone() for name, buffer in engine._model.named_buffers() if name not in carried}
    assert tables, "a model with rotary positions has frequencies outside its checkpoint"
    engine.sleep()
    engine.wake()
    assert all(torch.equal(buffer, tables[name]) for name, buffer in engine._model.named_buffers() if name in tables)


def test_sleep_is_refused_while_requests_are_open(qwen2, backend, prompts, requests_of, drain):
    engine = backend(qwen2)
    engine.submit(requests_of(prompts([5, 7]), [2, 2], Sampling(max_new_tokens=6)))
    with pytest.raises(RunError, match="4 requests in flight"):
        engine.sleep()
    engine.cancel(["0-0", "0-1", "1-0", "1-1"])
    with pytest.raises(RunError, match="4 requests in flight; poll until every one is answered"):
        engine.sleep()
    drain(engine)
    engine.sleep()


def test_each_refusal_says_what_to_call(qwen2, backend, plain, prompts, requests_of, snapshot_of):
    engine, snapshot = backend(qwen2), snapshot_of(plain(qwen2), 3)
    requests = requests_of(prompts([5]), [2], Sampling(max_new_tokens=6))
    engine.sleep()
    engine.sleep()
    for call in (lambda: engine.submit(requests), lambda: engine.score(prompts([5])[0]), lambda: update_engine(engine, snapshot)):
        with pytest.raises(RunError, match=r"the engine sleeps and cannot .*; call wake\(\), then update its weights"):
            call()
    assert engine.poll(0.0) == []
    engine.wake()
    engine.wake()
    for call in (lambda: engine.submit(requests), lambda: engine.score(prompts([5])[0])):
        with pytest.raises(RunError, match=r"woke without weights and cannot .*; update its weights first"):
            call()


def test_a_damaged_snapshot_after_wake_leaves_it_without_weights(qwen2, backend, plain, prompts, snapshot_of):
    engine, snapshot = backend(qwen2), snapshot_of(plain(qwen2), 3)
    engine.sleep()
    engine.wake()
    name = next(iter(snapshot.tensors))
    with pytest.raises(WeightsError):
        update_engine(engine, Snapshot.of(3, {key: tensor for key, tensor in snapshot.tensors.items() if key != "model.norm.weight"}))
    with pytest.raises(RunError, match="woke without weights"):
        engine.score(prompts([5])[0])
    update_engine(engine, snapshot)
    assert name in weights_of(engine)
    assert np.isfinite(engine.score(prompts([5])[0])).all()


def test_a_sleeping_cache_holds_no_tensor_of_the_device(qwen2, backend, prompts, requests_of, drain):
    engine = backend(qwen2)
    engine.submit(requests_of(prompts([40, 50]), [4, 4], Sampling(max_new_tokens=4)))
    drain(engine)
    engine.sleep()
    for cache in (engine._path._cache, engine._path._prompts):
        held = [item for value in vars(cache).values() for item in (value if isinstance(value, tuple | list) else [value])]
        assert [item for item in held if isinstance(item, torch.Tensor) and item.numel()] == []
        assert cache._places == {}
    assert engine._path._decoder is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_device_gets_its_memory_back(wide, tokenizer, plain, snapshot_of):
    # The work space of cuBLAS comes with the first product and stays: it belongs to the process, not to the engine.
    torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    context = InferenceContext(model=wide, tokenizer=tokenizer, prompts_per_forward=4, max_tokens=200, device="cuda")
    engine = TransformersBackend(context, TransformersOptions())
    awake = torch.cuda.memory_reserved() - before
    assert awake > 10_000_000
    engine.sleep()
    assert torch.cuda.memory_reserved() - before < 0.5 * awake
    engine.wake()
    update_engine(engine, snapshot_of(plain(wide), 1))
    assert np.isfinite(engine.score(np.arange(20))).all()
