"""Running untrusted programs: a service for any reward, and the base class for authors of sandboxes.

>>> with open_sandbox() as sandbox:
...     sandbox.run(Job(source="print(int(input()) + 1)", stdin=b"1\\n")).stdout
b'2\\n'

A reward opens the sandbox in ``open`` and closes it in ``close``. It includes ``SandboxOptions`` in its own options, and does not catch
``SandboxError``: the engine records it as ``infra``.

A program that runs for minutes and talks to one address, such as an agent, is a session: ``sandbox.session(SessionJob(...))``.

A plugin that offers a sandbox subclasses ``Sandbox`` and registers a ``SandboxSpec``. Its options model may have the fields of
``SandboxOptions`` in ``SHARED_OPTIONS``, too.
"""

from __future__ import annotations

from rlcore.contracts.errors import SandboxError
from rlcore.contracts.sandboxing import Job, Level, Limit, Limits, ProgramResult, Sandbox, SandboxOptions, Session, SessionJob
from rlcore.registry.sandboxes import SHARED_OPTIONS, open_sandbox

__all__ = [
    "SHARED_OPTIONS",
    "Job",
    "Level",
    "Limit",
    "Limits",
    "ProgramResult",
    "Sandbox",
    "SandboxError",
    "SandboxOptions",
    "Session",
    "SessionJob",
    "open_sandbox",
]
