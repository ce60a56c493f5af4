"""The end of a process with all that it started, while other processes of the machine come and go."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import psutil
import pytest
from rlcore_gateway.process_tree import MARK, kill_tree, new_mark


def test_other_processes_that_end_meanwhile_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    mark, init = new_mark(), psutil.Process.__init__
    words = [sys.executable, "-c", "import os, time\nos.setsid() if not os.fork() else None\ntime.sleep(600)"]
    with subprocess.Popen(words, env={**os.environ, MARK: mark}, start_new_session=True) as process:

        def vanishing(self: psutil.Process, pid: int | None = None, **more: Any) -> None:
            init(self, pid, **more)
            if pid == os.getpid():
                raise FileNotFoundError(2, "No such file or directory", f"/proc/{pid}/stat")

        monkeypatch.setattr(psutil.Process, "__init__", vanishing)
        monkeypatch.setattr(psutil, "_pmap", {}, raising=False)
        kill_tree(process.pid, mark)
        assert process.wait(10) < 0
