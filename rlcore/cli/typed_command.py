"""Run the command that was typed: find the plugin that offers it, parse its words, and attribute its errors to the plugin."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlcore.cli.parser import Parser
from rlcore.contracts.command_line import Command
from rlcore.contracts.errors import PluginError, RlcoreError, RunError, UsageError
from rlcore.contracts.specs import PluginKind
from rlcore.registry.error_context import closest, reason
from rlcore.registry.known_plugins import distribution_of
from rlcore.registry.plugin_registry import Registry
from rlcore.registry.unpackaged import is_reference

__all__ = ["run_command"]

_KIND = PluginKind.COMMAND
_CORE = "rlcore"


def run_command(name: str, words: Sequence[str]) -> int:
    """Parse the words after the command's name, run it, and return its exit code.

    Raises UsageError for an unknown command, PluginError for a command that cannot be loaded, and RunError for a defect of its plugin.
    """
    registry = Registry.discover()
    if is_reference(name) or not (registry.has(_KIND, name) or distribution_of(_KIND, name)):
        raise UsageError(_unknown(name, registry))
    spec, owner = registry.spec(_KIND, name), registry.owner(_KIND, name)
    label = f"command {spec.name!r} of {owner}"
    target = _target(registry, spec.name)
    parser = Parser(prog=f"rlcore {spec.name}", description=spec.summary)
    parser.set_defaults(registry=registry)
    with _plugin_error_context(label, owner):
        command = target()
        command.add_arguments(parser)
        code = command.run(parser.parse_args(words))
    if type(code) is not int or code not in range(256):
        said = code if type(code) is int else type(code).__name__
        raise PluginError(f"{label}: run() returned {said}, it must return an exit code, 0 if all went well, at most 255")
    return code


def _unknown(name: str, registry: Registry) -> str:
    left_out = "; ".join(registry.left_out())
    said = f"{name} is not a command of rlcore{closest(name, registry.names(_KIND))}; type rlcore --help for the list"
    return f"{said} ({left_out})" if left_out else said


def _target(registry: Registry, name: str) -> type[Command]:
    """Return the command's class. If its module cannot be imported, print the traceback before the error sentence."""
    try:
        target: type[Command] = registry.load(_KIND, name)
    except PluginError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        raise PluginError(str(error)) from None
    return target


@contextmanager
def _plugin_error_context(label: str, owner: str) -> Iterator[None]:
    """Turn a defect of a plugin into a RunError that names the plugin. A defect of rlcore itself is not hidden."""
    try:
        yield
    except (RlcoreError, RecursionError, BrokenPipeError):
        raise
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):  # argparse after --help, or an exit code
            raise
        raise RunError(f"{label} raised {reason(stop)}") from stop
    except Exception as error:
        files = isinstance(error, OSError) and not isinstance(error, ConnectionError)  # a typed path, or a full disk
        if owner == _CORE or files:
            raise
        raise RunError(f"{label} raised {reason(error)}") from error
