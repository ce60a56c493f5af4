"""A run folder that is deleted while the run trains: the next write ends the run with one sentence, and nothing comes back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rlcore.runtime.training_run import TrainingRun
from rlcore.testing import RunOutcome, RunTester

ONE_PROCESS, PROCESSES = {"max_staleness": 0}, {"max_staleness": 2}


def outcome(folder: Path, monkeypatch: pytest.MonkeyPatch, gone: str, method: str, **sections: dict[str, object]) -> RunOutcome:
    """Run 60 updates on fakes and delete ``gone`` of the run folder before the fourth call of a method of the loop."""
    tester = RunTester(folder, in_process=True).with_fakes()
    config = tester.fake_run(run={"num_episodes": 60, "max_steps": 60}, **sections)
    real: Callable[..., object] = getattr(TrainingRun, method)
    calls: list[object] = []

    def deletes(self: TrainingRun, *given: object, **named: object) -> object:
        calls.append(given)
        if len(calls) == 4:
            assert self.root is not None
            self._end_save()  # otherwise it writes while the folder is removed
            self._end_logging()
            shutil.rmtree(self.root / gone)
        return real(self, *given, **named)

    monkeypatch.setattr(TrainingRun, method, deletes)
    return tester.run("train", config, "-q")


@pytest.mark.parametrize("schedule", [ONE_PROCESS, PROCESSES], ids=["one process", "processes"])
@pytest.mark.parametrize(
    ("gone", "method", "interval"),
    [("", "_record", 0), ("checkpoints", "_record", 0), ("", "_save", 1), ("checkpoints", "_save", 1)],
    ids=["run, update", "checkpoints, update", "run, save", "checkpoints, save"],
)
def test_it_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: dict[str, object], gone: str, method: str, interval: int
) -> None:
    done = outcome(tmp_path, monkeypatch, gone, method, schedule=schedule, log={"save_interval": interval})
    assert done.exit_code == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith("error: runs/rlcore/")
    assert said.endswith(f"{'/' if gone else ''}{gone} was deleted while the run trained")
    roots = list(tmp_path.glob("runs/rlcore/*"))
    assert not any((root / gone).exists() for root in roots)
    updates = [len((root / "metrics.jsonl").read_text("utf-8").splitlines()) for root in roots]
    assert updates in ([], [3], [4]), "the next write ends it, and not the last one"


def test_it_ends_a_run_that_evaluates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation = {"eval_dataset": {"held": "train.jsonl"}, "eval_interval": 1}
    done = outcome(tmp_path, monkeypatch, "", "_collect_evaluations", eval=evaluation)
    assert done.exit_code == 1
    assert done.stderr.endswith(" was deleted while the run trained\n")
    assert list(tmp_path.glob("runs/rlcore/*")) == []


def test_a_checkpoint_elsewhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = outcome(tmp_path, monkeypatch, "", "_record", log={"save_interval": 1, "save_dir": str(tmp_path / "saved")})
    assert done.exit_code == 1
    assert "was deleted while the run trained; the last checkpoint is " in done.stderr
    assert Path(done.stderr.strip().rpartition(" ")[2]).is_dir()
