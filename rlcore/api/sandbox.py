"""Run a program that nobody trusts: a service that any reward may use.

>>> with open_sandbox() as sandbox:
...     sandbox.run(Job(source="print(int(input()) + 1)", stdin=b"1\\n")).stdout
b'2\\n'

A reward opens it in ``open``, closes it in ``close``, puts ``SandboxOptions`` into its own options, and leaves ``SandboxError`` alone: the
engine books it as ``infra``. What each level promises, and a reward for SQL as an example: docs/sandbox.md.
"""

from __future__ import annotations

from rlcore.errors import SandboxError
from rlcore.sandbox import Job, Level, Limit, Limits, Ran, Sandbox, SandboxOptions, open_sandbox

__all__ = ["Job", "Level", "Limit", "Limits", "Ran", "Sandbox", "SandboxError", "SandboxOptions", "open_sandbox"]
