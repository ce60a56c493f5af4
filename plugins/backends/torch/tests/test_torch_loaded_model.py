"""What loading corrects in a model: the row of the padding token trains, and a head of its own is in the saved configuration."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_torch.sample import sample_batch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from rlcore.api import OptimizerSettings, TrainingContext
from rlcore.testing import weights_of
from rlcore.testing.training.plain_objective import PlainObjective

SIZES: dict[str, Any] = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
HEADS: dict[str, Any] = {"num_key_value_heads": 1, "initializer_range": 0.2, "bos_token_id": None}


def saved(folder: Path, *, tied: bool = True, **config: Any) -> Path:
    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(**SIZES, **HEADS, tie_word_embeddings=tied, **config)).save_pretrained(folder)
    return folder


def trained(folder: Path, packing: Any = "auto") -> TorchBackend:
    optimizer = OptimizerSettings(learning_rate=1e-2, total_steps=4)
    context = TrainingContext(
        model=str(folder), optimizer=optimizer, rollouts_per_forward=4, tokens_per_forward=1000, prompts_per_slice=4, device="cpu"
    )
    backend = TorchBackend(context, TorchOptions(packing=packing))
    backend.setup(context)
    batch = sample_batch(100)
    advantages = np.linspace(-1, 1, len(batch.advantages), dtype=np.float32)
    backend.update(replace(batch, advantages=advantages), PlainObjective())
    return backend


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("packing", ["on", "off"])
def test_a_pad_token_that_is_also_the_end_token_trains_the_same_bits(tmp_path: Path, packing: str, tied: bool) -> None:
    segment = sample_batch(100).rollouts[0].segments[0]
    end = int(segment.token_ids[0])
    own_pad = trained(saved(tmp_path / "own", tied=tied, eos_token_id=end, pad_token_id=99), packing)
    start = load_file(tmp_path / "own" / "model.safetensors")
    file = tmp_path / "own" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pad_token_id": end}))
    shared = trained(tmp_path / "own", packing)
    one, other = ({name: tensor.data for name, tensor in weights_of(backend).items()} for backend in (own_pad, shared))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    moved = np.abs(one["model.embed_tokens.weight"] - start["model.embed_tokens.weight"].numpy()).max(-1)
    assert moved[end] > 1e-3, "more than weight decay"


def test_a_head_of_its_own_under_a_tied_configuration_is_saved_as_one(tmp_path: Path) -> None:
    folder = saved(tmp_path / "base")
    file = folder / "model.safetensors"
    stored = load_file(file)
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"] * -0.25
    save_file(stored, file, metadata={"format": "pt"})
    backend = trained(folder)
    backend.save_model(tmp_path / "model")
    backend.save_model(tmp_path / "export", "bfloat16")
    policy = backend.policy.model
    assert not torch.equal(policy.get_output_embeddings().weight, policy.get_input_embeddings().weight)
    for name in ("model", "export"):
        assert json.loads((tmp_path / name / "config.json").read_text())["tie_word_embeddings"] is False
        assert "lm_head.weight" in load_file(tmp_path / name / "model.safetensors")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    assert torch.equal(again.lm_head.weight, policy.get_output_embeddings().weight)


def test_a_tied_model_stays_tied(tmp_path: Path) -> None:
    trained(saved(tmp_path / "base")).save_model(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["tie_word_embeddings"] is True
    assert "lm_head.weight" not in load_file(tmp_path / "model" / "model.safetensors")


def test_a_contradiction_between_files_and_configuration_logs_no_warning_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "base")
    stored = load_file(folder / "model.safetensors")
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"] + 1
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    logged: list[str] = []
    logger = logging.getLogger("transformers")
    monkeypatch.setattr(logger, "level", logging.WARNING)
    monkeypatch.setattr(logger, "handlers", [handler := logging.Handler()])
    monkeypatch.setattr(handler, "emit", lambda record: logged.append(record.getMessage()))
    trained(folder)
    assert logged == []
