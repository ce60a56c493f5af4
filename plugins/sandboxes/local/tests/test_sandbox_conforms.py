"""The sandbox of this machine keeps the rules of every sandbox, at each level that the machine gives."""

from __future__ import annotations

import os
import signal

from kit_sandbox import opened

from rlcore.api.sandbox import Sandbox
from rlcore.testing import SandboxSuite


class LocalSuite(SandboxSuite):
    level: str

    def open(self) -> Sandbox:
        return opened(self.level)

    def break_down(self, sandbox: Sandbox) -> bool:
        os.kill(sandbox.pid, signal.SIGKILL)
        return True


class TestNamespaces(LocalSuite):
    level = "namespaces"


class TestLandlock(LocalSuite):
    level = "landlock"
    bounds_processes = os.getuid() != 0  # the kernel counts the threads of everyone but root


class TestNone(LocalSuite):
    level = "none"
    walls = False
    bounds_processes = os.getuid() != 0
