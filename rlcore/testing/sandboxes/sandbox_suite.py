"""Conformance suite for sandboxes."""

from __future__ import annotations

import os
import signal
import tempfile
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from rlcore.api.sandbox import Job, Level, Limit, Limits, ProgramResult, Sandbox, SandboxError, SessionJob

__all__ = ["SandboxSuite"]

_MIB = 1 << 20
_FUSE = 120.0
"""Seconds on the clock for programs that end otherwise: a busy machine gives them little of its time."""
_LIMITS = Limits(wall_seconds=_FUSE, cpu_seconds=60.0)

_ENDINGS: dict[str, tuple[str, int]] = {
    "nothing": ("", 0),
    "sys.exit(7)": ("import sys; sys.exit(7)", 7),
    "os._exit(255)": ("import os; os._exit(255)", 255),
    "an exception": ("1 / 0", 1),
    "a syntax error": ("def f(:", 1),
    "a NUL": ("print(1)\0", 1),
}
"""Programs and their exit codes."""

_DEFIANT: dict[str, str] = {
    "closes every descriptor": "import os\nos.closerange(0, 1024)\nos._exit(3)",
    "writes to every descriptor": "import os\nfor fd in range(3, 99):\n    try: os.write(fd, b'{}')\n    except OSError: pass",
    "breaks its streams": "import sys\nsys.stdout = sys.stderr = sys.stdin = None",
    "empties the interpreter": "import sys, builtins\nsys.modules.clear(); builtins.__dict__.clear()",
    "aborts": "import os\nos.abort()",
    "crashes": "import ctypes\nctypes.string_at(0)",
    "recurses": "def f(): return f()\nf()",
    "ends in a thread": "import os, threading, time\nthreading.Thread(target=lambda: os._exit(7)).start()\ntime.sleep(9)",
    "leaves a child that holds the output": "import os, time\ntry: pid = os.fork()\nexcept OSError: pid = 1\nif pid == 0: time.sleep(600)",
}
"""Programs whose acts are allowed, and not a failure of the sandbox."""

_LEAVES = """
import builtins, os
open("left", "w").write("left"); os.mkdir("folder", 0)
os.environ["LEFT"] = "1"; builtins.left = 1
"""
_LOOKS = "import builtins, os\nprint(os.listdir('.'), os.environ.get('LEFT'), hasattr(builtins, 'left'))"


class SandboxSuite(ABC):
    """The rules of a sandbox: verdicts about programs, limits, isolation, and errors for its own failures only.

    A subclass defines how to open the sandbox; a plugin has one for each level that it gives.
    """

    walls: ClassVar[bool] = True
    """False for a sandbox whose programs may read files of the machine that they run on, as at level none."""
    commands: ClassVar[tuple[str, ...]] = ("/bin/echo", "word")
    """A command that exists in the sandbox and prints ``word``; () for a sandbox that runs Python programs only."""
    bounds_processes: ClassVar[bool] = True
    """False for a sandbox that cannot bound the number of processes and threads of a program."""

    @abstractmethod
    def open(self) -> Sandbox:
        """Return a fresh sandbox."""

    def break_down(self, sandbox: Sandbox) -> bool:
        """Break the process or service that runs the programs of ``sandbox``; return False if a test cannot do that."""
        return False

    def opened(self) -> Sandbox:
        """Return a fresh sandbox, checked for the attributes that every sandbox has."""
        sandbox = self.open()
        assert isinstance(sandbox, Sandbox), f"{type(sandbox).__name__} is not derived from rlcore.api.sandbox.Sandbox"
        return sandbox

    # --- what it says of itself ----------------------------------------------------------------------------------------

    def test_it_describes_itself_in_one_line(self) -> None:
        """``describe`` returns one line that names the level."""
        with self.opened() as sandbox:
            assert isinstance(sandbox.level, Level), f"level is {sandbox.level!r}, it must be a rlcore.api.sandbox.Level"
            line = sandbox.describe()
            assert sandbox.level in line, f"describe() does not name the level {sandbox.level}: {line!r}"
            assert line.strip() == " ".join(line.split()), f"describe() is not one line: {line!r}"
            assert sandbox.describe() == line, "describe() says something else the second time"

    def test_programs_import_the_packages_that_it_names(self) -> None:
        """Programs can import each package that ``packages`` names."""
        with self.opened() as sandbox:
            names = sandbox.packages
            assert names is None or isinstance(names, frozenset), f"packages is {names!r}, it must be a frozenset of names, or None"
            for name in sorted(names or ()):
                ran = self._run(sandbox, f"import {name}")
                assert ran.ok, f"packages names {name!r}, but a program that imports it fails: {ran}"

    def test_it_may_be_closed_twice(self) -> None:
        """``close`` can be called twice, and a closed sandbox raises SandboxError."""
        sandbox = self.opened()
        with sandbox as entered:
            assert entered is sandbox, "the with statement must give the sandbox itself"
        sandbox.close()
        try:
            ran = sandbox.run(Job(source="print(1)"))
        except SandboxError:
            return
        raise AssertionError(f"a closed sandbox ran a program: {ran}")

    # --- verdicts -------------------------------------------------------------------------------------------------------

    def test_programs_read_and_print(self) -> None:
        """Standard input and output pass as unchanged bytes; a source is text or bytes."""
        with self.opened() as sandbox:
            ran = self._run(sandbox, "word = input()\nprint(word, len(word))", "ß😀\n".encode())
            assert (ran.stdout, ran.ok) == ("ß😀 2\n".encode(), True), ran
            every = bytes(range(256)) * 300 + b"\r\n"
            ran = self._run(sandbox, b"import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())", every)
            assert ran.stdout == every, f"of {len(every)} bytes {len(ran.stdout)} came back, or others"
            assert (ran.exit_code, ran.signal, ran.limit) == (0, None, None), ran

    def test_exit_codes_are_those_of_python(self) -> None:
        """A program that fails by itself has an exit code and neither signal nor limit, and its traceback is on standard error."""
        with self.opened() as sandbox:
            for name, (source, code) in _ENDINGS.items():
                ran = self._run(sandbox, source)
                assert (ran.exit_code, ran.signal, ran.limit) == (code, None, None), f"{name}: {ran}"
                assert ran.ok == (code == 0), f"{name}: {ran}"
            assert b"ZeroDivisionError" in self._run(sandbox, "1 / 0").stderr

    def test_files_lie_in_the_working_folder(self) -> None:
        """``files`` are in the working folder when the program starts."""
        with self.opened() as sandbox:
            files = {"a.txt": b"A", "deep/er/b.bin": b"\0\xff", "module.py": b"value = 42"}
            program = "import module\nprint(open('a.txt').read(), open('deep/er/b.bin', 'rb').read(), module.value)"
            ran = sandbox.run(Job(source=program, files=files, limits=Limits(wall_seconds=_FUSE)))
            assert ran.stdout == b"A b'\\x00\\xff' 42\n", ran

    def test_files_that_do_not_fit_are_refused(self) -> None:
        """Files larger than ``disk_bytes`` are a ValueError before anything runs."""
        with self.opened() as sandbox:
            try:
                ran = sandbox.run(Job(source="print(1)", files={"a": bytes(5000)}, limits=Limits(disk_bytes=4096, wall_seconds=_FUSE)))
            except ValueError:
                return
            raise AssertionError(f"5000 bytes of files ran with disk_bytes = 4096: {ran}")

    def test_commands_run(self) -> None:
        """``argv`` runs as it is, without a shell. Not checked with ``commands = ()``."""
        if not self.commands:
            return
        with self.opened() as sandbox:
            ran = sandbox.run(Job(argv=(*self.commands, "$HOME *"), limits=Limits(wall_seconds=_FUSE)))
            assert (ran.stdout, ran.exit_code) == (b"word $HOME *\n", 0), ran
            ran = sandbox.run(Job(argv=("/no/such/command",), limits=Limits(wall_seconds=_FUSE)))
            assert ran.exit_code not in (0, None), f"a command that does not exist is a failed program: {ran}"

    def test_the_same_program_gives_the_same_verdict(self) -> None:
        """Two runs of one program give the same output: hash seeds are fixed."""
        with self.opened() as sandbox:
            program = "print(hash('x'), {'a', 'b', 'c', 'd'})"
            first, second = (self._run(sandbox, program).stdout for _ in range(2))
            assert first == second, f"two runs of one program print {first!r} and {second!r}"

    # --- limits ---------------------------------------------------------------------------------------------------------

    def test_cpu_time_ends_a_loop(self) -> None:
        """``cpu_seconds`` ends a loop, and its earlier output is kept."""
        with self.opened() as sandbox:
            ran = self._run(sandbox, "print('before', flush=True)\nwhile True: pass", cpu_seconds=1.0)
            assert (ran.limit, ran.stdout) == (Limit.CPU, b"before\n"), ran
            assert (ran.exit_code, ran.signal) == (None, None), f"the sandbox ended it, so it has no exit code: {ran}"
            assert ran.cpu_seconds > 0, f"a loop of a second used no CPU time: {ran}"

    def test_the_clock_ends_a_sleeper(self) -> None:
        """``wall_seconds`` ends a program that waits."""
        with self.opened() as sandbox:
            ran = self._run(sandbox, "import time\ntime.sleep(600)", wall_seconds=1.0)
            assert (ran.limit, ran.exit_code, ran.signal) == (Limit.WALL, None, None), ran
            assert ran.wall_seconds >= 1.0, f"it says that it ran for {ran.wall_seconds} s, its limit is 1 s"

    def test_memory_is_bounded(self) -> None:
        """``memory_bytes`` ends a program that asks for more, or refuses the memory."""
        with self.opened() as sandbox:
            ran = self._run(sandbox, "x = bytearray(10**9)\nprint('had it')", memory_bytes=256 * _MIB)
            assert b"had it" not in ran.stdout, f"it had 1 GB with memory_bytes = 256 MiB: {ran}"
            assert ran.limit is Limit.MEMORY or b"MemoryError" in ran.stderr, f"neither limit memory nor a MemoryError: {ran}"

    def test_output_is_cut_and_ends_the_program(self) -> None:
        """Output beyond ``output_bytes`` ends the program, and exactly as many bytes do not."""
        with self.opened() as sandbox:
            ran = self._run(sandbox, "import sys\nwhile True: sys.stdout.write('x' * 65536)", output_bytes=100_000)
            assert (ran.limit, ran.exit_code, ran.signal) == (Limit.OUTPUT, None, None), ran.limit
            assert ran.stdout == b"x" * 100_000, f"{len(ran.stdout)} bytes of output, output_bytes is 100000"
            ran = self._run(sandbox, "print('x' * 1000, end='')", output_bytes=1000)
            assert (ran.limit, len(ran.stdout)) == (None, 1000), ran

    def test_standard_error_is_cut_and_no_reason_to_stop(self) -> None:
        """The last 4 KiB of standard error are kept, and a program is not ended for more."""
        with self.opened() as sandbox:
            ran = self._run(sandbox, "import sys\nsys.stderr.write('e' * 200_000 + 'END')\nprint(1)")
            assert (ran.ok, ran.stdout) == (True, b"1\n"), ran.limit
            assert len(ran.stderr) <= 4096, f"{len(ran.stderr)} bytes of standard error were kept"
            assert ran.stderr.endswith(b"eEND"), "the end of standard error is what a person must see"

    def test_the_disk_is_bounded(self) -> None:
        """``disk_bytes`` ends a program that writes more, or refuses the space."""
        with self.opened() as sandbox:
            filling = "with open('big', 'wb') as file:\n    for _ in range(64): file.write(bytes(1 << 20)); file.flush()\nprint('had it')"
            ran = self._run(sandbox, filling, disk_bytes=4 * _MIB)
            assert not ran.ok, f"it wrote 64 MiB with disk_bytes = 4 MiB: {ran}"
            assert b"had it" not in ran.stdout

    def test_processes_and_threads_are_bounded(self) -> None:
        """``processes`` refuses further processes and threads, or ends the program. Not checked with ``bounds_processes = False``."""
        if not self.bounds_processes:
            return
        with self.opened() as sandbox:
            start = "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
            program = f"import threading, time\nfor n in range(200): {start}\nprint('had them')"
            ran = self._run(sandbox, program, processes=16, memory_bytes=1 << 36)  # room for all their stacks
            assert b"had them" not in ran.stdout, f"it had 200 threads with processes = 16: {ran}"

    # --- nothing is left ------------------------------------------------------------------------------------------------

    def test_nothing_is_left_for_the_next_program(self) -> None:
        """Files, variables and modules of one program are gone in the next."""
        with self.opened() as sandbox:
            assert self._run(sandbox, _LEAVES).ok
            ran = self._run(sandbox, _LOOKS)
            assert ran.stdout == b"[] None False\n", f"a later program finds {ran.stdout!r} {ran.stderr!r}"

    def test_the_environment_tells_nothing(self) -> None:
        """A program does not see environment variables of the process that opened the sandbox."""
        os.environ["RLCORE_SUITE_SECRET"] = "7fa3"
        try:
            with self.opened() as sandbox:
                assert b"7fa3" not in self._run(sandbox, "import os\nprint(dict(os.environ))").stdout
        finally:
            del os.environ["RLCORE_SUITE_SECRET"]

    def test_files_of_this_machine_cannot_be_read(self) -> None:
        """A program cannot read files of the machine. Not checked with ``walls = False``."""
        if not self.walls:
            return
        with tempfile.NamedTemporaryFile(dir="/var/tmp") as file, self.opened() as sandbox:
            Path(file.name).chmod(0o644)
            file.write(b"s3cr3t")
            file.flush()
            ran = self._run(sandbox, f"import ctypes, os\nfd = ctypes.CDLL(None).open({file.name!r}.encode(), 0)\nprint(os.read(fd, 99))")
            assert b"s3cr3t" not in ran.stdout, f"level {sandbox.level} let a program read a file of this machine"

    # --- whose failure it is --------------------------------------------------------------------------------------------

    def test_what_a_program_does_is_never_an_error_of_the_sandbox(self) -> None:
        """Whatever a program does, the sandbox returns a verdict about it and runs the next program."""
        with self.opened() as sandbox:
            for name, source in _DEFIANT.items():
                try:
                    ran = self._run(sandbox, source)
                except SandboxError as error:
                    raise AssertionError(f"a program that {name} made the sandbox raise SandboxError: {error}") from error
                assert ran.limit is not Limit.WALL, f"a program that {name} was waited for until its wall limit"
                after = self._run(sandbox, "print(1)")
                assert after.stdout == b"1\n", f"after a program that {name} the next one gives {after}"

    def test_what_fails_in_the_sandbox_is_never_a_verdict(self) -> None:
        """If the sandbox itself breaks, it restarts and judges rightly, or raises SandboxError. Checked if the suite gives
        ``break_down``."""
        with self.opened() as sandbox:
            assert self._run(sandbox, "print(1)").ok
            if not self.break_down(sandbox):
                return
            try:
                ran = self._run(sandbox, "print(1)")
            except SandboxError:
                return
            assert (ran.stdout, ran.ok) == (b"1\n", True), f"the sandbox broke, and the program got the verdict {ran}"

    def test_calls_from_several_threads_wait_for_each_other(self) -> None:
        """``run`` can be called from several threads, and each call gets its own answer."""
        with self.opened() as sandbox, ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda n: self._run(sandbox, "print(input())", b"%d\n" % n).stdout, range(8)))
        assert answers == [b"%d\n" % n for n in range(8)], answers

    # --- sessions -------------------------------------------------------------------------------------------------------

    def test_a_session_runs_or_is_refused(self) -> None:
        """``session`` starts a command that speaks over pipes, or raises SandboxError if the sandbox has no sessions. Not checked with
        ``commands = ()``."""
        if not self.commands:
            return
        with self.opened() as sandbox:
            try:
                session = sandbox.session(SessionJob(argv=("/bin/cat",), files={"a": b"A"}))
            except SandboxError:
                return
            with session:
                session.stdin.write(b"word\n")
                assert session.stdout.readline() == b"word\n"
                assert session.poll() is None, "it has a result, and still runs"
                session.kill()
                ran = session.wait(_FUSE)
                assert (ran.exit_code, ran.signal, ran.limit) == (None, signal.SIGKILL, None), f"a session that was killed says {ran}"
                assert (session.names(), session.read("a")) == (("a",), b"A"), "its files are not those that it was given"

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _run(self, sandbox: Sandbox, source: str | bytes, stdin: bytes = b"", **limits: Any) -> ProgramResult:
        ran = sandbox.run(Job(source=source, stdin=stdin, limits=replace(_LIMITS, **limits)))
        assert isinstance(ran, ProgramResult), f"run() returned {type(ran).__name__}, it must return a rlcore.api.sandbox.ProgramResult"
        assert ran.exit_code is None or ran.signal is None, f"a program ends by an exit code or by a signal: {ran}"
        ended = ran.exit_code is not None or ran.signal is not None
        assert ended or ran.limit is not None, f"a program ends by itself or at a limit: {ran}"
        assert ran.signal is None or signal.Signals(ran.signal), f"signal {ran.signal} does not exist"
        numbers = (ran.wall_seconds, ran.cpu_seconds, ran.memory_bytes)
        assert all(0 <= number < 1e15 for number in numbers), f"time or memory that no program uses: {numbers}"
        return ran
