"""The engine keeps the rules of every inference backend: with tied embeddings and with a head of its own, in bfloat16, split, and as two
copies."""

from __future__ import annotations

import pytest
from rlcore_plugin_sglang import rlcore_register_inference_backends
from rlcore_plugin_sglang.options import SglangOptions
from rlcore_plugin_sglang.sglang_backend import SglangBackend

from rlcore.api import InferenceBackend
from tests.serving_rules import AdapterRules, ServingRules


class TestTied(ServingRules):
    spec = rlcore_register_inference_backends()[0]
    cuts_twice = False
    options = SglangOptions()

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        return SglangBackend(self.context(prompts_per_forward), self.options)


@pytest.mark.nightly
class TestBfloat16(TestTied):
    """Held against the model in float32, as a trainer in float32 beside it would be."""

    dtype = "bfloat16"
    tolerance, tolerance_reason = 0.1, "weights and sums have 8 bits of mantissa"
    same_draws = False


@pytest.mark.nightly
class TestOwnHead(TestTied):
    name = "llama"


@pytest.mark.nightly  # test_sglang_adapters has what is of adapters alone
class TestAdapters(AdapterRules, TestTied):
    """Each version is an adapter."""


@pytest.mark.nightly
class TestSplitInTwo(TestTied):
    tensor_parallel = 2


@pytest.mark.nightly
class TestTwoCopies(TestTied):
    options = SglangOptions(data_parallel_size=2)
