"""The display in a notebook: where it appears, what a page holds, and that it stays small and harmless."""

from __future__ import annotations

import io
import math
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rlcore_plugin_tools import rlcore_open_display
from rlcore_plugin_tools.display import notebook_display as module
from rlcore_plugin_tools.display.notebook_display import NotebookDisplay
from rlcore_plugin_tools.display.notebook_page import NotebookPage

from rlcore.api.display import TaskReport

HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script></div>\"' & \x1b[31m \x00"


def report(accuracy: float | None, answer: str = "1 2", prompt: str = "sort 2 1") -> TaskReport:
    row: dict[str, Any] = {"prompt": [{"role": "user", "content": prompt}], "prediction": answer, "ans_valid": True, "index": 0}
    return TaskReport(task="sort", accuracy=accuracy, reward=None, rows=(row, {**row, "index": 1, "prediction": "a second sample"}))


def parsed(page: NotebookPage) -> ElementTree.Element:
    """The HTML as a tree; an error if a tag is not closed, or a character may not be there."""
    return ElementTree.fromstring(page.html().replace("&ensp;", " ").replace("&emsp;", " "))


def played(steps: int = 4) -> NotebookPage:
    page = NotebookPage()
    page.start("runs/x", steps)
    for step in range(1, steps + 1):
        page.update(step, {"reward/mean": step / steps, "response_tokens": 100.0})
        if step % 2 == 0:
            page.evaluate(step, [report(0.5)])
    return page


def test_every_figure_is_there_and_none_is_invented() -> None:
    page = NotebookPage()
    page.start("runs/x", 4)
    assert "waiting for the first batch" in page.html()
    assert "svg" not in page.html()
    page.update(1, {})
    assert page.text().startswith("running: step 1 of 4, reward –, tokens/s 0, left ")
    page.update(2, {"reward/mean": 0.125, "response_tokens": 100.0})
    page.evaluate(2, [report(0.75)])
    page.note("warning: look")
    text = "".join(parsed(page).itertext())
    for words in ("step 2 of 4", "reward 0.125", "held-out accuracy 0.750", "runs/x", "warning: look", "sort 2 1", "1 2 ✓ right"):
        assert words in text
    assert "a second sample" not in text


def everywhere(text: str) -> NotebookPage:
    """A page with the text in each place that a run can fill."""
    page = NotebookPage()
    page.working(text, 1, 2, 1.0)
    assert escape(text[:4]) in page.html()
    page.start(text, 4)
    page.evaluate(2, [report(0.5, text, text)])
    page.note(f"warning: {text}")
    page.note(text)
    return page


def test_nothing_that_a_model_wrote_is_a_tag() -> None:
    harmless, hostile = everywhere("harmless"), everywhere(HOSTILE)
    assert [one.tag for one in parsed(hostile).iter()] == [one.tag for one in parsed(harmless).iter()]
    assert "".join(parsed(hostile).itertext()).count("<script>alert(1)</script></div>") == 5
    assert "\x1b" not in hostile.html() + hostile.text()


def test_the_page_does_not_grow_with_the_run() -> None:
    sizes = []
    for steps in (400, 6000):
        page = played(steps)
        for number in range(steps):
            page.note(f"warning: {number}" + "x" * 1000)
            page.note("y" * 1000)
        page.evaluate(steps, [report(0.5, "z" * 10_000)] * 20)
        sizes.append(len(page.html()))
    assert max(sizes) < 20_000
    assert "(5996 earlier ones are not shown)" in page.html()


@pytest.mark.parametrize("values", [[math.nan], [math.inf, -math.inf, 1e308, -1e308], [0.5], [0.5, 0.5], [-3.0, 7.0]])
def test_the_chart_holds_any_values(values: list[float]) -> None:
    page = NotebookPage()
    page.start("x", len(values))
    for step, value in enumerate(values, start=1):
        page.update(step, {"reward/mean": value})
        page.evaluate(step, [report(value)])
    for line in parsed(page).iter("polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 640
            assert 0 <= y <= 180


def test_a_run_that_goes_back_to_its_checkpoint_starts_its_curves_again() -> None:
    page = played()
    page.note("warning: a rank was lost")
    page.start("runs/x", 4)
    assert not page.reward.points()
    assert "a rank was lost" in page.html()


def test_the_output_is_replaced_from_one_thread_and_only_if_it_changed() -> None:
    shown: list[Mapping[str, str]] = []
    display = NotebookDisplay(shown.append)
    display.started(Path("runs/x"), 3)
    for step in range(1, 4):
        display.step(step, {"reward/mean": 0.5})
    assert not shown, "an event does not wait for the notebook"
    display.end("done")
    display.draw()
    assert [one["text/plain"].partition(",")[0] for one in shown] == ["done: step 3 of 3"]


def test_an_output_that_fails_is_reported_by_the_next_event() -> None:
    def broken(shown: Mapping[str, str]) -> None:
        raise OSError("the front end is gone")

    display = NotebookDisplay(broken)
    display.redraw()
    with pytest.raises(OSError, match="is gone"):
        display.note("a note")


@pytest.mark.parametrize(
    ("error", "state"),
    [(None, "done"), (ValueError("of the run"), "failed"), (KeyboardInterrupt(), "stopped")],
    ids=["none", "error", "stop"],
)
def test_the_last_state_says_how_the_run_ended(error: BaseException | None, state: str) -> None:
    shown: list[Mapping[str, str]] = []
    threads = threading.active_count()
    with pytest.raises(type(error)) if error is not None else nullcontext(), module._opened(shown.append) as display:
        display.started(Path("runs/x"), 3)
        if error is not None:
            raise error
    assert shown[-1]["text/plain"].startswith(f"{state}: step 0 of 3")
    assert threading.active_count() == threads


def test_only_the_streams_of_a_kernel_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Mapping[str, Any]] = []
    shell = SimpleNamespace(kernel=object())
    display = SimpleNamespace(display=lambda data, **words: made.append(words))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))
    assert rlcore_open_display(Console(file=io.StringIO())) is None
    opened = rlcore_open_display(Console(stderr=True))
    assert opened is not None
    with opened as progress:
        assert isinstance(progress, NotebookDisplay)
    assert [words["update"] for words in made] == [False, True]
    assert len({words["display_id"] for words in made}) == 1
    monkeypatch.delattr(shell, "kernel")  # IPython in a terminal
    assert rlcore_open_display(Console(stderr=True)) is None


def test_ipython_is_not_imported_where_there_is_no_kernel() -> None:
    code = (
        "import sys; from rich.console import Console; from rlcore_plugin_tools import rlcore_open_display; "
        "print(rlcore_open_display(Console(stderr=True)), 'IPython' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None False\n"
