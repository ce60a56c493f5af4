"""``rlcore rollouts`` on a terminal: a real one, of a size that is set, whose keys are typed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlcore.testing.run_tester import PROGRAM
from tests.written_runs import HOSTILE, a_rollout, write_run

TEXTS = ["first one", "second\n" + "\n".join(f"line {number}" for number in range(40)), f"third {HOSTILE}", "fourth, 数学"]
OWN = re.compile(r"\x1b\[(?:\?1049[hl]|\?25[hl]|H|2J|\d+;1H|2K|7m|0m)")
"""What the pager itself tells the terminal."""


class Terminal:
    """``rlcore rollouts`` behind a pseudo-terminal."""

    def __init__(self, folder: Path, *words: str, term: str = "xterm", rows: int = 20, columns: int = 60) -> None:
        self.handle, inner = pty.openpty()
        termios.tcsetwinsize(inner, (rows, columns))
        self.before = termios.tcgetattr(inner)
        self._inner = inner
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "rollouts", *words],
            cwd=folder,
            env={**os.environ, "TERM": term, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )
        self.all = ""

    def type(self, keys: str) -> None:
        os.write(self.handle, keys.encode())

    def until(self, words: str, seconds: float = 15.0) -> str:
        """What was drawn since the last call, up to a screen that holds the words."""
        found, end = b"", time.monotonic() + seconds
        while words not in (text := found.decode("utf-8", "replace")):
            assert time.monotonic() < end, f"no {words!r} on the screen: {text!r}"
            if select.select([self.handle], [], [], 0.1)[0]:
                found += os.read(self.handle, 65536)
        while select.select([self.handle], [], [], 0.2)[0]:
            found += os.read(self.handle, 65536)
        text = found.decode("utf-8", "replace")
        self.all += text
        drawn = text.rpartition("\x1b[H\x1b[2J")[2]
        return OWN.sub("", re.sub(r"\x1b\[\d+;1H", "\r\n", drawn))

    def ended(self) -> int:
        """The exit code; the terminal must be as it was."""
        code = self.process.wait(60)
        assert termios.tcgetattr(self._inner) == self.before
        return code


@contextmanager
def terminal(folder: Path, *words: str, **settings: object) -> Iterator[Terminal]:
    opened = Terminal(folder, *words, **settings)  # type: ignore[arg-type]
    try:
        yield opened
    finally:
        if opened.process.poll() is None:
            opened.process.kill()
        opened.process.wait()
        os.close(opened.handle)
        os.close(opened._inner)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = {step: [a_rollout(0, step=step, prompt_id=f"train:{step}", text=text)] for step, text in enumerate(TEXTS, 1)}
    write_run(tmp_path / "run", rollouts=rows)
    return tmp_path


def test_forwards_backwards_and_out(folder: Path) -> None:
    with terminal(folder, "run") as screen:
        assert "first one" in screen.until("q quit")
        screen.type("n")
        assert "second" in screen.until("more below")
        screen.type("\x1b[C")  # right
        assert "third" in screen.until("3  n")
        screen.type("n")
        assert "数学" in screen.until("train:4")
        screen.type("n")
        assert "fourth" in screen.until("this is the last")
        screen.type("\x1b[D")  # left
        assert "third" in screen.until("3 of 4")
        screen.type("p")
        screen.until("2 of 4")
        screen.type("p")
        screen.until("first one")
        screen.type("p")
        screen.until("this is the first")
        screen.type("q")
        assert screen.ended() == 0


def test_nothing_that_a_model_wrote_reaches_the_terminal_raw(folder: Path) -> None:
    with terminal(folder, "run", "--step", "3") as screen:
        text = screen.until("q quit")
        assert "\\x1b]0;owned\\x07" in text
        screen.type("/\x1b[A\x07\x9b")
        screen.type("owned\r")
        screen.until("no later rollout contains")
        screen.type("q")
        assert screen.ended() == 0
        rest = OWN.sub("", screen.all).replace("\r\n", "")
        assert not set(rest) & set("\x1b\x07\x9b\x7f\r\x00\u202e\u2028")


def test_a_long_answer_is_scrolled(folder: Path) -> None:
    with terminal(folder, "run", "--step", "2") as screen:
        assert "line 12" in screen.until("more below")
        screen.type(" ")
        text = screen.until("line 30")
        assert "line 12" not in text
        screen.type("\x1b[6~")
        assert "advantage" in screen.until("line 39")
        screen.type("\x1b[B")  # down, at the end: stays
        assert "advantage" in screen.until("line 39")
        screen.type("bbb")
        assert "second" in screen.until("more below")
        screen.type("\x1b[B")
        assert "train:2" not in screen.until("more below")
        screen.type("\x03")  # Ctrl-C
        assert screen.ended() == 130
        screen.until("\x1b[?25h\x1b[?1049l")


def test_search_and_search_again(folder: Path) -> None:
    with terminal(folder, "run") as screen:
        screen.until("q quit")
        screen.type("/THIRF\x7fD\r")
        screen.until("train:3")
        screen.type("/1 + 2\r")
        screen.until("train:4")
        screen.type("/\r")
        screen.until("no later rollout contains 1 + 2")
        screen.type("/abc")
        screen.until("/abc")
        screen.type("\x1b")
        screen.until("4 of 4")
        screen.type("p")
        screen.until("train:3")
        screen.type("q")
        assert screen.ended() == 0


def test_another_size_is_drawn_anew(folder: Path) -> None:
    with terminal(folder, "run") as screen:
        screen.until("q quit")
        termios.tcsetwinsize(screen._inner, (6, 24))
        assert max(map(len, screen.until("1 + 2").split("\r\n"))) <= 24
        screen.type("q")
        assert screen.ended() == 0


def test_without_a_terminal_that_moves_a_plain_listing(folder: Path) -> None:
    with terminal(folder, "run", term="dumb") as screen:
        assert screen.process.wait(60) == 0
        text = screen.until("fourth")
        assert "first one" in text
        assert "\x1b" not in screen.all


def test_nothing_to_page_is_said(folder: Path) -> None:
    with terminal(folder, "run", "--search", "nowhere") as screen:
        assert screen.process.wait(60) == 0
        screen.until("no rollout matches")
        assert "\x1b" not in screen.all
