"""Which loss is worth another beginning, how often, and what is said at the end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlcore.contracts.errors import (
    ConfigError,
    InterruptedRunError,
    PluginError,
    RlcoreError,
    RunError,
    RuntimeLostError,
    WeightsError,
    WorkerLostError,
)
from rlcore.runtime import recovery
from rlcore.runtime.progress import Progress
from rlcore.runtime.recovery import run_with_restores

LOST = WorkerLostError("trainer rank 0 of 1 died")


class Lives:
    """Stands for TrainingRun: each life ends as ``ends`` says, after ``updates`` of it."""

    def __init__(self, *ends: BaseException | str, updates: int = 1, interrupted: bool = False) -> None:
        self.ends, self.updates, self.interrupted, self.restores = list(ends), updates, interrupted, list[int]()

    def __call__(self, plan: Any, progress: Progress, *, root: Path | None, holding: Any, restores: int) -> Any:
        self.restores.append(restores)
        return SimpleNamespace(root=Path("run"), updates=self.updates, interrupted=self.interrupted, run=self._end)

    def _end(self) -> Any:
        end = self.ends.pop(0)
        if isinstance(end, str):
            return end
        raise end


def outcome(monkeypatch: pytest.MonkeyPatch, lives: Lives, most: int = 2) -> tuple[Any, list[float]]:
    """What came of it, and the pauses."""
    pauses = list[float]()
    monkeypatch.setattr(recovery, "TrainingRun", lives)
    monkeypatch.setattr(recovery, "_newest_point", lambda root, lost, progress: None)
    monkeypatch.setattr(recovery, "replace", lambda plan, resume: plan)
    monkeypatch.setattr(recovery.time, "sleep", pauses.append)
    plan: Any = SimpleNamespace(config=SimpleNamespace(schedule=SimpleNamespace(max_restores=most)), resume=None)
    try:
        return run_with_restores(plan, Progress()), pauses
    except RlcoreError as error:
        return error, pauses


def test_a_loss_is_made_good_and_the_second_in_a_row_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = Lives(LOST, LOST, "done")
    assert outcome(monkeypatch, lives) == ("done", [0, 0, 10.0])
    assert lives.restores == [0, 1, 2]


def test_beyond_the_limit_it_is_said_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    error, _ = outcome(monkeypatch, Lives(LOST, LOST, LOST))
    assert str(error) == (
        "trainer rank 0 of 1 died; nothing was saved yet; the run had restored its checkpoint 2 times in a row without reaching "
        "another one (--max-restores)"
    )


@pytest.mark.parametrize("refusal", [ConfigError("no room"), PluginError("its class is gone")])
def test_a_refusal_to_begin_again_is_no_refusal_of_the_run(monkeypatch: pytest.MonkeyPatch, refusal: RlcoreError) -> None:
    first, _ = outcome(monkeypatch, Lives(refusal))
    assert first is refusal
    later, _ = outcome(monkeypatch, Lives(LOST, refusal, refusal))
    assert isinstance(later, RunError)
    assert later.exit_code == 1


def test_weights_that_never_arrived_are_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = WeightsError("version 0 does not arrive")
    assert outcome(monkeypatch, Lives(broken, updates=0))[0] is broken
    assert outcome(monkeypatch, Lives(broken, "done", updates=1))[0] == "done"


def test_without_restores_the_loss_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(monkeypatch, Lives(LOST), most=0)[0] is LOST
    assert LOST.__cause__ is None


def test_a_cluster_that_is_gone_is_not_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = RuntimeLostError("the head does not answer")
    assert outcome(monkeypatch, Lives(LOST, gone))[0] is gone


def test_a_run_that_was_told_to_end_and_loses_a_part_is_an_interrupted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    error, _ = outcome(monkeypatch, Lives(LOST, interrupted=True))
    assert isinstance(error, InterruptedRunError)
    assert error.exit_code == 130, "the scheduler's file queues the job again"
    assert str(error).startswith("trainer rank 0 of 1 died; the run had been asked to end")


def test_ctrl_c_while_a_run_begins_again_says_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    monkeypatch.setattr(Progress, "note", lambda self, line: said.append(line))
    with pytest.raises(KeyboardInterrupt):
        outcome(monkeypatch, Lives(LOST, KeyboardInterrupt()))
    assert said[-1] == "the run was asked to end before it had restarted; nothing was saved yet"
    with pytest.raises(KeyboardInterrupt):
        outcome(monkeypatch, Lives(KeyboardInterrupt()))
    assert len(said) == 2, "a run that has not begun yet keeps nothing"
