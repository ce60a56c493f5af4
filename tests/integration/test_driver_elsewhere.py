"""A run whose workers are processes, started where no command line is: in a thread whose event loop runs, as a notebook's cell does, and
outside the main thread. Ctrl-C and the stop button of a notebook are the same signal to the same thread."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester
from rlcore.testing.run_tester import QUIET

PROGRAM = """
import asyncio, contextlib, json, os, signal, sys, threading, time
from pathlib import Path
import rlcore

where, presses, config = sys.argv[1], int(sys.argv[2]), sys.argv[3]
said = {}


def press():
    while not any(path.read_text().count("\\n") > 2 for path in Path().glob("runs/*/*/metrics.jsonl")):
        time.sleep(0.01)
    for _ in range(presses):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)  # two signals that are pending at the same time are one; the checkpoint after the first takes longer


def run():
    try:
        said["steps"] = rlcore.train(config).steps
    except BaseException as error:
        said["raised"] = type(error).__name__


async def cell():
    run()


if presses:
    threading.Thread(target=press, daemon=True).start()
if where == "notebook":
    loop = asyncio.new_event_loop()
    loop.run_until_complete(cell())
    loop.close()
else:
    ended = threading.Event()
    threading.Thread(target=lambda: (run(), ended.set())).start()
    try:
        ended.wait()
    except KeyboardInterrupt:
        said["main"] = "KeyboardInterrupt"
        ended.wait()
said["threads"] = [thread.name for thread in threading.enumerate() if thread.name == "driver"]
said["children"] = []
for stat in Path("/proc").glob("[0-9]*/stat"):
    with contextlib.suppress(OSError):  # it has ended
        if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
            said["children"].append(stat.parent.name)
print(json.dumps(said))
"""
STEPS = 200


def said(folder: Path, where: str, presses: int) -> dict[str, Any]:
    """What the program says at its end: what became of the run, and what is left of it."""
    tester = RunTester(folder).with_fakes()
    training = {"options": {"save_seconds": 2.0 if presses > 1 else 0.0}}
    config = tester.fake_run(schedule={"max_staleness": 1}, run={"num_episodes": 1000, "max_steps": STEPS}, training=training)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, where, str(presses), config],
        cwd=folder,
        env={**tester.plugins.environment, **QUIET},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("threads") == told.pop("children") == []
    return told


@pytest.mark.parametrize("where", ["notebook", "thread"])
def test_it_trains_there(tmp_path: Path, where: str) -> None:
    assert said(tmp_path, where, 0) == {"steps": STEPS}


def test_one_press_in_a_notebook_ends_the_run_after_a_step_that_is_saved(tmp_path: Path) -> None:
    told = said(tmp_path, "notebook", 1)
    assert 0 < told["steps"] < STEPS
    (checkpoint,) = tmp_path.glob(f"runs/*/*/checkpoints/step-{told['steps']}")
    assert checkpoint.is_dir()


def test_two_presses_in_a_notebook_end_the_run_at_once(tmp_path: Path) -> None:
    assert said(tmp_path, "notebook", 2) == {"raised": "KeyboardInterrupt"}


def test_a_press_while_another_thread_trains_is_the_main_thread_s(tmp_path: Path) -> None:
    assert said(tmp_path, "thread", 1) == {"main": "KeyboardInterrupt", "steps": STEPS}
