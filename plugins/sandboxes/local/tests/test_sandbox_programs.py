"""Honest programs find what they would find under ``python solution.py``; commands run; nothing of one run is there in the next."""

from __future__ import annotations

import shutil

import pytest
from kit_sandbox import run

from rlcore.api.sandbox import Level, Limit

READING = {
    "input": "print(input(), input())",
    "for line in sys.stdin": "import sys\nprint(*[line.strip() for line in sys.stdin])",
    "sys.stdin.read": "import sys\nprint(*sys.stdin.read().split())",
    "sys.stdin.buffer": "import sys\nprint(*sys.stdin.buffer.read().decode().split())",
    "readline": "import sys\ninput = sys.stdin.readline\nprint(input().strip(), input().strip())",
    "open(0)": "print(*open(0).read().split())",
    "open(0, 'rb')": "print(*open(0, 'rb').read().decode().split())",
    "/dev/stdin": "print(*open('/dev/stdin').read().split())",
    "/dev/fd/0": "print(*open('/dev/fd/0').read().split())",
    "/proc/self/fd/0": "print(*open('/proc/self/fd/0').read().split())",
    "os.read": "import os\nprint(*os.read(0, 1 << 16).decode().split())",
    "os.fstat": "import io, os\nprint(*io.BytesIO(os.read(0, os.fstat(0).st_size)).read().decode().split())",
    "mmap": "import mmap\nprint(*mmap.mmap(0, 0, access=mmap.ACCESS_READ).read().decode().split())",
    "fileinput": "import fileinput\nprint(*[line.strip() for line in fileinput.input()])",
    "select": "import select, sys\nselect.select([0], [], [])\nprint(*sys.stdin.read().split())",
}


@pytest.mark.parametrize("how", READING)
def test_the_input_can_be_read(box, how: str) -> None:
    ran = run(box, READING[how], b"1 2\n3 4\n")
    assert (ran.stdout, ran.exit_code) == (b"1 2 3 4\n", 0), ran


def test_the_input_may_be_empty_or_large(box) -> None:
    assert run(box, "import sys; print(len(sys.stdin.read()))").stdout == b"0\n"
    assert run(box, "import sys; print(len(sys.stdin.buffer.read()))", bytes(8 << 20)).stdout == b"8388608\n"
    with_eof = run(box, "input()")
    assert (with_eof.exit_code, b"EOFError" in with_eof.stderr) == (1, True)


@pytest.mark.full
def test_the_input_may_be_huge(box) -> None:
    ran = run(
        box,
        "import sys\nn = 0\nwhile block := sys.stdin.buffer.read(1 << 20): n += len(block)\nprint(n)",
        bytes(200 << 20),
        wall_seconds=60.0,
    )
    assert ran.stdout == b"209715200\n"


ENDS = {
    "exit()": ("exit()", 0),
    "quit(3)": ("quit(3)", 3),
    "sys.exit": ("import sys; sys.exit(7)", 7),
    "sys.exit of words": ("import sys; sys.exit('words')", 1),
    "sys.exit of a large number": ("import sys; sys.exit(256 + 5)", 5),
    "os._exit": ("import os; os._exit(9)", 9),
    "an exception": ("1 / 0", 1),
    "a syntax error": ("def f(:", 1),
    "a NUL": ("print(1)\0", 1),
    "a keyboard interrupt": ("raise KeyboardInterrupt", 1),
    "nothing": ("", 0),
    "a comment": ("# solved", 0),
    "an exit handler": ("import atexit, os; atexit.register(print, 'late')", 0),
    "a lone surrogate": ("print('\ud800')", 1),
    "an escaped byte": ("print('\udc80')", 1),
    "bytes that are no text": (b"print('\xff')", 1),
    "deep nesting": ("(" * 100_000, 1),
    "a coding cookie": ("# coding: latin-1\nprint('\xe9')".encode("latin-1"), 0),
    "a byte order mark": (b"\xef\xbb\xbfprint(1)", 0),
}


@pytest.mark.parametrize("name", ENDS)
def test_exit_codes_are_those_of_python(box, name: str) -> None:
    source, code = ENDS[name]
    ran = run(box, source)
    assert (ran.exit_code, ran.signal, ran.limit) == (code, None, None), ran


def test_text_is_utf8_both_ways(box) -> None:
    ran = run(box, "word = input()\nprint(word, len(word), 'é∑😀')", "ß😀\n".encode())
    assert ran.stdout.decode() == "ß😀 2 é∑😀\n"


def test_bytes_that_are_no_text_do_not_stop_a_program_that_reads_them(box) -> None:
    assert run(box, "import sys\nprint(len(sys.stdin.buffer.read()))", b"\xff\xfe\n").stdout == b"3\n"
    assert run(box, "print(len(input()))", b"\xff\xfe\n").stdout == b"2\n"


def test_an_answer_that_cannot_be_written_is_an_error(box) -> None:
    assert run(box, "print('\\ud800')").exit_code == 1
    assert run(box, "import sys, os\nprint('x')\nos.close(1)").exit_code != 0


def test_the_name_and_the_traceback_are_those_of_a_file(box) -> None:
    ran = run(box, "import sys\nprint(__name__, __file__, sys.argv)\ndef f(): raise ValueError('why')\nf()")
    assert ran.stdout == b"__main__ solution.py ['solution.py']\n"
    assert b'File "solution.py", line 3, in f' in ran.stderr
    assert b"ValueError: why" in ran.stderr
    assert b"jail" not in ran.stderr


LIBRARY = (
    "bisect collections decimal fractions functools heapq itertools json math random re statistics string sqlite3 zlib asyncio hashlib"
)


def test_the_standard_library_is_there_and_numpy_and_nothing_else(box) -> None:
    assert run(box, f"import {', '.join(LIBRARY.split())}\nprint('all')").stdout == b"all\n"
    for package in ("pydantic", "torch", "rlcore", "pip", "pytest"):
        assert b"ModuleNotFoundError" in run(box, f"import {package}").stderr


HONEST = {
    "threads": """
import threading
threads = [threading.Thread(target=print, args=('x',)) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return n and f(n - 1)\nprint(f(50000) or 'x')",
    "recursion in a thread": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 27)\n"
        "def f(n): return n and f(n - 1)\nt = threading.Thread(target=lambda: print(f(50000) or 'x')); t.start(); t.join()"
    ),
    "asyncio": "import asyncio\nasync def f(): await asyncio.sleep(0); print('x')\nasyncio.run(f())",
    "thread pool": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as p: print(*p.map(str, 'x'))",
    "temporary files": "import tempfile\nwith tempfile.NamedTemporaryFile('w+') as f: f.write('x'); f.seek(0); print(f.read())",
    "files in /tmp": "open('/tmp/a', 'w').write('x'); print(open('/tmp/a').read())",
    "sqlite in a file": "import sqlite3\nc = sqlite3.connect('d.db'); c.execute('create table t (a)'); c.commit(); c.close(); print('x')",
    "signals": "from signal import *\nsignal(SIGALRM, lambda *a: print('x'))\nsetitimer(ITIMER_REAL, 0.01)\npause()",
    "signals to itself": "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *a: print('x'))\nos.kill(os.getpid(), signal.SIGUSR1)",
    "large integers": "import sys\nsys.set_int_max_str_digits(0)\nprint(len(str(3 ** 30000)) and 'x')",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_run(box, name: str) -> None:
    ran = run(box, HONEST[name])
    assert (ran.stdout[:1], ran.exit_code, ran.stderr) == (b"x", 0, b""), ran


def test_processes_run_in_namespaces(box) -> None:
    program = "import subprocess, multiprocessing\nprint(subprocess.run(['echo', 'x'], capture_output=True).stdout)"
    ran = run(box, program)
    assert ran.stdout == b"b'x\\n'\n" if box.level is Level.NAMESPACES else b"PermissionError" in ran.stderr


def test_files_lie_in_the_working_folder(box) -> None:
    holding = {"a.txt": b"A", "deep/er/b.bin": b"\0\xff", "..c": b"C", "module.py": b"value = 42", "\udc80": b"odd", "empty": b""}
    program = """
import module, os
print(open('a.txt').read(), open('deep/er/b.bin', 'rb').read(), open('..c').read(), module.value)
print(open(b'\\x80').read(), os.path.getsize('empty'))
"""
    assert run(box, program, holding=holding).stdout == b"A b'\\x00\\xff' C 42\nodd 0\n"


@pytest.mark.parametrize(
    ("holding", "limits"),
    [
        ({"a": bytes(5000)}, {"disk_bytes": 4096}),
        ({str(n): b"x" for n in range(20)}, {"disk_bytes": 16 * 4096}),
        ({str(n): b"" for n in range(20)}, {"files": 16}),
        ({"a/b/c/d/e/f/g/h/i/j": b""}, {"files": 16}),
    ],
    ids=["bytes", "pages", "files", "folders"],
)
def test_files_that_do_not_fit_are_refused_before_anything_runs(box, holding, limits) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        run(box, "print(1)", holding=holding, **limits)


def test_files_that_just_fit_do(box) -> None:
    holding = {f"{n}/x": b"x" for n in range(8)}
    ran = run(box, "import os; print(len(os.listdir('.')))", holding=holding, disk_bytes=8 * 4096, files=36)
    assert (ran.stdout, ran.limit) == (b"8\n", None), ran


def test_commands_run(box) -> None:
    ran = run(box, argv=(shutil.which("sh"), "-c", 'read x; echo "$x $1 $(pwd)" | (read y; echo $y); exit 3', "sh", "é"), stdin=b"in\n")
    if box.level is Level.NAMESPACES:
        assert (ran.stdout.decode(), ran.exit_code) == ("in é /tmp\n", 3)
    ran = run(box, argv=("/usr/bin/cat", "a"), holding={"a": b"held"})
    assert (ran.stdout, ran.exit_code) == (b"held", 0)
    assert run(box, argv=("/bin/sh", "-c", "read x; echo $x; exit 5"), stdin=b"word\n").exit_code == 5


def test_commands_that_do_not_run_are_told(box) -> None:
    ran = run(box, argv=("/usr/bin/no-such-thing",))
    assert (ran.exit_code, ran.limit, b"No such file" in ran.stderr) == (127, None, True)
    assert run(box, argv=("/usr/bin",)).exit_code == 127
    assert run(box, argv=("/usr/bin/cat", "x" * (1 << 22))).exit_code == 127


def test_a_command_may_have_threads(box) -> None:
    """Their stacks are as large as the first one's may grow, which must leave room for some."""
    python = next(path for path in ("/usr/bin/python3", "/usr/local/bin/python3", "") if shutil.which(path) or not path)
    if not python:
        pytest.skip("no command with threads at hand: no python3 below /usr")
    ran = run(box, argv=(python, "-S", "-c", HONEST["threads"]))
    assert (ran.stdout, ran.exit_code) == (b"x\n" * 8, 0), ran


def test_a_command_is_ended_by_signals_that_python_ignores(box) -> None:
    ran = run(box, argv=("/bin/sh", "-c", "exec cat > file"), stdin=bytes(1 << 20), disk_bytes=1 << 16)
    if box.level is Level.LANDLOCK:
        assert ran.limit is Limit.DISK
    else:  # process 1 of its namespace, which most signals do not end
        assert ran.exit_code == 1


LEAVING = """
import os
open('/tmp/left', 'w').write('left'); open('..hidden', 'w').close(); os.mkdir('locked', 0o000); os.mkdir('writeonly', 0o300)
open('writeonly/x', 'w').close(); os.symlink('/', 'link'); os.environ['LEFT'] = '1'
for _ in range(40): os.mkdir('d' * 200); os.chdir('d' * 200)
import json, builtins; builtins.left = json.left = 1
"""


def test_nothing_is_left_for_the_next_program(box) -> None:
    assert run(box, LEAVING, b"7fa3secret").ok
    ran = run(
        box, "import builtins, json, os\nprint(os.listdir('.'), os.environ.get('LEFT'), hasattr(builtins, 'left'), hasattr(json, 'left'))"
    )
    assert ran.stdout == b"[] None False False\n"
    ran = run(box, "import ctypes, os\nprint(ctypes.CDLL(None).open(b'/tmp/left', 0), os.listdir(os.environ['HOME']))")
    assert ran.stdout == b"-1 []\n"


SCAN = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
shifted = input().encode()  # every letter by one: the word itself must not lie in here
shift = bytes((byte + 1) % 256 for byte in range(256))  # and what is made of pages on the way must not spell it, as a reversal would
planted = bytes(range(65, 91)) * 3
found = control = pages = 0
def readable(address): return libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(4096), vector) == 0
vector = ctypes.create_string_buffer(1)
back, probe = os.pipe()
def look(start, end):
    global found, control, pages
    start &= -4096
    run = None
    for address in range(start, end, 4096):
        if not readable(address): continue
        if libc.write(probe, ctypes.c_void_p(address), 1) != 1: continue  # the kernel finds out whether it can be read
        os.read(back, 1)
        pages += 1
        try: page = ctypes.string_at(address, 4096)
        except Exception: continue
        if shifted in page.translate(shift): found += 1
        if planted in page: control += 1
top = libc.sbrk(0)
look(top - (24 << 20), top)
near = id(object())
look(near - (48 << 20), near + (48 << 20))
print(found, control > 0, pages > 500)
"""


@pytest.mark.full
def test_the_memory_of_a_program_holds_nothing_of_earlier_ones(box) -> None:
    word = "Qz7" * 12
    for _ in range(3):
        assert run(box, f"x = '{word}' * 1000\nprint(x[:36], input()[:0])", word.encode() * 500, holding={"f": word.encode() * 100}).ok
    ran = run(box, SCAN, bytes(byte + 1 for byte in word.encode()), cpu_seconds=30.0, wall_seconds=60.0)
    assert ran.stdout == b"0 True True\n", ran
    holding = run(box, f"kept = '{word}' * 10\n" + SCAN, bytes(byte + 1 for byte in word.encode()), cpu_seconds=30.0, wall_seconds=60.0)
    assert not holding.stdout.startswith(b"0 "), "the scan finds what is there"


def test_the_environment_tells_nothing(box, monkeypatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "7fa3")
    ran = run(box, "import os\nprint(*sorted(os.environ))")
    known = {"HOME", "LANG", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PATH", "PWD", "PYTHONHASHSEED", "TMPDIR"}
    assert set(ran.stdout.decode().split()) <= known


def test_verdicts_can_be_had_again(box) -> None:
    program = "print(hash('x'), list({'a', 'b', 'c', 'd'}))"
    assert run(box, program).stdout == run(box, program).stdout


def test_a_file_moves_between_folders_of_the_program(box) -> None:
    source = "import os\nfor name in 'ab': os.mkdir('/tmp/' + name)\nopen('/tmp/a/x', 'w').close()\nos.rename('/tmp/a/x', '/tmp/b/x')"
    ran = run(box, source)
    assert ran.ok, ran.stderr


def test_a_source_that_would_fill_the_memory_is_refused(box) -> None:
    with pytest.raises(ValueError, match="do not fit: a quarter of memory_bytes"):
        run(box, "#" * (20 << 20), memory_bytes=64 << 20)
