"""A run that goes on: at staleness 0 it is the run that was never interrupted, to the bit; else every prompt is trained exactly once."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.config import Plan
from rlcore.contracts.errors import RunError
from rlcore.contracts.resume_point import ResumePoint
from rlcore.entry import make_plan
from rlcore.runlog.folder import write_json_lines
from rlcore.runtime import Progress, Summary
from rlcore.runtime import run as run_plan
from rlcore.runtime.one_process import OneProcess
from rlcore.testing import RunTester
from tests.letters_model import write_model

_MEASURED = ("time/", "second", "latency")
STEPS = 6
REFUSES = """
def refuses_a(item):
    if item.columns["gt_answer"] == "a":
        raise ValueError("no a")
    return float(item.text.strip() == item.columns["gt_answer"])
"""


class Notes(Progress):
    """Keeps what a person would have read."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def project(folder: Path, **sections: Mapping[str, Any]) -> tuple[RunTester, str]:
    """Six updates of 3 prompts, with a held-out task every second step and a checkpoint after each."""
    tester = RunTester(folder).with_fakes()
    held_out = {"letters": str(tester.fake_data("held.jsonl", "abcd"))}
    defaults: dict[str, Mapping[str, Any]] = {
        "run": {"num_episodes": 8, "max_steps": STEPS, "run_dir": str(folder / "runs")},
        "log": {"save_interval": 1, "keep_checkpoints": 100, "rollout_interval": 1},
        "eval": {"eval_dataset": held_out, "eval_interval": 2},
    }
    return tester, tester.fake_run(**{name: {**defaults.get(name, {}), **sections.get(name, {})} for name in defaults | sections})


def train(tester: RunTester, config: str, at: ResumePoint | None = None, told: Notes | None = None, **overrides: Any) -> Summary:
    with chdir(tester.folder), tester.plugins:
        return run_plan(replace(make_plan(config, **overrides), resume=at), told)


def cut(run: Path, into: Path, step: int) -> ResumePoint:
    """A copy of the run's folder that goes on from ``step``, whatever was written later."""
    shutil.copytree(run, into)
    checkpoint = into / "checkpoints" / f"step-{step}"
    return ResumePoint(run=into, checkpoint=checkpoint, step=step, state=json.loads((checkpoint / "state.json").read_text()))


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """By step, evaluations last: one that producers make beside the training may be written after the next step."""
    rows = sorted(rows_of(run / "metrics.jsonl"), key=lambda row: (row["step"], "eval/letters" in row))
    return [{name: value for name, value in row.items() if not any(part in name for part in _MEASURED)} for row in rows]


def files_of(run: Path, pattern: str) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.glob(pattern)) if path.is_file()}


def assert_equal_runs(one: Summary, other: Summary, *, moments: bool = True) -> None:
    """All that they wrote, but for seconds; and what their summaries say of the whole run. ``moments``: those of the optimizer too, which
    several ranks add up in another order."""
    assert metrics_of(one.run) == metrics_of(other.run)
    written = ["rollouts/*", "eval/*/*", "checkpoints/step-6/model/*", "checkpoints/*/state.json"]
    for pattern in [*written, "checkpoints/step-6/trainer/*.npz"] if moments else written:
        assert files_of(one.run, pattern) == files_of(other.run, pattern), pattern
    assert files_of(one.run, "checkpoints/step-6/model/*")
    for figure in ("steps", "accuracy_before", "accuracy_after", "reward_last", "ledger", "filter"):
        assert getattr(one, figure) == getattr(other, figure), figure


def test_from_every_step_it_is_the_run_that_was_not_interrupted(tmp_path: Path) -> None:
    """A filter that replaces groups, a schedule of learning rate and temperature: all of it has memory."""
    tester, config = project(
        tmp_path,
        sampling={"temperature_end": 0.7},
        training={"warmup_steps": 2, "min_lr_ratio": 0.1},
        algorithm={"filter_range": [0.01, 0.99], "dynamic_batching": True},
    )
    whole = train(tester, config)
    assert whole.steps == STEPS
    assert whole.filter["filtered"] > 0
    for step in range(1, STEPS + 1):
        at = cut(whole.run, tmp_path / f"from-{step}", step)
        if step == 4:  # killed before its evaluation was written
            rows = [row for row in rows_of(at.run / "metrics.jsonl") if row["step"] != 4 or "eval/letters" not in row]
            write_json_lines(at.run / "metrics.jsonl", rows)
            (at.run / "eval/letters/step-4.jsonl").unlink()
        assert_equal_runs(train(tester, config, at), whole)


@pytest.mark.full
def test_other_workers_go_on_with_it_too(tmp_path: Path) -> None:
    """Producers and ranks in processes of their own take over from one process, and leave it what it would have made."""
    tester, config = project(tmp_path, algorithm={"filter_range": [0.01, 0.99], "dynamic_batching": True})
    whole = train(tester, config)
    several = {"runtime": "local", "num_inferencer": 2, "num_trainers": 2}
    part = train(tester, config, cut(whole.run, tmp_path / "several", 2), **several)
    assert_equal_runs(part, whole, moments=False)
    assert_equal_runs(train(tester, config, cut(part.run, tmp_path / "again", 4)), whole, moments=False)


@pytest.mark.full
def test_with_staleness_every_prompt_ends_exactly_once(tmp_path: Path) -> None:
    tester, config = project(
        tmp_path,
        run={"num_episodes": 6, "max_steps": 10},
        schedule={"max_staleness": 2, "reward_error_budget": 1.0},
        eval={"eval_dataset": {}, "eval_interval": 0},
    )
    tester.write("refusing.py", REFUSES)
    whole = train(tester, config, reward="./refusing.py:refuses_a")
    for step in (1, 5):
        again = train(tester, config, cut(whole.run, tmp_path / f"from-{step}", step), reward="./refusing.py:refuses_a")
        assert dict(again.ledger) == {"trained": 30, "filtered": 0, "failed": 6}
        record = RunRecord(again.run)
        rows = [row for step in record.rollout_steps() for row in record.rollouts(step)]
        times = Counter((row["episode"], row["prompt_id"], row["index"]) for row in rows)
        assert (len(times), set(times.values())) == (30 * 8, {1})
        assert [row["step"] for row in metrics_of(again.run)] == list(range(1, 11))
        assert sorted(row["episode"] for row in rows_of(again.run / "failures.jsonl")) == list(range(6))


@pytest.mark.full
@pytest.mark.parametrize(
    ("lora", "sampling"),
    [({}, {}), ({"lora_rank": 2}, {}), ({}, {"num_generations": 6, "oversampling": 2, "max_new_tokens": 12})],
    ids=["whole", "adapters", "oversampled"],
)
def test_real_backends_go_on_to_the_bit_with_the_reference_that_they_began_with(
    tmp_path: Path, lora: dict[str, int], sampling: dict[str, int]
) -> None:
    tester, config = project(
        tmp_path,
        inference={"name": "transformers"},
        training={"name": "torch", "learning_rate": 0.01, **lora},
        model={"model": str(tmp_path / "tiny")},
        algorithm={"name": "grpo", "kl_coeff": 0.1, "filter_range": "none"},
        sampling={"max_new_tokens": 4, **sampling},
        eval={"eval_dataset": {}, "eval_interval": 0},
    )
    write_model(tmp_path / "tiny")
    whole = train(tester, config)
    again = train(tester, config, cut(whole.run, tmp_path / "again", 3))
    assert_equal_runs(again, whole)
    assert any(row["kl_reference"] > 1e-9 for row in metrics_of(whole.run)), "the policy has not left its reference"
    assert any(row.get("cut_share", 0) > 0 for row in metrics_of(whole.run)) == bool(sampling)


def test_another_backend_goes_on_with_the_model_alone_and_says_so(tmp_path: Path) -> None:
    tester, config = project(tmp_path, eval={"eval_dataset": {}, "eval_interval": 0})
    whole, told = train(tester, config, max_steps=3), Notes()
    again = train(tester, config, cut(whole.run, tmp_path / "again", 3), told, **{"training.name": "fake-pipeline"})
    assert again.steps == STEPS
    (said,) = [note for note in told.said if "continues with its model alone" in note]
    assert "step-3 is of FakeTraining, and FakePipeline continues" in said


def test_a_runtime_that_begins_at_the_beginning_is_refused(tmp_path: Path) -> None:
    class Forgetful(OneProcess):
        def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None]) -> None:
            super().__init__(replace(plan, resume=None), closing, say)

    tester, config = project(tmp_path)
    whole = train(tester, config, max_steps=1)
    before = files_of(whole.run, "**/*")
    at = cut(whole.run, tmp_path / "again", 1)
    with pytest.raises(RunError, match=r"begins at step 0, and the checkpoint is of step 1: it cannot resume a run"):
        train(tester, config, at, runtime=Forgetful)
    assert files_of(whole.run, "**/*") == before
