"""The display: which one it is, lines where no plugin shows more, and a plugin whose display breaks."""

from __future__ import annotations

import importlib
import io
import itertools
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

from rlcore.cli.line_display import LinesDisplay, QuietDisplay, shown
from rlcore.contracts.runtime_interface import TaskReport
from rlcore.runtime.progress import Progress
from rlcore.testing import PluginFolder


def report(accuracy: float | None, failed: int = 0) -> TaskReport:
    return TaskReport(task="sort", accuracy=accuracy, reward=None, rows=({},) * 9, failed=failed)


def play(display: Progress) -> None:
    display.started(Path("runs/x"), 4)
    display.evaluated(0, [report(0.25)])
    display.step(1, {})
    display.note("a [note] with brackets")
    display.note("warning: look")
    display.step(2, {"reward/mean": 1.5, "response_length/mean": 7.0, "response_tokens": 100.0})
    display.evaluated(1, [report(0.5, failed=4)])
    display.evaluated(2, [report(None)])
    display.finished()


def lines() -> str:
    out = io.StringIO()
    play(LinesDisplay(Console(file=out, width=100, color_system=None)))
    return out.getvalue()


def test_every_figure_is_there_and_none_is_invented() -> None:
    text = lines()
    for words in ("runs/x", "0.250", "1.500", "7.0", "a [note] with brackets", "2/4", "sort –", "0.500 (no verdict on 4 of 9)"):
        assert words in text


def test_lines_hold_no_escapes_and_one_line_an_update() -> None:
    assert "\x1b" not in lines()
    assert sum(line.startswith("step ") for line in lines().splitlines()) == 2


def test_a_note_does_not_steer_the_terminal() -> None:
    out = io.StringIO()
    LinesDisplay(Console(file=out, width=100, color_system=None)).note("warning: a\x1b]0;owned\x07\n\x9b2J")
    assert out.getvalue() == "warning: a\\x1b]0;owned\\x07\n\\x9b2J\n"


def test_quiet_says_warnings_alone() -> None:
    out = io.StringIO()
    display = QuietDisplay(Console(file=out, width=100))
    play(display)
    display.note("interrupted: this step is finished and saved")
    assert out.getvalue().splitlines() == ["warning: look", "interrupted: this step is finished and saved"]


@pytest.mark.parametrize(
    ("updates", "seconds", "least", "most"),
    [(20, 0.0, 20, 20), (10_000, 20.0, 40, 42), (10_000, 0.0, 21, 21), (100, 100.0, 100, 100), (60, 30.0, 49, 51)],
)
def test_fast_updates_do_not_fill_a_log(updates: int, seconds: float, least: int, most: int) -> None:
    """Twenty at once, then one a second, and the last; with every note and evaluation."""
    moments = itertools.count()
    out = io.StringIO()
    display = LinesDisplay(Console(file=out, width=200), now=lambda: next(moments) * seconds / updates)
    display.started(Path("runs/x"), updates)
    for step in range(1, updates + 1):
        display.step(step, {"reward/mean": 0.5})
        if step % (updates // 10) == 0:
            display.evaluated(step, [report(0.5)])
    display.finished()
    found = out.getvalue().splitlines()
    said = [line for line in found if line.startswith("step ")]
    assert least <= len(said) <= most
    assert said[-1].startswith(f"step {updates}/{updates} ")
    assert sum(line.startswith("held-out") for line in found) == 10


def test_a_run_that_ends_early_shows_the_update_that_it_ends_with() -> None:
    out = io.StringIO()
    display = LinesDisplay(Console(file=out, width=200), now=lambda: 0.0)
    display.started(Path("runs/x"), 1000)
    for step in range(1, 40):
        display.step(step, {})
    display.finished()
    assert out.getvalue().splitlines()[-1].startswith("step 39/1000 ")


OFFERS = """
from contextlib import contextmanager
from rlcore.api import hookimpl
from rlcore.api.display import Progress
rlcore_api = "2.0"
calls = []

class Display(Progress):
    def started(self, folder, total_steps):
        calls.append(("started", str(folder), total_steps))

    def step(self, step, metrics):
        calls.append(("step", step))

    def note(self, text):
        calls.append(("note", text))

    def evaluated(self, step, reports):
        calls.append(("evaluated", step, len(reports)))

    def finished(self):
        calls.append(("finished",))

@contextmanager
def opened():
    calls.append("opened")
    try:
        yield Display()
    finally:
        calls.append("closed")

@hookimpl
def rlcore_open_display(console):
    return opened()
"""


def shown_by(folder: PluginFolder, **typed: bool) -> list[str]:
    """What the console gets of a run."""
    out = io.StringIO()
    with shown(Console(file=out, width=200, color_system=None), folder.discover(), **typed) as display:
        play(display)
    return without_pace(out.getvalue())


def without_pace(text: str) -> list[str]:
    """The lines, without what depends on how fast this machine is."""
    return re.sub(r"tokens/s \d+", "tokens/s", text).splitlines()


def test_the_display_of_a_plugin_hears_everything_in_place_of_the_console(tmp_path: Path) -> None:
    with PluginFolder(tmp_path / "site") as folder:
        folder.install("none", OFFERS.replace("return opened()", "return None"))
        folder.install("shows", OFFERS)
        assert shown_by(folder) == []
        calls = importlib.import_module("rlcore_plugin_shows").calls
        assert calls == [
            "opened",
            ("started", "runs/x", 4),
            ("evaluated", 0, 1),
            ("step", 1),
            ("note", "a [note] with brackets"),
            ("note", "warning: look"),
            ("step", 2),
            ("evaluated", 1, 1),
            ("evaluated", 2, 1),
            ("finished",),
            "closed",
        ]
        calls.clear()
        assert shown_by(folder, as_json=True) == without_pace(lines())
        assert shown_by(folder, quiet=True) == shown_by(folder, quiet=True, as_json=True) == ["warning: look"]
        assert calls == [], "nobody asks a plugin, if the user typed --json or --quiet"


@pytest.mark.parametrize("finally_", ["finally:", "except ValueError:"], ids=["passes it on", "swallows it"])
def test_an_error_of_the_run_closes_the_display_and_goes_on(tmp_path: Path, finally_: str) -> None:
    with PluginFolder(tmp_path / "site") as folder:
        folder.install("shows", OFFERS.replace("finally:", finally_))
        with pytest.raises(ValueError, match="of the run"), shown(Console(file=io.StringIO()), folder.discover()):
            raise ValueError("of the run")
        assert importlib.import_module("rlcore_plugin_shows").calls == ["opened", "closed"]


@pytest.mark.parametrize(
    ("written", "broken", "said"),
    [
        ("return opened()", "return None", None),
        ("return opened()", "1 / 0", "the display of rlcore-plugin-shows cannot be opened: ZeroDivisionError: "),
        ("return opened()", "raise SystemExit", "the display of rlcore-plugin-shows cannot be opened: SystemExit"),
        ("return opened()", "return 7", "the display of rlcore-plugin-shows cannot be opened: AttributeError: 'int'"),
        ('calls.append("opened")', "1 / 0", "the display of rlcore-plugin-shows cannot be opened: ZeroDivisionError: "),
        ("yield Display()", "yield 7", "the display of rlcore-plugin-shows is switched off for the rest of the run: AttributeError: 'int'"),
        (
            'calls.append(("started", str(folder), total_steps))',
            "1 / 0",
            "the display of rlcore-plugin-shows is switched off for the rest of the run: ZeroDivisionError: ",
        ),
    ],
)
def test_a_run_whose_display_cannot_be_made_or_breaks_prints_lines(tmp_path: Path, written: str, broken: str, said: str | None) -> None:
    with PluginFolder(tmp_path / "site") as folder:
        assert written in OFFERS
        folder.install("shows", OFFERS.replace(written, broken))
        found = shown_by(folder)
    warnings = [line for line in found if line.startswith("warning: the display")]
    assert len(warnings) == (said is not None)
    assert all(warning.startswith(f"warning: {said}") for warning in warnings)
    assert [line for line in found if line not in warnings] == without_pace(lines())


def test_slow_work_before_the_first_update_is_told_every_ten_seconds() -> None:
    out, clock = io.StringIO(), iter([0.0, 0.0, 4.0, 11.0, 19.0, 40.0])
    display = LinesDisplay(Console(file=out, width=200), now=lambda: next(clock))
    for done in (0, 10, 25, 50, 100):
        display.working("checking gold answers", done, 100)
    assert out.getvalue().splitlines() == [
        "checking gold answers: 25 of 100 (25 %), 0:33 left",
        "checking gold answers: 100 of 100 (100 %), 0:00 left",
    ]


@pytest.mark.parametrize("error", [None, ValueError("of the run")])
def test_a_display_that_cannot_be_closed_ends_no_run_and_hides_no_error(tmp_path: Path, error: Exception | None) -> None:
    out = io.StringIO()
    with PluginFolder(tmp_path / "site") as folder:
        folder.install("shows", OFFERS.replace('calls.append("closed")', "raise SystemExit"))
        with (
            pytest.raises(ValueError, match="of the run") if error else nullcontext(),
            shown(Console(file=out, width=200), folder.discover()),
        ):
            if error:
                raise error
    assert out.getvalue().startswith("warning: the display of rlcore-plugin-shows cannot be closed: SystemExit ")


def test_a_display_that_breaks_amid_the_run_is_reported_once_and_lines_know_how_far_it_is(tmp_path: Path) -> None:
    with PluginFolder(tmp_path / "site") as folder:
        folder.install("shows", OFFERS.replace('calls.append(("step", step))', "raise SystemExit"))
        found = shown_by(folder)
        calls = importlib.import_module("rlcore_plugin_shows").calls
    assert calls == ["opened", ("started", "runs/x", 4), ("evaluated", 0, 1), "closed"]
    warning, *rest = found
    assert warning.startswith("warning: the display of rlcore-plugin-shows is switched off for the rest of the run: SystemExit ")
    assert [line.partition("  ")[0] for line in rest if line.startswith("step ")] == ["step 1/4", "step 2/4"]
    assert rest[0].startswith("step 1/4"), "the update at which it broke is not lost"
