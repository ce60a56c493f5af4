"""Memory that runs out: one sentence that says in which role, what to lower and what was kept."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore.runtime.training_run import TrainingRun
from rlcore.testing import RunOutcome, RunTester
from tests.letters_model import write_model

GENERATING = r"the inference backend \w+ of producer \S+ ran out of memory while \w+.*; lower -imbs; the last checkpoint is \S+/step-2$"
TRAINING = (
    r"the training backend \w+ ran out of memory while updating .*; lower -tmbs or --tokens-per-forward; the last checkpoint is \S+/step-2$"
)


def project(folder: Path, *, in_process: bool = True, **sections: Mapping[str, Any]) -> tuple[RunTester, str]:
    tester = RunTester(folder, in_process=in_process).with_fakes()
    defaults: dict[str, Mapping[str, Any]] = {"run": {"num_episodes": 20, "max_steps": 6}, "log": {"save_interval": 1}}
    return tester, tester.fake_run(**{name: {**defaults.get(name, {}), **sections.get(name, {})} for name in defaults | sections})


def sentence_of(done: RunOutcome) -> str:
    assert done.exit_code == 1, done
    assert "Traceback" not in done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return sentence


@pytest.mark.parametrize(("training", "words"), [(False, GENERATING), (True, TRAINING)], ids=["generation", "training"])
def test_an_allocation_that_torch_refuses_names_the_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training: bool, words: str
) -> None:
    """From the checkpoint of step 2 on. The producer generates while that is written, and may be done before: then its next batch, which is
    generated before the next checkpoint, meets the fault."""
    forward, save, saved = torch.nn.Embedding.forward, TrainingRun._save, threading.Event()

    def noted(self: TrainingRun, step: int) -> None:
        save(self, step)
        saved.set()

    def hungry(self: torch.nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
        in_role = torch.is_grad_enabled() if training else threading.current_thread() is not threading.main_thread()
        if saved.is_set() and in_role:
            torch.empty(1 << 50)
        return forward(self, ids)

    write_model(tmp_path / "tiny")
    parts: dict[str, Mapping[str, Any]] = {"inference": {"name": "transformers"}, "training": {"name": "torch"}, "model": {"model": "tiny"}}
    tester, config = project(tmp_path, log={"save_interval": 2}, **parts)
    monkeypatch.setattr(TrainingRun, "_save", noted)
    monkeypatch.setattr(torch.nn.Embedding, "forward", hungry)
    sentence = sentence_of(tester.run("train", config))
    assert "allocate memory" in sentence
    assert re.search(words, sentence), sentence


@pytest.mark.full
@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("inference", r"FaultyInference of producer \S+ ran out of memory while generating \(.*\); lower -imbs\)"),
        ("training", r"FaultyTraining ran out of memory while updating \(.*\); lower -tmbs or --tokens-per-forward; "),
    ],
)
def test_a_process_that_runs_out_of_memory_says_the_same(tmp_path: Path, section: str, words: str) -> None:
    faulty = {section: {"name": "faulty", "options": {"fault": "memory"}}}
    tester, config = project(tmp_path, in_process=False, schedule={"max_staleness": 1, "producer_restarts": 0}, **faulty)
    sentence = sentence_of(tester.run("train", config))
    assert re.search(words, sentence), sentence
    assert re.search(r"; (the last checkpoint is \S+/step-\d+|nothing was saved yet)$", sentence), sentence
