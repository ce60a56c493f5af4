"""The subject of an evaluation: the word MODEL as a folder with a model (or a name on the hub), and the settings that come with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlcore.api import UsageError
from rlcore.api.runs import past_runs
from rlcore_plugin_tools.run_record import RunRecord

__all__ = ["Subject", "subject_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model to evaluate. ``model``: a folder, or a name on the hub; None: the model that the settings of the run name. For a run also its
    folder. ``step``: the update after which the run had this model, also for a checkpoint without its run."""

    model: str | None
    tokenizer: str | None = None
    """The folder of the tokenizer, if the model's folder has none and no settings name one."""
    run: Path | None = None
    step: int | None = None

    @property
    def settings(self) -> list[Path]:
        """The settings that come with it; typed settings override them."""
        return [] if self.run is None else [self.run / "run.toml"]


def subject_of(word: str, *, step: int | None = None, best: bool = False) -> Subject:
    """Return the model that ``word`` means. ``step``: the checkpoint of that update of a run, 0 for the model that it began with; ``best``:
    its best checkpoint; neither: its newest one.

    UsageError if the run has no such checkpoint, or if a step is requested and ``word`` is not a run.
    """
    folder = Path(word)
    if step is not None and best:
        raise UsageError("--step and --best each choose a checkpoint; leave one out")
    if not (folder / "config.json").is_file() and (runs := past_runs(folder) if folder.is_dir() else []):
        return _of_run(RunRecord(runs[0].root), step, best)
    if step is not None or best:
        typed = "--best" if best else f"--step {step}"
        raise UsageError(f"{typed} chooses a checkpoint of a run, but {word} is not a run folder (run.toml, checkpoints); leave it out")
    if (folder / "checkpoint.json").is_file():
        number = folder.resolve().name.removeprefix("step-")
        return Subject(model=str(folder / "model"), step=int(number) if number.isdecimal() else None)
    return Subject(model=word)


def _of_run(record: RunRecord, step: int | None, best: bool) -> Subject:
    steps = record.checkpoint_steps()
    step = record.best_step() if best else step
    there = f"it has checkpoints of steps {', '.join(map(str, steps))}" if steps else "it has no checkpoint"
    if step == 0:
        return Subject(model=None, run=record.root, step=0)
    if step is not None and step not in steps:
        raise UsageError(f"{record.root} has no checkpoint of step {step}: {there}; --step 0 is the model that it began with")
    if step is None and not steps:
        raise UsageError(f"{record.root} has no checkpoint; type --step 0 for the model that it began with")
    step = steps[-1] if step is None else step
    model = record.checkpoints / f"step-{step}" / "model"
    begun = record.config.get("model", {})
    lacks = not begun.get("tokenizer_path") and not any(model.glob("*token*"))
    return Subject(model=str(model), tokenizer=begun.get("model") if lacks else None, run=record.root, step=step)
