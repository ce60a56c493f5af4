"""The engine keeps the rules of every inference backend: with tied embeddings and with a head of its own, in bfloat16, as processes of its
own, and split."""

from __future__ import annotations

import pytest
from rlcore_plugin_vllm import rlcore_register_inference_backends
from rlcore_plugin_vllm.options import VllmOptions
from rlcore_plugin_vllm.vllm_backend import VllmBackend

from rlcore.api import InferenceBackend
from tests.serving_rules import WIDE, AdapterRules, ServingRules


class TestTied(ServingRules):
    spec = rlcore_register_inference_backends()[0]
    options = VllmOptions()

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        return VllmBackend(self.context(prompts_per_forward), self.options)


@pytest.mark.nightly
class TestBfloat16(TestTied):
    """Held against the model in float32, as a trainer in float32 beside it would be."""

    dtype = "bfloat16"
    tolerance, tolerance_reason = 0.1, "weights and sums have 8 bits of mantissa; 0.036 nats were seen at temperature 1"
    same_draws = False


@pytest.mark.nightly
class TestOwnHead(TestTied):
    name = "llama"


@pytest.mark.nightly  # test_vllm_adapters has what is of adapters alone
class TestAdapters(AdapterRules, TestTied):
    """Each version is an adapter."""


@pytest.mark.nightly  # test_vllm_processes compares what it draws with the engine in one process
class TestOwnProcess(TestTied):
    """It goes on between two calls, so answers that should still run after one poll are longer."""

    name, tokenizer, vocabulary = "wide", WIDE, len(WIDE)
    options = VllmOptions(own_process=True)
    long_tokens = 160


@pytest.mark.nightly
class TestSplitInTwo(TestOwnProcess):
    tensor_parallel = 2
