"""The tables of ``rlcore score``: the results, and the plan of a dry run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rlcore.api.commands import escape_control, plain_console
from rlcore_plugin_tools.score.score_summary import ScoreSummary

__all__ = ["duration", "show_agreement", "show_choice", "show_summary"]


def show_summary(summary: ScoreSummary, out: Path | None) -> None:
    """Print one line per outcome and their total; then throughput, the slowest row, and the first reasons."""
    figures = summary.as_json()
    console = plain_console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("outcome")
    for heading in ("count", "share", "mean value", "accuracy", "p50", "p99"):
        table.add_column(heading, justify="right")
    for outcome, row in figures["outcomes"].items():
        table.add_row(outcome, *_cells(row))
    if len(figures["outcomes"]) > 1:
        table.add_row("all", *_cells({**figures, "count": figures["rows"], "share": 1.0}), style="bold")
    console.print(table)
    _show_groups(figures["groups"], console)
    rate = f"{figures['rows_per_second']:.1f} a second"
    say = [f"{figures['rows']} completions in {figures['seconds']:.1f} s, {rate}, with {_workers(figures['workers'])}"]
    if summary.slowest is not None and summary.slowest.seconds is not None:
        say.append(f"slowest: {summary.slowest.source}, {duration(summary.slowest.seconds)}")
    if summary.invalid:
        say.append(f"invalid: {summary.invalid_reasons[0]}" + (f" (and {summary.invalid - 1} more)" if summary.invalid > 1 else ""))
    if summary.masked and not summary.all_failed:
        say.append(f"masked: {summary.masked}, which have no value and do not train; {summary.first_masked}")
    if summary.first_failure and not summary.all_failed:  # else the error says it
        say.append(f"first failure: {summary.first_failure}")
    if summary.first_trace:
        say.append(summary.first_trace.rstrip())
    if out is not None:
        say.append(f"results: {out}")
    for line in say:
        console.print(escape_control(line, lines=True), soft_wrap=True)


def _show_groups(figures: dict[str, Any] | None, console: Console) -> None:
    if figures is None:
        return
    console.print(f"\n{figures['completions']} judged completions of {figures['prompts']} prompts")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("figure", "mean", "95 % interval", "prompts"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for name, row in figures.items():
        if isinstance(row, dict):
            table.add_row(name, f"{row['mean']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}", str(row["prompts"]))
    console.print(table)
    console.print()


_SHOWN = 20


def show_agreement(said: dict[str, Any]) -> None:
    """Print how often two rewards agree, and the first completions on which they do not."""
    console = plain_console()
    one, other = said["reward"], said["against"]
    share = f"{said['agree'] / said['completions']:.1%}" if said["completions"] else "–"
    console.print(f"\n{one} and {other} agree on {said['agree']} of {said['completions']} completions ({share})", soft_wrap=True)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(f"{one} (down), {other} (across)")
    for kind in said["table"]:
        table.add_column(kind, justify="right")
    for kind, row in said["table"].items():
        table.add_row(kind, *(str(count) for count in row.values()))
    console.print(table)
    if not said["differ"]:
        return
    console.print("\nwhere they differ")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("row", one, other, "judged, or the reason"):
        table.add_column(heading, overflow="fold")
    for row in said["different"][:_SHOWN]:
        place = f"{row['line']}" + ("" if row["completion"] is None else f", completion {row['completion']}")
        words = "; ".join(filter(None, (row[key]["parsed"] or row[key]["reason"] for key in ("reward", "against"))))
        table.add_row(place, row["reward"]["answer"], row["against"]["answer"], escape_control(words[:120]))
    console.print(table)
    if (more := said["differ"] - _SHOWN) > 0:
        console.print(f"and {more} more; --out FILE writes every row with both verdicts", soft_wrap=True)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        str(row["count"]),
        f"{row['share']:.1%}",
        _figure(row["mean_value"]),
        _figure(row["accuracy"]),
        duration(row["latency_p50"]),
        duration(row["latency_p99"]),
    ]


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def duration(seconds: float | None) -> str:
    """Return ``"40 µs"``, ``"3.1 ms"``, ``"2.50 s"``; a dash if there is none."""
    if seconds is None:
        return "–"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _workers(count: int) -> str:
    return f"{count} worker{'s' if count != 1 else ''}"


def show_choice(plan: dict[str, Any]) -> None:
    """Print the findings of ``--dry-run``."""
    console = plain_console()
    for reward in plan["rewards"]:
        options = ", ".join(f"{key} = {value}" for key, value in reward["options"].items()) or "no options"
        console.print(f"reward {reward['name']}  weight {reward['weight']:g}, deadline {reward['deadline']:g} s, {options}", soft_wrap=True)
    counts = f"{plan['rows']} rows, {plan['completions']} completions, {plan['invalid']} invalid"
    console.print(f"{escape_control(plan['file'])}: {counts}", soft_wrap=True)
    if plan["first_invalid"]:
        console.print(f"first invalid: {escape_control(plan['first_invalid'])}", soft_wrap=True)
    console.print(f"would judge with {_workers(plan['workers'])}; only the reward can tell whether a gold answer can be used")
