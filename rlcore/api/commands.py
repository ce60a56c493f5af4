"""For authors of commands: the base class, the parser, the flags of ``rlcore train``, and functions that plan and run a training run.

>>> class ReportCommand(Command):
...     def add_arguments(self, parser):
...         parser.add_argument("folder", type=Path)
...     def run(self, args):
...         print(f"{args.folder} is a run folder")
...         return 0

A plugin registers it with ``CommandSpec(name="report", summary="…", target="my_package.module:ReportCommand")``. If it raises an error of
``rlcore.api`` (``UsageError``, ``RunError``, …), ``rlcore`` prints the message and ends with the error's exit code. With ``--json`` it also
prints the message as a JSON object. ``rlcore.testing.check_command`` checks a command.

- ``args.registry`` is the ``Registry`` of the installed plugins. ``Spec`` has the fields that all kinds share.
- ``preview_settings`` finds the ``Part`` behind each name that files and flags select, before there is a plan.
- ``load_target`` imports the target of a spec. ``reason`` describes an exception of a plugin in half a sentence.
- ``check_recipe`` refuses a recipe that names something that does not exist. ``plan_json`` returns a plan as plain data.
- ``escape_control`` escapes terminal control sequences in texts of models and third parties.
- ``plan_arguments`` plans from the arguments of a function for Python (``CommandSpec.function``), as ``rlcore.train`` does, with the
  plugin that implements ``rlcore_plan_arguments``; ``Config`` is the type of its argument ``config``;
  ``python_errors`` makes its errors name arguments, ``in_python`` any message.
- ``runs_among`` finds the run folders of a glob. ``write_json_lines`` writes rows, and ``write_bytes`` a
  file, completely or not at all.
"""

from __future__ import annotations

from rlcore.cli.consoles import SteadyConsole, plain_console
from rlcore.cli.flags import add_train_flags, train_flags
from rlcore.cli.parser import CollectWords, ExampleFormatter, Parser
from rlcore.cli.plan_view import plan_json
from rlcore.cli.run_folders import runs_among
from rlcore.cli.train import add_run_options, check_data, plan_of, run_plan
from rlcore.config import Missing, Plan, RunConfig, TypedFlag, plan_run
from rlcore.config.plan import preview_settings
from rlcore.config.plugin_selection import Part
from rlcore.config.python_words import in_python, python_errors
from rlcore.config.recipe_check import check_recipe
from rlcore.contracts.command_line import Command
from rlcore.contracts.specs import Spec
from rlcore.host.terminal_text import escape_control
from rlcore.registry.error_context import reason
from rlcore.registry.install import EXTRAS, RELEASED, install_line
from rlcore.registry.plugin_registry import Registry
from rlcore.registry.targets import load_target
from rlcore.runlog.folder import write_bytes, write_json_lines
from rlcore.runtime.arguments import Config, plan_arguments

__all__ = [
    "EXTRAS",
    "RELEASED",
    "CollectWords",
    "Command",
    "Config",
    "ExampleFormatter",
    "Missing",
    "Parser",
    "Part",
    "Plan",
    "Registry",
    "RunConfig",
    "Spec",
    "SteadyConsole",
    "TypedFlag",
    "add_run_options",
    "add_train_flags",
    "check_data",
    "check_recipe",
    "escape_control",
    "in_python",
    "install_line",
    "load_target",
    "plain_console",
    "plan_arguments",
    "plan_json",
    "plan_of",
    "plan_run",
    "preview_settings",
    "python_errors",
    "reason",
    "run_plan",
    "runs_among",
    "train_flags",
    "write_bytes",
    "write_json_lines",
]
