"""A program that shows a run of made-up updates, while everybody who can prints: for test_live_screen.py.

``ENDS``: how it ends (``raise``, ``abort``, ``leave_child``), ``UPDATES``, ``PAUSE`` in seconds.
"""

import ctypes
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

logging.basicConfig(level=logging.INFO, format="LOG %(message)s")  # its handler holds the standard error of now
EARLY = sys.stderr

from rlcore.cli.consoles import RunConsole  # noqa: E402
from rlcore.cli.line_display import shown  # noqa: E402
from rlcore.contracts.runtime_interface import TaskReport  # noqa: E402
from rlcore.registry.plugin_registry import Registry  # noqa: E402

UPDATES, PAUSE, ENDS = int(os.environ.get("UPDATES", "30")), float(os.environ.get("PAUSE", "0.02")), os.environ.get("ENDS", "")


def from_c() -> None:
    library = ctypes.CDLL(None)
    library.puts(b"from C")
    library.fflush(None)


def spawn() -> None:
    subprocess.run(["sh", "-c", "echo child out; echo child err >&2"], check=True)


def in_a_thread() -> None:
    threading.Thread(target=lambda: print("\x1b[36m(actor pid=7)\x1b[0m from a worker", file=EARLY)).start()


NOISES = {
    5: lambda: print("plugin print"),
    6: lambda: print("to stderr", file=sys.stderr),
    7: lambda: logging.info("by logging"),
    8: lambda: warnings.warn("a Python warning", stacklevel=1),
    9: spawn,
    11: from_c,
    12: in_a_thread,
    13: lambda: sys.stderr.write("\r 10%|#  |\r 50%|## |\r100%|###|\n"),
    15: lambda: print("evil \x1b[2J\x1b[H clear"),
    16: lambda: (sys.stdout.write("no newline"), sys.stdout.flush()),
}

with shown(RunConsole(), Registry.discover()) as display:
    display.note("a note before")
    display.started(Path("runs/x"), UPDATES)
    for step in range(1, UPDATES + 1):
        display.step(step, {"reward/mean": step / UPDATES, "response_length/mean": 7.0, "response_tokens": 100.0})
        NOISES.get(step, lambda: None)()
        if step == 14:
            display.note("warning: " + "long " * 30 + "end")
        if step % 10 == 0:
            display.evaluated(step, [TaskReport(task="sort", accuracy=step / UPDATES, reward=None, rows=())])
        time.sleep(PAUSE)
    display.finished()
    print("printed when training is over")
    if ENDS == "raise":
        raise RuntimeError("the run failed")
    if ENDS == "abort":
        os.write(2, b"last words\n")
        os.abort()
    if ENDS == "leave_child":
        subprocess.Popen(["sh", "-c", "sleep 1; echo child that outlives"])
if "DONE" in os.environ:
    Path(os.environ["DONE"]).write_text("done")
print("the outcome")
if ENDS == "leave_child":
    time.sleep(2)
