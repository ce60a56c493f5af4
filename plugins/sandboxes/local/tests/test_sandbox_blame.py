"""A program cannot make its failure the sandbox's: whatever it does, there is an answer about it, and the same zygote runs the next."""

from __future__ import annotations

import os

import pytest
from kit_sandbox import children, processes_named, run, run_begun

from rlcore.api.sandbox import Level, Limit

LIBC = "import ctypes, os, signal, sys, time\nlibc = ctypes.CDLL(None)\n"
# name: (program, its exit code or None where the ending is the program's luck)
HOSTILE = {
    "ends_as_a_broken_jail_does": (LIBC + "print('jail: OSError: no', file=sys.stderr); os._exit(121)", 121),
    "ends_with_255": (LIBC + "os._exit(255)", 255),
    "closes_everything": (LIBC + "os.closerange(0, 1024); os._exit(3)", 3),
    "closes_everything_and_prints": ("import os\nos.closerange(0, 1024)\nprint(1)", None),
    "writes_to_every_descriptor": (
        LIBC + "for fd in range(3, 1024):\n    try: os.write(fd, b'r' * 9)\n    except OSError: pass\nos._exit(4)",
        4,
    ),
    "writes_json_on_every_descriptor": (
        LIBC + 'for fd in range(3, 99):\n    try: os.write(fd, b\'{"error": "x"}\')\n    except OSError: pass\nos._exit(5)',
        5,
    ),
    "sets_every_shared_page": (
        LIBC + "import gc\nfrom mmap import mmap as M\nfor o in gc.get_objects():\n    if isinstance(o, M): o[:] = b'\\1' * len(o)\n"
        "f = sys._getframe()\nwhile f:\n    for v in list(f.f_locals.values()):\n        if isinstance(v, M): v[:] = b'\\1' * len(v)\n"
        "    f = f.f_back\nos._exit(0)",
        0,
    ),
    "kills_itself": (LIBC + "os.kill(os.getpid(), signal.SIGKILL)\nos._exit(6)", None),
    "aborts": (LIBC + "os.abort()", None),
    "crashes": (LIBC + "ctypes.string_at(0)", None),
    "crashes_by_recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())",
        None,
    ),
    "ends_in_a_thread": ("import os, threading, time\nthreading.Thread(target=lambda: os._exit(7)).start()\ntime.sleep(9)", 7),
    "ends_while_threads_run": (
        "import threading, os, time\nfor _ in range(9): threading.Thread(target=time.sleep, args=(9,)).start()\nos._exit(8)",
        8,
    ),
    "becomes_another": (LIBC + "os.execv('/bin/sh', ['sh', '-c', 'exit 9'])", 9),
    "becomes_nothing": (LIBC + "os.execv('/nothing', ['x'])", 1),
    "breaks_its_streams": ("import sys\nsys.stdout = sys.stderr = sys.stdin = None", None),
    "breaks_its_streams_with_lies": (
        "import sys\nclass Lie:\n    def __getattr__(self, name): raise SystemError\nsys.stdout = sys.stderr = Lie()",
        None,
    ),
    "breaks_the_excepthook": ("import sys\ndef f(*a): raise SystemExit(0)\nsys.excepthook = f\n1 / 0", 1),
    "breaks_the_interpreter": ("import sys, builtins\nsys.modules.clear(); builtins.__dict__.clear()", None),
    "breaks_os": ("import os\nfor n in list(vars(os)):\n    if n[0] != '_': setattr(os, n, None)\n1 / 0", None),
    "breaks_exit_handlers": ("import atexit\n@atexit.register\ndef f(): raise SystemExit(11)", None),
    "unmaps_itself": (LIBC + "libc.munmap(ctypes.c_void_p(id(libc) & -4096), ctypes.c_size_t(1 << 30))", None),
    "filters_itself": (
        LIBC + "code = (ctypes.c_uint16 * 8)(6, 0, 0, 0)\nimport struct\n"
        "b = ctypes.create_string_buffer(struct.pack('=HBBI', 6, 0, 0, 0))\nh = struct.pack('HxxxxxxP', 1, ctypes.addressof(b))\n"
        "libc.prctl(22, 2, ctypes.c_char_p(h), 0, 0)\nos._exit(0)",
        None,
    ),
    "lowers_its_limits": (
        "import resource\nfor n in range(16):\n    try: resource.setrlimit(n, (0, 0))\n    except (OSError, ValueError): pass\nprint(1)",
        None,
    ),
    "raises_odd_things": ("class E(BaseException):\n    def __str__(self): raise E\nraise E", 1),
    "exits_with_odd_things": ("raise SystemExit(object())", 1),
    "exits_with_a_liar": ("class E:\n    def __str__(self): raise KeyboardInterrupt\nraise SystemExit(E())", None),
    "exits_with_a_huge_number": ("raise SystemExit(10**5000)", None),
    "makes_the_traceback_fail": ("import traceback, linecache\nlinecache.getline = None\nsys = None\n1 / 0", 1),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * name.startswith("crashes_by")) for name in HOSTILE])
def test_the_program_is_to_blame(box, name: str) -> None:
    program, code = HOSTILE[name]
    zygote = box.pid
    ran = run(box, program)
    assert (box.pid, ran.limit) == (zygote, None), ran
    if code is not None:
        assert ran.exit_code == code, ran
    assert (ran.exit_code is None) != (ran.signal is None)
    assert run(box, "print(1)").stdout == b"1\n"


STAYING = {
    "stops_itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nimport time; time.sleep(60)",
    "ignores_all_signals": (
        "import signal, time\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True:\n    try: time.sleep(9)\n    except BaseException: pass"
    ),
    "never_ends_in_an_exit_handler": "import atexit, time\natexit.register(time.sleep, 60)",
    "never_ends_in_a_thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
    "never_ends_in_its_excepthook": "import sys, time\nsys.excepthook = lambda *a: time.sleep(60)\n1 / 0",
    "closes_its_streams_and_stays": "import os, time\nos.closerange(0, 3)\ntime.sleep(60)",
    "becomes_a_sleeper": "import os\nos.execv('/bin/sleep', ['sleep', '60'])",
    "becomes_itself_again_and_again": (
        "import os\nagain = 'exec \"$0\" -c \"$1\" \"$0\" \"$1\"'\nos.execv('/bin/sh', ['sh', '-c', again, '/bin/sh', again])"
    ),
    "waits_for_a_lock": "import threading\nl = threading.Lock(); l.acquire(); l.acquire()",
}


@pytest.mark.parametrize("name", STAYING)
def test_who_stays_is_ended_by_the_clock(box, name: str) -> None:
    ran, zygote = run_begun(box, STAYING[name], wall_seconds=0.25, cpu_seconds=5.0)
    assert (ran.limit, ran.exit_code, ran.signal, box.pid) == (Limit.WALL, None, None, zygote), ran


SURVIVING = {
    "a child": "os.fork() or (os.execv('/bin/sleep', ['WORD', '60']))",
    "a daemon": "os.fork() or (os.setsid(), os.fork() and os._exit(0), os.closerange(0, 9), os.execv('/bin/sleep', ['WORD', '60']))",
    "many": "[os.fork() for _ in range(3)]; os.getpid() != me and os.execv('/bin/sleep', ['WORD', '60'])",
    "one started by another": "__import__('subprocess').Popen(['WORD', '60'], executable='/bin/sleep', start_new_session=True)",
    "one that loops": "os.fork() or [None for _ in iter(int, 1)]",
}


@pytest.mark.parametrize("how", SURVIVING)
def test_nothing_survives(box, how: str) -> None:
    word = f"rlcore-test-survivor-{os.getpid()}"
    before = len(children(box.pid))
    program = (
        f"import os, sys\nme = os.getpid()\ntry: {SURVIVING[how].replace('WORD', word)}\nexcept OSError: pass\nprint('answer', flush=True)"
    )
    ran = run(box, program)
    assert ran.stdout.startswith(b"answer\n")
    assert ran.limit is None
    assert (processes_named(word), len(children(box.pid))) == ([], before)


@pytest.mark.full
def test_many_who_write_into_the_output_do_not_delay_it(box) -> None:
    if box.level is Level.LANDLOCK:
        pytest.skip("no processes at this level")
    program = "import os, time\nif os.fork() and os.fork(): time.sleep(0.2); os._exit(0)\nwhile True: os.write(2, b'x' * 65536)"
    ran = run(box, program)
    assert (ran.exit_code, ran.limit) == (0, None)


@pytest.mark.full
def test_a_tree_beyond_every_path_is_removed(box) -> None:
    program = "import os\nwhile True:\n    os.mkdir('d' * 250); os.chdir('d' * 250)"
    ran = run(box, program, files=5000, wall_seconds=2.0)
    assert not ran.ok
    assert run(box, "import os; print(os.listdir('.'))").stdout == b"[]\n"
