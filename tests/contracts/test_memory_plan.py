"""What ``rlcore plan memory`` says is what the trainer ``torch`` takes: its state to the byte, activations and logits within a fifth."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rlcore_plugin_tools.plan.memory_model import TrainerSetting, bytes_of_rank
from rlcore_plugin_tools.plan.model_shape import named_shape, shape_of_folder
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.sample import sample_batch
from transformers import LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.api import OptimizerSettings, TrainingContext
from rlcore.learning import ClippedSurrogate, PolicyObjective
from rlcore.testing import RunTester

SIZES = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize(
    "config",
    [
        Qwen2Config(**SIZES, num_key_value_heads=2, tie_word_embeddings=True),
        Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=32, tie_word_embeddings=False),
        LlamaConfig(**SIZES, num_key_value_heads=4, tie_word_embeddings=True),
        MistralConfig(**SIZES, num_key_value_heads=1),
    ],
    ids=["qwen2", "qwen3", "llama", "mistral"],
)
def test_weights_gradients_and_moments_are_those_of_the_trainer(config: PretrainedConfig, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    settings = OptimizerSettings(learning_rate=1e-3, total_steps=1)
    context = TrainingContext(
        model=str(tmp_path), optimizer=settings, rollouts_per_forward=9, tokens_per_forward=1000, prompts_per_slice=9, device="cpu"
    )
    backend = TorchBackend(context)
    backend.setup(context)
    gradients: list[int] = []
    adam = backend.optimizer._optimizers[0]
    adam.register_step_pre_hook(lambda *_: gradients.append(_bytes(item.grad for item in backend.optimizer.parameters)))
    backend.update(sample_batch(97), PolicyObjective(loss=ClippedSurrogate()))
    moments = [value for state in adam.state.values() for name, value in state.items() if name != "step"]
    found = bytes_of_rank(shape_of_folder(tmp_path), TrainerSetting(dtype="float32"))
    assert (found.weights, found.gradients, found.moments) == (_bytes(backend.policy.parameters()), *gradients, _bytes(moments))


def _bytes(tensors: object) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if isinstance(tensor, torch.Tensor))  # type: ignore[attr-defined]


def test_the_tables_of_the_page_are_what_the_command_prints(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how_to/training.md").read_text(encoding="utf-8")
    tester = RunTester(tmp_path, in_process=True)
    shown = re.findall(r"```console\n\$ rlcore (plan memory [^\n]*)\n(.*?)\n```", page, flags=re.DOTALL)
    assert len(shown) == 4
    for words, table in shown:
        assert tester.run(*words.split()).assert_ok().stdout.rstrip() == table, f"docs/how_to/training.md is stale: type rlcore {words}"


QWEN = ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "72b")
KIND = re.compile(r"(?P<trained>all weights|LoRA of rank 16), (?P<ranks>\d) GPUs?(?P<zero>, `-zero 3`)?(?P<host>, moments on the host)?")


def test_the_largest_models_of_the_page_are_those_that_the_arithmetic_fits() -> None:
    """A tenth of the device stays free, as the page says."""
    page = (Path(__file__).parents[2] / "docs/how_to/training.md").read_text(encoding="utf-8")
    head, _, *rows = page.partition("<!-- fits: begin -->\n\n")[2].partition("\n\n<!-- fits: end")[0].splitlines()
    sizes = [int(size) for size in re.findall(r"(\d+) GB", head)]
    assert (len(sizes), len(rows)) == (5, 6)
    for row in rows:
        kind, *named = [cell.strip() for cell in row.strip("|").split("|")]
        flags = KIND.fullmatch(kind)
        assert flags is not None, kind
        setting = TrainerSetting(
            ranks=int(flags["ranks"]),
            zero=3 if flags["zero"] else 0,
            tokens=4096,
            lora_rank=16 if flags["trained"].startswith("LoRA") else 0,
            activations="recompute",
            offload=("optimizer",) if flags["host"] else (),
        )
        peaks = [bytes_of_rank(named_shape(size), setting).peak for size in QWEN]
        assert named == [QWEN[sum(peak <= 0.9e9 * size for peak in peaks) - 1] for size in sizes], kind


MEASURED = """
import gc, json, sys, torch
from pathlib import Path
from rlcore_plugin_torch.activation_memory import store_activations
from rlcore_plugin_torch.policy import CausalPolicy
from transformers import AutoModelForCausalLM
torch.set_num_threads(1)
TOKENS = 2048
def resident(which):
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which)).split()[1]) * 1024
def peak(folder, dtype, activations):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    store_activations(model, activations)
    policy = CausalPolicy(model=model, compute=torch.bfloat16 if dtype == "bfloat16" else None)
    def forward(tokens):
        ids = torch.zeros(1, tokens, dtype=torch.long)
        return policy({"input_ids": ids}, torch.arange(tokens), ids[0])[0].sum()
    forward(4).backward()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    forward(TOKENS).backward()
    return resident("VmHWM") - before
print(json.dumps([peak(*case) for case in json.loads(sys.argv[1])]))
"""


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of a process is reset through /proc")
def test_activations_are_within_a_fifth_of_what_is_measured(tmp_path: Path) -> None:
    """Gradients are there before; what is measured is all that a forward and its backward add, on a CPU."""
    large = {**SIZES, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_key_value_heads": 2}
    for name, config in (("qwen2", Qwen2Config(**large, tie_word_embeddings=True)), ("qwen3", Qwen3Config(**large, head_dim=64))):
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / name)
    cases = [("qwen2", "float32", "keep"), ("qwen2", "float32", "recompute"), ("qwen3", "float32", "keep"), ("qwen3", "bfloat16", "keep")]
    # Every larger allocation is a mapping of its own, given back when it is freed: resident memory is what is alive.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    words = json.dumps([(str(tmp_path / name), *case) for name, *case in cases])
    done = subprocess.run([sys.executable, "-c", MEASURED, words], check=True, capture_output=True, text=True, env=environment, timeout=300)
    for (name, dtype, activations), measured in zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True):
        found = bytes_of_rank(shape_of_folder(tmp_path / name), TrainerSetting(dtype=dtype, activations=activations, tokens=2048))
        ratio = (found.activations + found.gathered + found.logits) / measured
        assert 0.8 < ratio < 1.25, (name, dtype, activations, ratio, measured)
        print(name, dtype, activations, f"{ratio:.2f}")
