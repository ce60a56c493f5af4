"""``rlcore plan memory``: sizes of published models, what each choice saves, the table, JSON, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.plan.memory_model import RankBytes, TrainerSetting, bytes_of_rank
from rlcore_plugin_tools.plan.model_shape import SIZES

from rlcore.testing import RunTester

PUBLISHED = {
    "0.5b": 494_032_768,
    "1.5b": 1_543_714_304,
    "3b": 3_085_938_688,
    "7b": 7_615_616_512,
    "14b": 14_770_033_664,
    "32b": 32_763_876_352,
    "72b": 72_706_203_648,
    "0.6b": 596_049_920,
    "1.7b": 1_720_574_976,
    "4b": 4_022_468_096,
    "8b": 8_190_735_360,
}
"""Parameters in the published checkpoints of Qwen2.5 and Qwen3."""


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True)


def of(size: str = "7b", **changes: Any) -> RankBytes:
    return bytes_of_rank(SIZES[size], TrainerSetting(**changes))


def test_sizes_have_the_parameters_of_the_published_models() -> None:
    assert {name: shape.parameters for name, shape in SIZES.items()} == PUBLISHED


def test_one_rank_holds_sixteen_bytes_a_parameter() -> None:
    """ZeRO (arXiv 1910.02054), section 3.1, with float32 weights alone: 4 for weights, 4 for gradients, 8 for moments."""
    alone, exact = of(), of(dtype="float64")
    assert (alone.weights, alone.gradients, alone.moments) == tuple(size * PUBLISHED["7b"] for size in (4, 4, 8))
    assert (exact.weights, exact.gradients, exact.moments) == tuple(size * PUBLISHED["7b"] for size in (8, 8, 16))
    assert of(reference=True).reference == alone.weights


def test_zero_divides_the_state_and_stage_3_holds_fewer_layers_whole() -> None:
    alone, second, third = of(ranks=8), of(ranks=8, zero=2), of(ranks=8, zero=3)
    for part in ("weights", "gradients", "moments"):
        assert getattr(second, part) == getattr(third, part) == pytest.approx(getattr(alone, part) / 8, abs=16)
    assert alone.gathered < third.gathered < second.gathered
    assert of(ranks=1, zero=3).gathered == of(ranks=1).gathered


def test_tensor_parallelism_divides_layers_and_not_embeddings() -> None:
    shape, alone, four = SIZES["7b"], of(), of(ranks=4, tensor=4)
    assert alone.weights - four.weights == 4 * 28 * (shape.layer_matrices - shape.layer_matrices // 4)
    assert alone.activations / 4 < four.activations < alone.activations


def test_what_is_recomputed_offloaded_or_adapted_takes_less() -> None:
    keep, again, offload = (of(activations=how).activations for how in ("keep", "recompute", "offload"))
    assert offload < again < keep / 5
    host = of(offload=("optimizer", "reference"), reference=True)
    assert (host.moments, host.reference) == (1 << 28, 0)
    adapted = of(lora_rank=16, reference=True)
    per_layer = sum(inputs + outputs for inputs, outputs in SIZES["7b"].linears)
    assert adapted.gradients == 4 * 16 * 28 * per_layer
    assert adapted.weights == of().weights + adapted.gradients
    assert adapted.reference == 0


def test_the_table_and_the_json_say_the_same(tester: RunTester) -> None:
    words = ("plan", "memory", "--model-size", "7B", "-t", "8", "-zero", "3", "--tokens-per-forward", "8192")
    found = tester.run(*words, "--json").assert_ok().json
    (layout,) = found["layouts"]
    assert found["parameters"] == PUBLISHED["7b"]
    expected = of(ranks=8, zero=3, tokens=8192)
    assert (layout["setting"]["zero"], layout["peak"], layout["activations"]) == (3, expected.peak, expected.activations)
    table = tester.run(*words).assert_ok().stdout
    row = next(line for line in table.splitlines() if line.startswith("-t 8 -zero 3"))
    assert row.split()[-1] == f"{expected.peak / 1e9:.1f}"
    several = tester.run("plan", "memory", "--model-size", "7b").assert_ok().lines
    assert [line.split("  ")[0] for line in several[-6:]] == [
        *("-t 1", "-t 8", "-t 8 -zero 2", "-t 8 -zero 3", "-t 4 -tp 4", "-t 32 -tp 4 -zero 3")
    ]


def test_a_folder_gives_its_own_sizes(tester: RunTester, tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    tester.write("model/config.json", json.dumps({**config, "vocab_size": 100, "num_key_value_heads": None}))
    found = tester.run("plan", "memory", "model", "--json").assert_ok().json
    assert found["parameters"] == 2 * (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64) + 2 * 100 * 64 + 64
    for changes, said in (
        ({"hidden_size": "64"}, "config.json: hidden_size is '64'; it must be a whole number of at least 1"),
        ({"model_type": "mixtral"}, "counts models of type llama, mistral, qwen2, qwen3, but model_type is 'mixtral'"),
    ):
        tester.write("model/config.json", json.dumps({**config, "vocab_size": 100, **changes}))
        tester.run("plan", "memory", "model").assert_refused(said)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["memory"], "rlcore plan memory needs one model: type its folder, or --model-size 7b"),
        (["memory", "model", "--model-size", "7b"], "needs one model"),
        (["memory", "missing"], "missing/config.json cannot be read"),
        (["memory", "--model-size", "9b"], "--model-size 9b: must be one of 0.5b, "),
        (
            ["memory", "--model-size", "7b", "-tp", "3"],
            "-tp 3: the 28 heads and 4 key-value heads of Qwen2.5-7B are not divisible by it; type -tp 2",
        ),
        (
            ["memory", "--model-size", "7b", "-t", "6", "-tp", "4"],
            "-t 6: each copy of the model takes -tp 4 ranks; type a multiple, for example -t 4",
        ),
        (["memory", "--model-size", "7b", "-zero", "4"], "-zero 4: must be a whole number from 0 to 3"),
        (["memory", "--model-size", "7b", "--dtype", "int8"], "--dtype int8: must be bfloat16, float32 or float64"),
        (["memory", "--model-size", "7b", "--offload", "optimizer,disk"], "--offload disk: must be optimizer or reference"),
        (["memory", "--model-size", "7b", "--devices", "8"], "--devices is for the simulation of rlcore plan"),
        (["memory", "--model-size", "7b", "--slots", "8"], "the setting generation.slots is for the simulation"),
        (["--devices", "8", "--lora-rank", "8"], "--lora-rank belongs to rlcore plan memory"),
        (["a.toml", "b", "--devices", "8"], "b: one workload file is enough; type rlcore plan a.toml"),
    ],
)
def test_what_cannot_be_counted_is_refused_in_one_sentence(tester: RunTester, argv: list[str], said: str) -> None:
    tester.run("plan", *argv).assert_refused(said)
