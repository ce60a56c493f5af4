"""Check a resumed run before anything starts: its settings, its plugins and its checkpoints."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path

from rlcore.config import Plan
from rlcore.config.layers import TypedFlag
from rlcore.config.resume_rules import RATE_SETTINGS, changed_settings, check_resumable, other_settings, settings_of
from rlcore.contracts.errors import ConfigError, UsageError
from rlcore.contracts.resume_point import ResumePoint
from rlcore.contracts.specs import LABELS
from rlcore.host.bounded_reading import json_document
from rlcore.registry.unpackaged import is_reference
from rlcore.runlog.best_checkpoint import BestCheckpoint
from rlcore.runlog.checkpoint import checkpoint_steps, verify
from rlcore.runlog.past_runs import NoCheckpointError, PastRun, find_checkpoint, past_runs
from rlcore.runlog.rewind import record_of
from rlcore.runlog.run_lock import last_writer, locked
from rlcore.runlog.run_manifest import original_settings, read_manifest
from rlcore.runtime.factories import used_plugins
from rlcore.runtime.progress import Sample, Summary

__all__ = ["auto", "best_step", "check_changes", "check_model_files", "newest_run", "reset_layout", "resume_plan", "summary_of"]


_LAYOUT = ("run.runtime", "weights.transport")


def newest_run(folder: Path) -> PastRun:
    """Return the run in a folder, or the newest run of the project in it. Raises UsageError if the folder is neither."""
    runs = past_runs(folder)
    if runs:
        return runs[0]
    if (folder / "checkpoint.json").is_file():
        step = folder.name.removeprefix("step-")
        raise UsageError(f"{folder} is a checkpoint; type the folder of its run: rlcore resume {folder.parent.parent} --step {step}")
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; type the folder of a run, which the run printed when it began")
    below = [str(path) for depth in ("*", "*/*") for path in sorted(folder.glob(depth)) if path.is_dir() and past_runs(path)]
    where = f"there are runs in {', '.join(below[-3:])}" if below else "type the folder of a run, which the run printed when it began"
    raise UsageError(f"{folder} holds no run (a run.toml next to manifest.json or checkpoints), nor does a folder in it; {where}")


@contextmanager
def auto(plan: Plan, *, dry: bool = False) -> Iterator[tuple[Plan, PastRun | None]]:
    """Implement ``--resume auto``: yield the plan, and the run if it is finished.

    The plan resumes the newest run with the same settings, or begins a new one. Inside the context the run is locked (not if ``dry``)."""
    run, note = _latest_like(plan)
    if run is None:
        yield replace(plan, notes=(*plan.notes, *note)), None
        return
    with nullcontext() if dry else locked(run.root):
        finished = run.finished is not None
        yield (plan, run) if finished else (_resume_or_start(plan, run), None)


def _latest_like(plan: Plan) -> tuple[PastRun | None, list[str]]:
    """Return the newest run of the plan's project in ``run_dir`` with the same resolved settings, now or when it began.

    If there is none, return a note on how the newest run differs. A run whose settings cannot be read counts as a different run."""
    place = Path(plan.config.run.run_dir, plan.config.run.project)
    note: list[str] = []
    for run in past_runs(place):
        try:
            other = other_settings(plan, settings_of(run.root))
            began = original_settings(run.root) if other else {}
        except ConfigError:
            continue
        differs = ", ".join(plan.cite(path) for path, value in other.items() if began.get(path) != value)
        if not differs:
            return run, []
        note = note or [f"no run with these settings is in {place}; the newest, {run.root.name}, differs in {differs}; a new one begins"]
    return None, note


def reset_layout(run: PastRun) -> dict[str, str]:
    """Return the settings of a run that are "auto" again when it resumes. Nobody set them, and they depend on the number of workers."""
    origins = (read_manifest(run.root) or {"origins": {}})["origins"]
    return {path: "auto" for path in _LAYOUT if str(origins.get(path)).startswith("auto: ")}


def best_step(plan: Plan, run: PastRun) -> int:
    """Return the step of the run's best checkpoint by the plan's ``log.best_by``. Raise UsageError if the best step has none."""
    best, log = BestCheckpoint(plan.config.log.best_by, tuple(plan.config.eval.eval_dataset)), run.root / "metrics.jsonl"
    for line in log.read_bytes().splitlines(keepends=True) if log.exists() else ():
        if (row := record_of(line)) is not None and isinstance(row.get("step"), int):
            best.saw(row["step"], row)
    return best.step_among(checkpoint_steps(run.checkpoints), run.root)


def check_changes(plan: Plan, run: PastRun, *, step: int | None = None, typed: Mapping[str, TypedFlag] | None = None) -> None:
    """Raise ConfigError for a changed setting that the run must keep, and UsageError for a finished run that would not get longer.

    :param step: the checkpoint to resume from; None: the newest.
    :param typed: the typed settings, for the command of a new run in the message."""
    settings = settings_of(run.root)
    check_resumable(plan, settings, _new_run(run, step, typed or {}))
    steps = run.finished
    if steps is None or (step is not None and step < steps):  # an earlier checkpoint repeats the updates after it
        return
    before, now = settings.run, plan.config.run
    farther = now.num_episodes > before.num_episodes or (now.max_steps or steps) > (before.max_steps or steps)
    if stopped := run.stopped:
        if not farther and now.controllers == before.controllers:
            ended = f"{run.root} is finished, after {steps} updates, because {stopped}"
            raise UsageError(f"{ended}; to train further, type --controllers none")
        return
    if not farther or (now.max_steps is not None and now.max_steps <= steps):
        flag = "-e" if now.max_steps is None or now.max_steps > steps else "--max-steps"
        raise UsageError(f"{run.root} is finished, after {steps} updates; to train further, raise {flag}")


def resume_plan(plan: Plan, run: PastRun, *, step: int | None = None, any_version: bool = False) -> Plan:
    """Return the plan with the point that the run resumes from, and with notes for the user.

    Raises ConfigError for another run folder, for plugins of another major version (unless ``any_version``), and for a step that is
    damaged or does not exist. Raises NoCheckpointError if there is no checkpoint."""
    settings = settings_of(run.root)
    changed = changed_settings(plan, settings)
    place = Path(plan.config.run.run_dir, plan.config.run.project)
    if "run.run_dir" in changed and place.resolve() != run.root.resolve().parent:
        raise ConfigError(f"{plan.cite('run.run_dir')}: a resumed run stays in its folder, {run.root}; leave it out, or move that folder")
    notes: list[str] = []
    _check_versions(plan, run.root, any_version, notes.append)
    point = find_checkpoint(run.root, step, notes.append)
    most = plan.config.run.max_steps
    if most is not None and most < point.step:
        raise UsageError(
            f"{plan.cite('run.max_steps')} is less than the {point.step} updates that {run.root} has made; type --step N with an earlier "
            "checkpoint, or raise --max-steps"
        )
    if holder := last_writer(run.root):  # no process holds the lock here in a dry run
        notes.append(f"{holder} is writing the run, or died while it did; the run cannot be resumed as long as that process is alive")
    notes += _remarks(plan, list(changed), point)
    return replace(plan, resume=point, notes=(*plan.notes, *notes))


def _new_run(run: PastRun, step: int | None, typed: Mapping[str, TypedFlag]) -> str:
    """Return the command of a new run with the settings of a run, the model of its checkpoint, and the typed flags."""
    saved = [known for known in checkpoint_steps(run.checkpoints) if step in (None, known)][-1:]
    models = [str(run.checkpoints / f"step-{known}" / "model") for known in saved if "model.model" not in typed]
    words = ["rlcore", "train", str(run.root / "run.toml"), *(word for model in models for word in ("-m", model))]
    for flag, values in typed.values():
        words += [flag] if flag.startswith("--no") and values == ("false",) else [flag, *values]
    return shlex.join(words)


def _resume_or_start(plan: Plan, run: PastRun) -> Plan:
    """Return ``resume_plan``, or the plan of a new run if the run has no checkpoint."""
    try:
        return resume_plan(plan, run)
    except NoCheckpointError:
        note = f"the run {run.root} has the same settings and ended before its first checkpoint; this one starts from the beginning"
        return replace(plan, notes=(*plan.notes, note))


def summary_of(run: PastRun) -> Summary:
    """Return the summary of a finished run. Raises ConfigError if it cannot be read."""
    path = run.root / "summary.json"
    try:
        found = json_document(path)
        known = {field.name: found[field.name] for field in fields(Summary) if field.name in found}
        saved = run.checkpoints / Path(found["checkpoint"]).name if found["checkpoint"] else None  # the run may have been moved
        samples = tuple(Sample(**sample) for sample in found["samples"])
        texts = {name: tuple(found[name]) for name in ("remarks", "objects") if name in found}
        return Summary(**{**known, "run": run.root, "checkpoint": saved, "samples": samples, **texts})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); remove it, and the run counts as unfinished") from None


def check_model_files(plan: Plan) -> None:
    """Raise ConfigError if the initial model or its tokenizer is in a checkpoint of rlcore and differs from the saved files. Reads all of
    its bytes."""
    section = plan.config.model
    for model in {Path(place) for place in (section.model, section.tokenizer_path) if place}:
        if (model.parent / "checkpoint.json").is_file():
            verify(model.parent, f"{model.name}/")


def _remarks(plan: Plan, changed: Sequence[str], point: ResumePoint) -> Iterator[str]:
    yield f"the run {point.run} resumes after update {point.step}, from {point.checkpoint}"
    later = [step for step in checkpoint_steps(point.checkpoint.parent) if step > point.step]
    if later:
        yield f"checkpoints of later updates are removed, because those updates are repeated: {', '.join(map(str, later))}"
    if changed:
        yield f"settings that differ from those of the run so far: {', '.join(map(plan.cite, changed))}"
    if RATE_SETTINGS & set(changed) and "training.name" not in changed:
        yield (
            f"the optimizer's state continues; from update {point.step + 1} on, the learning rate follows the schedule that the run would "
            "have with its new settings from the beginning"
        )
    for kind, name in used_plugins(plan):
        if is_reference(name):
            yield f"{LABELS[kind]} {name!r} is code that comes with the run, and it is executed: {plan.registry.owner(kind, name)}"
    if any(part.plan.config.algorithm.kl_coeff > 0 for part in plan.parts):
        model = plan.config.model
        first = f"stays {model.reference}" if model.reference else f"stays the model that the run began with, {model.model}"
        moved = settings_of(point.run).model.reference_sync_steps  # so far
        yield f"the KL reference {'is that of the checkpoint' if moved else first}"


def _check_versions(plan: Plan, run: Path, any_version: bool, say: Callable[[str], None]) -> None:
    """Compare the plugins with those of the run's manifest."""
    manifest = read_manifest(run)
    if manifest is None:
        return
    before = {"rlcore": manifest["rlcore"], **{item["distribution"]: item["version"] for item in manifest["plugins"]}}
    items = [plan.registry.attest(kind, name) for kind, name in used_plugins(plan)]
    now = {item.distribution: item.version for item in items}
    other = [(name, old, now[name]) for name, old in before.items() if now.get(name, old) != old]
    if not other:
        return
    told = ", ".join(f"{name} {new}, which was {old}" for name, old, new in other)
    major = [name for name, old, new in other if old.partition(".")[0] != new.partition(".")[0]]
    if major and not any_version:
        raise ConfigError(
            f"plugins of another major version than at the start of the run: {told}; install the earlier versions, or type rlcore "
            f"resume {run} --any-version"
        )
    say(f"warning: plugins of other versions than at the start of the run: {told}")
