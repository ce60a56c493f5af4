"""One device for trainer and engine: the order of what the engine is asked. The engine is recorded (``recorded_vllm``), not vLLM's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from recorded_vllm import recorded

from rlcore.api import ConfigError, InferenceBackend, InferenceContext, Request, RunError, Sampling, Snapshot
from rlcore.testing import FakeTokenizer, RunTester, update_engine, write_fake_model
from rlcore.testing.phases import phases_in
from rlcore.testing.policy import FakePolicy

PLUGIN = """
from dataclasses import replace
from rlcore.api import InferenceBackendSpec, hookimpl
from rlcore_plugin_vllm import CAPABILITIES
rlcore_api = "2.0"

@hookimpl
def rlcore_register_inference_backends():
    offered, options = replace(CAPABILITIES, sleeps_on=frozenset()), "rlcore_plugin_vllm.options:VllmOptions"
    target, tokenizer = "recorded_backend:RecordedBackend", "rlcore.testing:load_fake_tokenizer"
    return [InferenceBackendSpec(name="recorded", target=target, config=options, tokenizer=tokenizer, summary="x", capabilities=offered)]
"""
BACKEND = """
from dataclasses import replace
from rlcore_plugin_vllm.vllm_backend import VllmBackend

class RecordedBackend(VllmBackend):
    capabilities = replace(VllmBackend.capabilities, sleeps_on=frozenset())
"""


def with_checkpoint(folder: Path) -> Path:
    """The folder of a fake model, with a safetensors file of the same names and shapes, which the backend reads."""
    header, at = {}, 0
    for name, array in FakePolicy.load(folder).arrays().items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))
    return folder


def engine(folder: Path, **context: str) -> InferenceBackend:
    from rlcore_plugin_vllm.vllm_backend import VllmBackend

    return VllmBackend(InferenceContext(model=str(folder), tokenizer=FakeTokenizer("abc"), prompts_per_forward=4, max_tokens=16, **context))


def weights(folder: Path, version: int) -> Snapshot:
    return Snapshot.of(version, dict(FakePolicy.load(folder).tensors()))


def test_in_a_run_the_engine_wakes_for_weights_then_for_its_cache_and_sleeps_at_level_2(tmp_path: Path) -> None:
    phases = tmp_path / "phases.txt"
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("recorded", PLUGIN)
    (tester.plugins.root / "recorded_backend.py").write_text(BACKEND)
    training = {"name": "fake", "train_batch_size": 3, "learning_rate": 0.1, "options": {"phases": str(phases)}}
    config = tester.fake_run(inference={"name": "recorded"}, training=training, weights={"probe": False})
    with_checkpoint(tester.folder / "model")
    with recorded(str(phases)):
        tester.run("train", config, "--json", "--placement", "colocated", "--max-steps", "2").assert_ok()
    trained = ["engine sleeps at level 2", "trainer wakes", "trainer trains", "trainer sleeps"]
    served = ["engine wakes weights", "engine takes weights", "engine wakes kv_cache"]
    first = ["trainer sleeps", "engine takes weights", "engine generates"]
    assert phases_in(phases) == [*first, *trained, *served, "engine generates", *trained, *served]


def test_nothing_is_asked_of_an_engine_without_memory(tmp_path: Path) -> None:
    folder = with_checkpoint(write_fake_model(tmp_path / "model", "abc"))
    request = Request(request_id="r", token_ids=[3, 4], sampling=Sampling(max_new_tokens=2))
    with recorded(""):
        served = engine(folder)
        served.submit([request])
        with pytest.raises(RunError, match="cannot sleep with 1 requests in flight"):
            served.sleep(2)
        assert len(served.poll(1.0)) == 1
        served.sleep(2)
        for call in (
            lambda: served.submit([request]),
            lambda: served.score(np.array([3, 4, 3])),
            lambda: update_engine(served, weights(folder, 1)),
        ):
            with pytest.raises(RunError, match="sleeps"):
                call()
        with pytest.raises(RunError, match=r"call wake\(\) and update"):
            served.wake_cache()
        served.wake()
        with pytest.raises(RunError, match="sleeps, or has just woken, and cannot take requests; update its weights first"):
            served.submit([request])
        assert update_engine(served, weights(folder, 1)) == 1
        with pytest.raises(RunError, match="has no memory for keys and values and cannot take requests: call wake_cache"):
            served.submit([request])
        served.wake_cache()
        served.submit([request])
        assert served.poll(1.0)[0].versions.tolist() == [1]
        served.close()


def test_on_the_cpu_the_engine_declares_that_it_does_not_sleep(tmp_path: Path) -> None:
    folder = with_checkpoint(write_fake_model(tmp_path / "model", "abc"))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    with recorded("", cpu=True):
        served = engine(folder)
        assert not served.capabilities.sleeps
        for call in (served.sleep, served.wake):
            with pytest.raises(NotImplementedError, match="does not sleep"):
                call()
        served.close()


@pytest.mark.parametrize(
    ("cpu", "device", "words"),
    [(True, "cuda", "built for cpu"), (False, "cpu", "built for cuda"), (False, "cuda:1", "CUDA_VISIBLE_DEVICES=1")],
)
def test_a_device_that_the_installed_vllm_does_not_take_is_refused(cpu: bool, device: str, words: str, tmp_path: Path) -> None:
    folder = with_checkpoint(write_fake_model(tmp_path / "model", "abc"))
    with recorded("", cpu=cpu), pytest.raises(ConfigError, match=words):
        engine(folder, device=device)


def test_sleep_mode_is_asked_for_on_a_gpu_alone(tmp_path: Path) -> None:
    folder = with_checkpoint(write_fake_model(tmp_path / "model", "abc"))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    for cpu in (True, False):
        with recorded("", cpu=cpu):
            served = engine(folder)
            assert bool(served._driver._engine.arguments.enable_sleep_mode) is not cpu  # type: ignore[attr-defined]
            served.close()
