"""Memory options change where things are, and nothing of what is computed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlcore_plugin_torch.activation_memory import input_on_host, keep_layer_inputs, store_activations
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.host_memory import HostMoments, move_module, on_device
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.sample import sample_batch
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore.api import ConfigError, ModelRole, Need, OptimizerSettings, TrainBatch, TrainingContext
from rlcore.learning import ClippedSurrogate, PolicyObjective
from rlcore.testing import weights_of

OBJECTIVE = PolicyObjective(loss=ClippedSurrogate(), entropy_coeff=0.01)


def tiny(layers: int = 2) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config).eval()


def passes_through(model: Qwen2ForCausalLM) -> list[int]:
    """Grows by one number with every pass through the attention of a layer."""
    passes: list[int] = []
    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(lambda *_: passes.append(1))
    return passes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny().save_pretrained(path)
    return path


def started(folder: Path, dtype: str = "float32", **options: Any) -> TorchBackend:
    context = TrainingContext(
        model=str(folder),
        optimizer=OptimizerSettings(learning_rate=1e-2, total_steps=10),
        rollouts_per_forward=2,
        tokens_per_forward=1000,
        prompts_per_slice=10,
        device="cpu",
        dtype=dtype,
        needs=frozenset({Need.REFERENCE}),
    )
    backend = TorchBackend(context, TorchOptions(**options))
    backend.setup(context)
    return backend


def batch() -> TrainBatch:
    return replace(sample_batch(97), advantages=np.random.default_rng(0).normal(size=9).astype(np.float32))


def after_two_updates(backend: TorchBackend) -> tuple[Any, ...]:
    metrics = [backend.update(batch(), OBJECTIVE) for _ in range(2)]
    reference = backend.logprobs(batch(), ModelRole.REFERENCE)
    return {name: tensor.checksum for name, tensor in weights_of(backend).items()}, metrics, reference.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_option_gives_the_same_bits(folder: Path, dtype: str, caplog: pytest.LogCaptureFixture) -> None:
    expected = after_two_updates(started(folder, dtype))
    options: tuple[dict[str, Any], ...] = ({"activations": "recompute"}, {"activations": "offload", "offload": ("optimizer", "reference")})
    for each in options:
        assert after_two_updates(started(folder, dtype, **each)) == expected, each
    assert "activations 'offload' in [training.options]: the model is on the CPU" in caplog.text


@pytest.mark.parametrize("offload", [False, True])
def test_layers_that_run_again_give_the_same_gradients_and_save_their_input_alone(offload: bool) -> None:
    """``offload`` takes its way through another copy of the input on a CPU too."""
    runs = []
    for way in ("keep", "run again"):
        model = tiny(3)
        names = list(model.state_dict())
        if way == "run again":
            keep_layer_inputs(model, offload=offload)
        assert list(model.state_dict()) == names
        passes = passes_through(model)
        model(input_ids=torch.arange(24)[None], use_cache=False).logits.square().mean().backward()
        runs.append((len(passes), {name: parameter.grad for name, parameter in model.named_parameters()}))
    assert [passes for passes, _ in runs] == [3, 6]
    for name, gradient in runs[0][1].items():
        assert torch.equal(gradient, runs[1][1][name]), name


def test_the_input_alone_goes_to_the_host() -> None:
    """What autograd saved is another copy of the input, and the very tensor of everything else."""
    hidden, mask = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    with input_on_host(hidden):
        product = (hidden * mask).grad_fn
    assert product is not None
    assert torch.equal(product._saved_self, hidden)
    assert product._saved_self.data_ptr() != hidden.data_ptr()
    assert product._saved_other.data_ptr() == mask.data_ptr()


def test_without_a_gradient_no_layer_runs_twice() -> None:
    model = tiny()
    passes = passes_through(model)
    store_activations(model, "recompute")
    with torch.no_grad():
        model(input_ids=torch.arange(9)[None], use_cache=False)
    assert len(passes) == 2


def test_a_model_without_such_layers_is_refused() -> None:
    model = tiny()
    model.model.layers = torch.nn.ModuleList()
    with pytest.raises(ConfigError, match=r"Qwen2ForCausalLM has no layers of .*; use 'keep'"):
        store_activations(model, "recompute")


PEAK = """
import sys, torch
from pathlib import Path
from rlcore_plugin_torch.activation_memory import store_activations
from transformers import Qwen2Config, Qwen2ForCausalLM
torch.set_num_threads(1)
sizes = dict(vocab_size=16, hidden_size=128, intermediate_size=512, num_hidden_layers=8, num_attention_heads=2, num_key_value_heads=2)
def resident(which):
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which)).split()[1]) / 1024
for how in ("recompute", "keep"):
    model = Qwen2ForCausalLM(Qwen2Config(**sizes)).eval()
    store_activations(model, how)
    def step(tokens):
        model(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=False).logits.mean().backward()
    step(2)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    step(2048)
    print(resident("VmHWM") - before)
"""


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of a process is reset through /proc")
def test_the_peak_of_eight_layers_is_less_than_a_third() -> None:
    # Every larger allocation is a mapping of its own, given back when it is freed: resident memory is what is alive.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True, timeout=120, env=environment)
    recompute, keep = map(float, done.stdout.split())
    assert keep > 150
    assert recompute < 0.3 * keep, (recompute, keep)


def test_moments_that_are_streamed_in_portions_step_to_the_same_bits() -> None:
    weights = []
    for portion in (None, 1, 300):
        torch.manual_seed(1)
        some = [torch.nn.Parameter(torch.randn(5, 7)), torch.nn.Parameter(torch.randn(3)), torch.nn.Parameter(torch.randn(()))]
        still = torch.nn.Parameter(torch.ones(2))
        adam = torch.optim.AdamW([{"params": [*some, still]}, {"params": [torch.nn.Parameter(torch.ones(4))], "lr": 1e-3}], fused=True)
        stepper = adam if portion is None else HostMoments(adam, portion)
        for _ in range(3):
            for parameter in some:
                parameter.grad = torch.randn_like(parameter)
            stepper.step()
        assert len(adam.param_groups) == 2
        assert still not in adam.state
        weights.append(torch.cat([parameter.detach().flatten() for parameter in some]))
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


def test_a_step_that_fails_leaves_the_groups_whole() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    adam = torch.optim.AdamW([{"params": [parameter]}, {"params": [torch.nn.Parameter(torch.ones(1))]}])
    parameter.grad = torch.ones(3)
    adam.register_step_pre_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("no")))
    with pytest.raises(RuntimeError, match="no"):
        HostMoments(adam).step()
    assert len(adam.param_groups) == 2


def test_the_reference_is_on_the_device_only_while_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is made up: every move is noted and none is made."""
    moves: list[str] = []
    monkeypatch.setattr("rlcore_plugin_torch.host_memory.move_module", lambda _, device: moves.append(str(device)))
    card = torch.device("cuda", 1)
    with on_device(torch.nn.Linear(1, 1), card, offload=False):
        assert moves == []
    with on_device(torch.nn.Linear(1, 1), card, offload=True):
        assert moves == ["cuda:1"]
    assert moves == ["cuda:1", "cpu"]


def test_sleep_takes_everything_to_the_host_and_wake_what_lives_on_the_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is made up: every move is noted and none is made."""
    moves: list[tuple[str, str]] = []
    for offload, back in (((), {"policy", "moments", "reference"}), (("optimizer", "reference"), {"policy"})):
        backend = started(folder, offload=offload)
        after_two_updates(backend)
        names = {id(backend.policy): "policy", id(backend._reference): "reference"}
        monkeypatch.setattr(
            "rlcore_plugin_torch.backend.move_module", lambda module, to, names=names: moves.append((names[id(module)], str(to)))
        )
        monkeypatch.setattr("rlcore_plugin_torch.optimizer.move_moments", lambda _, __, to: moves.append(("moments", str(to))))
        backend.device = torch.device("cuda", 1)
        moves.clear()
        backend.sleep()
        assert set(moves) == {("policy", "cpu"), ("moments", "cpu"), ("reference", "cpu")}
        moves.clear()
        backend.wake()
        assert set(moves) == {(name, "cuda:1") for name in back}


def test_what_was_handed_out_does_not_hold_memory_that_sleep_gives_back(folder: Path) -> None:
    """The consumer lets a trainer sleep after the last bucket, and still has the source then."""
    backend = started(folder)
    source = backend.weight_source()
    for parameter in backend.policy.parameters():
        parameter.data = parameter.data.clone()  # as on the way to the host
    now = {parameter.data_ptr() for parameter in backend.policy.parameters()}
    assert {tensor.data.data_ptr() for bucket in source.buckets(1 << 10) for tensor in bucket.values()} == now


def test_moving_keeps_parameters_and_ties() -> None:
    model = tiny()
    before = dict(model.named_parameters())
    move_module(model, torch.device("cpu"))
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_float32_head_under_bfloat16_projects_exactly() -> None:
    """Against the projection in float64 of the same hidden states: the decoder's own rounding is not looked at."""
    model, ids = tiny(), torch.arange(60)
    gaps = {}
    for exact_head in (False, True):
        policy = CausalPolicy(model=model, compute=torch.bfloat16, exact_head=exact_head)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            hidden = model.model(input_ids=ids[None], use_cache=False).last_hidden_state[0, :-1]
        logits = hidden.double() @ model.lm_head.weight.double().t()
        wanted = logits.log_softmax(-1).gather(1, ids[1:, None]).squeeze(1)
        gaps[exact_head] = float((policy.probe(ids) - wanted).detach().abs().max())
    assert gaps[True] < 1e-5 < 5e-3 < gaps[False], gaps


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_head_option_lowers_no_precision(folder: Path, dtype: str) -> None:
    both = [started(folder, dtype, head_dtype=head).logprobs(batch(), ModelRole.POLICY) for head in ("compute", "float32")]
    assert np.array_equal(*both)
