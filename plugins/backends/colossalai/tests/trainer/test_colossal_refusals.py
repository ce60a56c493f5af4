"""What ColossalAI cannot do here is refused in one sentence, and what only a GPU can show is skipped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore_plugin_colossalai.colossal_backend import ColossalBackend
from rlcore_plugin_colossalai.colossal_optimizer import make_adamw
from rlcore_plugin_colossalai.options import ColossalOptions
from transformers import AutoModelForCausalLM, Qwen2Config

from rlcore.api import ConfigError, LoraSettings, OptimizerSettings, TrainingContext

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}


@pytest.fixture
def context(tmp_path: Path) -> TrainingContext:
    AutoModelForCausalLM.from_config(Qwen2Config(vocab_size=40, **SIZES)).save_pretrained(tmp_path)
    optimizer = OptimizerSettings(learning_rate=1e-3)
    return TrainingContext(
        model=str(tmp_path), optimizer=optimizer, rollouts_per_forward=1, tokens_per_forward=64, prompts_per_slice=1, device="cpu"
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"world_size": 3, "tensor_parallel": 2}, "does not divide the 3 trainer ranks"),
        ({"zero_stage": 3}, r"Gemini\) is not offered"),
        ({"world_size": 4, "pipeline_parallel": 2, "zero_stage": 2}, "ZeRO 1 only; type -zero 1"),
        ({"world_size": 4, "tensor_parallel": 2, "zero_stage": 1}, "does not support float32 models; type --training-dtype bfloat16"),
        ({"context_parallel": 2}, "training.context_parallel_size 2"),
        ({"dtype": "float64"}, "'float64' is not supported"),
        ({"lora": LoraSettings(rank=2, alpha=4.0)}, "trains whole weights only"),
    ],
)
def test_a_refusal_is_a_sentence(context: TrainingContext, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ColossalBackend(replace(context, **changes))


def test_a_model_that_cannot_be_read_is_named(context: TrainingContext, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "unheard"}), encoding="utf-8")
    with pytest.raises(ConfigError, match="does not know model_type 'unheard'"):
        ColossalBackend().setup(context)
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be loaded"):
        ColossalBackend().setup(context)


@pytest.mark.parametrize("axis", ["tensor_parallel", "pipeline_parallel"])
def test_a_model_that_ranks_cannot_share_is_refused_before_they_meet(context: TrainingContext, tmp_path: Path, axis: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "gpt2"}), encoding="utf-8")
    divided = replace(context, world_size=2, rendezvous="tcp://127.0.0.1:1", **{axis: 2})
    with pytest.raises(ConfigError, match=r"model .* divides llama, mistral, qwen2 by -tp and -pp, but not 'gpt2'"):
        ColossalBackend().setup(divided)


@pytest.mark.parametrize("changes", [{"world_size": 2}, {"world_size": 4, "tensor_parallel": 2, "pipeline_parallel": 2}])
def test_sequence_parallel_needs_tensor_parallel_ranks_and_one_stage(context: TrainingContext, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"type -tp 2 or more and -pp 1"):
        ColossalBackend(replace(context, **changes), ColossalOptions(sequence_parallel="split_gather"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="of a machine without CUDA")
def test_fused_adam_needs_cuda() -> None:
    with pytest.raises(ConfigError, match="fused kernels need CUDA"):
        make_adamw(torch.nn.Linear(2, 2), OptimizerSettings(learning_rate=1.0), "hybrid")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="ColossalAI's HybridAdam has kernels for CUDA alone")
def test_fused_adam_on_cuda() -> None:
    made = make_adamw(torch.nn.Linear(2, 2).cuda(), OptimizerSettings(learning_rate=1.0), "hybrid")
    assert type(made).__name__ == "HybridAdam"
