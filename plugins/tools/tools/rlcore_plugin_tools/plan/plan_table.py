"""The output of ``rlcore plan``: the current simulation, the table of the three ways to train, and the flags to type."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.table import Table

from rlcore.api.commands import SteadyConsole, plain_console

if TYPE_CHECKING:
    from rlcore_plugin_tools.plan.advice import Advice, SplitChoice

__all__ = ["saying", "show_advice"]

_SECONDS = 5.0
_HEADINGS = (
    "",
    "producers",
    "trainers",
    "staleness",
    "buffer",
    "groups/s",
    "tokens/s",
    "s/update",
    "trainers busy",
    "producers busy",
    "slots used",
)

_SOURCE_HEADINGS = ("source", "weight", "trained groups", "decoded tokens", "filtered", "ledger: issued", "trained", "filtered")


@contextmanager
def saying() -> Iterator[Callable[[str], None]]:
    """Yield a function that reports the current simulation on standard error: one line that changes on a terminal, a line every few seconds
    elsewhere."""
    console = SteadyConsole(stderr=True)
    if console.is_terminal:
        with console.status("simulating") as status:
            yield lambda line: status.update(f"simulating {line}")
        return
    said = time.monotonic()

    def say(line: str) -> None:
        nonlocal said
        if time.monotonic() - said >= _SECONDS:
            said = time.monotonic()
            console.print(f"simulating {line}", markup=False, highlight=False, soft_wrap=True)

    yield say


def show_advice(advice: Advice) -> None:
    """Print the table, its summary, and the flags."""
    console = plain_console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading else "left")
    best, synchronous, colocated = advice.zero_bubble, advice.synchronous, advice.colocated
    for name, choice in (("zero bubble", best), ("synchronous", synchronous), ("synchronous, colocated", colocated)):
        table.add_row(name, *_cells(choice))
    console.print(f"{advice.devices} devices\n")
    console.print(table)
    figures = best.figures
    gains = f"{advice.speedup:.2f} x synchronous on its own split, {best.speed / colocated.speed:.2f} x synchronous, colocated"
    ages = (
        f"staleness {figures.staleness_mean:.1f} on average, {figures.staleness_max} at most; at most {figures.peak_buffer} groups waited"
    )
    lost = f"; {figures.failures} producers failed, {figures.lost:.2%} of the tokens were lost" if figures.failures else ""
    update = best.scenario.weight_update
    weights = (
        f"weights by {update.transport}: trainers stall for them {figures.publishing:.0%} of the time, producers "
        f"{figures.taking:.0%}; {update.whole:.3g} s from an update until engines serve it"
    )
    faster = max(synchronous.speed, colocated.speed) > best.speed
    turns = "--placement colocated --max-staleness 0" if colocated.speed >= synchronous.speed else "--max-staleness 0"
    hint = (f"synchronous is faster for this workload: {turns}",) if faster else ()
    if figures.sources:
        console.print("", _of_sources(best), sep="\n")
    for line in ("", f"zero bubble: {gains}", f"{ages}{lost}", weights, *hint, "", f"rlcore train … {advice.flags}"):
        console.print(line, soft_wrap=True)


def _of_sources(choice: SplitChoice) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in _SOURCE_HEADINGS:
        table.add_column(heading, justify="left" if heading == "source" else "right")
    for (share, _), (name, found) in zip(choice.scenario.workload.drawn, choice.figures.sources.items(), strict=True):
        ledger = [str(found.ledger[key]) for key in ("issued", "trained", "filtered")]
        table.add_row(name, f"{share:.1%}", f"{found.trained:.1%}", f"{found.decoded:.1%}", str(found.filtered), *ledger)
    return table


def _cells(choice: SplitChoice) -> list[str]:
    scenario, figures = choice.scenario, choice.figures
    return [
        _of_devices(scenario.producers, scenario.workload.generation.producer_devices),
        _of_devices(scenario.trainers, scenario.workload.update.trainer_devices),
        str(scenario.max_staleness),
        str(scenario.buffer),
        f"{choice.speed:.3g}",
        f"{figures.tokens_per_second:,.0f}",
        f"{1 / figures.updates_per_second:.3g}",
        f"{figures.trainer_busy:.0%}",
        f"{figures.producers_busy:.0%}",
        f"{figures.slot_use:.0%}",
    ]


def _of_devices(number: float, each: int) -> str:
    return f"{number:g}" if each == 1 else f"{number:g} x {each}"
