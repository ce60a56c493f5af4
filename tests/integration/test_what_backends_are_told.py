"""What the configuration says of requests and layouts reaches the backends as it stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.interfaces import InferenceContext, LoraSettings, TrainingContext
from rlcore.contracts.types import Request
from rlcore.testing import FakeInference, FakeTraining, RunTester

WIDE = """
from rlcore.api import TrainingBackendSpec, TrainingCapabilities, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_training_backends():
    layouts = frozenset({"single", "context", "expert"})
    made = TrainingCapabilities(layouts=layouts)
    return [TrainingBackendSpec(name="wide", target="wide_trainer:Wide", summary="Splits sequences and experts.", capabilities=made)]
"""
TRAINER = """
from rlcore.api import TrainingCapabilities
from rlcore.testing import FakeTraining

class Wide(FakeTraining):
    capabilities = TrainingCapabilities(layouts=frozenset({"single", "context", "expert"}))
"""


def test_a_request_asks_for_min_p_and_for_what_the_engine_alone_understands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []
    submit = FakeInference.submit
    monkeypatch.setattr(FakeInference, "submit", lambda self, requests: (asked.extend(requests), submit(self, requests))[1])
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    config = tester.fake_run(
        sampling={"num_generations": 2, "max_new_tokens": 2, "min_p": 0.25, "extra": {"banned": [4]}},
        eval={"eval_dataset": {"say": str(tmp_path / "train.jsonl")}, "eval_interval": 1},
    )
    done = tester.run("train", config, "--max-steps", "1", "--json").assert_ok()
    trained = [request.sampling for request in asked if request.sampling.temperature == 1.0]
    held_out = [request.sampling for request in asked if request.sampling.temperature != 1.0]
    assert trained
    assert all((sampling.min_p, dict(sampling.extra)) == (0.25, {"banned": [4]}) for sampling in trained)
    assert held_out
    assert all(not sampling.truncates for sampling in held_out)
    assert "[sampling.extra]" in (tester.folder / done.json["run"] / "run.toml").read_text()


def test_a_trainer_is_told_how_sequences_and_experts_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[TrainingContext] = []
    setup: Any = FakeTraining.setup
    monkeypatch.setattr(FakeTraining, "setup", lambda self, context: (told.append(context), setup(self, context))[1])
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("wide", WIDE)
    (tester.plugins.root / "wide_trainer.py").write_text(TRAINER)
    training = {"name": "wide", "train_batch_size": 3, "learning_rate": 0.1}
    config = tester.fake_run(training=training)
    tester.run("train", config, "--expert-parallel-size", "4", "--max-steps", "1").assert_ok()
    assert [(context.context_parallel, context.expert_parallel) for context in told] == [(1, 4)]
    tester.run("train", config, "-t", "3", "--context-parallel-size", "2", "--dry-run").assert_refused(
        "-t 3 is not divisible by", "times --context-parallel-size 2", "type -t 4"
    )


LORA = """
from rlcore.api import InferenceBackendSpec, TrainingBackendSpec, WeightTransferSpec, hookimpl
from lora_parts import ENGINE, TRAINER
rlcore_api = "2.0"

@hookimpl
def rlcore_register_training_backends():
    return [TrainingBackendSpec(name="low", target="lora_parts:Low", summary="Trains adapters.", capabilities=TRAINER, preference=-1)]

@hookimpl
def rlcore_register_inference_backends():
    tokenizer = "rlcore.testing.tokens:load_fake_tokenizer"
    return [InferenceBackendSpec(name="whole", target="lora_parts:Whole", tokenizer=tokenizer, summary="", capabilities=ENGINE)]
"""
LORA_PARTS = """
from dataclasses import replace
from rlcore.api import TrainingCapabilities
from rlcore.testing import FakeInference, FakeTraining

TRAINER = replace(FakeTraining.capabilities, kinds=frozenset({"full", "adapter"}), lora=True)
ENGINE = replace(FakeInference.capabilities, kinds=frozenset({"full"}))

class Low(FakeTraining):
    capabilities = TRAINER

class Whole(FakeInference):
    capabilities = ENGINE
"""


def test_both_sides_are_told_of_adapters_if_the_engine_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainers: list[TrainingContext] = []
    engines: list[InferenceContext] = []
    setup, make = FakeTraining.setup, FakeInference.__init__
    monkeypatch.setattr(FakeTraining, "setup", lambda self, context: (trainers.append(context), setup(self, context))[1])
    monkeypatch.setattr(FakeInference, "__init__", lambda self, context, *more: (engines.append(context), make(self, context, *more))[1])
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("lora", LORA)
    (tester.plugins.root / "lora_parts.py").write_text(LORA_PARTS)
    config = tester.fake_run(training={"name": "low", "train_batch_size": 3, "learning_rate": 0.1})
    asked = ("--lora-rank", "4", "--lora-alpha", "8", "--lora-targets", "q_proj", "v_proj", "--max-steps", "1")
    tester.run("train", config, *asked).assert_ok()
    tester.run("train", config, *asked, "-b", "whole").assert_ok()
    tester.run("train", config, "--max-steps", "1").assert_ok()
    lora = LoraSettings(rank=4, alpha=8.0, targets=("q_proj", "v_proj"), adapter_only=True)
    assert [context.lora for context in trainers] == [lora, replace(lora, adapter_only=False), None]
    assert [context.adapter_rank for context in engines] == [4, 0, 0]
