"""A model folder is looked at without loading it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.config.model_check import check_checkpoint, check_tokenizer, is_hub_name, longest_context
from rlcore.contracts.errors import ConfigError

CONFIG = {"model_type": "qwen2", "max_position_embeddings": 256}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def test_a_whole_checkpoint(checkpoint: Path) -> None:
    assert longest_context(check_checkpoint(checkpoint)) == 256
    check_tokenizer(checkpoint)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("config.json", None, "has no config.json"),
        ("config.json", "{", "is not valid JSON"),
        ("config.json", "\udcff", "is not valid JSON"),
        ("config.json", "3", "must hold a JSON object"),
        ("config.json", "{}", "has no model_type"),
        ("model.safetensors", None, "holds no weights"),
    ],
)
def test_a_damaged_checkpoint(name: str, text: str | None, said: str, checkpoint: Path) -> None:
    (checkpoint / name).unlink()
    if text is not None:
        (checkpoint / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=said):
        check_checkpoint(checkpoint)


def test_a_damaged_tokenizer(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").write_text("[")
    with pytest.raises(ConfigError, match="not valid JSON"):
        check_tokenizer(checkpoint)
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="holds no tokenizer"):
        check_tokenizer(checkpoint)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"vision_config": {"depth": 2}}, "is a vision model (vision_config)"),
        ({"audio_config": {}}, "is an audio model (audio_config)"),
        ({"architectures": ["T5ForConditionalGeneration"]}, "is a T5ForConditionalGeneration"),
        (
            {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {}},
            "is a vision model (vision_config, Qwen2_5_VLForConditionalGeneration)",
        ),
    ],
)
def test_a_model_that_is_not_a_causal_language_model_is_refused(more: dict[str, object], said: str, checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text(json.dumps(CONFIG | more))
    with pytest.raises(ConfigError) as refused:
        check_checkpoint(checkpoint)
    assert said in str(refused.value)
    assert "type -m and" in str(refused.value)


def test_a_causal_model_with_an_empty_vision_config_is_taken(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text(json.dumps(CONFIG | {"architectures": ["Qwen2ForCausalLM"], "vision_config": None}))
    check_checkpoint(checkpoint)


@pytest.mark.parametrize(("config", "limit"), [({}, None), ({"text_config": {"max_position_embeddings": 8}}, 8)])
def test_longest_context(config: dict[str, object], limit: int | None) -> None:
    assert longest_context(config) == limit


@pytest.mark.parametrize(
    ("name", "hub"),
    [("org/model-1.5B", True), ("./model", False), ("/models/x", False), ("gpt2", False), ("a/b/c", False), ("../a", False)],
)
def test_hub_names(name: str, hub: bool) -> None:
    assert is_hub_name(name) is hub
