"""A run that loses a part without which nothing goes on (a trainer rank, the coordinator) restores its last checkpoint by itself."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rlcore.config import Plan
from rlcore.contracts.errors import ConfigError, RlcoreError, WeightsError, WorkerLostError
from rlcore.contracts.resume_point import ResumePoint
from rlcore.runlog.points import NoPointError, find_point
from rlcore.runtime.parts import first_version
from rlcore.runtime.progress import Progress, Summary
from rlcore.runtime.training_run import TrainingRun

__all__ = ["run_to_the_end"]


def run_to_the_end(plan: Plan, progress: Progress) -> Summary:
    """Run; after the loss of such a part make all workers anew and go on from the newest whole checkpoint of the same run folder, or from
    its beginning if there is none. Raises what was raised last once ``schedule.max_restores`` restores in a row brought no new checkpoint.
    """
    most, restores, restored = plan.config.schedule.max_restores, 0, 0
    root: Path | None = None
    newest = first_version(plan)
    with ExitStack() as holding:
        while True:
            run = TrainingRun(plan, progress, root=root, holding=holding, restores=restores)
            try:
                return run.run()
            except (WorkerLostError, WeightsError, ConfigError) as error:
                root = run.root
                if root is None or run.interrupted or not _is_accident(error, run, restores):
                    raise
                plan = replace(plan, resume=_newest_point(root, error, progress))
                restored = restored + 1 if first_version(plan) <= newest else 1
                newest = first_version(plan)
                if restored > most:
                    raise _beyond_help(error, most) from error
                again = f"the run goes on by itself from step {newest}, restore {restored} of at most {most} in a row"
                progress.note(f"warning: {error}; {again}")
                restores += 1


def _is_accident(error: RlcoreError, run: TrainingRun, restores: int) -> bool:
    """Whether another beginning may go better. Weights that do not arrive, or are not those that were sent, are a defect if they never
    did; the refusal of a runtime to begin may come from a node that is lost, if it has begun before."""
    if isinstance(error, ConfigError):
        return restores > 0
    return isinstance(error, WorkerLostError) or run.updates + restores > 0


def _newest_point(root: Path, lost: RlcoreError, progress: Progress) -> ResumePoint | None:
    try:
        return find_point(root, say=progress.note)
    except NoPointError:
        return None
    except ConfigError as error:
        raise WorkerLostError(f"{lost}; {error}") from lost


def _beyond_help(error: RlcoreError, most: int) -> RlcoreError:
    if not most:
        return error
    times = "once" if most == 1 else f"{most} times in a row"
    return WorkerLostError(f"{error}; the run had gone back to its checkpoint {times}, and reached no other one (--max-restores)")
