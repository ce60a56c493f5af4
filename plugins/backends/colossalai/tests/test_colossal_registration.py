"""The entry module says what there is without importing ColossalAI, and refuses layouts before anything starts."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import rlcore_plugin_colossalai
from rlcore_plugin_colossalai.colossal_layout import ColossalLayout


def test_registration_is_light() -> None:
    code = (
        "import sys, rlcore_plugin_colossalai as p; (spec,) = p.rlcore_register_training_backends(); "
        "print(spec.name, [name for name in ('torch', 'transformers', 'colossalai') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "colossalai []\n"


def test_a_run_is_refused_by_its_layout() -> None:
    ranks = {"num_trainers": 4, "tensor_parallel_size": 2, "pipeline_parallel_size": 1, "zero_stage": 2}
    training = SimpleNamespace(name="colossalai", dtype="float32", options={}, **ranks)
    (problem,) = rlcore_plugin_colossalai.rlcore_check_run(SimpleNamespace(training=training))
    assert problem.endswith("type --training-dtype bfloat16, or -zero 0")
    training.zero_stage, training.tensor_parallel_size, training.options = 0, 1, {"sequence_parallel": "split_gather"}
    (problem,) = rlcore_plugin_colossalai.rlcore_check_run(SimpleNamespace(training=training))
    assert problem.startswith("training.options.sequence_parallel 'split_gather'")
    training.name = "torch"
    assert rlcore_plugin_colossalai.rlcore_check_run(SimpleNamespace(training=training)) == []


def test_neighbours_are_tensor_parallel() -> None:
    layout = ColossalLayout(size=8, tensor=2, pipeline=2)
    assert [layout.place(rank) for rank in (0, 1, 2, 4, 7)] == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)]
    assert [ColossalLayout(size=2, zero=2).stage(dtype) for dtype in ("float32", "bfloat16")] == [2, 2]
    assert [ColossalLayout(size=2, tensor=2, zero=2).stage(dtype) for dtype in ("float32", "bfloat16")] == [0, 2]
    assert ColossalLayout(size=2, pipeline=2, zero=2).stage("bfloat16") == 1
