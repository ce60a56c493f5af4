"""A run that loses a part without which nothing goes on (a trainer rank, the coordinator) restores its last checkpoint by itself."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rlcore.config import Plan
from rlcore.contracts.errors import (
    ConfigError,
    InterruptedRunError,
    RlcoreError,
    RunError,
    UsageError,
    WeightsError,
    WorkerLostError,
)
from rlcore.contracts.resume_point import ResumePoint
from rlcore.runlog.past_runs import NoCheckpointError, find_checkpoint
from rlcore.runtime.factories import first_version
from rlcore.runtime.progress import Progress, Summary
from rlcore.runtime.training_run import TrainingRun

__all__ = ["run_with_restores"]

_PAUSE_SECONDS = 10.0
"""Before the second restore in a row; each one after it waits so much longer."""


def run_with_restores(plan: Plan, progress: Progress) -> Summary:
    """Run; after the loss of such a part make all workers anew and go on from the newest whole checkpoint of the same run folder, or from
    its beginning if there is none. Raises what was raised last once ``schedule.max_restores`` restores in a row brought no new checkpoint,
    and InterruptedRunError after a loss if the run had been told to end.
    """
    most, restores, restored = plan.config.schedule.max_restores, 0, 0
    root: Path | None = None
    newest = first_version(plan)
    with ExitStack() as holding:
        while True:
            run = TrainingRun(plan, progress, root=root, holding=holding, restores=restores)
            try:
                time.sleep(max(0, restored - 1) * _PAUSE_SECONDS)  # the machine that took the last one may be back by then
                return run.run()
            except KeyboardInterrupt:
                if restores and not run.interrupted:
                    progress.note(f"the run was told to end before it had begun again; {_kept(plan)}")
                raise
            except (WorkerLostError, WeightsError, UsageError) as error:
                root = run.root
                if root is None or not _is_recoverable(error, run, restores):
                    raise
                if run.interrupted:
                    raise InterruptedRunError(f"{error}; the run had been told to end, and what it made since then is lost") from error
                plan = replace(plan, resume=_newest_point(root, error, progress))
                restored = restored + 1 if first_version(plan) <= newest else 1
                newest = first_version(plan)
                if not most:
                    raise
                if restored > most:
                    raise _unrecoverable(error, most, plan) from error
                again = f"the run goes on by itself from step {newest}, restore {restored} of at most {most} in a row"
                progress.note(f"warning: {error}; {again}")
                restores += 1


def _is_recoverable(error: RlcoreError, run: TrainingRun, restores: int) -> bool:
    """Whether another beginning may go better. Weights that do not arrive, or are not those that were sent, are a defect if they never
    did; a refusal to begin may come from a node that is lost, if the run has begun before."""
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
    """A RunError whatever the last error was: the run had begun, and what it saved stays."""
    times = "once" if most == 1 else f"{most} times in a row"
    kept = _kept(plan)
    told = str(error) if kept in str(error) else f"{error}; {kept}"
    return WorkerLostError(f"{told}; the run had gone back to its checkpoint {times}, and reached no other one (--max-restores)")


def _kept(plan: Plan) -> str:
    return f"the last checkpoint is {plan.resume.checkpoint}" if plan.resume is not None else "nothing was saved yet"
