"""What a person sees on a terminal while everybody prints: each line whole, the panel whole and once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM
from tests.terminal_screen import ScreenedProgram

NOISY = str(Path(__file__).with_name("noisy_run.py"))
SAID = [
    "a note before",
    "run folder: runs/x",
    "plugin print",
    "to stderr",
    "LOG by logging",
    "UserWarning: a Python warning",
    "child out",
    "child err",
    "held-out accuracy after 10 updates: sort 0.333",
    "from C",
    "(actor pid=7) from a worker",
    "100%|###|",
    "warning: " + "long " * 30 + "end",
    "evil  clear",
    "no newline",
    "held-out accuracy after 20 updates: sort 0.667",
    "held-out accuracy after 30 updates: sort 1.000",
    "printed when training is over",
]
"""In any order: a thread may be late."""


def whole(program: ScreenedProgram) -> str:
    """The screen with its lines put together again, where the terminal wrapped them."""
    return "".join(program.screen.display)


def assert_everything_is_there_once(program: ScreenedProgram) -> None:
    text = whole(program)
    assert {words: text.count(words) for words in SAID} == dict.fromkeys(SAID, 1), program.text()
    panel = [line for line in program.lines() if line.startswith(("━", "step ", "reward ", "held-out  "))]
    assert [line.split()[0][:4] for line in panel] == ["━━━━", "step", "rewa", "held"], program.text()
    assert "step 30/30" in text


@pytest.mark.parametrize("columns", [80, 40, 23])
def test_nobody_garbles_the_panel_nor_the_panel_them(columns: int) -> None:
    with ScreenedProgram(NOISY, columns=columns) as program:
        assert program.wait() == 0, program.text()
        assert_everything_is_there_once(program)
        lines = program.lines()
    assert lines[-1] == "the outcome"
    assert [line.split()[0][:4] for line in lines[-5:-1]] == ["━━━━", "step", "rewa", "held"]
    reward = lines[-3]
    assert "▁" in reward
    assert "█" in reward


def test_a_window_that_is_pulled_at_ends_whole() -> None:
    with ScreenedProgram(NOISY, columns=100, env={"PAUSE": "0.1"}) as program:
        for shown, size in (("plugin print", (60, 60)), ("child err", (34, 60)), ("from C", (120, 60)), ("no newline", (45, 60))):
            program.wait_for(shown)
            program.resize(*size)
        assert program.wait() == 0, program.text()
        text = whole(program)
        assert all(text.count(words) == 1 for words in SAID[-3:]), program.text()
        assert text.count("step 30/30") == 1, program.text()
        assert sum(line.startswith("━") for line in program.lines()) == 1, program.text()


def test_a_terminal_without_unicode_gets_ascii() -> None:
    with ScreenedProgram(NOISY, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}) as program:
        assert program.wait() == 0, program.text()
        assert program.raw.isascii()
        (reward,) = [line for line in program.lines() if line.startswith("reward ")]
        assert "_" in reward
        assert "#" in reward


def test_the_panel_of_a_run_that_fails_stays_above_the_error() -> None:
    with ScreenedProgram(NOISY, env={"ENDS": "raise"}) as program:
        assert program.wait() == 1
        lines = program.lines()
    assert_everything_is_there_once(program)
    assert lines[-1] == "RuntimeError: the run failed"
    assert next(at for at, line in enumerate(lines) if line.startswith("Traceback")) > next(
        at for at, line in enumerate(lines) if line.startswith("held-out  ")
    )


def test_what_a_process_says_as_it_dies_is_seen() -> None:
    with ScreenedProgram(NOISY, env={"ENDS": "abort"}) as program:
        assert program.wait() == -signal.SIGABRT
        assert "last words" in whole(program), program.text()


def test_a_killed_driver_leaves_no_watcher_and_no_silent_terminal() -> None:
    with ScreenedProgram(NOISY, env={"PAUSE": "1", "UPDATES": "100"}) as program:
        program.wait_for("step 1/100")
        program.process.send_signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL  # which reads until nobody holds the terminal


def test_a_child_that_outlives_the_run_is_heard_below_the_outcome() -> None:
    with ScreenedProgram(NOISY, env={"ENDS": "leave_child"}) as program:
        assert program.wait() == 0, program.text()
        assert program.lines()[-2:] == ["the outcome", "child that outlives"]


def test_a_terminal_that_goes_away_ends_nothing(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with ScreenedProgram(NOISY, env={"PAUSE": "0.05", "DONE": str(done)}) as program:
        program.wait_for("plugin print")
        program.hang_up()
        program.process.wait(60)
        assert done.read_text() == "done"


def test_a_terminal_that_does_not_know_its_size_gets_the_panel() -> None:
    with ScreenedProgram(NOISY, unsized=True, columns=80, rows=60) as program:
        assert program.wait() == 0, program.text()
        assert_everything_is_there_once(program)


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"RLCORE_DISABLE": "tools"}], ids=["dumb", "without the plugin"])
def test_lines_on_a_dumb_terminal_and_where_no_plugin_shows_more(env: dict[str, str]) -> None:
    with ScreenedProgram(NOISY, columns=200, env=env) as program:
        assert program.wait() == 0
        assert program.raw.count(b"\nstep ") >= 20
        assert b"\x1b[1A" not in program.raw


def test_output_that_goes_to_a_file_keeps_the_terminal_free(tmp_path: Path) -> None:
    """The console is the file, so it gets lines; what goes to standard error goes to the terminal, untouched."""
    log = tmp_path / "log.txt"
    with log.open("w") as file, ScreenedProgram(NOISY, stdout=file.fileno()) as program:
        assert program.wait() == 0
        assert "step 30/30" in log.read_text()
        assert "LOG by logging" in program.lines()
        assert "step" not in program.text()


LOUD = """
import os, sys
from rlcore.api import hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_step_finished(step, metrics):
    print(f"observer saw {step}")
    os.system(f"echo child saw {step} >&2")

@hookimpl
def rlcore_note_step(step, metrics):
    return ["look at this"] if step == 7 else []
"""


@pytest.mark.parametrize("runtime", ["auto", "local"])
def test_a_whole_run_on_a_terminal_is_read_from_top_to_bottom(tmp_path: Path, runtime: str) -> None:
    tester = RunTester(tmp_path).with_fakes()
    tester.plugins.install("loud", LOUD)
    config = tester.fake_run(run={"runtime": runtime, "num_episodes": 5, "max_steps": 10}, schedule={"max_staleness": 0})
    command = ("-c", PROGRAM, "-p", "no:health", "train", config)
    with ScreenedProgram(*command, columns=100, rows=90, cwd=tmp_path, env=tester.plugins.environment) as program:
        assert program.wait() == 0, program.text()
        lines, text = program.lines(), whole(program)
    for step in range(1, 11):
        assert lines.count(f"observer saw {step}") == 1, text
        assert lines.count(f"child saw {step}") == 1, text
    assert lines.count("warning: after update 7: look at this") == 1
    (bar,) = [at for at, line in enumerate(lines) if line.startswith("━")]
    assert lines[bar + 1].startswith("step 10/10")
    assert lines[bar + 2].startswith("reward ")
    assert lines[bar + 4] == "Done."
    assert "note                after update 7: look at this" in lines


def test_a_quiet_run_prints_warnings_and_the_outcome(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("loud", LOUD)
    config = tester.fake_run(run={"num_episodes": 5, "max_steps": 10})
    outcome = tester.run("-p", "no:health", "train", config, "-q").assert_ok()
    assert outcome.lines[:3] == ["warning: after update 7: look at this", "", "Done."]
    both = tester.run("-p", "no:health", "train", config, "-q", "--json").assert_ok()
    assert len(both.lines) == 1
    assert both.json["remarks"] == ["after update 7: look at this"]
