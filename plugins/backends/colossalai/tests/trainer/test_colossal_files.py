"""Files of a checkpoint: cut by size, read back by transformers and by name, damage named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlcore_plugin_colossalai.boosted_model import load_model
from rlcore_plugin_colossalai.checkpoint_files import SavedState, write_head, write_state_head, write_tensors
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlcore.api import ConfigError, RunError
from tests.tiny_qwen2 import tiny_qwen2

TENSORS = {"a": torch.arange(6.0), "b": torch.ones(2, 3), "c": torch.zeros(1)}
SIZES = {name: tensor.nbytes for name, tensor in TENSORS.items()}


def test_a_model_in_several_files_is_read_by_transformers(tmp_path: Path) -> None:
    source = tiny_qwen2()
    weights = dict(AutoModelForCausalLM.from_pretrained(source, torch_dtype=torch.float32).named_parameters())
    sizes = {name: weight.nbytes for name, weight in weights.items()}
    placed = write_tensors(tmp_path, "model", sizes, (weight.detach() for weight in weights.values()), writes=True, file_bytes=30_000)
    write_head(tmp_path, (source / "config.json").read_text(), "float32", placed, sizes)
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) == len(set(placed.values())) > 1
    read = dict(AutoModelForCausalLM.from_pretrained(tmp_path, torch_dtype=torch.float32).named_parameters())
    assert all(torch.equal(read[name], weight) for name, weight in weights.items())


@pytest.mark.parametrize(("ends", "trains"), [(0, True), ([3, 0], True), (3, False), (None, False)])
def test_the_row_of_a_padding_token_trains_if_it_also_ends_a_response(tmp_path: Path, ends: int | list[int] | None, trains: bool) -> None:
    shutil.copytree(tiny_qwen2(), tmp_path / "model")
    for name in ("config.json", "generation_config.json"):
        file = tmp_path / "model" / name
        file.write_text(json.dumps({**json.loads(file.read_text()), "pad_token_id": 0, "eos_token_id": ends}))
    context: Any = SimpleNamespace(trust_remote_code=False)
    embedding = load_model(str(tmp_path / "model"), "eager", context).get_input_embeddings()
    assert (embedding.padding_idx is None) is trains


@pytest.mark.parametrize(("scale", "refused"), [(0.5, True), (1.0, False)])
def test_a_head_that_transformers_would_leave_out_is_refused(tmp_path: Path, scale: float, refused: bool) -> None:
    shutil.copytree(tiny_qwen2(), tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"] * scale
    save_file(weights, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    context: Any = SimpleNamespace(trust_remote_code=False)
    with pytest.raises(ConfigError, match=r"says tie_word_embeddings true, but model\.safetensors") if refused else nullcontext():
        load_model(str(tmp_path / "model"), "eager", context)


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_a_saved_model_says_its_own_precision(tmp_path: Path, key: str) -> None:
    write_head(tmp_path, json.dumps({"model_type": "qwen2", key: "float16"}), "bfloat16", {"a": "model.safetensors"}, {"a": 2})
    assert json.loads((tmp_path / "config.json").read_text()) == {"model_type": "qwen2", key: "bfloat16"}


@pytest.mark.parametrize("file_bytes", [10**9, 24, 1])
def test_a_state_comes_back_by_name(tmp_path: Path, file_bytes: int) -> None:
    placed = write_tensors(tmp_path, "state", SIZES, TENSORS.values(), writes=True, file_bytes=file_bytes)
    write_state_head(tmp_path, {"steps": 3}, placed)
    state = SavedState(tmp_path)
    assert state.head["steps"] == 3
    assert all(torch.equal(state.tensor(name), tensor) for name, tensor in TENSORS.items())
    assert state.tensor("absent") is None


@pytest.mark.parametrize("file", ["colossalai.pt", "state-00002-of-00003.safetensors"])
def test_a_changed_byte_and_a_lost_file_are_named(tmp_path: Path, file: str) -> None:
    write_state_head(tmp_path, {"steps": 3}, write_tensors(tmp_path, "state", SIZES, TENSORS.values(), writes=True, file_bytes=24))
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RunError, match=f"{file} is damaged"):
        SavedState(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(RunError, match=f"{file}: No such file"):
        SavedState(tmp_path)


@pytest.mark.parametrize("writes", [True, False])
def test_an_error_of_the_disk_comes_after_every_tensor_was_gathered(tmp_path: Path, writes: bool) -> None:
    gathered = []

    def tensors() -> Iterator[torch.Tensor]:
        for name, tensor in TENSORS.items():
            gathered.append(name)
            yield tensor

    absent = tmp_path / "absent"
    if writes:
        with pytest.raises(Exception, match="No such file"):
            write_tensors(absent, "state", SIZES, tensors(), writes=True, file_bytes=24)
    else:
        write_tensors(absent, "state", SIZES, tensors(), writes=False, file_bytes=24)
    assert gathered == list(TENSORS)
