"""Adapters in an engine: swapped by name under requests that run, over whole weights that came before, refused by name, torn if a swap
fails. Every rule of an engine is kept with adapters too: ``TestAdapters`` in test_vllm_conforms, nightly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from rlcore_plugin_vllm.options import VllmOptions
from rlcore_plugin_vllm.policy_adapter import PolicyAdapter
from rlcore_plugin_vllm.vllm_backend import VllmBackend

from rlcore.api import ConfigError, RunError, WeightsError
from rlcore.testing import update_engine
from tests.serving_adapters import RANK, SEQUENCE, adapters_over, check_misfits_are_refused, check_swaps_under_running_requests, scores
from tests.serving_fixtures import lent_backends


@pytest.fixture
def adapter(model, folder):
    """See ``adapters_over``."""
    return adapters_over(model, folder, ("q_proj", "o_proj", "gate_proj", "down_proj"))


@pytest.fixture(scope="module")
def lasting(folder):
    """A function that gives the engine of a form, which tests share: the first needs it new, the second begins with an update."""
    for make in lent_backends(folder, lambda context, options: VllmBackend(context, VllmOptions(**options))):
        yield cache(partial(make, adapter_rank=RANK, max_tokens=900, device="cpu", endless=True))


def test_an_adapter_that_does_not_fit_is_refused_by_name_and_one_that_fails_tears_the_engine(lasting, adapter, folder, monkeypatch):
    engine, (good, merged) = lasting(), adapter(1)
    check_misfits_are_refused(engine, adapter, folder)
    with monkeypatch.context() as broken:
        broken.setattr(PolicyAdapter, "_swap", lambda *given: (_ for _ in ()).throw(ValueError("no room")))
        with pytest.raises(WeightsError, match="version 1: vLLM does not accept the adapter: no room"):
            update_engine(engine, good)
    with pytest.raises(RunError, match="holds an unfinished version 1 of the weights and cannot score"):
        engine.score(SEQUENCE)
    update_engine(engine, replace(good, version=2))
    np.testing.assert_allclose(engine.score(SEQUENCE), scores(merged, SEQUENCE), atol=1e-5)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param({}, id="inside"),
        pytest.param({"own_process": True}, id="own process", marks=pytest.mark.nightly),
        pytest.param({"tensor_parallel": 2}, id="split", marks=pytest.mark.nightly),
    ],
)
def test_adapters_are_swapped_under_running_requests_and_over_whole_weights(form, lasting, adapter, snapshot, model, ask):
    check_swaps_under_running_requests(lasting(**form), adapter, snapshot, model, ask)
    assert not list(Path("/dev/shm").glob("rlcore-adapter-*"))


def test_an_engine_that_no_adapter_comes_to_takes_whole_weights_alone(backend, adapter):
    engine = backend()
    assert engine.capabilities.kinds == {"full"}
    with pytest.raises(WeightsError, match=r"version 1 is of kind adapter, and VllmBackend accepts full \(capabilities.kinds\)"):
        update_engine(engine, adapter(1)[0])
    with pytest.raises(ConfigError, match=r"training\.lora_rank 513: vLLM supports ranks up to 512; type --lora-rank 512"):
        backend(adapter_rank=513)
