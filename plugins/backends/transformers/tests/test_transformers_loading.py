"""Which models are served: causal ones that keep every key and value; others are refused in one sentence before anything runs."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import subprocess
import sys

import pytest
import torch
from rlcore_plugin_transformers.checks import check_decoding
from rlcore_plugin_transformers.engine import TransformersBackend
from rlcore_plugin_transformers.loading import pick_device
from rlcore_plugin_transformers.options import TransformersOptions
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, MistralConfig

from rlcore.api import ConfigError, InferenceContext, Sampling

SMALL = {
    "vocab_size": 258,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 257,
}


def saved(folder, config) -> str:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["qwen3", "mistral", "gemma", "phi3", "olmo2", "granite", "qwen3_moe", "gpt_neox", "gpt2"])
def test_common_architectures_pass_the_check_of_their_decoding(kind, tmp_path, backend):
    shape = {**SMALL, "sliding_window": None, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    if kind == "gpt2":
        shape = {"vocab_size": 258, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256, "eos_token_id": 257, "bos_token_id": 0}
    path = saved(tmp_path, AutoConfig.for_model(kind, **shape))
    backend(path)


@pytest.mark.parametrize("kind", ["mamba", "bloom"])
def test_a_kind_that_cannot_be_served_is_refused_before_its_weights_are_read(kind, tmp_path, backend):
    """Whatever attention was asked for: nobody is sent to another setting first."""
    config = AutoConfig.for_model(kind, vocab_size=258, hidden_size=32, num_hidden_layers=2, n_layer=2, n_head=2)
    config.save_pretrained(tmp_path)
    for attention in ("sdpa", "eager"):
        with pytest.raises(ConfigError, match=rf"\({kind}\) (keeps the past of layer 0|takes no position_ids)"):
            backend(str(tmp_path), attention=attention)


@pytest.mark.parametrize("rope", ["dynamic", "longrope"])
def test_positions_that_move_with_the_length_bound_prompt_and_response(rope, tmp_path, backend):
    """Their keys depend on the longest row of the batch: 0.6 and 4 nats off, were they served beyond."""
    parameters = {"rope_type": rope, "rope_theta": 1e4, "factor": 2.0, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    limits = {"max_position_embeddings": 64, "original_max_position_embeddings": 64}
    config = AutoConfig.for_model("llama" if rope == "dynamic" else "phi3", **{**SMALL, **limits}, rope_parameters=parameters)
    path = saved(tmp_path, config)
    backend(path, max_tokens=64)
    with pytest.raises(ConfigError, match=rf"rotary positions of type {rope}, .* more than 64 tokens, .* may take 65 together"):
        backend(path, max_tokens=65)


def test_capped_attention_logits_ask_for_eager(tmp_path, backend):
    config = AutoConfig.for_model("gemma2", **SMALL, sliding_window=512, query_pre_attn_scalar=16)
    path = saved(tmp_path, config)
    with pytest.raises(ConfigError, match='attention = "eager"'):
        backend(path)
    backend(path, attention="eager")


def test_learned_positions_bound_prompt_and_response(tmp_path, backend):
    config = AutoConfig.for_model("gpt2", vocab_size=258, n_embd=32, n_layer=1, n_head=2, n_positions=64, eos_token_id=257, bos_token_id=0)
    path = saved(tmp_path, config)
    backend(path, max_tokens=64)
    with pytest.raises(ConfigError, match="64 learned positions"):
        backend(path, max_tokens=65)


def test_a_checkpoint_that_is_not_whole_is_refused_by_tensor(tmp_path, backend):
    path = saved(tmp_path, MistralConfig(**SMALL, sliding_window=None))
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"config.json describes: tensor 'model\.layers\.0\.mlp\.up_proj\.weight'"):
        backend(path)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_are_not_finite_are_blamed_on_their_tensor(value, tmp_path, backend):
    path = saved(tmp_path, MistralConfig(**SMALL, sliding_window=None))
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"][0, :2] = value
    tensors["model.norm.weight"][0] = value
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"'model\.layers\.0\.mlp\.up_proj\.weight' holds 2 non-finite values .*and 1 more such"):
        backend(path)


def test_a_model_that_needs_code_of_its_own_is_refused_and_nobody_is_asked(tmp_path, backend, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *asked: pytest.fail(f"somebody is asked: {asked}"))
    path = saved(tmp_path, MistralConfig(**SMALL, sliding_window=None))
    config = json.loads((tmp_path / "config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}}
    (tmp_path / "config.json").write_text(json.dumps({**config, **own}))
    with pytest.raises(ConfigError, match=r"its own code .*type --trust-remote-code"):
        backend(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "/no/such/folder/anywhere"}, "cannot be loaded"),
        ({"device": "warp"}, "not a torch device"),
        ({"device": "meta"}, "not supported"),
        ({"dtype": "float16"}, "use bfloat16 or float32"),
        ({"tensor_parallel": 2}, "one device"),
    ],
)
def test_a_setting_that_cannot_work_is_one_sentence(change, words, qwen2, tokenizer, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    values = {"model": qwen2, "tokenizer": tokenizer, "prompts_per_forward": 1, "max_tokens": 32, "device": "cpu", **change}
    with pytest.raises(ConfigError, match=words) as caught:
        TransformersBackend(InferenceContext(**values), TransformersOptions())
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_is_refused_where_there_is_none(qwen2, tokenizer):
    context = InferenceContext(model=qwen2, tokenizer=tokenizer, prompts_per_forward=1, max_tokens=32, device="cuda")
    with pytest.raises(ConfigError, match="no CUDA device"):
        TransformersBackend(context)


def test_cuda_is_the_first_device_and_one_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert {name: str(pick_device(name)) for name in ("auto", "cuda", "cuda:1", "cpu")} == {
        "auto": "cuda:0",
        "cuda": "cuda:0",
        "cuda:1": "cuda:1",
        "cpu": "cpu",
    }
    with pytest.raises(ConfigError, match="'cuda:2': torch finds 2 CUDA devices here, the last is cuda:1"):
        pick_device("cuda:2")


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), TypeError("no such argument"), IndexError("out of range")])
def test_a_model_that_cannot_decode_at_all_is_refused_in_one_sentence(error, qwen2, backend, monkeypatch):
    engine = backend(qwen2)

    def fail(timeout):
        raise error

    monkeypatch.setattr(engine, "poll", fail)
    with pytest.raises(ConfigError, match=rf"decoding fails with {type(error).__name__}: {error}; use another backend"):
        check_decoding(engine, engine._context, 258, "Qwen2ForCausalLM")


def test_a_device_without_memory_is_not_blamed_on_the_model(qwen2, backend, monkeypatch):
    engine = backend(qwen2)

    def fail(timeout):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(engine, "poll", fail)
    with pytest.raises(torch.OutOfMemoryError):
        check_decoding(engine, engine._context, 258, "Qwen2ForCausalLM")


def test_a_model_that_decodes_otherwise_than_it_reads_is_refused(qwen2, backend, monkeypatch):
    engine = backend(qwen2)
    score = engine.score
    monkeypatch.setattr(engine, "score", lambda ids: score(ids) + 0.01)
    with pytest.raises(ConfigError, match=r"differ by 0\.01 nats"):
        check_decoding(engine, engine._context, 258, "Qwen2ForCausalLM")


@pytest.mark.parametrize(("gap", "refused"), [(0.25, False), (1.0, True)])
def test_in_bfloat16_rounding_passes_and_a_fault_does_not(gap, refused, qwen2, backend, monkeypatch):
    engine = backend(qwen2)
    score = engine.score
    monkeypatch.setattr(engine, "score", lambda ids: score(ids) + gap)
    context = dataclasses.replace(engine._context, dtype="bfloat16")
    with pytest.raises(ConfigError, match="differ by 1 nats") if refused else contextlib.nullcontext():
        check_decoding(engine, context, 258, "Qwen2ForCausalLM")


def test_the_check_leaves_no_trace(qwen2, backend, requests_of, prompts, drain):
    engine = backend(qwen2)
    assert engine.poll(0.0) == []
    engine.submit(requests_of(prompts([3]), [1], Sampling(max_new_tokens=1)))
    assert set(drain(engine)) == {"0-0"}


def test_listing_the_plugin_imports_no_torch():
    code = (
        "import sys, rlcore_plugin_transformers as p\n"
        "spec, = p.rlcore_register_inference_backends()\n"
        "print(spec.name, p.rlcore_api, [m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split(maxsplit=2) == ["transformers", "2.0", "[]\n"]


def test_the_spec_names_what_exists():
    from rlcore_plugin_transformers import rlcore_register_inference_backends

    (spec,) = rlcore_register_inference_backends()
    for place in (spec.target, spec.config):
        module, _, attribute = place.partition(":")
        assert hasattr(importlib.import_module(module), attribute)
