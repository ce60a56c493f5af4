"""The figures of `make gpu`: operations, shares of a peak, memory, heaviest operations, what pytest said."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType
from transformers import AutoModelForCausalLM

from benchmarks.gpu.contracts import counted
from benchmarks.gpu.device import smaller_until_it_fits
from benchmarks.gpu.flops import generation_flops, mfu, peak_of, update_flops
from benchmarks.gpu.models import SHAPES, TINY, config_of, write_model
from benchmarks.gpu.sleep import memory_problems
from benchmarks.gpu.trace import MOST, heaviest


def test_parameters_are_those_of_the_model(tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(write_model(TINY, tmp_path / "model", "cpu"))
    matrices = {id(parameter): parameter.numel() for parameter in model.parameters() if parameter.ndim == 2}
    assert TINY.parameters == sum(matrices.values())


def test_the_shapes_have_the_sizes_of_their_names() -> None:
    assert [round(SHAPES[name].parameters / 1e9, 2) for name in ("0.6b", "1.7b")] == [0.6, 1.72]


def test_the_operations_of_an_update_are_those_that_torch_counts() -> None:
    """Forward of one sequence without cache; backward costs twice as much by definition, recomputation not counted."""
    from torch.utils.flop_counter import FlopCounterMode

    config = config_of(TINY)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.zeros(3, 20, dtype=torch.int64), use_cache=False)
    rotary = 3 * 20 * TINY.head_dim  # frequencies of the positions, a product of its own
    assert 3 * counter.get_total_flops() == pytest.approx(update_flops(TINY, 3, 20), abs=3 * rotary)


def test_generation_costs_a_prompt_once_and_a_pass_a_token() -> None:
    forward = update_flops(TINY, 1, 10) / 3
    assert generation_flops(TINY, 2, 8, 10, 0) == 2 * forward
    one = generation_flops(TINY, 2, 8, 10, 1) - 2 * forward
    assert one == 8 * (2 * TINY.parameters + 4 * TINY.layers * TINY.heads * TINY.head_dim * 10)


def test_the_share_of_the_peak_is_of_the_card_that_is_named() -> None:
    cards = [
        "NVIDIA H200",
        "NVIDIA H200 NVL",
        "NVIDIA H100 80GB HBM3",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA L40S",
        "NVIDIA L4",
        "NVIDIA L40",
        "GH200",
    ]
    assert [peak_of(card) for card in cards] == [989.0, 835.0, 989.0, 312.0, 362.0, 121.0, None, None]
    assert mfu(989e12, 2.0, "NVIDIA H200") == 0.5
    assert mfu(989e12, 2.0, "CPU (x86_64)") is None


def test_memory_that_sleep_keeps_or_that_grows_is_a_problem() -> None:
    assert memory_problems(10.0, [20.0, 24.0, 24.0], [11.0, 15.0, 15.0]) == []
    assert memory_problems(None, [], []) == []
    (kept,) = memory_problems(10.0, [20.0, 24.0, 24.0], [13.0, 15.0, 15.0])
    assert kept == "asleep 13.00 GB are taken, awake 20.00, before the engine was there 10.00"
    (grows,) = memory_problems(10.0, [20.0, 24.0, 25.0], [11.0, 15.0, 15.5])
    assert grows == "memory grows asleep from round to round: 11.00, 15.00, 15.50 GB"


def averages() -> Iterable[SimpleNamespace]:
    for number in range(MOST + 5):
        yield SimpleNamespace(
            key=f"aten::op{number}",
            count=number,
            self_cpu_time_total=100.0 - number,
            self_device_time_total=1000.0 * number,
            device_type=DeviceType.CPU,
        )
    yield SimpleNamespace(key="a kernel", count=1, self_cpu_time_total=0.0, self_device_time_total=9e9, device_type=DeviceType.CUDA)


def test_the_heaviest_operations_are_counted_once_by_the_device_s_own_time() -> None:
    rows = heaviest(averages(), "cuda")
    assert [row["operation"] for row in rows] == [f"aten::op{number}" for number in range(MOST + 4, 4, -1)]
    assert rows[0] == {"operation": "aten::op14", "ms": 14.0, "share": round(14 / sum(range(15)), 4), "calls": 14}
    assert heaviest(averages(), "cpu")[0]["operation"] == "aten::op0"


def test_the_last_line_of_pytest_is_read() -> None:
    assert counted("1 failed in a name\n== 3 failed, 217 passed, 1 skipped, 22 deselected, 2 errors in 5.1s ==\n") == {
        "failed": 3,
        "passed": 217,
        "skipped": 1,
        "error": 2,
    }
    assert counted("no tests ran") == {}


def test_a_size_that_does_not_fit_is_halved_until_it_does() -> None:
    tried = []

    def attempt(size: int) -> str:
        tried.append(size)
        if size > 8:
            raise torch.cuda.OutOfMemoryError("too much")
        return "fits"

    assert smaller_until_it_fits("cpu", 32, attempt) == (8, "fits")
    assert tried == [32, 16, 8]
    with pytest.raises(torch.cuda.OutOfMemoryError):
        smaller_until_it_fits("cpu", 1, lambda size: attempt(size + 8))
