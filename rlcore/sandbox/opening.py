"""Picks the sandbox that the options ask for and this machine can give."""

from __future__ import annotations

import importlib

from rlcore.errors import SandboxError
from rlcore.sandbox.options import SandboxOptions
from rlcore.sandbox.records import Sandbox

__all__ = ["open_sandbox"]


def open_sandbox(options: SandboxOptions | None = None) -> Sandbox:
    """The sandbox of these options, tried out: a program has run in it.

    :raises SandboxError: no sandbox of that kind can be made here; says why, level by level, and what to type.
    """
    options = options or SandboxOptions()
    if options.backend != "local":
        return _elsewhere(options)
    from rlcore.sandbox.local import open_local

    return open_local(options)


def _elsewhere(options: SandboxOptions) -> Sandbox:
    module, _, name = options.backend.partition(":")
    try:
        target = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SandboxError(
            f"sandbox.backend {options.backend!r} cannot be imported ({error}); it must read package.module:Class, or local"
        ) from error
    try:
        sandbox = target(options.backend_options)
    except SandboxError:
        raise
    except Exception as error:
        raise SandboxError(f"sandbox.backend {options.backend!r} cannot be made ({type(error).__name__}: {error})") from error
    if not isinstance(sandbox, Sandbox):
        raise SandboxError(
            f"sandbox.backend {options.backend!r} is no sandbox: package.module:Class names a class on rlcore.api.sandbox.Sandbox"
        )
    return sandbox
