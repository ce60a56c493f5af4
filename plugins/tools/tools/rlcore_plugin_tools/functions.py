"""The functions ``rlcore.evaluate``, ``rlcore.score`` and ``rlcore.load_run``, for scripts and notebooks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rlcore.api import UsageError
from rlcore.api.commands import SteadyConsole, escape_control, in_python, plan_arguments, python_errors
from rlcore.api.runs import past_runs
from rlcore_plugin_tools.run_record import RunRecord, as_rollout

if TYPE_CHECKING:
    from rlcore_plugin_tools.eval.evaluating import Evaluated

__all__ = ["LoadedRun", "evaluate", "load_run", "score"]

PathText = str | os.PathLike[str]


def evaluate(
    model: PathText,
    dataset: Any = None,
    *,
    reward: Any = None,
    step: int | None = None,
    best: bool = False,
    config: Any = (),
    quiet: bool = False,
    **settings: Any,
) -> Evaluated:
    """Measure a model on held-out tasks, as ``rlcore eval`` does, and return accuracies and answers.

    :param model: the folder of a model, of a checkpoint or of a run, or a name on the Hugging Face Hub.
    :param dataset: a path, rows, or a dict of such by the name of the task, as ``eval_dataset`` of ``rlcore.train``. None: the tasks of the
        run.
    :param reward: as for ``rlcore.train``. None: the rewards of the run. A run does not keep a reward that was a Python object.
    :param step: for a run, the checkpoint of this update; 0: its first model. ``best``: its best checkpoint. Neither: its newest.
    :param config: settings, as for ``rlcore.train``. ``settings``: ``eval_samples=4``, ``eval_temperature=0.7``, …
    :param quiet: show no progress.
    :raises UsageError: before the first completion.
    """
    from rlcore_plugin_tools.eval.eval_plan import checked_evaluation, of_model, reads, task_names
    from rlcore_plugin_tools.eval.eval_progress import completions_shown
    from rlcore_plugin_tools.eval.evaluating import evaluate
    from rlcore_plugin_tools.eval.subject import subject_of

    console = SteadyConsole(highlight=False, markup=False, quiet=quiet)
    kept: dict[Path, str] = {}
    with _rows_folder() as folder, python_errors(kept):
        subject = subject_of(str(model), step=step, best=best)
        tasks = task_names((str(dataset),), {}) if isinstance(dataset, str | os.PathLike) else dataset
        given = {"eval_dataset": tasks, "reward": reward, **settings}
        more: dict[str, Any] = {
            "below": subject.settings,
            "defaults": of_model(subject),
            "folder": folder,
            "require": False,
            "reads": reads,
        }
        plan = checked_evaluation(plan_arguments(given, kept, config=config, **more), subject)
        if plan.missing:
            raise UsageError("; ".join(map(str, plan.missing)))
        with completions_shown(console) as shown:
            return evaluate(plan, lambda text: console.print(escape_control(text, lines=True), soft_wrap=True), shown)


def score(dataset: Any, reward: Any = None, *, config: Any = (), **settings: Any) -> list[dict[str, Any]]:
    """Judge completions as a run would, as ``rlcore score`` does. Return one dict for each completion, in order.

    Keys: ``value`` (None if the completion was not judged), ``ans_acc``, ``format_acc``, ``outcome``, ``reason``, ``parsed``, ``parts``,
    ``seconds``, ``line`` (of the row, from 1), and ``completion`` (its place in a list of completions).

    :param dataset: rows of training data with a column ``completion`` (a text, or a list of texts: a group); or a path.
    :param reward: as for ``rlcore.train``; None: the rewards of ``config``.
    :param settings: ``**{"rewards.deadline": 5.0}``, ``columns={…}``, …
    :raises UsageError: the reward or the data set cannot be used. A row that cannot be judged has the outcome ``invalid``.
    """
    from rlcore.api.data import Routes
    from rlcore.api.judging import reward_entries
    from rlcore_plugin_tools.score.choice import RewardChoice
    from rlcore_plugin_tools.score.items import RowsToJudge, read_items
    from rlcore_plugin_tools.score.scorer import Scorer

    kept: dict[Path, str] = {}
    with _rows_folder() as folder, python_errors(kept), ExitStack() as closing:
        plan = plan_arguments({"dataset": dataset, "reward": reward, **settings}, kept, config=config, folder=folder, require=False)
        choice = RewardChoice(entries=reward_entries(plan), workers=int(plan.config.schedule.reward_workers), config=plan.config)
        if not choice.entries or not plan.config.data.sources:
            raise UsageError("score needs rows and a reward: rlcore.score(ROWS, reward=…)")
        scorer = closing.enter_context(Scorer(choice.entries, workers=choice.workers))
        sources = [source.path for source in plan.config.data.sources]
        files = [RowsToJudge(path=path, registry=plan.registry, config=plan.config, say=lambda line: None) for path in sources]
        rows = [verdict.as_row() for file in files for verdict in scorer.run(read_items(file, Routes(choice.specs)))]
        return [{**row, "reason": in_python(row["reason"], kept)} for row in rows]


@contextmanager
def _rows_folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="rlcore-") as folder:
        yield Path(folder)


def load_run(path: Any) -> LoadedRun:
    """Return the files of a run, which may still be running.

    :param path: the folder of a run, or of a project: then its newest run; or the summary that ``rlcore.train`` returned.
    :raises ConfigError: it is neither, or a file of the run is damaged.
    """
    folder = Path(getattr(path, "run", path))
    runs = past_runs(folder) if folder.is_dir() and not (folder / "run.toml").is_file() else []
    return LoadedRun(RunRecord(runs[0].root if runs else folder))


class LoadedRun:
    """The figures and answers of a run. Tables are pandas DataFrames if pandas is installed, else lists of dicts."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        """The run's files, one method for each."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.record.root

    @property
    def config(self) -> Mapping[str, Any]:
        """Its settings: the content of ``run.toml``."""
        return self.record.config

    @property
    def state(self) -> str:
        """``finished``, ``interrupted``, ``running`` or ``ended``."""
        return self.record.state

    @property
    def summary(self) -> Mapping[str, Any] | None:
        """The content of ``summary.json``; None if the run has not reached its end."""
        return self.record.summary

    @property
    def metrics(self) -> Any:
        """One row for each update, with its figures (``rlcore.api.runs.metric_of``)."""
        return _table(self.record.updates())

    @property
    def evaluations(self) -> Any:
        """One row for each evaluation: ``step`` and the figures of its tasks."""
        return _table(self.record.evaluations())

    def rollouts(self, step: int | None = None) -> Any:
        """Return one row for each rollout of an update; None: of all updates whose rollouts were logged."""
        steps = self.record.rollout_steps() if step is None else [step]
        return _table([{"step": each, **row} for each in steps for row in self.record.rollouts(each)])

    def answers(self, task: str | None = None, step: int | None = None) -> Any:
        """Return one row for each answer to a held-out prompt, with the names of rollouts; None: of all tasks, of all evaluations."""
        tasks = self.record.tasks() if task is None else [task]
        places = [(each, known) for each in tasks for known in self.record.evaluated_steps(each) if step in (None, known)]
        rows = [(each, known, row) for each, known in places for row in self.record.evaluation_rows(each, known)]
        return _table([{"task": each, "step": known, **as_rollout(row)} for each, known, row in rows])

    def __repr__(self) -> str:
        updates = self.record.updates()
        reward = updates[-1].get("reward/mean") if updates else None
        best = self.record.best()
        told = [self.state, f"{len(updates)} updates"]
        told += [] if reward is None else [f"reward {reward:.3f}"]
        told += [] if best is None else [f"best {best.name} {best.value:.3f} at {best.step}"]
        return f"<run {self.folder}: {', '.join(told)}>"


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    try:
        from pandas import DataFrame
    except ImportError:
        return list(rows)
    return DataFrame(rows)
