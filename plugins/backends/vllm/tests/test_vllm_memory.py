"""What one device for both must hold, by arithmetic, said and refused before anything is loaded. Nothing here runs on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rlcore_plugin_vllm.device_memory as device_memory
from rlcore_plugin_vllm.device_memory import TRAINERS

from rlcore.testing import Registry, RunTester

LAYERS, WIDTH = 24, 896
PARAMETERS = 500_000_000


@pytest.fixture
def tester(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTester:
    """A machine that seems to have one GPU, and a model whose files hold nothing but headers."""
    monkeypatch.setattr("rlcore_plugin_tools.machine_check.cuda_devices", lambda: 1)
    monkeypatch.setattr("rlcore.host.devices.cuda_devices", lambda: 1)
    return RunTester(tmp_path, in_process=True).with_fakes()


def planned(tester: RunTester, *flags: str, **options: Any) -> Any:
    """A dry run of a colocated run with half a billion parameters: 14 heads of 64, 2 of keys and values."""
    inference = {"name": "vllm", "device": "cuda", "dtype": "bfloat16", "options": options}
    config = tester.fake_run(
        inference=inference, training={"name": "torch"}, data={"max_prompt_tokens": 1000}, sampling={"max_new_tokens": 24}
    )
    folder = tester.folder / "model"
    shape = {"num_hidden_layers": LAYERS, "hidden_size": WIDTH, "num_attention_heads": 14, "num_key_value_heads": 2}
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", **shape}))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"a": {"dtype": "BF16", "shape": [PARAMETERS // 1000, 1000], "data_offsets": [0, 2 * PARAMETERS]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2 * PARAMETERS)  # a hole: it takes no room
    return tester.run("train", config, "--dry-run", "--json", "--placement", "colocated", *flags)


def test_each_part_is_said_in_the_plan(tester: RunTester) -> None:
    """0.5 G parameters: 0.93 GiB in bf16, 1.86 in fp32. A token of the cache: 2 x 24 x 2 x 64 x 2 bytes = 12,288, an answer 12 MiB."""
    notes = planned(tester, device_memory_gib=24.0, engine={"gpu_memory_utilization": 0.5}).assert_ok().json["notes"]
    assert notes[-1] == (
        "rlcore-plugin-vllm: one device for both, by arithmetic, in GiB: engine 12.0 (weights 0.9, keys and values 11.1), trainer torch "
        "weights 1.9, gradients 1.9, optimizer 3.7 (gives its memory back meanwhile), CUDA 1.2; while it generates 15.1, while it trains "
        "8.7 and activations, of 24.0; room for 944 answers of 1024 tokens at once"
    )


def test_a_device_that_is_too_small_is_refused_with_the_sum_and_what_to_change(tester: RunTester) -> None:
    planned(tester, device_memory_gib=24.0).assert_refused(
        "--placement colocated: the device has 24.0 GiB, but generation needs 25.1: engine 22.1 (weights 0.9, keys and values 21.1), "
        "trainer torch weights 1.9, gradients 1.9, optimizer 3.7 (gives its memory back meanwhile), CUDA 1.2; set "
        "gpu_memory_utilization = 0.87 or less in [inference.options.engine]"
    )
    planned(tester, device_memory_gib=24.0, engine={"gpu_memory_utilization": 0.87}).assert_ok()


def test_a_model_whose_training_does_not_fit_is_refused(tester: RunTester) -> None:
    said = "the device has 8.0 GiB, but an update needs 8.7 without its activations"
    planned(tester, device_memory_gib=8.0).assert_refused(said, "take a smaller model or another training backend")


def test_a_reference_model_counts(tester: RunTester) -> None:
    planned(tester, "-kl", "0.1", device_memory_gib=10.0).assert_refused("an update needs 10.5", "reference model 1.9")


def test_a_share_without_room_for_one_answer_is_refused(tester: RunTester) -> None:
    planned(tester, device_memory_gib=24.0, engine={"gpu_memory_utilization": 0.03}).assert_refused(
        "leaves 0 for keys and values, but one answer of 1024 tokens needs 0.012", "raise gpu_memory_utilization"
    )


def test_bytes_for_keys_and_values_take_the_place_of_a_share(tester: RunTester) -> None:
    notes = (
        planned(tester, device_memory_gib=24.0, kv_cache_memory_bytes=2 << 30, engine={"gpu_memory_utilization": 0.5})
        .assert_ok()
        .json["notes"]
    )
    assert "engine 2.9 (weights 0.9, keys and values 2.0)" in notes[-1]
    assert "while it generates 15.1" in notes[-1]  # at its start vLLM wants its whole share free: 12.0, with 1.9 of the trainer and CUDA


def test_the_memory_is_asked_of_the_driver_and_a_run_without_an_answer_says_so(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "_asked_of_driver", lambda: 8.0 * (1 << 30))
    planned(tester).assert_refused("the device has 8.0 GiB")
    monkeypatch.setattr(device_memory, "_asked_of_driver", lambda: None)
    assert "the memory of the device is not known here" in planned(tester).assert_ok().json["notes"][-1]


def test_nothing_is_said_where_no_device_is_shared(tester: RunTester) -> None:
    notes = planned(tester, "--placement", "split", device_memory_gib=8.0).assert_ok().json["notes"]
    assert not [note for note in notes if note.startswith("rlcore-plugin-vllm")]


def test_what_is_known_of_a_trainer_is_what_it_declares() -> None:
    assert TRAINERS["torch"].sleeps is Registry.discover().spec("training", "torch").capabilities.sleeps


@pytest.mark.parametrize("share", ["a lot", [1], 90, 0, -0.5, True])
def test_a_share_of_the_device_that_is_none_is_refused_in_a_sentence(share: Any, tester: RunTester) -> None:
    planned(tester, device_memory_gib=24.0, engine={"gpu_memory_utilization": share}).assert_refused(
        f"inference.options.engine.gpu_memory_utilization is {share!r}; it is a share of the device's memory, above 0 and at most 1"
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-temp", "2.5"), "--temperature 2.5"),
        (("-temp", "0.005"), "--temperature 0.005"),
        (("--temperature-end", "3"), "--temperature-end 3"),
        (("--eval-temperature", "0.001"), "--eval-temperature 0.001"),
    ],
)
def test_a_temperature_that_vllm_does_not_sample_at_is_refused_before_anything_starts(
    flags: tuple[str, ...], said: str, tester: RunTester
) -> None:
    planned(tester, *flags, device_memory_gib=80.0).assert_refused(f"{said}: vLLM samples at 0.01 to 2; type one of these")


def test_temperatures_at_the_bounds_and_greedy_evaluation_are_served(tester: RunTester) -> None:
    flags = ("-temp", "2", "--temperature-end", "0.01", "--eval-temperature", "0")
    planned(tester, *flags, device_memory_gib=80.0, engine={"gpu_memory_utilization": 0.5}).assert_ok()
