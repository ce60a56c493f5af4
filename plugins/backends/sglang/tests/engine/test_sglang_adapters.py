"""Adapters in an engine: swapped under requests that run, over whole weights that came before, refused by name, torn if a swap fails. Every
rule of an engine is kept with adapters too: ``TestAdapters`` in test_sglang_conforms, nightly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from rlcore_plugin_sglang.options import SglangOptions
from rlcore_plugin_sglang.sglang_backend import SglangBackend
from rlcore_plugin_sglang.subprocess_engine import SubprocessEngine

from rlcore.api import RunError, WeightsError
from rlcore.testing import update_engine
from tests.serving_adapters import RANK, SEQUENCE, adapters_over, check_misfits_are_refused, check_swaps_under_running_requests, scores
from tests.serving_fixtures import lent_backends


@pytest.fixture
def adapter(model, folder):
    """See ``adapters_over``. Over some of those that SGLang computes as one: of queries, keys and values, and of gate and up."""
    return adapters_over(model, folder, ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj"))


def fails_at(order, what: str):
    def ordered(engine, method: str, *arguments):
        if method == what:
            raise RunError("no room")
        return order(engine, method, *arguments)

    return ordered


@pytest.fixture(scope="module")
def lasting(folder):
    """A function that gives the engine of a form, which tests share: the first needs it new, the second begins with an update."""
    for make in lent_backends(folder, lambda context, options: SglangBackend(context, SglangOptions(**options))):
        yield cache(partial(make, adapter_rank=RANK, max_tokens=900, device="cpu", endless=True))


def test_an_adapter_that_does_not_fit_is_refused_by_name_and_one_that_fails_tears_the_engine(lasting, adapter, folder, monkeypatch):
    engine, (good, merged) = lasting(), adapter(1)
    check_misfits_are_refused(engine, adapter, folder)
    with monkeypatch.context() as broken:
        broken.setattr(SubprocessEngine, "_order", fails_at(SubprocessEngine._order, "load_adapter"))
        with pytest.raises(WeightsError, match="version 1: no room"):
            update_engine(engine, good)
    with pytest.raises(RunError, match="holds an unfinished version 1 of the weights and cannot score"):
        engine.score(SEQUENCE)
    update_engine(engine, replace(good, version=2))
    np.testing.assert_allclose(engine.score(SEQUENCE), scores(merged, SEQUENCE), atol=1e-5)


@pytest.mark.parametrize("form", [{}, pytest.param({"tensor_parallel": 2}, marks=pytest.mark.nightly)], ids=["alone", "split"])
def test_adapters_are_swapped_under_running_requests_and_over_whole_weights(form, lasting, adapter, snapshot, model, ask):
    check_swaps_under_running_requests(lasting(**form), adapter, snapshot, model, ask)


@pytest.mark.nightly
def test_an_engine_that_no_adapter_comes_to_takes_whole_weights_alone(backend, adapter):
    engine = backend()
    assert engine.capabilities.kinds == {"full"}
    with pytest.raises(WeightsError, match=r"version 1 is of kind adapter, and SglangBackend accepts full \(capabilities.kinds\)"):
        update_engine(engine, adapter(1)[0])
