"""Programs that tests start are forks, and whoever looks at one sees a program that was started."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests import warm_programs

LOOK = """
import os, sys
from pathlib import Path
print((os.getppid(), os.getpgid(0) == os.getpid(), os.getcwd(), sys.argv[1:], sys.stdin.read(), os.environ["SAID"], "numpy" in sys.modules))
print(Path("/proc/self/cmdline").read_text().rstrip("\\0").split("\\0")[1:])
print("SAID=yes" in Path("/proc/self/environ").read_text().split("\\0"))
print(sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")))
print("told", file=sys.stderr)
"""


KILLS = "kill = lambda: signal.pthread_kill(t.main_thread().ident, signal.SIGKILL)"


def run(code: str, *words: str, **named) -> subprocess.CompletedProcess[str]:
    """Start a program that is a fork."""
    named = {"capture_output": True, "text": True, "env": {**os.environ, "SAID": "yes"}, "check": False, **named}
    with mock.patch.dict(warm_programs.PROGRAMS, {code: warm_programs.LIGHT}):
        return subprocess.run([sys.executable, "-c", code, *words], **named)


@pytest.mark.parametrize("session", [False, True], ids=["same session", "own session"])
def test_it_is_a_child_with_its_own_streams_folder_words_and_variables(session: bool, tmp_path: Path) -> None:
    done = run(LOOK, "one", "two", input="typed", cwd=tmp_path, start_new_session=session)
    assert (done.returncode, done.stderr) == (0, "told\n")
    facts, command, variable, descriptors = map(ast.literal_eval, done.stdout.splitlines())
    assert facts == (os.getpid(), session, str(tmp_path), ["one", "two"], "typed", "yes", True)
    assert command == ["-c", LOOK, "one", "two"]
    assert variable
    assert descriptors == [0, 1, 2]


def test_descriptors_that_are_passed_keep_their_numbers() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        assert run(f"import os; os.write({writing}, b'here')", pass_fds=[writing]).returncode == 0
        assert os.read(reading, 10) == b"here"
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("raise SystemExit(7)", 7, ""),
        (f"import signal, threading as t; {KILLS}; t.Thread(target=kill).start(); t.Event().wait(9)", -signal.SIGKILL, ""),
        ("import os; os.abort()", -signal.SIGABRT, ""),
        ("raise SystemExit('a sentence')", 1, "a sentence\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("import atexit, sys; atexit.register(lambda: print('last', file=sys.stderr))", 0, "last\n"),
        ("import sys, threading as t; t.Thread(target=lambda: print('thread', file=sys.stderr)).start()", 0, "thread\n"),
    ],
)
def test_it_ends_as_an_interpreter_ends(code: str, exit_code: int, said: str) -> None:
    for done in (run(code), subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)):
        assert done.returncode == exit_code
        assert done.stderr.splitlines(keepends=True)[-1:] == ([said] if said else [])


def test_two_draw_different_numbers() -> None:
    """Else a trainer that forgets to seed would hold the same weights on each rank in tests, and only there."""
    code = "import random, numpy, torch; print(random.random(), numpy.random.random(), torch.initial_seed(), torch.get_num_threads())"
    with mock.patch.dict(warm_programs.PROGRAMS, {code: warm_programs.HEAVY}), mock.patch.dict(os.environ, OMP_NUM_THREADS="2"):
        runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    first, second = (run.stdout.split() for run in runs)
    assert all(one != other for one, other in zip(first[:3], second[:3], strict=True))
    assert first[3] == second[3] == "2"


@pytest.mark.interpreter
def test_a_test_can_ask_for_an_interpreter() -> None:
    facts = ast.literal_eval(run(LOOK, input="").stdout.splitlines()[0])
    assert facts[-1] is False


def test_a_program_that_ends_removes_no_folder_of_the_process_that_was_forked() -> None:
    """Else the crash matrix loses its data when a reward's worker outlives the run that was killed."""
    code = (
        "import os, subprocess, sys, tempfile\n"
        "from tests import warm_programs\n"
        "folder = tempfile.TemporaryDirectory()\n"
        "warm_programs.PROGRAMS['pass'] = warm_programs.LIGHT\n"
        "warm_programs.fork_programs()\n"
        "print(subprocess.run([sys.executable, '-c', 'pass']).returncode, os.path.isdir(folder.name))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=warm_programs.ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["0", "True"], done.stderr
