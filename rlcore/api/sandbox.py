"""Run a program that nobody trusts: a service that any reward may use, and what the author of a sandbox implements.

>>> with open_sandbox() as sandbox:
...     sandbox.run(Job(source="print(int(input()) + 1)", stdin=b"1\\n")).stdout
b'2\\n'

A reward opens it in ``open``, closes it in ``close``, puts ``SandboxOptions`` into its own options, and leaves ``SandboxError`` alone: the
engine books it as ``infra``. A plugin that offers a sandbox subclasses ``Sandbox`` and registers a ``SandboxSpec``; the fields of
``SandboxOptions`` in ``SHARED_OPTIONS`` may be in its options model, too.
"""

from __future__ import annotations

from rlcore.contracts.errors import SandboxError
from rlcore.contracts.sandboxing import Job, Level, Limit, Limits, ProgramResult, Sandbox, SandboxOptions
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
    "open_sandbox",
]
