"""The entry module says what there is without importing ColossalAI, and refuses layouts before anything starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rlcore_plugin_colossalai
from rlcore_plugin_colossalai.colossal_layout import ColossalLayout, model_problem


def test_registration_is_light() -> None:
    code = (
        "import sys, rlcore_plugin_colossalai as p; (spec,) = p.rlcore_register_training_backends(); "
        "print(spec.name, [name for name in ('torch', 'transformers', 'colossalai') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "colossalai []\n"


RANKS = {"num_trainers": 4, "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "zero_stage": 0}


def said_of(**training: Any) -> list[str]:
    """What the driver hears of a run before anything starts."""
    asked = {"name": "colossalai", "dtype": "bfloat16", "options": {}, **RANKS, **training}
    run = SimpleNamespace(training=SimpleNamespace(**asked), model=SimpleNamespace(model="not on this machine"))
    return rlcore_plugin_colossalai.rlcore_check_run(run)


@pytest.mark.parametrize(
    ("training", "ending"),
    [
        ({"pipeline_parallel_size": 2, "zero_stage": 2}, "with pipeline stages ColossalAI divides by ZeRO 1 only; type -zero 1"),
        ({"tensor_parallel_size": 2, "zero_stage": 2, "dtype": "float32"}, "type --training-dtype bfloat16, or -zero 0"),
        ({"pipeline_parallel_size": 2, "zero_stage": 1, "dtype": "float32"}, "type --training-dtype bfloat16, or -zero 0"),
        ({"zero_stage": 3}, "type -zero 2, or --trainer torch"),
        ({"tensor_parallel_size": 3}, "type -t 3 or a multiple of it"),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 4}, "type -t 8 or a multiple of it"),
        ({"options": {"sequence_parallel": "split_gather"}}, 'type -tp 2 or more and -pp 1, or sequence_parallel = "none"'),
    ],
)
def test_a_run_is_refused_by_its_layout(training: dict[str, Any], ending: str) -> None:
    (problem,) = said_of(**training)
    assert problem.endswith(ending)
    assert said_of(**{**training, "name": "torch"}) == []


@pytest.mark.parametrize(
    "training",
    [
        {"zero_stage": 2},
        {"zero_stage": 2, "dtype": "float32"},
        {"tensor_parallel_size": 2, "zero_stage": 2},
        {"pipeline_parallel_size": 2, "zero_stage": 1},
        {"pipeline_parallel_size": 4, "zero_stage": 2},
        {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "zero_stage": 2},
        {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "zero_stage": 2, "dtype": "float32"},
        {"tensor_parallel_size": 2, "options": {"sequence_parallel": "split_gather"}},
    ],
)
def test_a_layout_that_colossalai_has_is_not_refused(training: dict[str, Any]) -> None:
    """Beside pipeline stages ZeRO 2 divides nothing if there is one replica: it is ZeRO 1 then."""
    assert said_of(**training) == []


@pytest.mark.parametrize(
    ("config", "sizes", "words"),
    [
        ({"model_type": "gpt2"}, (2, 1), "but not 'gpt2'"),
        ({"model_type": "gpt2"}, (1, 2), "but not 'gpt2'"),
        ({"model_type": "llama", "num_hidden_layers": 2}, (1, 3), "2 layers, which are fewer than -pp 3; type -pp 2 or less"),
        ({"model_type": "llama", "num_attention_heads": 3}, (2, 1), "-tp 2 does not divide its num_attention_heads 3"),
        ({"model_type": "mistral", "num_attention_heads": 4, "num_key_value_heads": 1}, (2, 1), "num_key_value_heads 1"),
        ({"model_type": "qwen2", "vocab_size": 41}, (2, 1), "vocab_size 41"),
    ],
)
def test_a_model_that_ranks_cannot_share_is_refused(config: dict[str, object], sizes: tuple[int, int], words: str) -> None:
    tensor, pipeline = sizes
    assert words in model_problem(config, tensor=tensor, pipeline=pipeline)
    assert model_problem(config, tensor=1, pipeline=1) == ""


def test_what_ranks_can_share_is_not_refused() -> None:
    llama = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 41}
    assert model_problem(llama, tensor=2, pipeline=2) == ""


def test_a_run_is_refused_by_the_model_of_its_folder(tmp_path: Path) -> None:
    """A folder that is not here, or is damaged, is for the ranks to judge."""
    ranks = {"num_trainers": 2, "tensor_parallel_size": 2, "pipeline_parallel_size": 1, "zero_stage": 0}
    training = SimpleNamespace(name="colossalai", dtype="float32", options={}, **ranks)
    run = SimpleNamespace(training=training, model=SimpleNamespace(model=str(tmp_path)))
    assert rlcore_plugin_colossalai.rlcore_check_run(run) == []
    for text, found in ((json.dumps({"model_type": "gpt2"}), 1), ("[]", 0), ("{", 0)):
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
        assert len(rlcore_plugin_colossalai.rlcore_check_run(run)) == found


def test_neighbours_are_tensor_parallel() -> None:
    layout = ColossalLayout(size=8, tensor=2, pipeline=2)
    assert [layout.place(rank) for rank in (0, 1, 2, 4, 7)] == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)]
    assert [ColossalLayout(size=2, zero=2).stage(dtype) for dtype in ("float32", "bfloat16")] == [2, 2]
    assert [ColossalLayout(size=2, tensor=2, zero=2).stage(dtype) for dtype in ("float32", "bfloat16")] == [0, 2]
    assert ColossalLayout(size=2, pipeline=2, zero=2).stage("bfloat16") == 1
