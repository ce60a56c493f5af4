"""The backend on a real tiny Qwen2 written to disk; RLCORE_TEST_DEVICE=cuda trains it on a GPU."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlcore_plugin_torch import rlcore_register_training_backends
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.checksums import write_checksum
from rlcore_plugin_torch.decoder import decoder_of
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_torch.progress_file import write_progress
from rlcore_plugin_torch.sample import sample_batch
from safetensors.numpy import load_file
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from rlcore.api import ConfigError, ModelRole, Need, OptimizerSettings, RunError, TrainBatch, TrainingContext
from rlcore.learning import ClippedSurrogate, PolicyObjective
from rlcore.testing import snapshot_of, weights_of

DEVICE = os.environ.get("RLCORE_TEST_DEVICE", "cpu")
SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
OBJECTIVE = PolicyObjective(loss=ClippedSurrogate(), entropy_coeff=0.01)


@pytest.fixture(scope="module", params=["tied", "untied"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp(request.param)
    Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=request.param == "tied", attention_dropout=0.5)).save_pretrained(path)
    return path


def context(folder: Path, **changes: Any) -> TrainingContext:
    base = TrainingContext(
        model=str(folder),
        optimizer=OptimizerSettings(learning_rate=1e-2, warmup_steps=2, total_steps=10, max_grad_norm=0.5),
        rollouts_per_forward=2,
        tokens_per_forward=1000,
        prompts_per_slice=10,
        device=DEVICE,
    )
    return replace(base, **changes)


def started(folder: Path, options: TorchOptions | None = None, **changes: Any) -> TorchBackend:
    chosen = context(folder, **changes)
    backend = TorchBackend(chosen, options or TorchOptions())
    backend.setup(chosen)
    return backend


def batch(**changes: Any) -> TrainBatch:
    base = sample_batch(100)
    rng = np.random.default_rng(0)
    return at(replace(base, advantages=rng.normal(size=9).astype(np.float32), **changes), 0.7, 0.7, 0.7)


def at(data: TrainBatch, *temperatures: float) -> TrainBatch:
    """The batch as if its rollouts had been sampled at these temperatures."""
    return replace(
        data, rollouts=tuple(replace(rollout, temperature=value) for rollout, value in zip(data.rollouts, temperatures, strict=True))
    )


TEMPERATURES = {"one": (0.7, 0.7, 0.7), "mixed": (0.7, 1.6, 1.0)}


def weights(backend: TorchBackend) -> dict[str, np.ndarray]:
    return {name: tensor.data for name, tensor in weights_of(backend).items()}


def naive_logprobs(folder: Path, data: TrainBatch) -> list[float]:
    """One sequence at a time through the whole model, full log-softmax."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    values = []
    for rollout in data.rollouts:
        segment = rollout.segments[0]
        ids = torch.from_numpy(np.concatenate([segment.context_ids, segment.token_ids]).astype(np.int64))
        with torch.no_grad():
            log_p = (model(ids[None]).logits[0] / rollout.temperature).log_softmax(-1)
        start = len(segment.context_ids)
        values += [float(log_p[t - 1, ids[t]]) for t in range(start, len(ids))]
    return values


@pytest.mark.parametrize("packing", ["on", "off"])
@pytest.mark.parametrize("temperatures", TEMPERATURES)
def test_log_probabilities_equal_the_models_own(folder: Path, packing: Any, temperatures: str) -> None:
    backend, data = started(folder, TorchOptions(packing=packing)), at(batch(), *TEMPERATURES[temperatures])
    assert backend.logprobs(data, ModelRole.POLICY) == pytest.approx(naive_logprobs(folder, data), abs=5e-5)


def test_probe_is_at_temperature_one(folder: Path) -> None:
    backend = started(folder)
    data = sample_batch(100)
    segment = data.rollouts[0].segments[0]
    probe = backend.probe(np.concatenate([segment.context_ids, segment.token_ids]))
    assert probe.dtype == np.float32
    assert probe[-3:] == pytest.approx(backend.logprobs(data, ModelRole.POLICY)[:3], abs=5e-5)


@pytest.mark.parametrize("temperatures", TEMPERATURES)
def test_one_step_equals_adamw_written_by_hand(folder: Path, temperatures: str) -> None:
    """Against a full log-softmax on the Hugging Face model in float64 and the update rule of AdamW, term by term."""
    backend, data = started(folder), at(batch(), *TEMPERATURES[temperatures])
    metrics = backend.update(data, PolicyObjective(loss=ClippedSurrogate()))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    start, loss = 0, torch.zeros((), dtype=torch.float64)
    for rollout in data.rollouts:
        segment = rollout.segments[0]
        ids = torch.from_numpy(np.concatenate([segment.context_ids, segment.token_ids]).astype(np.int64))
        log_p = (model(ids[None]).logits[0] / rollout.temperature).log_softmax(-1)
        for t in range(len(segment.context_ids), len(ids)):
            loss = loss - float(data.weights[start]) * float(data.advantages[start]) * log_p[t - 1, ids[t]]
            start += 1
    loss.backward()
    norm = float(torch.sqrt(sum((parameter.grad**2).sum() for parameter in model.parameters())))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert metrics["learning_rate"] == pytest.approx(0.005)
    assert metrics["ratio_mean"] == pytest.approx(1.0)
    moved = weights(backend)
    for name, parameter in model.named_parameters():
        gradient = parameter.grad * min(1.0, 0.5 / norm)
        step = 0.005 * gradient / (gradient.abs() + 1e-8)
        decay = 0.005 * 0.01 if parameter.ndim >= 2 else 0.0
        expected = (parameter * (1 - decay) - step).detach().numpy()
        clear = gradient.abs().numpy() > 1e-6
        assert moved[name][clear] == pytest.approx(expected[clear], abs=2e-4), name
        assert clear.any() or "k_proj.bias" in name


def test_weights_are_those_that_save_pretrained_writes(folder: Path, tmp_path: Path) -> None:
    backend = started(folder)
    backend.update(batch(), OBJECTIVE)
    sent = weights_of(backend)
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path / "theirs")
    assert set(sent) == set(load_file(tmp_path / "theirs" / "model.safetensors"))
    backend.save_model(tmp_path / "ours")
    stored = load_file(tmp_path / "ours" / "model.safetensors")
    assert set(sent) == set(stored)
    for name, tensor in sent.items():
        assert tensor.dtype == "float32"
        assert np.array_equal(tensor.data, stored[name])


def test_a_snapshot_does_not_move_with_training(folder: Path) -> None:
    backend = started(folder)
    snapshot = snapshot_of(0, backend)
    backend.update(batch(), OBJECTIVE)
    snapshot.verify()
    assert any(not np.array_equal(snapshot.tensors[name].data, data) for name, data in weights(backend).items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resumed_run_goes_on_bit_for_bit(folder: Path, tmp_path: Path, dtype: str) -> None:
    straight = started(folder, dtype=dtype)
    for step in range(4):
        if step == 2:
            (tmp_path / "model").mkdir()
            straight.save_model(tmp_path / "model")
            torch.rand(5)
            straight.save(tmp_path / "trainer").result()
            noise = torch.rand(3)
        metrics = straight.update(batch(), OBJECTIVE)
    resumed = started(tmp_path / "model", dtype=dtype)
    resumed.load(tmp_path / "trainer")
    assert torch.equal(torch.rand(3), noise)
    for _ in range(2):
        again = resumed.update(batch(), OBJECTIVE)
    assert again == metrics
    states = [backend.policy.model.state_dict() for backend in (straight, resumed)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_the_state_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    backend = started(folder)
    backend.save(tmp_path).result()
    state = torch.load(tmp_path / "trainer.pt", weights_only=True)
    state["optimizer"]["names"][0] = "other"
    write_progress(tmp_path, state)
    with pytest.raises(RunError, match="another model"):
        backend.load(tmp_path)


def test_the_state_of_other_weights_or_another_precision_is_refused(tmp_path: Path) -> None:
    """ModelRole would train on without a word: the shapes are the same."""
    base = Path(tmp_path / "base")
    Qwen2ForCausalLM(Qwen2Config(**SIZES)).save_pretrained(base)
    backend = started(base)
    backend.update(batch(), OBJECTIVE)
    (tmp_path / "model").mkdir()
    backend.save_model(tmp_path / "model")
    backend.save(tmp_path / "state").result()
    started(tmp_path / "model").load(tmp_path / "state")
    with pytest.raises(RunError, match=r"not the one that was saved with the state in .*: its tensor '.*' holds other values; name the"):
        started(base).load(tmp_path / "state")
    for dtype in ("float64", "bfloat16"):
        said = rf"saved under training.dtype float32, and this run has {dtype}; type --training-dtype float32"
        with pytest.raises(RunError, match=said):
            started(tmp_path / "model", dtype=dtype).load(tmp_path / "state")


@pytest.mark.parametrize("damage", ["absent", "cut", "text", "a list", "an older one", "another format"])
def test_a_damaged_state_is_a_sentence(folder: Path, tmp_path: Path, damage: str) -> None:
    backend, file = started(folder), tmp_path / "trainer.pt"
    backend.save(tmp_path).result()
    if damage == "absent":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:50])
    elif damage == "text":
        file.write_text("edited")
        write_checksum(file)
    elif damage == "a list":
        torch.save([1], file)
        write_checksum(file)
    else:  # a flipped bit in the format is damage, if there is a checksum to tell
        torch.save({"format": 2}, file)
    words = r"trainer\.pt (cannot be read|is not the state of a trainer|is damaged).*copy the checkpoint again"
    if damage == "an older one":
        file.with_name("trainer.pt.sha256").unlink()
        words = "has format 2, but this version of the torch backend reads 5"
    with pytest.raises(RunError, match=words):
        backend.load(tmp_path)


@pytest.mark.parametrize("name", ["trainer.pt", "shards/__0_0.distcp", "shards/.metadata"])
def test_a_flipped_bit_or_a_lost_file_of_a_state_is_refused_by_name(folder: Path, tmp_path: Path, name: str) -> None:
    """Whichever byte it is: some, torch would read without a word. Other programs can check the folder too."""
    backend, file = started(folder), tmp_path / name
    backend.update(batch(), OBJECTIVE)
    backend.save(tmp_path).result()
    checksums = sorted((tmp_path / "shards").glob("*.sha256"))
    assert [item.name for item in checksums] == [".metadata.sha256", "__0_0.distcp.sha256"]
    subprocess.run(["sha256sum", "--check", "--status", *checksums], cwd=tmp_path / "shards", check=True)
    whole = file.read_bytes()
    places = np.random.default_rng(0).integers(0, len(whole), 5).tolist()
    if name == "trainer.pt":  # inside a number: elsewhere torch itself may find the file damaged
        places = [whole.index(torch.get_rng_state().numpy().tobytes()[:500]) + 100]
    for place in places:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(RunError, match=rf"{re.escape(str(file))} is damaged: .*; copy the checkpoint again"):
            backend.load(tmp_path)
    file.write_bytes(b"")
    with pytest.raises(RunError, match=rf"{re.escape(str(file))} (is damaged|cannot be read)"):
        backend.load(tmp_path)
    checksum = file.with_name(f"{file.name}.sha256")
    for lost, words in ((file, "cannot be read|no index"), (checksum, r"sha256 cannot be read \(No such file")):
        file.write_bytes(whole)
        kept = lost.read_bytes()
        lost.unlink()
        with pytest.raises(RunError, match=words):
            backend.load(tmp_path)
        lost.write_bytes(kept)
    backend.load(tmp_path)


def test_the_reference_is_the_model_the_run_began_with(folder: Path, tmp_path: Path) -> None:
    backend = started(folder, needs=frozenset({Need.REFERENCE}))
    before = backend.logprobs(batch(), ModelRole.POLICY)
    backend.update(batch(), OBJECTIVE)
    assert np.array_equal(backend.logprobs(batch(), ModelRole.REFERENCE), before)
    assert not np.allclose(backend.logprobs(batch(), ModelRole.POLICY), before)
    (tmp_path / "model").mkdir()
    backend.save_model(tmp_path / "model")
    backend.save(tmp_path / "trainer").result()
    resumed = started(tmp_path / "model", needs=frozenset({Need.REFERENCE}))
    resumed.load(tmp_path / "trainer")
    assert np.array_equal(resumed.logprobs(batch(), ModelRole.REFERENCE), before)


def test_no_reference_is_loaded_unasked(folder: Path) -> None:
    with pytest.raises(RunError, match=r"Need\.REFERENCE"):
        started(folder).logprobs(batch(), ModelRole.REFERENCE)


def test_bfloat16_is_sent_as_uint16_and_stays_near_float32(folder: Path, tmp_path: Path) -> None:
    backend = started(folder, dtype="bfloat16")
    exact = naive_logprobs(folder, batch())
    assert backend.logprobs(batch(), ModelRole.POLICY) == pytest.approx(exact, abs=0.3)
    metrics = backend.update(batch(), OBJECTIVE)
    assert np.isfinite(list(metrics.values())).all()
    for name, tensor in weights_of(backend).items():
        assert (tensor.dtype, tensor.data.dtype) == ("bfloat16", np.uint16)
        master = backend.policy.model.state_dict()[name].cpu()
        assert master.dtype == torch.float32
        assert np.array_equal(
            torch.from_numpy(np.array(tensor.data.view(np.int16))).view(torch.bfloat16).float(), master.bfloat16().float()
        )


def test_equal_runs_are_equal_bit_for_bit(folder: Path) -> None:
    ends = []
    for _ in range(2):
        backend = started(folder)
        for _ in range(3):
            backend.update(batch(), OBJECTIVE)
        ends.append(weights(backend))
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_training_raises_the_probability_of_what_was_good(folder: Path) -> None:
    backend, data = started(folder), replace(batch(), advantages=np.ones(9, np.float32))
    before = backend.logprobs(data, ModelRole.POLICY).sum()
    for _ in range(5):
        backend.update(data, OBJECTIVE)
    assert backend.logprobs(data, ModelRole.POLICY).sum() > before + 1


def test_timings_are_given_once(folder: Path) -> None:
    backend = started(folder)
    backend.update(batch(), OBJECTIVE)
    assert set(backend.timings()) == {"forward", "backward", "optimizer"}
    assert backend.timings() == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"world_size": 4}, "rendezvous '' of 4 trainer ranks is not an address"),
        ({"tensor_parallel": 2}, "tensor_parallel_size 2 does not divide the 1 trainer ranks"),
        ({"pipeline_parallel": 2}, "pipeline_parallel_size 2"),
        ({"context_parallel": 2}, "context_parallel_size 2"),
        ({"dtype": "float16"}, "dtype 'float16'"),
        ({"device": "tpu"}, "device 'tpu'"),
        ({"model": "./nothing-here"}, "'./nothing-here' cannot be loaded"),
    ],
)
def test_what_cannot_be_trained_is_refused(folder: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        started(folder, **changes)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_blamed_on_their_tensor(make: Any, value: float) -> None:
    model = LlamaForCausalLM(LlamaConfig(**SIZES))
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, :2] = value
    with pytest.raises(ConfigError, match=r"'model\.layers\.1\.mlp\.up_proj\.weight' holds 2 non-finite values .*checkpoint again"):
        started(make(model))


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def save(model: Any) -> Path:
        model.save_pretrained(tmp_path)
        return tmp_path

    torch.manual_seed(0)
    return save


def test_other_architectures_train(make: Any) -> None:
    path = make(LlamaForCausalLM(LlamaConfig(**SIZES)))
    assert started(path).logprobs(batch(), ModelRole.POLICY) == pytest.approx(naive_logprobs(path, batch()), abs=5e-5)


def test_a_model_whose_decoder_transformers_does_not_find_trains_in_padded_rows(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Llama 4, with chunks shorter than the rows; and a model of which nobody says where its decoder is."""
    layers = {"num_hidden_layers": 4, "head_dim": 32, "attention_chunk_size": 4, "intermediate_size_mlp": 96, "num_local_experts": 2}
    path = make(Llama4ForCausalLM(Llama4TextConfig(**{**SIZES, **layers})))
    backend = started(path)
    assert len([line for line in caplog.messages if "cannot be packed (it has layers of type chunked_attention" in line]) == 1
    assert backend.logprobs(batch(), ModelRole.POLICY) == pytest.approx(naive_logprobs(path, batch()), abs=5e-5)
    assert backend.update(batch(), OBJECTIVE)["grad_norm"] > 0
    (model := backend.policy.model).model = None
    with pytest.raises(ConfigError, match=r"\(Llama4ForCausalLM\) does not name its decoder .*; the torch backend does not train it"):
        decoder_of(model)


def test_learned_positions_are_packed_too(make: Any) -> None:
    path = make(GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=64, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=None)))
    backend = started(path, TorchOptions(packing="on"))
    assert backend.logprobs(batch(), ModelRole.POLICY) == pytest.approx(naive_logprobs(path, batch()), abs=5e-5)


@pytest.mark.parametrize(
    "model",
    [
        lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=32, final_logit_softcapping=2.0, attn_implementation="eager")),
        lambda: CohereForCausalLM(CohereConfig(**SIZES, logit_scale=0.25)),
    ],
    ids=["soft-capped", "scaled"],
)
def test_logits_that_are_more_than_a_projection_are_refused(make: Any, model: Any) -> None:
    with pytest.raises(ConfigError, match="computes its logits by more than a projection"):
        started(make(model()), TorchOptions(attention="eager"))


def test_eager_attention_is_not_packed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend = started(folder, TorchOptions(attention="eager"))
    assert not backend.cut.packed
    assert len([line for line in caplog.messages if "cannot be packed (attention = 'eager'" in line]) == 1
    backend.ranks.rank = 1
    assert not backend._packs()
    assert len(caplog.messages) == 1, "only the first rank tells it"
    assert backend.logprobs(batch(), ModelRole.POLICY) == pytest.approx(naive_logprobs(folder, batch()), abs=5e-5)
    with pytest.raises(RunError, match="packing 'on'"):
        started(folder, TorchOptions(attention="eager", packing="on"))


def test_the_spec_points_at_what_exists() -> None:
    (spec,) = rlcore_register_training_backends()
    assert (spec.name, spec.target.split(":")[1], spec.config.split(":")[1]) == ("torch", "TorchBackend", "TorchOptions")


def test_weights_of_a_mapped_file_are_aligned(folder: Path) -> None:
    """Else products, which round by alignment, differ between a run and what it is resumed from."""
    assert all(weight.data_ptr() % 64 == 0 for weight in started(folder).policy.model.parameters())
