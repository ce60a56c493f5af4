"""What a checkpoint holds, read by other programs than rlcore: transformers, safetensors, torch's distributed checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from rlcore_plugin_torch import model_files
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.sample import sample_batch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, Qwen2Config, Qwen3MoeConfig

from rlcore.api import LoraSettings, OptimizerSettings, TrainingContext
from rlcore.testing.training.plain_objective import PlainObjective

SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
CONFIGS: dict[str, PretrainedConfig] = {
    "tied": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "untied": Qwen2Config(**SIZES, tie_word_embeddings=False),
    # transformers keeps the experts of a layer in one tensor, and files have one of each
    "experts": Qwen3MoeConfig(**SIZES, head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32),
}


def model_of(config: PretrainedConfig, folder: Path) -> Path:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    return folder


def trained(folder: Path, dtype: str = "bfloat16", lora: LoraSettings | None = None) -> TorchBackend:
    """After one update, so that there are moments."""
    backend = TorchBackend()
    context = TrainingContext(
        model=str(folder),
        optimizer=OptimizerSettings(learning_rate=1e-2, total_steps=4),
        rollouts_per_forward=4,
        tokens_per_forward=1000,
        prompts_per_slice=4,
        dtype=dtype,
        device="cpu",
        lora=lora,
    )
    backend.setup(context)
    backend.update(sample_batch(100), PlainObjective())
    return backend


def bytes_of(folder: Path, ending: str) -> int:
    return sum(path.stat().st_size for path in folder.rglob(f"*{ending}"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_checkpoint_has_twelve_bytes_a_parameter_and_each_weight_once(tmp_path: Path, dtype: str) -> None:
    backend = trained(model_of(CONFIGS["untied"], tmp_path / "base"), dtype)
    count = backend.policy.model.num_parameters()
    backend.save_model(tmp_path / "model")
    backend.save(tmp_path / "trainer").result()
    masters = backend.policy.model.state_dict()
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert {name: weight.dtype for name, weight in weights.items()} == dict.fromkeys(masters, torch.float32)
    assert all(torch.equal(weight, masters[name]) for name, weight in weights.items())
    assert AutoConfig.from_pretrained(tmp_path / "model").dtype == torch.float32
    kept = dcp.FileSystemReader(tmp_path / "trainer" / "shards").read_metadata().state_dict_metadata
    assert set(kept) == {f"{kind}.{name}" for kind in ("exp_avg", "exp_avg_sq") for name in masters}, "moments, by the names of the hub"
    found = bytes_of(tmp_path / "model", ".safetensors") + bytes_of(tmp_path / "trainer", ".distcp")
    assert 12 * count <= found < 12.5 * count + 100_000


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", [*CONFIGS, "adapters"])
def test_an_export_is_the_model_rounded_and_whole(tmp_path: Path, kind: str, dtype: str) -> None:
    """transformers reads it by itself, in the precision that its ``config.json`` names."""
    lora = LoraSettings(rank=4, alpha=8.0) if kind == "adapters" else None
    backend = trained(model_of(CONFIGS.get(kind, CONFIGS["tied"]), tmp_path / "base"), "float32", lora)
    backend.save_model(tmp_path / "model")
    backend.save_model(tmp_path / "export", dtype)
    assert not (tmp_path / "export" / "adapter").exists()
    whole, rounded = (AutoModelForCausalLM.from_pretrained(tmp_path / name, dtype="auto") for name in ("model", "export"))
    assert (whole.dtype, rounded.dtype) == (torch.float32, getattr(torch, dtype))
    expected = whole.to(rounded.dtype).state_dict()
    found = rounded.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in found.items())


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_a_large_model_is_written_in_parts_that_make_the_same_model(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = trained(model_of(CONFIGS[kind], tmp_path / "base"))
    backend.save_model(tmp_path / "one")
    monkeypatch.setattr(model_files, "PART_BYTES", 100_000)
    backend.save_model(tmp_path / "parts")
    one = load_file(tmp_path / "one" / "model.safetensors")
    index = json.loads((tmp_path / "parts" / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in (tmp_path / "parts").glob("*.safetensors"))
    assert len(files) > 2
    assert files == sorted(set(index["weight_map"].values()))
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
    assert index["metadata"]["total_size"] == sum(weight.nbytes for weight in one.values())
    parts: dict[str, torch.Tensor] = {}
    for file in files:
        with safe_open(tmp_path / "parts" / file, "pt") as part:
            parts |= {name: part.get_tensor(name) for name in part.keys()}  # noqa: SIM118 - it is no dict
    assert {name: index["weight_map"][name] in files for name in parts} == dict.fromkeys(one, True)
    assert all(torch.equal(weight, parts[name]) for name, weight in one.items())
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "parts").state_dict()
    assert all(torch.equal(weight, read[name]) for name, weight in backend.policy.model.state_dict().items())
