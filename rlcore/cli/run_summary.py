"""The output at the end of a run: its results, how its time was spent, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from rich.console import Console

from rlcore.host.terminal_text import escape_control
from rlcore.runtime.progress import Summary

__all__ = ["show_outcome"]


def show_outcome(summary: Summary, console: Console, *, reports: bool = False) -> None:
    """Print the outcome. ``reports``: whether the command ``rlcore report`` is installed."""
    for line in ("", *_result(summary), *_samples(summary), *_next(summary, reports=reports)):
        console.print(escape_control(line, lines=True), markup=False, highlight=False, soft_wrap=True)


def _result(summary: Summary) -> Iterator[str]:
    stopped = f"Stopped by {summary.stopped}." if summary.stopped else "Done."
    yield "Stopped early, and saved." if summary.interrupted else stopped
    if accuracy := summary.accuracy_text():
        yield f"held-out accuracy   {accuracy}"
    if (best := summary.best) is not None:
        name = "" if best.name == "accuracy" else f" ({'lowest ' * best.lowest}{best.name})"
        yield f"best evaluation     {best.value:.3f}{name} {_when(summary, best.step)}"
    yield f"training            {summary.pace_text()}"
    if summary.shares:
        yield f"time                {_time_line(summary.shares)}"
    yield "prompts             " + _counted(summary.ledger)
    yield from (f"  {name:<18}{_counted(ledger)}" for name, ledger in summary.sources.items())
    for remark in summary.remarks:
        yield f"note                {remark}"
    for name, reason in summary.switched_off.items():
        yield f"switched off        {name}: {reason}"


def _counted(ledger: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {fate}" for fate, count in ledger.items())


def _when(summary: Summary, step: int) -> str:
    """Return after which update the best evaluation was, and where its model is, if it is not the last one."""
    if not step:
        return "before the first update"
    told = f"after {step} updates"
    if step == summary.steps or summary.checkpoint is None:
        return told
    model = summary.checkpoint.with_name(f"step-{step}") / "model"
    return f"{told}: {model}" if model.is_dir() else f"{told}, but its checkpoint is not kept"


def _samples(summary: Summary) -> Iterator[str]:
    for sample in summary.samples:
        yield f"\n  prompt   {sample.prompt}\n  gold     {sample.gold}\n  before   {_line(sample.before)}\n  after    {_line(sample.after)}"


def _next(summary: Summary, *, reports: bool) -> Iterator[str]:
    yield f"\nrun folder          {summary.run}"
    if summary.checkpoint is not None:
        yield f"model               {summary.checkpoint / 'model'} (Hugging Face format)"
    if summary.checkpoint is None and not reports:
        return
    yield "\nNext:"
    run, config = shlex.quote(str(summary.run)), shlex.quote(str(summary.run / "run.toml"))
    if reports:
        yield f"  rlcore report {run}    # learning curves, evaluations and answers in one HTML file"
    if summary.checkpoint is not None:
        how = "    # resume" if summary.interrupted else f" {summary.train_on}    # train further"
        yield f"  rlcore resume {run}{how}: schedule, optimizer, data and a KL reference continue"
        yield f"  rlcore show config {config}    # the settings, and where each value came from"


def _time_line(shares: Mapping[str, float]) -> str:
    """Return a line such as ``trainer busy 97 %, producers busy 63 % (5 % for nothing), bubble 2 %``.

    The bubble is the trainer's wait for data or weights."""
    wasted = shares.get("producers/wasted", 0.0)
    for_nothing = f" ({wasted:.0%} wasted)" if wasted >= 0.005 else ""
    figures = f"trainer busy {shares['trainer_busy']:.0%}, producers busy {shares['producers_busy']:.0%}{for_nothing}"
    return f"{figures}, bubble {shares['bubble']:.0%}".replace("%", " %")


def _line(text: str) -> str:
    return text.replace("\n", "⏎") or "(empty)"
