"""The parts of the sglang backend that need no engine."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rlcore_plugin_sglang import CAPABILITIES, rlcore_check_run, rlcore_register_inference_backends
from rlcore_plugin_sglang.adapter_pairs import with_pairs
from rlcore_plugin_sglang.cpu_shim import murmur_hash32
from rlcore_plugin_sglang.engine_arguments import engine_arguments
from rlcore_plugin_sglang.options import SglangOptions
from rlcore_plugin_sglang.sampling_limits import KEPT, unsupported
from rlcore_plugin_sglang.subprocess_engine import bound_sending
from transformers import Qwen2Config

from rlcore.api import ConfigError, InferenceContext, Sampling
from rlcore.testing import FakeTokenizer


def test_the_spec_is_read_without_the_engine_and_without_torch() -> None:
    code = (
        "import sys, rlcore_plugin_sglang as p; p.rlcore_register_inference_backends(); "
        "print(sorted({'torch', 'sglang'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    [spec] = rlcore_register_inference_backends()
    assert (spec.requires_module, spec.capabilities) == ("sglang", CAPABILITIES)


def test_options_of_the_engine_are_kept_for_it_to_judge() -> None:
    assert SglangOptions(engine={"page_size": 32, "no_such_thing": 1}).engine == {"page_size": 32, "no_such_thing": 1}
    with pytest.raises(ValueError, match="silence_seconds"):
        SglangOptions(silence_seconds=0)


@pytest.mark.parametrize(
    ("heads", "width", "processes", "padded"),
    [
        (1, 128, 2, "num_key_value_heads 1"),
        (3, 128, 2, "num_key_value_heads 3"),
        (2, 96, 2, "intermediate_size 96"),
        (2, 128, 2, ""),
        (1, 96, 1, ""),
    ],
)
def test_adapters_of_a_model_that_sglang_pads_on_a_cpu_are_refused(
    heads: int, width: int, processes: int, padded: str, tmp_path: Path
) -> None:
    """The engine would end with an assertion about shapes as soon as the first adapter is used."""
    Qwen2Config(num_attention_heads=6, num_key_value_heads=heads, hidden_size=96, intermediate_size=width).save_pretrained(tmp_path)
    context = InferenceContext(
        model=str(tmp_path),
        tokenizer=FakeTokenizer(),
        prompts_per_forward=1,
        max_tokens=8,
        dtype="float32",
        device="cpu",
        tensor_parallel=processes,
        adapter_rank=4,
    )
    if padded:
        with pytest.raises(ConfigError, match=rf"producer_tensor_parallel_size 2: on a CPU SGLang pads the model's {padded} until"):
            engine_arguments(context, SglangOptions(), cpu=True)
    else:
        assert engine_arguments(context, SglangOptions(), cpu=True)["enable_lora"]


@pytest.mark.parametrize(
    ("sampling", "vocabulary", "said"),
    [
        (Sampling(), 151_936, ""),
        (Sampling(temperature=0.0, top_k=3, top_p=0.5), 151_936, ""),
        (Sampling(temperature=1e-6), 100, "temperature 1e-06; SGLang samples at 1e-05 or more, and greedily at 0"),
        (Sampling(temperature=float("nan")), 100, "temperature nan; SGLang samples"),
        (Sampling(top_k=3, top_p=0.5), 100, "top-k 3 and top-p 0.5 together"),
        (Sampling(top_p=0.5), KEPT, ""),
        (Sampling(top_p=0.5), KEPT + 1, f"top-p 0.5 over {KEPT + 1} tokens: SGLang reports log probabilities over at most {KEPT} tokens"),
        (Sampling(top_k=KEPT), 151_936, ""),
        (Sampling(top_k=KEPT + 1), 151_936, f"top-k {KEPT + 1}: SGLang reports"),
        (Sampling(top_k=KEPT + 1), 100, ""),
    ],
)
def test_what_sglang_draws_otherwise_is_refused(sampling: Sampling, vocabulary: int, said: str) -> None:
    assert unsupported(sampling, vocabulary).startswith(said)
    assert bool(unsupported(sampling, vocabulary)) == bool(said)


def run_of(name: str, **sampling):
    given = {"temperature": 1.0, "temperature_end": None, "top_k": 0, "top_p": 1.0} | sampling
    return SimpleNamespace(
        inference=SimpleNamespace(name=name), sampling=SimpleNamespace(**given), eval=SimpleNamespace(eval_temperature=0.0)
    )


def test_a_run_that_sglang_would_draw_otherwise_is_refused_before_it_starts() -> None:
    assert rlcore_check_run(run_of("sglang")) == []
    assert rlcore_check_run(run_of("other", top_k=3, top_p=0.5)) == []
    [said] = rlcore_check_run(run_of("sglang", top_k=3, top_p=0.5))
    assert said.startswith("top-k 3 and top-p 0.5 together")
    [said] = rlcore_check_run(run_of("sglang", temperature_end=1e-7))
    assert said.startswith("--temperature-end: temperature 1e-07")


def mm3(data: bytes) -> int:
    """MurmurHash3 of 32 bits with seed 0, byte by byte as it is written down."""
    state, low = 0, 0xFFFFFFFF
    for start in range(0, len(data), 4):
        word = int.from_bytes(data[start : start + 4], "little") * 0xCC9E2D51 & low
        word = (word << 15 | word >> 17) & low
        state ^= word * 0x1B873593 & low
        state = (state << 13 | state >> 19) & low
        state = (state * 5 + 0xE6546B64) & low
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & low
    state = (state ^ state >> 13) * 0xC2B2AE35 & low
    return state ^ state >> 16


def test_the_hash_of_draws_is_murmurs() -> None:
    assert mm3(b"test") == 0xBA6BD213  # a published vector
    seeds, positions, columns = [1, 2**62 + 7, 2**63 - 1], [3, 4, 70_000], [0, 9, 151_935]
    found = murmur_hash32(torch.tensor(seeds, dtype=torch.uint64), torch.tensor(positions), torch.tensor(columns))
    for row, seed, position in zip(found.tolist(), seeds, positions, strict=True):
        begin = seed.to_bytes(8, "little") + position.to_bytes(4, "little")
        assert row == [mm3(begin + column.to_bytes(4, "little")) for column in columns]


def test_an_adapter_over_one_of_a_pair_gets_zeros_over_the_other() -> None:
    stem = "base_model.model.model.layers.0"
    one = torch.ones(2, 3)
    found = with_pairs({f"{stem}.mlp.up_proj.lora_A.weight": one, f"{stem}.self_attn.q_proj.lora_A.weight": one})
    assert set(found) == {f"{stem}.mlp.{name}.lora_A.weight" for name in ("up_proj", "gate_proj")} | {
        f"{stem}.self_attn.q_proj.lora_A.weight"
    }
    assert torch.equal(found[f"{stem}.mlp.gate_proj.lora_A.weight"], torch.zeros(2, 3))
    both = {f"{stem}.mlp.{name}.lora_B.weight": one for name in ("up_proj", "gate_proj")}
    assert all(torch.equal(tensor, one) for tensor in with_pairs(both).values())


def test_a_message_to_a_process_that_reads_nothing_does_not_wait_for_ever() -> None:
    here, there = Pipe()
    with here, there:
        bound_sending(here, 0.2)
        here.send("short")
        assert there.recv() == "short"
        with pytest.raises(OSError, match="temporarily unavailable"):
            here.send(bytes(16 << 20))
