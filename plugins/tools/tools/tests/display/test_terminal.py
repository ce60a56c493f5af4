"""Notes scroll above a panel, on a terminal that is emulated: each whole, the panel whole and once, whatever the window does."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_tools.display.terminal import Terminal


class Window:
    """A terminal, and what is seen of it."""

    def __init__(self, columns: int = 30, rows: int = 12) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.Stream(self.screen)
        self.terminal = Terminal(self.write, lambda: (self.screen.columns, self.screen.lines))

    def write(self, text: str) -> None:
        self.stream.feed(text.replace("\n", "\r\n"))

    def resize(self, columns: int, rows: int, *, folds: bool = False) -> None:
        """Lines that are too long are cut off, as xterm does it, or folded, as most terminals do."""
        seen = self.lines
        self.screen.resize(rows, columns)
        if folds:
            self.screen.reset()
            self.write("\n".join(seen))

    @property
    def lines(self) -> list[str]:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip().split("\n")


def panel(*lines: str) -> Callable[[int, int], list[str]]:
    return lambda columns, rows: [line[:columns] for line in lines][:rows]


def test_notes_stand_above_the_panel_which_is_there_once() -> None:
    window = Window()
    window.terminal.note("before")
    window.terminal.hold(panel("bar", "figures"))
    for number in range(3):
        window.terminal.note(f"note {number}")
        window.terminal.draw()
    assert window.lines == ["before", "note 0", "note 1", "note 2", "bar", "figures"]
    window.terminal.hold(None)
    window.terminal.note("after")
    assert window.lines == ["before", "note 0", "note 1", "note 2", "bar", "figures", "after"]


def test_a_panel_that_grows_and_shrinks_leaves_nothing_behind() -> None:
    window = Window()
    for lines in (["a"], ["a", "b", "c"], ["d"], [], ["e", "f"]):
        window.terminal.hold(panel(*lines))
        window.terminal.note(str(len(lines)))
    assert window.lines == ["1", "3", "1", "0", "2", "e", "f"]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[2J\x1b[H\x1b[5Acleared", ["cleared"]),
        (" 10%\r 50%\r100%", ["100%"]),
        ("ends with\r", ["ends with"]),
        ("bell\x07 back\x08 vertical\x0b null\x00", ["bell back vertical null"]),
        ("\x1b]0;title\x07\x1b]8;;http://x\x1b\\link", ["link"]),
        ("a\tb", ["a       b"]),
        ("\x1b[31mred", ["red"]),
        ("two\nlines", ["two", "lines"]),
        ("a line that is longer than the window is wide", ["a line that is longer than the", " window is wide"]),
        ("[brackets] :smile:", ["[brackets] :smile:"]),
        ("\x9b2Jeight bits", ["2Jeight bits"]),
        ("", [""]),
        ("cut \x1b", ["cut"]),
    ],
)
def test_what_is_printed_commands_nothing(text: str, seen: list[str]) -> None:
    window = Window()
    window.terminal.hold(panel("panel"))
    window.terminal.note("first")
    window.terminal.note(text)
    assert window.lines == ["first", *seen, "panel"]


def test_a_colour_ends_with_its_line() -> None:
    window = Window()
    window.terminal.note("\x1b[31mred")
    window.terminal.note("plain")
    assert [window.screen.buffer[row][0].fg for row in (0, 1)] == ["red", "default"]


def test_nothing_is_written_where_nothing_changed() -> None:
    written: list[str] = []
    terminal = Terminal(written.append, lambda: (80, 24))
    terminal.hold(panel("same"))
    before = len(written)
    terminal.draw()
    assert len(written) == before
    assert all(text for text in written)


@pytest.mark.parametrize("folds", [False, True])
def test_a_window_that_gets_narrower_shows_the_last_notes_and_the_panel_anew(folds: bool) -> None:
    window = Window(columns=40, rows=6)
    window.terminal.hold(panel("=" * 30))
    for number in range(9):
        window.terminal.note(f"note {number} of nine")
    window.resize(20, 6, folds=folds)
    window.terminal.draw()
    assert window.lines == [*(f"note {number} of nine" for number in range(4, 9)), "=" * 19]
    window.resize(60, 10, folds=folds)
    window.terminal.note("wider")
    assert window.lines[-2:] == ["wider", "=" * 30]


NOTES = st.text("abcü", max_size=70).map(lambda text: f"<{text}>")
ACTIONS = st.one_of(
    st.tuples(st.just("note"), NOTES),
    st.tuples(st.just("panel"), st.lists(st.text("=-", min_size=1, max_size=50), max_size=4)),
    st.tuples(st.just("resize"), st.tuples(st.integers(8, 60), st.integers(2, 12), st.booleans())),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(ACTIONS, max_size=25), st.lists(NOTES, min_size=1, max_size=3))
def test_at_the_end_the_last_notes_are_whole_and_the_panel_is_there_once(actions: list[tuple[str, object]], last: list[str]) -> None:
    """Whatever came before: panels that grow and shrink, windows that do. The end is seen in a window that is large enough."""
    window = Window(columns=50, rows=12)
    for action, value in actions:
        if action == "note":
            window.terminal.note(str(value))
        elif action == "panel":
            window.terminal.hold(panel(*value))  # type: ignore[misc]
        else:
            columns, rows, folds = value  # type: ignore[misc]
            window.resize(columns, rows, folds=folds)
            window.terminal.draw()
    window.resize(60, 40)
    window.terminal.hold(panel("#one", "#two"))
    for note in last:
        window.terminal.note(note)
    assert "".join(window.lines).endswith("".join(last) + "#one#two")
    assert "".join(window.lines).count("#one") == 1


def test_threads_and_a_handler_amid_a_draw_do_not_garble() -> None:
    window = Window(columns=30, rows=400)
    inner = window.write
    nested = iter(range(100_000))

    def write(text: str) -> None:
        if next(nested) % 7 == 0:  # as a signal handler does, between two instructions
            window.terminal.note("handler")
        inner(text)

    window.terminal._write = write
    window.terminal.hold(panel("panel 1", "panel 2"))
    threads = [threading.Thread(target=lambda: [window.terminal.note("thread") for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = window.lines
    assert lines[-2:] == ["panel 1", "panel 2"]
    assert set(lines[:-2]) == {"thread", "handler"}
    assert lines.count("thread") == 200
