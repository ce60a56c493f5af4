"""``keep_best``: a run saves its best weights, whenever the next checkpoint is due and whenever an evaluation ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.runtime_interface import TaskReport
from rlcore.runlog.best_checkpoint import BestCheckpoint
from rlcore.runlog.past_runs import past_runs
from rlcore.runtime.one_process import OneProcess
from rlcore.testing import RunTester


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_fakes()


def config(tester: RunTester, **log: Any) -> str:
    """Six updates, each evaluated; no checkpoint is due before the end."""
    return tester.fake_run(
        run={"num_episodes": 8, "max_steps": 6},
        log={"keep_checkpoints": 1, **log},
        eval={"eval_dataset": {"heldout": "train.jsonl"}, "eval_interval": 1},
    )


def measure(monkeypatch: pytest.MonkeyPatch, name: str, *figures: float) -> None:
    """Have the runs measure these values of a figure: the first before the first update."""
    real = BestCheckpoint.saw

    def saw(self: BestCheckpoint, step: int, row: Mapping[str, float | None]) -> None:
        real(self, step, {name: figures[step]} if name in row else row)

    monkeypatch.setattr(BestCheckpoint, "saw", saw)


def delay(monkeypatch: pytest.MonkeyPatch, updates: int) -> None:
    """Have each evaluation end ``updates`` later than it begins, as beside training; the last one of a run is awaited."""
    real, held = OneProcess.take_evaluations, list[tuple[int, list[TaskReport]]]()

    def late(self: OneProcess, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        held.extend(real(self, wait=wait))
        now = self.status().version
        ended = [report for report in held if wait or report[0] + updates <= now]
        held[:] = [report for report in held if report not in ended]
        return ended

    monkeypatch.setattr(OneProcess, "take_evaluations", late)


def run(tester: RunTester, *argv: str) -> Path:
    tester.run(*argv).assert_ok()
    return past_runs(tester.folder / "runs/rlcore")[0].root


def saved(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in root.glob("checkpoints/step-*"))


def saves(monkeypatch: pytest.MonkeyPatch, tester: RunTester) -> list[int]:
    """Return the list to which the steps that a run saves are added."""
    steps: list[int] = []
    real = OneProcess.save

    def save(self: OneProcess, folder: Path) -> Any:
        steps.append(self.status().version)
        return real(self, folder)

    monkeypatch.setattr(OneProcess, "save", save)
    return steps


@pytest.mark.parametrize("interval", ["auto", 0, 4])
def test_a_new_best_evaluation_is_saved_at_once(tester: RunTester, monkeypatch: pytest.MonkeyPatch, interval: Any) -> None:
    measure(monkeypatch, "eval/heldout", 0.1, 0.3, 0.3, 0.5, 0.2, 0.5, 0.1)
    made = saves(monkeypatch, tester)
    assert saved(run(tester, "train", config(tester, save_interval=interval))) == [3, 6]
    assert made == ([1, 3, 4, 6] if interval == 4 else [1, 3, 6]), "equals are not saved again"


def test_without_keep_best_only_the_last_is_saved(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(monkeypatch, "eval/heldout", 0.1, 0.3, 0.3, 0.5, 0.2, 0.5, 0.1)
    assert saved(run(tester, "train", config(tester, keep_best=False))) == [6]


def test_a_model_that_never_gets_better_is_saved_at_the_end(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(monkeypatch, "eval/heldout", 0.6, 0.3, 0.3, 0.5, 0.2, 0.5, 0.1)
    assert saved(run(tester, "train", config(tester))) == [6]


def test_the_best_update_is_saved_if_a_figure_of_updates_decides(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(monkeypatch, "reward/mean", 9.0, 0.5, 0.3, 0.2, 0.4, 0.2, 0.5)
    delay(monkeypatch, 2)
    made = saves(monkeypatch, tester)
    assert saved(run(tester, "train", config(tester, best_by="min:reward/mean"))) == [3, 6]
    assert made == [1, 2, 3, 6], "an evaluation that is awaited decides nothing"


def test_weights_are_kept_until_their_evaluation_has_ended(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each evaluation ends two updates after it began, so one of every second update begins."""
    measure(monkeypatch, "eval/heldout", 0.1, 0.3, 0.9, 0.6, 0.9, 0.2, 0.1)
    delay(monkeypatch, 2)
    made = saves(monkeypatch, tester)
    assert saved(run(tester, "train", config(tester))) == [3, 6]
    assert made == [1, 3, 5, 6], "steps 2 and 4 are not evaluated"


def test_a_checkpoint_whose_evaluation_is_awaited_outlives_newer_ones(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(monkeypatch, "eval/heldout", 0.1, 0.9, 0.2, 0.2, 0.2, 0.2, 0.1)
    delay(monkeypatch, 3)
    assert saved(run(tester, "train", config(tester, save_interval=1))) == [1, 6]


def test_the_best_from_before_a_resume_stays(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(monkeypatch, "eval/heldout", 0.1, 0.3, 0.8, 0.6, 0.7, 0.2, 0.1)
    file = config(tester)
    root = run(tester, "train", file, "--max-steps", "3")
    assert saved(root) == [2, 3]
    monkeypatch.undo()
    measure(monkeypatch, "eval/heldout", 0.1, 0.3, 0.8, 0.6, 0.7, 0.9, 0.1)
    assert saved(run(tester, "resume", str(root), "--max-steps", "6")) == [5, 6]


def test_a_run_resumes_from_its_best_checkpoint(tester: RunTester) -> None:
    root = run(tester, "train", config(tester, best_by="min:reward/mean", keep_checkpoints=9, save_interval=1))
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    rewards = {row["step"]: row["reward/mean"] for row in rows if "reward/mean" in row}
    dry = tester.run("resume", str(root), "--best", "--max-steps", "7", "--dry-run", "--json").assert_ok().json
    assert rewards[dry["resume"]["step"]] == min(rewards.values())
    other = (
        tester.run("resume", str(root), "--best", "--best-by", "reward/mean", "--max-steps", "7", "--dry-run", "--json").assert_ok().json
    )
    assert rewards[other["resume"]["step"]] == max(rewards.values())
    tester.run("resume", str(root), "--best", "--step", "2").assert_refused("not allowed with argument")
    with (root / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "reward/mean": -1.0}\n{"step": 10, "rew')
    tester.run("resume", str(root), "--best", "--max-steps", "7").assert_refused(
        f"--best: the best step of {root} is 9 (reward/mean -1), and it has no checkpoint; there are checkpoints of steps "
        "1, 2, 3, 4, 5, 6: type --step N, and for the next run --keep-best"
    )
