"""One run, from a plan to a summary: the loop, the run folder and the listeners. The run's runtime decides where the workers run."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from rlcore.config import Plan
from rlcore.config.resume_rules import RATE_SETTINGS, changed_settings, settings_of
from rlcore.contracts.control import Decision
from rlcore.contracts.errors import DataError, RunError, StarvationError, WorkerLostError, disk_full
from rlcore.contracts.interfaces import PendingSave
from rlcore.contracts.runtime_interface import Interrupt, Runtime, TaskReport, TimeReport, Update
from rlcore.contracts.specs import PluginKind
from rlcore.host.threads import threads_limited, threads_of
from rlcore.learning.lr_schedule import learning_rate
from rlcore.registry.error_context import error_context, reason
from rlcore.runlog import RunFolder, build_manifest
from rlcore.runlog.best_checkpoint import BestCheckpoint
from rlcore.runlog.checkpoint import Checkpoint, checkpoint_steps, prune
from rlcore.runlog.folder import write_text
from rlcore.runlog.rewind import rewind, sizes_of_logs
from rlcore.runlog.run_lock import locked, sign
from rlcore.runlog.run_manifest import resumed_manifest
from rlcore.runtime.backends import optimizer_settings
from rlcore.runtime.bad_rows import BadRows, leave_out_bad_rows
from rlcore.runtime.factories import first_version, used_plugins
from rlcore.runtime.interrupt import SignalInterrupt
from rlcore.runtime.listeners import Listeners
from rlcore.runtime.progress import Progress, Summary, samples_of
from rlcore.runtime.run_length import dropped_prompts, short_batch, train_on
from rlcore.runtime.sampler_gap import SamplerGap
from rlcore.runtime.steering import Control
from rlcore.runtime.timing import peak_memory, profiled

__all__ = ["TrainingRun"]

_AUTO_SAVE_SECONDS = 600.0
"""The time between checkpoints with ``save_interval = "auto"``: the most that a crash can lose."""


class TrainingRun:
    """One attempt at a run, from a plan to a summary, or to the loss of an essential part."""

    def __init__(
        self, plan: Plan, progress: Progress, *, root: Path | None = None, holding: ExitStack | None = None, restores: int = 0
    ) -> None:
        """:param root: the folder of the run, if it exists.
        :param holding: keeps the folder locked between this attempt and the next.
        :param restores: the number of earlier attempts."""
        self.root = root or (plan.resume.run if plan.resume is not None else None)
        self.interrupted = False
        """Whether Ctrl-C or a scheduler asked the run to end."""
        self.updates = 0
        """The number of updates in this attempt."""
        self._holding, self._restores = holding, restores
        self._bad_rows = BadRows()
        self._plan = plan
        self._config = plan.config
        self._progress = progress
        self._first: list[TaskReport] = []
        self._last: tuple[int, list[TaskReport]] = 0, []
        """The evaluation before training, and the newest later one with its step. No others stay, because a report holds every answer."""
        self._held_out: dict[int, float | None] = {}
        """Accuracies by step, including those from before a resume."""
        self._best = BestCheckpoint(self._config.log.best_by, tuple(self._config.eval.eval_dataset))
        self._asked: set[int] = set()
        self._saving: Checkpoint | None = None
        self._writer = ThreadPoolExecutor(1, "rollouts")
        self._logging: Future[None] | None = None
        """The write of the last update's rollouts to disk. No update waits for their compression."""
        self._checkpoint: Path | None = plan.resume.checkpoint if plan.resume is not None else None
        self._tokens = 0
        self._reward_last: float | None = None
        self._gap = SamplerGap(self._plan, self._progress.note)
        self._most_text = self._config.log.rollout_max_mb * 1e6
        self._saved_at = 0.0
        self._since = 0.0
        """The time of the last recorded update: ``seconds`` in metrics.jsonl counts from one to the next, evaluations included."""

    def run(self) -> Summary:
        """Build, train, save and summarize. When this returns or raises, every process and thread that it started has ended."""
        for tracker in self._config.log.trackers:  # a broken one is refused before anything starts
            self._plan.registry.load(PluginKind.TRACKER, tracker)
        self._plan, self._bad_rows = leave_out_bad_rows(self._plan, self._progress)
        self._control = Control(self._plan)
        with ExitStack() as closing:
            closing.callback(self._drop_save)
            closing.callback(self._writer.shutdown)
            closing.enter_context(threads_limited(threads_of(self._config.training.num_trainers + self._config.inference.num_inferencer)))
            runtime: Runtime = self._plan.registry.make(PluginKind.RUNTIME, self._config.run.runtime, self._plan, closing, self._progress)
            self._runtime = runtime
            self._check_beginning()
            for said in filter(None, (short_batch(self._config, runtime), "; ".join(dropped_prompts(self._plan, runtime)))):
                self._progress.note(said)
            finished = self.root is not None and (self.root / "summary.json").exists()
            self._folder = self._open_folder(closing)
            self._recall()
            self._control.resume(runtime, finished=finished)
            if self._plan.resume is not None:  # a kill may have come between the last checkpoint and its pruning
                self._pruning(self._plan.resume.step)()
            closing.callback(self._log_last_reward_errors)
            self._listeners = closing.enter_context(Listeners(self._plan, self._folder.root, self._progress.note, self._manifest))
            closing.callback(self._progress.finished)
            self._progress.started(self._folder.root, runtime.horizon)
            profile = self._folder.root / f"profile-{runtime.loop_role}.prof" if self._config.run.enable_profiling else None
            with self._report_saved():
                with SignalInterrupt(self._progress.note) as interrupt, profiled(profile):
                    interrupt.wakes.append(lambda: setattr(self, "interrupted", True))
                    timing = self._trained(interrupt)
                self._folder.log_times(timing.workers())
                self._listeners.run_timed(timing.rows())
                self._listeners.close_trackers()
                summary = self._summarise(timing)
                self._listeners.run_finished(summary.as_json())
                self._folder.write_document("summary", summary.as_json())
            return summary

    def _check_beginning(self) -> None:
        """Raise RunError if the runtime did not begin at the plan's version, because it would repeat the first steps."""
        begins, runtime = first_version(self._plan), self._config.run.runtime
        if begins and (version := self._runtime.status().version) != begins:
            owner = self._plan.registry.owner(PluginKind.RUNTIME, runtime)
            raise RunError(
                f"runtime {runtime!r} of {owner} begins at step {version}, and the checkpoint is of step {begins}: it cannot resume a run; "
                "choose another --runtime"
            )

    def _recall(self) -> None:
        """Read the rows that metrics.jsonl of a resumed run already has."""
        log, point = self._folder.root / "metrics.jsonl", self._plan.resume
        taken, rate = 0, None
        absent = set(range(1, point.step + 1 if point is not None else 1))
        for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
            row = json.loads(line)
            if "seconds" in row:  # a row of an update, not of an evaluation
                absent.discard(row["step"])
            self._best.saw(row["step"], row)
            if figures := {name: value for name, value in row.items() if name.startswith("eval/")}:
                self._held_out[row["step"]] = self._best.accuracy(figures)
                self._control.evaluated(row["step"], figures)
            self._reward_last = row.get("reward/mean", self._reward_last)
            taken, rate = taken + int(row.get("optimizer_steps", 0)), row.get("learning_rate", rate)
        if point is not None and RATE_SETTINGS & self._manifest["resumes"][-1]["settings"].keys():
            optimizer = optimizer_settings(self._plan, self._runtime.horizon)
            self._progress.note(
                f"learning rate: {learning_rate(optimizer, taken):.4g} at the next optimizer step"
                + (f", {rate:.4g} at the last one" if rate else "")
                + f"; {optimizer.total_steps} optimizer steps in all, {taken} of them done"
            )
        self._asked.update(self._held_out)
        if absent:
            self._progress.note(f"warning: {log} lacks the updates {', '.join(map(str, sorted(absent)))}, and they are not repeated")

    def _trained(self, interrupt: Interrupt) -> TimeReport:
        """Begin and ``_train``. If the run starves, save the policy first: a policy that has learned every prompt starves too."""
        try:
            self._runtime.begin(self._folder.root, interrupt)
            try:
                return self._train(interrupt)
            except DataError as error:  # of a row of endless data, which was not read before
                raise RunError(str(error)) from error.__cause__
        except StarvationError as error:
            self._runtime.stop()
            self._log_failures()
            status = self._runtime.status()
            if not status.trained:
                raise
            self._save(status.version)
            self._end_save()
            raise StarvationError(f"{error}; the current policy is saved in {self._checkpoint}") from error

    @contextmanager
    def _report_saved(self) -> Iterator[None]:
        """A context in which the error of a run that cannot continue reports what was saved.

        An OSError that nothing else has explained is attributed to the runtime, unless the disk is full."""
        try:
            yield
        except StarvationError:  # its message already says so
            raise
        except (RunError, OSError) as error:
            with suppress(RunError):  # the error that ended the run has priority
                if not isinstance(error, WorkerLostError) or (self._saving is not None and self._saving.is_filled()):
                    self._end_save()  # otherwise this would wait for a lost part
            saved = f"the last checkpoint is {self._checkpoint}" if self._checkpoint else "nothing was saved yet"
            if gone := self._folder.deleted():  # whatever part noticed it
                left = f"; {saved}" if self._checkpoint is not None and self._checkpoint.exists() else ""
                raise RunError(f"{gone} was deleted while the run trained{left}") from None
            if isinstance(error, RunError):
                raise type(error)(f"{error}; {saved}") from error.__cause__
            if full := disk_full(error):
                raise RunError(f"{error.filename or self._folder.root}: cannot be written ({full}); {saved}") from None
            runtime = self._config.run.runtime
            who = f"runtime {runtime!r} of {self._plan.registry.owner(PluginKind.RUNTIME, runtime)}"
            raise RunError(f"{who} failed while training: {reason(error)}; {saved}") from error

    def _train(self, interrupt: Interrupt) -> TimeReport:
        """Run the loop: wait for the batch of the next version, train on it, and record the results. Return how the time was spent."""
        runtime, version = self._runtime, first_version(self._plan)
        interval = self._config.eval.eval_interval
        asked = version - version % interval if interval else 0
        if self._control.lacks_evaluation or not any(asked <= step <= version for step in self._held_out):  # the newest was lost
            self._evaluate(version, wait=True)
        runtime.start_clock()
        self._since, due = time.monotonic(), False
        while not interrupt.requested and not self._control.stopped and runtime.next_batch():
            self._listeners.groups_scored(runtime.take_scored(), version)
            update = runtime.train(log_rollouts=self._logs_rollouts(version + 1))
            version = update.version
            decision = self._record(update)
            self._end_save(wait=False)
            due = due or decision.evaluate or _due(version, interval)
            if due and self._awaited is None:  # one evaluation at a time, so that each is of the step that asks for it
                self._evaluate(version, wait=False)
                due = False
            if decision.save or self._save_due(version):
                self._save(version)
        timing = runtime.timing()
        self._log_failures()
        status = runtime.status()
        self.interrupted = not status.finished and not self._control.stopped
        if not self.interrupted:
            if not status.trained:
                raise StarvationError(runtime.watch().nothing_trained(status.filtered, status.failed))
            self._save(version)
            self._end_save()  # before the evaluation, which may take long
            self._evaluate(version, wait=True)
        runtime.stop()
        self._save(version)
        self._end_save()
        self._pruning(version)()  # the last evaluations may have decided which one is the best
        return timing

    def _logs_rollouts(self, step: int) -> bool:
        interval = self._config.log.rollout_interval
        return bool(interval) and (step == 1 or _due(step, interval))

    def _open_folder(self, closing: ExitStack) -> RunFolder:
        """Make the run's folder, or restore that of a resumed run. Nothing else writes to it until ``closing`` closes."""
        log, point = self._config.log, self._plan.resume
        moved = {
            "save_dir": Path(log.save_dir) if log.save_dir else None,
            "eval_save_dir": Path(self._config.eval.eval_save_dir) if self._config.eval.eval_save_dir else None,
            "rollout_save_dir": Path(log.rollout_save_dir) if log.rollout_save_dir else None,
        }
        manifest = build_manifest(
            seed=self._config.run.seed,
            data=self._runtime.fingerprints,
            attestations=[self._plan.registry.attest(kind, name) for kind, name in used_plugins(self._plan)],
            origins=self._plan.origins,
            planned_steps=self._runtime.horizon,
        )
        holding = self._holding or closing
        if self.root is None:
            folder = RunFolder.create(Path(self._config.run.run_dir), self._config.run.project, **moved, private=log.private)
            holding.enter_context(locked(folder.root))
        else:
            folder, step = RunFolder.at(self.root, **moved), first_version(self._plan)
            holding.enter_context(locked(folder.root))
            folder.restore_places(private=log.private)
            changed = changed_settings(self._plan, settings_of(folder.root))
            manifest = resumed_manifest(folder.root, step, manifest, changed)
            if "data" in manifest["resumes"][-1]:
                self._progress.note(
                    "warning: the held-out data differ from those at the start of the run, so accuracies cannot be compared"
                )
            rewind(folder, step, point.state.get("logs", {}) if point is not None else {})
        self.root = folder.root
        sign(folder.root)
        self._manifest = manifest
        folder.write_document("manifest", manifest)  # first, because it records the changes to ``run.toml``
        write_text(folder.root / "run.toml", self._plan.to_toml())  # this file can start the run again
        if self._bad_rows.rows:
            write_text(folder.root / "bad_rows.jsonl", self._bad_rows.as_lines())
        self._saved_at = time.monotonic()
        return folder

    def _record(self, update: Update) -> Decision:
        """Record an update, and return what the controllers decide."""
        step = update.version
        if gone := self._folder.deleted():
            raise RunError(f"{gone}: the folder is absent")
        self.updates += 1
        seconds, self._since = time.monotonic() - self._since, time.monotonic()
        figures = {**update.figures, "tokens_per_second": update.figures["response_tokens"] / max(seconds, 1e-9), "seconds": seconds}
        self._tokens += int(figures["response_tokens"])
        self._reward_last = figures.get("reward/mean")
        decision = self._decided(step, figures)
        figures |= self._control.figures(decision)
        self._best.saw(step, figures)
        self._folder.log("metrics", {"step": step, **figures})
        self._folder.log_times(update.times, step)
        self._gap.check(figures)
        self._listeners.step_finished(step, figures)
        self._progress.step(step, figures)
        if self._logs_rollouts(step):
            self._end_logging()
            self._logging = self._writer.submit(self._folder.write_rollouts, step, update.rollouts, self._most_text)
        self._log_failures()
        self._log_reward_errors()
        self._collect_evaluations(wait=False)
        return decision

    def _decided(self, step: int, figures: Mapping[str, float]) -> Decision:
        """Return what the controllers decide after an update. They see the evaluation of the step before, which must be complete."""
        if not self._control:
            return Decision()
        self._collect_evaluations(wait=self._awaited is not None)
        before, decision = self._control.settings, self._control.decide(step, figures)
        if decision.set != before:
            self._runtime.control(step, decision.set)
        return decision

    def _end_logging(self) -> None:
        """Wait until the pending rollouts are written. Raises RunError if the disk is full."""
        written, self._logging = self._logging, None
        if written is not None:
            written.result()

    def _log_failures(self) -> None:
        for failure in self._runtime.take_failures():
            self._folder.log_capped("failures", failure)

    def _log_last_reward_errors(self) -> None:
        """Log the last reward errors, however the run ends: a reward that raises ends many runs.

        An error in writing them does not hide the error that ended the run."""
        try:
            self._log_reward_errors(last=True)
        except RunError as error:
            logging.getLogger("rlcore").warning("%s", error)

    def _log_reward_errors(self, *, last: bool = False) -> None:
        for error in self._runtime.take_reward_faults(last=last):
            self._folder.log_capped("reward_errors", error)

    def _evaluate(self, step: int, *, wait: bool) -> None:
        if self._config.eval.eval_dataset and step not in self._asked:
            self._asked.add(step)
            self._runtime.evaluate(step)
        self._collect_evaluations(wait=wait)

    def _collect_evaluations(self, *, wait: bool) -> None:
        for step, reports in self._runtime.take_evaluations(wait=wait):
            self._first = self._first if step else reports
            self._last = max(self._last, (step, reports), key=lambda known: known[0])
            figures = {name: figure for report in reports for name, figure in report.figures().items()}
            self._held_out[step] = self._best.accuracy(figures)
            self._best.saw(step, figures)
            self._control.evaluated(step, figures)
            for report in reports:  # before the row that says that the evaluation is complete
                self._folder.write_evaluation(report.task, step, report.rows, self._most_text)
            self._folder.log("metrics", {"step": step, **figures})
            self._listeners.evaluated(step, figures)
            self._progress.evaluated(step, reports)

    def _save(self, step: int) -> None:
        """Begin a checkpoint. A backend that writes during training finishes it later."""
        self._end_logging()
        self._end_save()
        if self._checkpoint is not None and self._checkpoint.name == f"step-{step}":
            return

        self._control.begin_checkpoint(step)

        def fill(folder: Path) -> PendingSave | None:
            self._control.save(folder)
            saving = self._runtime.save(folder)
            with ExitStack() as failed:
                if saving is not None:  # it writes into this folder, which is removed if the tokenizer fails
                    failed.callback(_ended, saving)
                for place in (folder / "model", *[folder / "export"] * (self._config.log.export_dtype is not None)):
                    with error_context("the tokenizer", f"saving into {place}"):
                        self._runtime.tokenizer.save(place)
                failed.pop_all()
            return saving

        parts = self._runtime.state()
        self._log_failures()  # all failures that the state counts
        state = {"logs": sizes_of_logs(self._folder.root), **parts, **self._control.state(self._awaited)}
        self._saved_at = time.monotonic()
        self._saving = Checkpoint(self._folder.checkpoints, step, fill, state, self._pruning(step))
        self._end_save(wait=False)

    def _save_due(self, step: int) -> bool:
        interval = self._config.log.save_interval
        due = time.monotonic() - self._saved_at >= _AUTO_SAVE_SECONDS if interval == "auto" else _due(step, interval)
        return due or (self._config.log.keep_best and self._may_be_best(step))

    def _may_be_best(self, step: int) -> bool:
        """Return whether the weights of this step are the best so far, or may be: their evaluation may end after the next update."""
        best = self._best.kept(self._saved())
        return step == (best and best.step) or (self._best.evaluated and step == self._awaited)

    @property
    def _awaited(self) -> int | None:
        """The step whose evaluation has begun and is not complete."""
        asked = max(self._asked, default=-1)
        return asked if asked > max(self._held_out, default=-1) else None

    def _saved(self) -> set[int]:
        """Return the steps with checkpoints, and that of the checkpoint which is being written."""
        return {*checkpoint_steps(self._folder.checkpoints), *([self._saving.step] if self._saving is not None else [])}

    def _pruning(self, newest: int) -> Callable[[], None]:
        """Return the function that removes old checkpoints. The best one is determined now, not when the function is called.

        Until an evaluation is complete, its step may be the best."""
        kept: set[int] = set()
        if self._config.log.keep_best:
            best = self._best.of({newest, *checkpoint_steps(self._folder.checkpoints)})
            kept = {step for step in (best.step if best else None, self._awaited) if step is not None}
        return partial(prune, self._folder.checkpoints, self._config.log.keep_checkpoints, kept)

    def _end_save(self, *, wait: bool = True) -> None:
        """Finish the current checkpoint, if there is one; without ``wait``, only if it is written."""
        saving = self._saving
        if saving is not None and (wait or saving.done()):
            self._checkpoint = saving.finish()
            self._saving = None  # not earlier: an interrupted checkpoint is dropped when the runtime has closed
            self._listeners.checkpoint_saved(saving.step, self._checkpoint)

    def _drop_save(self) -> None:
        if self._saving is not None:
            self._saving.drop()

    def _summarise(self, timing: TimeReport) -> Summary:
        status, watch = self._runtime.status(), self._runtime.watch()
        after = self._last[1] if self._last[0] == status.version else []
        peaks = {"driver": peak_memory(), **timing.peaks}
        return Summary(
            run=self._folder.root,
            steps=status.version,
            train_seconds=round(timing.seconds, 3),
            tokens_per_second=round(self._tokens / timing.seconds, 1) if timing.seconds else 0.0,
            accuracy_before=self._held_out.get(0),
            accuracy_after=self._held_out.get(status.version) if status.version else None,
            reward_last=self._reward_last,
            best=self._best.kept(self._saved()),
            ledger={"trained": status.trained, "filtered": status.filtered, "failed": status.failed},
            sources=status.sources,
            time=timing.by_activity,
            shares=timing.shares() if status.version else {},
            peak_memory_bytes=sum(peaks.values()),
            peak_memory=peaks,
            interrupted=self.interrupted,
            stopped=self._control.stopped,
            switched_off=self._listeners.switched_off,
            filter=watch.figures(),
            dropped=dict(self._runtime.dropped),
            bad_rows=self._bad_rows.counts,
            remarks=tuple(
                filter(
                    None,
                    [
                        watch.remark(),
                        *self._bad_rows.remarks,
                        *dropped_prompts(self._plan, self._runtime),
                        *self._runtime.remarks(),
                        self._told_of_restores(),
                        *self._listeners.warnings,
                    ],
                )
            ),
            checkpoint=self._checkpoint,
            samples=samples_of(self._first, after),
            max_staleness=int(self._plan.config.schedule.max_staleness),
            reproducible=self._plan.reproducible.level,
            train_on="--controllers none" if self._control.stopped else train_on(self._config, self._runtime, status.version),
            objects=self._plan.registry.objects(),
        )

    def _told_of_restores(self) -> str:
        times = "once" if self._restores == 1 else f"{self._restores} times"
        what = f"the run restored its last checkpoint automatically {times}, because a part of it was lost"
        return f"{what}; seconds and tokens/s cover only the time after that" if self._restores else ""


def _ended(saving: PendingSave) -> None:
    """Wait for the write and ignore its errors, because something else has failed."""
    with suppress(Exception):
        saving.result()


def _due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0
