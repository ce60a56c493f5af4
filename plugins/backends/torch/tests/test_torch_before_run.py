"""What setup refuses of a model is refused before the run, in the same words, by the model's files without its weights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest
import torch
from rlcore_plugin_torch import rlcore_check_run
from rlcore_plugin_torch.activation_memory import store_activations
from rlcore_plugin_torch.adapters import attach
from rlcore_plugin_torch.decoder import decoder_layers
from rlcore_plugin_torch.loading import load_model
from rlcore_plugin_torch.tensor_plan import slice_layers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2PreTrainedModel,
    GPT2Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

from rlcore.api import ConfigError, LoraSettings

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
GPT2 = GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=2)
TP2 = {"num_trainers": 2, "tensor_parallel_size": 2}


class Mesh(SimpleNamespace):
    def size(self) -> int:
        return 2


def run_of(model: str, trusted: bool = False, **training: Any) -> Any:
    """What the hook reads of a run."""
    asked = {"name": "torch", "num_trainers": 1, "tensor_parallel_size": 1, "zero_stage": 0, "environment": None}
    asked |= {"lora_rank": 0, "lora_alpha": 32.0, "lora_targets": (), "options": {"attention": "sdpa", "activations": "keep"}}
    return SimpleNamespace(model=SimpleNamespace(model=model, trust_remote_code=trusted), training=SimpleNamespace(**{**asked, **training}))


def adapted(rank: int, *targets: str) -> tuple[dict[str, Any], Callable[[PreTrainedModel], object]]:
    settings = LoraSettings(rank=rank, alpha=32.0, targets=targets)
    return {"lora_rank": rank, "lora_targets": targets}, lambda model: attach(model, settings, "")


def write(folder: Path, config: PretrainedConfig, changes: Mapping[str, Any]) -> None:
    """The model, and then ``changes`` in its ``config.json``."""
    AutoModelForCausalLM.from_config(config, attn_implementation="eager").save_pretrained(folder)
    if changes:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


def refused_before(
    folder: Path,
    config: PretrainedConfig,
    asked: dict[str, Any],
    at_setup: Callable[[PreTrainedModel], object] = lambda model: None,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """The sentence, which is that of setup."""
    write(folder, config, changes)
    with pytest.raises(ConfigError) as refused:
        at_setup(load_model(str(folder), "sdpa", torch.device("cpu")))
    assert rlcore_check_run(run_of(str(folder), **asked)) == [str(refused.value)]
    return str(refused.value)


@pytest.mark.parametrize(
    ("sizes", "plan", "words"),
    [
        ({"num_key_value_heads": 1}, "colwise", "the model has num_key_value_heads 1, but every rank needs the same number of heads"),
        (
            {"intermediate_size": 49},
            "colwise",
            "plans style 'colwise' for 'model.layers.0.mlp.gate_proj', whose width 49 is not divisible by 2",
        ),
        ({}, "packed_colwise", "style 'packed_colwise' for 'model.layers.0.mlp.up_proj', which the torch backend does not divide"),
        ({}, None, "transformers has no tensor parallel plan"),
    ],
)
def test_a_model_that_tensor_ranks_cannot_divide(
    sizes: dict[str, Any], plan: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Qwen2Config.base_model_tp_plan
    monkeypatch.setattr(Qwen2Config, "base_model_tp_plan", {} if plan is None else {**whole, "layers.*.mlp.up_proj": plan})
    said = refused_before(
        tmp_path, Qwen2Config(**{**SIZES, **sizes}), TP2, lambda model: slice_layers(model, cast(Any, Mesh()), torch.device("cpu"))
    )
    assert words in said


@pytest.mark.parametrize(
    ("config", "asked", "words"),
    [
        (
            Qwen2Config(**SIZES),
            adapted(2, "q_proj", "c_attn"),
            r"training.lora_targets 'c_attn': in model '.*' \(Qwen2ForCausalLM\) this is not a linear layer; its linear layers end with d",
        ),
        (GPT2, adapted(2), r"'.*' \(GPT2LMHeadModel\) has no linear layers \(torch.nn.Linear\) that adapters could be put on"),
        (
            Qwen2Config(**SIZES),
            adapted(17, "v_proj"),
            r"training.lora_rank 17: no layer with adapters in model '.*' \(Qwen2ForCausalLM\) has weights whose change can have a rank "
            r"above 16 \(the limit of 'model.layers.0.self_attn.v_proj'\); type --lora-rank 16 or less",
        ),
        (Qwen2Config(**SIZES), adapted(33), r"a rank above 32 \(the limit of 'model.layers.0.self_attn.q_proj'\)"),
    ],
)
def test_adapters_that_the_model_cannot_have(config: PretrainedConfig, asked: Any, words: str, tmp_path: Path) -> None:
    assert re.search(words, refused_before(tmp_path, config, *asked))


def test_layers_that_nobody_can_divide_or_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused_before(tmp_path, GPT2, {"num_trainers": 2, "zero_stage": 3}, decoder_layers)
    assert said.startswith("GPT2LMHeadModel has no list of decoder layers")
    monkeypatch.setattr("rlcore_plugin_torch.activation_memory.GradientCheckpointingLayer", torch.nn.Conv1d)
    again = {"options": {"attention": "sdpa", "activations": "recompute"}}
    assert "to run again" in refused_before(tmp_path, Qwen2Config(**SIZES), again, lambda model: store_activations(model, "recompute"))


NO_MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"num_attention_heads": "three"}, r"Field 'num_attention_heads' expected int, got str \(value: 'three'\)"),
    "null": ({"hidden_size": None}, "Field 'hidden_size' expected int"),
    "zero": ({"num_attention_heads": 0}, "division or modulo by zero"),
    "negative": ({"hidden_size": -5}, "negative dimension -5"),
    "layers": ({"layer_types": ["none", "such"]}, "`layer_types` entries must be in"),
    "function": ({"hidden_act": "nosuch"}, "unknown name 'nosuch'"),
    "kind": ({"model_type": "nosuch"}, "model type `nosuch`"),
}


@pytest.mark.parametrize("name", NO_MODELS)
def test_a_config_of_which_nothing_can_be_built(name: str, tmp_path: Path) -> None:
    changes, words = NO_MODELS[name]
    said = refused_before(tmp_path, Qwen2Config(**SIZES), TP2, changes=changes)
    assert re.match(rf"transformers cannot build a model from {tmp_path}/config.json: .*{words}.*; correct that file", said)
    assert "\n" not in said


@pytest.mark.parametrize("offered", [True, False])
def test_a_model_without_the_attention_that_was_asked_for(offered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older releases of transformers offer sdpa for Gemma 2, and do not cap its scores then."""
    monkeypatch.setattr(Gemma2PreTrainedModel, "_supports_sdpa", offered)
    said = refused_before(tmp_path, Gemma2Config(**SIZES, head_dim=8), TP2)
    assert said.endswith('has no sdpa attention in transformers; set attention = "eager" in [training.options], or name another model')


@pytest.mark.parametrize("kind", ["own", "qwen2"])
def test_a_models_own_code_is_neither_run_nor_asked_about(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers asks at the terminal if it is not told."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked at the terminal"))
    (tmp_path / "own_code.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    own = {"model_type": kind, "auto_map": {"AutoConfig": "own_code.OwnConfig", "AutoModelForCausalLM": "own_code.OwnModel"}}
    if kind == "own":
        said = refused_before(tmp_path, Qwen2Config(**SIZES), TP2, changes=own)
        assert "ships its own code (auto_map in its config.json), which rlcore does not run unasked" in said
    else:  # transformers has a class for it, and setup takes that
        write(tmp_path, Qwen2Config(**SIZES), own)
        load_model(str(tmp_path), "sdpa", torch.device("cpu"))
        assert rlcore_check_run(run_of(str(tmp_path), **TP2)) == []
    assert rlcore_check_run(run_of(str(tmp_path), trusted=True, **TP2)) == [], "what the code makes is not known before it runs"


def test_what_can_be_trained_or_is_not_known_here_is_left_alone(tmp_path: Path) -> None:
    config = Qwen2Config(**{**SIZES, "num_key_value_heads": 1})
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    model = str(tmp_path)
    assert rlcore_check_run(run_of(model, **TP2)), "the next lines say nothing else"
    for fine in ({"num_trainers": 2, "zero_stage": 3}, {"lora_rank": 32}, {"lora_rank": 17, "lora_targets": ("v_proj", "q_proj")}):
        assert rlcore_check_run(run_of(model, **fine)) == []
    for other in ({"name": "another"}, {"environment": "/there"}, {"tensor_parallel_size": 1}):
        assert rlcore_check_run(run_of(model, **{**TP2, **other})) == []
    for unknown in ("", "org/nowhere", str(tmp_path / "nowhere")):
        assert rlcore_check_run(run_of(unknown, **TP2)) == []
    config.auto_map = {"AutoModelForCausalLM": "own_code.OwnModel"}
    config.save_pretrained(tmp_path)
    assert rlcore_check_run(run_of(model, trusted=True, **TP2)) == []
