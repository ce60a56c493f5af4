"""Recovery of a run that loses an essential part (a trainer rank, the coordinator): it restores its last checkpoint automatically."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rlcore.config import Plan
from rlcore.contracts.errors import ConfigError, InterruptedRunError, RlcoreError, RunError, UsageError, WeightsError, WorkerLostError
from rlcore.contracts.resume_point import ResumePoint
from rlcore.runlog.past_runs import NoCheckpointError, find_checkpoint
from rlcore.runtime.factories import first_version
from rlcore.runtime.progress import Progress, Summary
from rlcore.runtime.training_run import TrainingRun

__all__ = ["run_with_restores"]

_PAUSE_SECONDS = 10.0
"""The pause before the second restore in a row. The pause before each later restore is this much longer."""


def run_with_restores(plan: Plan, progress: Progress) -> Summary:
    """Run the plan. After the loss of an essential part, recreate all workers and resume from the newest complete checkpoint of the run
    folder.

    Without a checkpoint, the run begins again. Raises the last error after ``schedule.max_restores`` restores in a row without a new
    checkpoint. Raises InterruptedRunError after a loss if the run had been asked to end.
    """
    most, restores, restored = plan.config.schedule.max_restores, 0, 0
    root: Path | None = None
    newest = first_version(plan)
    with ExitStack() as holding:
        while True:
            run = TrainingRun(plan, progress, root=root, holding=holding, restores=restores)
            try:
                time.sleep(max(0, restored - 1) * _PAUSE_SECONDS)  # the machine that caused the last loss may be back by then
                return run.run()
            except KeyboardInterrupt:
                if restores and not run.interrupted:
                    progress.note(f"the run was asked to end before it had restarted; {_kept(plan)}")
                raise
            except (WorkerLostError, WeightsError, UsageError) as error:
                root = run.root
                if root is None or not _is_recoverable(error, run, restores):
                    raise
                if run.interrupted:
                    raise InterruptedRunError(f"{error}; the run had been asked to end, and its work since then is lost") from error
                plan = replace(plan, resume=_newest_point(root, error, progress))
                restored = restored + 1 if first_version(plan) <= newest else 1
                newest = first_version(plan)
                if not most:
                    raise
                if restored > most:
                    raise _unrecoverable(error, most, plan) from error
                again = f"the run resumes automatically from step {newest}, restore {restored} of at most {most} in a row"
                progress.note(f"warning: {error}; {again}")
                restores += 1


def _is_recoverable(error: RlcoreError, run: TrainingRun, restores: int) -> bool:
    """Return whether another attempt may succeed.

    Weights that never arrived or never matched the sent ones are a defect. A refusal to begin may come from a lost node if the run has
    begun before."""
    if isinstance(error, UsageError):
        return restores > 0
    return isinstance(error, WorkerLostError) or run.updates + restores > 0


def _newest_point(root: Path, lost: RlcoreError, progress: Progress) -> ResumePoint | None:
    try:
        return find_checkpoint(root, say=progress.note)
    except NoCheckpointError:
        return None
    except ConfigError as error:
        raise WorkerLostError(f"{lost}; {error}") from lost


def _unrecoverable(error: RlcoreError, most: int, plan: Plan) -> RunError:
    """Return a RunError, whatever the last error was: the run had begun, and its saved state remains."""
    times = "once" if most == 1 else f"{most} times in a row"
    kept = _kept(plan)
    told = str(error) if kept in str(error) else f"{error}; {kept}"
    return WorkerLostError(f"{told}; the run had restored its checkpoint {times} without reaching another one (--max-restores)")


def _kept(plan: Plan) -> str:
    return f"the last checkpoint is {plan.resume.checkpoint}" if plan.resume is not None else "nothing was saved yet"
