"""A check of a command of the command line, as one call in a plugin's own tests."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from typing import Any

from rlcore.cli.parser import Parser
from rlcore.contracts.command_line import Command
from rlcore.contracts.specs import CommandSpec
from rlcore.testing.run_tester import QUIET, RunOutcome, RunTester

__all__ = ["check_command"]

_HEAVY = ("datasets", "pandas", "pyarrow", "ray", "tensorflow", "torch", "transformers")
_HELP = f"""
import atexit, sys
from rlcore.cli import main
atexit.register(lambda: print("\\nloaded:", *sorted(set(sys.modules) & set({_HEAVY!r}))))
sys.exit(main(sys.argv[1:]))
"""
_WRONG = "--no-such-flag-of-anybody"


def check_command(spec: CommandSpec, tester: RunTester, *words: str) -> None:
    """Check an installed command, or one of ``tester.plugins``. Raise AssertionError with the rule that is broken.

    Help works, names the command and loads nothing heavy. A wrong flag is refused in one sentence with exit code 2, and nothing is written.
    The command succeeds and returns an exit code. If it has ``--json``, its last line is one JSON object, also for an error.

    :param words: the words after the command's name in a call that succeeds in ``tester.folder``; the call is made at most twice.
    """
    with tester.plugins:
        flags = _flags(spec)
    _check_help(spec, tester)
    refused = tester.run(spec.name, *words, _WRONG)
    _check_refusal(spec, refused)
    done = tester.run(spec.name, *words)
    assert done.exit_code == 0, f"rlcore {spec.name} must end with exit code 0 for {words}\n{done}"
    if "--json" in flags:
        _check_json(spec, done if "--json" in words else tester.run(spec.name, *words, "--json"))
        said = tester.run(spec.name, *words, _WRONG, "--json")
        _check_refusal(spec, said)
        assert list(said.json) == ["error"], f"rlcore {spec.name} --json must print a refusal as a JSON object, too\n{said}"


def _flags(spec: CommandSpec) -> set[str]:
    """Return the options of the command, from a parser that its class has filled."""
    module, _, path = spec.target.partition(":")
    target: Any = getattr(import_module(module), path, None)
    derived = isinstance(target, type) and issubclass(target, Command)
    assert derived, f"the target {spec.target!r} of {spec.name} must be a class derived from rlcore.api.commands.Command"
    parser = Parser(prog=f"rlcore {spec.name}")
    target().add_arguments(parser)
    return set(parser._option_string_actions)


def _check_help(spec: CommandSpec, tester: RunTester) -> None:
    """Check the help in a new process, since other tests have loaded modules in this one."""
    listed = tester.run("--help").assert_ok()
    line = f"{spec.name} {spec.summary}"
    assert line in {" ".join(row.split()) for row in listed.lines}, f"rlcore --help must list {spec.name} with its summary\n{listed}"
    done = subprocess.run(
        [sys.executable, "-c", _HELP, spec.name, "--help"],
        cwd=tester.folder,
        env={**tester.plugins.environment, **QUIET},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"rlcore {spec.name} --help must end with exit code 0\n{done.stderr}"
    text, _, loaded = done.stdout.rpartition("\nloaded:")
    assert text.startswith(f"usage: rlcore {spec.name}"), f"rlcore {spec.name} --help must begin with its usage\n{text}"
    assert not loaded.strip(), f"rlcore {spec.name} --help must load nothing heavy, and loads {loaded.strip()}: import it in run()"


def _check_refusal(spec: CommandSpec, refused: RunOutcome) -> None:
    said = [line for line in refused.stderr.splitlines() if line.strip()]
    right = refused.exit_code == 2 and len(said) == 1 and _WRONG in said[0]
    assert right, f"rlcore {spec.name} must refuse a wrong flag in one sentence that cites it, with exit code 2\n{refused}"
    assert not refused.written, f"rlcore {spec.name} must write nothing when it refuses a flag\n{refused}"


def _check_json(spec: CommandSpec, done: RunOutcome) -> None:
    last = done.lines[-1] if done.lines else ""
    try:
        value = json.loads(last)
    except ValueError:
        value = None
    right = done.exit_code == 0 and isinstance(value, dict)
    assert right, f"rlcore {spec.name} --json must print one JSON object as its last line\n{done}"
