"""AsyncWorker objects for tests of launchers: importable by the process that makes one, and light."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore_plugin_workers.workers import Worker

from rlcore.contracts.errors import ConfigError

__all__ = ["AwkwardError", "Echo", "Importer", "Thrower"]


class AwkwardError(Exception):
    """Cannot be made again from what it holds, so pickle fails."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


class Thrower:
    """Its constructor fails."""

    def __init__(self, text: str) -> None:
        raise ConfigError(text)


class Echo:
    """Does what a test asks for."""

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.order: list[Any] = []
        self.gate = threading.Event()

    def echo(self, *values: Any) -> Any:
        return values[0] if len(values) == 1 else values

    def facts(self, *names: str) -> dict[str, Any]:
        """What the process is: its ids, its thread, its path and the named variables."""
        return {
            "pid": os.getpid(),
            "session": os.getsid(0),
            "main": threading.current_thread() is threading.main_thread(),
            "path": list(sys.path),
            "stdin": sys.stdin.read(),
            **{name: os.environ.get(name) for name in names},
        }

    def fail(self, error: type[BaseException], *arguments: Any) -> None:
        raise error(*arguments)

    def note(self, value: Any, seconds: float = 0.0) -> list[Any]:
        self.order.append(value)
        time.sleep(seconds)
        return list(self.order)

    def wait(self) -> bool:
        return self.gate.wait(30)

    def open(self) -> None:
        self.gate.set()

    def print(self, text: str) -> None:
        print(text, flush=True)

    def exit(self, code: int, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        os._exit(code)

    def double(self, array: Any) -> tuple[bool, Any]:
        """Whether the array may be written; and twice what it holds."""
        return bool(array.flags.writeable), array * 2

    def bases(self, arrays: Sequence[Any]) -> list[int | None]:
        """The bytes of the memory of its own that each array was read into; None if it came in the pickle."""
        found = []
        for array in arrays:
            base = array
            while getattr(base, "base", None) is not None:
                base = base.base
            memory = base.obj if isinstance(base, memoryview) else base
            found.append(len(memory) if isinstance(memory, bytearray) and len(memory) >= 1 << 16 else None)
        return found

    def lock(self) -> Any:
        """Something that cannot be pickled."""
        return threading.Lock()

    def threads(self) -> int:
        """How many threads the process has, those of numpy's linear algebra included."""
        importlib.import_module("numpy")
        return len(list(Path("/proc/self/task").iterdir()))

    def kill_it(self, worker: Worker) -> None:
        worker.kill()

    def children(self, kinds: Sequence[str]) -> list[int]:
        """Start processes that never end: of the group (bare: without environment), of a session of their own, or orphaned in one."""
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        pids = []
        for kind in kinds:
            if kind == "orphan":
                program = f"import subprocess as s; print(s.Popen({sleep!r}, stdout=s.DEVNULL, start_new_session=True).pid)"
                pids.append(int(subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout))
            else:
                environment = {} if kind == "bare" else None
                pids.append(subprocess.Popen(sleep, start_new_session=kind == "session", env=environment).pid)
        return pids

    def fork(self) -> int:
        """A fork that keeps every descriptor of this process open, in a session of its own, with the environment cleared."""
        if (pid := os.fork()) == 0:
            os.setsid()
            for descriptor in range(3, 64):
                with suppress(OSError):
                    os.set_inheritable(descriptor, True)
            os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(600)"], {})
        return pid

    def hold_interpreter(self) -> None:
        """Never let another thread of this process run again."""
        import ctypes

        ctypes.PyDLL(None).pause()

    def ask(self, worker: Worker, method: str, *arguments: Any) -> Any:
        """Call another worker, and wait."""
        return worker.call(method, *arguments).result(30)

    def give_back(self, worker: Worker) -> Worker:
        return worker


class Importer(Echo):
    """Imports what it is told to, and says where it was found."""

    def places(self, *names: str) -> dict[str, Any]:
        found = {name: importlib.util.find_spec(name) for name in names}
        return {"python": sys.executable, **{name: spec and spec.origin for name, spec in found.items()}}

    def load(self, name: str) -> None:
        importlib.import_module(name)

    def open_shipment(self, plan_bundle: Any) -> list[str]:
        """The path of the process after the bundle was opened."""
        plan_bundle.open("producer-0")
        return list(sys.path)

    def plugins(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Distribution, version and problems of every plugin that this process finds."""
        from rlcore.registry.plugin_registry import Registry

        return [(row.distribution, row.version, row.problems) for row in Registry.discover().rows]
