"""What a person is told when a run has ended, and what to type next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rlcore.runtime import Summary

__all__ = ["json_line", "show_outcome"]


def show_outcome(summary: Summary, console: Console) -> None:
    """Accuracy before and after, a few samples, where everything is, what to type next."""

    def say(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say()
    say("Stopped early, and saved." if summary.interrupted else "Done.")
    if summary.accuracy_before is not None and summary.accuracy_after is not None:
        say(f"held-out accuracy   {summary.accuracy_before:.3f} before, {summary.accuracy_after:.3f} after")
    say(f"training            {summary.steps} updates, {summary.train_seconds:.1f} s, {summary.tokens_per_second:.0f} tokens/s")
    if summary.shares:
        say(f"time                {_time_line(summary.shares)}")
    say("prompts             " + ", ".join(f"{count} {fate}" for fate, count in summary.ledger.items()))
    for remark in summary.remarks:
        say(f"note                {remark}")
    for name, reason in summary.switched_off.items():
        say(f"switched off        {name}: {reason}")
    for sample in summary.samples:
        say(f"\n  prompt   {sample.prompt}\n  gold     {sample.gold}\n  before   {_line(sample.before)}\n  after    {_line(sample.after)}")
    say(f"\nrun folder          {summary.run}")
    if summary.checkpoint is not None:
        say(f"model               {summary.checkpoint / 'model'} (Hugging Face format)")
        say("\nNext:")
        config, model = shlex.quote(str(summary.run / "run.toml")), shlex.quote(str(summary.checkpoint / "model"))
        say(f"  rlcore train {config} -m {model}    # train on from here")
        say(f"  rlcore show config {config}    # what was run, and where each value came from")


def json_line(summary: Summary) -> str:
    """The summary as one line of JSON; figures that do not exist are null."""
    return json.dumps(summary.as_json(), ensure_ascii=False, allow_nan=False)


def _time_line(shares: Mapping[str, float]) -> str:
    """``trainer busy 97 %, producers busy 63 % (5 % for nothing), bubble 2 %``: the last is the trainer's wait for data or weights."""
    wasted = shares.get("producers/wasted", 0.0)
    for_nothing = f" ({wasted:.0%} for nothing)" if wasted >= 0.005 else ""
    figures = f"trainer busy {shares['trainer_busy']:.0%}, producers busy {shares['producers_busy']:.0%}{for_nothing}"
    return f"{figures}, bubble {shares['bubble']:.0%}".replace("%", " %")


def _line(text: str) -> str:
    return text.replace("\n", "⏎") or "(empty)"
