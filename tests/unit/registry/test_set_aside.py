"""What plugins print goes to standard error, and standard output is as before afterwards, also if threads overlap."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys, threading
from rlcore.registry.error_context import stdout_to_stderr

first, second = stdout_to_stderr(), stdout_to_stderr()
entered = threading.Event()

def overlapping():
    with second:
        entered.set()
        left.wait()
        print("a thread")

left = threading.Event()
first.__enter__()
thread = threading.Thread(target=overlapping)
thread.start()
entered.wait()
first.__exit__(None, None, None)  # whoever came first leaves first
left.set()
thread.join()
print("afterwards", flush=True)
os.system("echo a program")
"""


def test_standard_output_is_put_back_when_the_last_of_several_threads_leaves() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["afterwards", "a program"]
    assert done.stderr.splitlines() == ["a thread"]


LEFT_BEHIND = """
import sys, threading
from rlcore.registry.error_context import stdout_to_stderr

entered, let_go = threading.Event(), threading.Event()

def left_behind():
    with stdout_to_stderr():
        entered.set()
        let_go.wait()

with stdout_to_stderr(for_all=True):
    thread = threading.Thread(target=left_behind)
    thread.start()
    entered.wait()
    print("inside")
print("the last line")
with stdout_to_stderr():
    let_go.set()
    thread.join()
    print("inside again")
print("afterwards")
"""


def test_a_thread_that_is_left_behind_keeps_no_command_from_its_last_line() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["the last line", "afterwards"]
    assert done.stderr.splitlines() == ["inside", "inside again"]
