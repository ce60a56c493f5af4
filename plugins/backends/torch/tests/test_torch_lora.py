"""LoRA in the torch backend: the same gradients as full training in the same subspace, the base below untouched, adapters that leave the
trainer and come back whole."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.passes import accumulate
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen2Config

from rlcore.api import ConfigError, LoraSettings, ModelRole, Need, OptimizerSettings, RunError, TrainBatch, TrainingContext, WeightsKind
from rlcore.testing import make_rollout, make_train_batch
from rlcore.testing.training.plain_objective import PlainObjective
from rlcore.testing.weights import snapshot_of, weights_of

VOCABULARY = 37
RANK, ALPHA = 3, 12.0
SCALE = ALPHA / RANK
IDS = np.array([3, 5, 4, 7, 4, 9, 3], np.int32)


def write_model(folder: Path, *, tied: bool = True, seed: int = 0) -> str:
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        initializer_range=0.15,
        tie_word_embeddings=tied,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("base"))


def trainer(model: str, *, lora: LoraSettings | None, **changes: Any) -> TorchBackend:
    context = TrainingContext(
        model=model,
        optimizer=OptimizerSettings(learning_rate=0.02, min_lr_ratio=1.0, total_steps=100),
        rollouts_per_forward=2,
        tokens_per_forward=1000,
        prompts_per_slice=8,
        needs=frozenset({Need.REFERENCE}),
        device="cpu",
        lora=lora,
    )
    backend = TorchBackend(context := replace(context, **changes))
    backend.setup(context)
    return backend


LORA = LoraSettings(rank=RANK, alpha=ALPHA)


def batch(seed: int = 0) -> TrainBatch:
    draw = np.random.default_rng(seed)
    rollouts = [
        make_rollout(
            draw.integers(1, VOCABULARY, 4).tolist(), draw.integers(1, VOCABULARY, length).tolist(), index=row, prompt_id=f"p{row}"
        )
        for row, length in enumerate((5, 2, 7, 3))
    ]
    return make_train_batch(rollouts, [1.0, -0.5, 0.75, -1.25], group=[0, 1, 2, 3])


def updated(backend: TorchBackend, steps: int = 2) -> TorchBackend:
    for seed in range(steps):
        backend.update(batch(seed), PlainObjective())
    return backend


def gradients(backend: TorchBackend) -> dict[str, torch.Tensor]:
    """dL/dW of each trained parameter, by its name in the model."""
    backend.optimizer.zero_grad()
    accumulate(backend.policy, batch(9), PlainObjective(), backend.cut, backend.clock)
    named = backend.policy.model.named_parameters()
    return {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None}


def test_gradients_and_a_plain_step_are_those_of_full_training_projected_onto_the_subspace(model: str, tmp_path: Path) -> None:
    """dL/dB = s dL/dW A^T and dL/dA = s B^T dL/dW, with dL/dW from a full model of the merged weights."""
    adapted = updated(trainer(model, lora=LORA, dtype="float64"))
    adapted.save_model(tmp_path / "merged")
    full = gradients(trainer(str(tmp_path / "merged"), lora=None, dtype="float64"))
    own, pairs = gradients(adapted), adapted.adapters.pairs()
    assert len(own) == 2 * len(pairs) == 2 * 7 * 2  # seven linear layers in each of two
    stepped, rate = {}, 0.5
    for name, pair in pairs.items():
        stem = name.removesuffix(".weight")
        low, high = pair.low.detach().clone(), pair.high.detach().clone()
        assert high.abs().max() > 0, "B has not moved, so dL/dA would be zero whatever it is"
        projected = SCALE * high.T @ full[name], SCALE * full[name] @ low.T
        for letter, expected in zip("AB", projected, strict=True):
            torch.testing.assert_close(own[f"{stem}.lora_{letter}.default.weight"], expected, rtol=1e-10, atol=1e-12)
        stepped[name] = SCALE * (high - rate * projected[1]) @ (low - rate * projected[0])
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64).state_dict()
    with torch.no_grad():
        for parameter in adapted.optimizer.parameters:
            parameter -= rate * parameter.grad
    after = weights_of(adapted)
    for name, change in stepped.items():
        np.testing.assert_allclose(after[name].data, (base[name] + change).numpy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_policy_starts_as_the_base_and_the_reference_stays_it_bit_for_bit(model: str, dtype: str) -> None:
    adapted, apart = trainer(model, lora=LORA, dtype=dtype), trainer(model, lora=None, dtype=dtype)
    expected = apart.logprobs(batch(), ModelRole.REFERENCE)
    np.testing.assert_array_equal(adapted.logprobs(batch(), ModelRole.POLICY), expected)
    updated(adapted)
    np.testing.assert_array_equal(adapted.logprobs(batch(), ModelRole.REFERENCE), expected)
    assert np.abs(adapted.logprobs(batch(), ModelRole.POLICY) - expected).max() > 0.01
    before = {name: tensor.checksum for name, tensor in weights_of(adapted).items()}
    updated(adapted, 1)  # a reference pass leaves the adapters trained
    after = {name: tensor.checksum for name, tensor in weights_of(adapted).items()}
    assert {name for name in before if before[name] != after[name]} == set(adapted.adapters.pairs())


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")  # PEFT's own wrapper asks for it
@pytest.mark.parametrize("tied", [True, False])
def test_merged_and_travelling_weights_are_the_policy_and_leave_it_as_it_was(tmp_path: Path, tied: bool) -> None:
    """What engines are sent, whole or as adapters, and what a checkpoint holds: PEFT computes the same from each."""
    model = write_model(tmp_path / "base", tied=tied)
    adapted = updated(trainer(model, lora=replace(LORA, adapter_only=True)))
    held = {name: tensor.clone() for name, tensor in adapted.policy.model.state_dict().items()}
    own = adapted.probe(IDS)
    sent = snapshot_of(1, adapted)
    assert (sent.kind, sent.extra["base"]) == (WeightsKind.ADAPTER, model)
    assert sum(tensor.data.nbytes for tensor in sent.tensors.values()) < 50_000 < sum(4 * weight.numel() for weight in held.values())
    adapted.save_model(tmp_path / "saved")
    stored = load_file(tmp_path / "saved" / "adapter" / "adapter_model.safetensors")
    assert {name: tensor.data.tobytes() for name, tensor in sent.tensors.items()} == {
        name: tensor.numpy().tobytes() for name, tensor in stored.items()
    }
    assert sent.extra["config"] == (tmp_path / "saved" / "adapter" / "adapter_config.json").read_text()
    peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), tmp_path / "saved" / "adapter")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    for loaded in (peft, merged):
        np.testing.assert_allclose(probe(loaded), own, atol=1e-5)
    base = AutoModelForCausalLM.from_pretrained(model).state_dict()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        assert torch.equal(merged.state_dict()[name], base[name])
    after = adapted.policy.model.state_dict()
    assert all(torch.equal(weight, after[name]) for name, weight in held.items())


@torch.no_grad()
def probe(model: torch.nn.Module) -> np.ndarray:
    ids = torch.from_numpy(IDS.astype(np.int64))
    return model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0].numpy()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resumed_trainer_has_its_first_base_below_its_adapters(model: str, tmp_path: Path, dtype: str) -> None:
    """``setup`` reads the merged checkpoint; what it began with is found again, so that nothing is merged twice."""
    lora = replace(LORA, adapter_only=True)
    straight = updated(trainer(model, lora=lora, dtype=dtype))
    straight.save_model(tmp_path / "model")
    straight.save(tmp_path / "state")
    resumed = {folder: trainer(folder, lora=lora, dtype=dtype) for folder in (str(tmp_path / "model"), model)}
    for backend in resumed.values():
        backend.load(tmp_path / "state")
    expected, reference = updated(straight).logprobs(batch(), ModelRole.POLICY), straight.logprobs(batch(), ModelRole.REFERENCE)
    for backend in resumed.values():
        np.testing.assert_array_equal(updated(backend).logprobs(batch(), ModelRole.POLICY), expected)
        np.testing.assert_array_equal(backend.logprobs(batch(), ModelRole.REFERENCE), reference)
    # Engines of a run that is given the merged folder hold it: an adapter over it would be the change twice.
    kinds = [backend.weight_source().manifest().kind for backend in resumed.values()]
    assert kinds == [WeightsKind.FULL, WeightsKind.ADAPTER]
    resumed[model].save_model(tmp_path / "again")
    resumed[str(tmp_path / "model")].save_model(tmp_path / "too")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("again", "too"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_another_model_below_the_adapters_is_refused_and_a_copy_is_not(tmp_path: Path) -> None:
    """Also if the trainer was set up on the merged checkpoint, and goes back to the base by its path."""
    base = Path(write_model(tmp_path / "base"))
    adapted = updated(trainer(str(base), lora=LORA))
    adapted.save_model(tmp_path / "model")
    adapted.save(tmp_path / "state").result()
    copied = shutil.copytree(base, tmp_path / "copy")
    shutil.rmtree(base)
    shutil.copytree(copied, base)  # other times, other inodes
    trainer(str(tmp_path / "model"), lora=LORA).load(tmp_path / "state")
    write_model(base, seed=1)
    for folder in (base, tmp_path / "model"):
        with pytest.raises(
            RunError, match=r"below the adapters .* is not the one that they were trained on: its model.safetensors has changed"
        ):
            trainer(str(folder), lora=LORA).load(tmp_path / "state")
    shutil.rmtree(base)
    shutil.copytree(copied, base)
    config = json.loads((base / "config.json").read_text())
    for changes, refused in (({"transformers_version": "5.0.0", "dtype": "float16"}, False), ({"rms_norm_eps": 1e-3}, True)):
        (base / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(RunError, match=r"its config\.json has changed") if refused else nullcontext():
            trainer(str(base), lora=LORA).load(tmp_path / "state")
    shutil.rmtree(base)
    with pytest.raises(
        RunError, match=rf"and its folder {base} is gone; put it back there, or start .* from the checkpoint's merged model"
    ):
        trainer(str(tmp_path / "model"), lora=LORA).load(tmp_path / "state")


def test_what_does_not_fit_is_refused_by_name(model: str, tmp_path: Path) -> None:
    ends = "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"
    for target, why in (("c_attn", "is not a linear layer"), ("lm_head", "is the output head or the embedding, which take no adapters")):
        with pytest.raises(
            ConfigError, match=rf"training.lora_targets '{target}': in model .* this {why}; its linear layers end with {ends}"
        ):
            trainer(model, lora=replace(LORA, targets=("q_proj", target)))
    narrow = trainer(model, lora=replace(LORA, targets=("layers.1.self_attn.q_proj", "v_proj")))
    assert len(narrow.adapters.pairs()) == 3
    narrow.save(tmp_path).result()
    with pytest.raises(RunError, match=r"and this run has 160: their effect would be scaled differently; type --lora-alpha"):
        trainer(model, lora=replace(LORA, alpha=160.0)).load(tmp_path)
    with pytest.raises(RunError, match=r"lora_A.weight' has shape none \(it is absent\) there, and \[3, 48\] here; type the --lora-rank"):
        trainer(model, lora=LORA).load(tmp_path)
    with pytest.raises(RunError, match="the checkpoint is from a run with adapters, but this run trains without them"):
        trainer(model, lora=None).load(tmp_path)
