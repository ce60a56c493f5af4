"""The arguments of ``rlcore.train`` and its kin. A plugin reads them: ``rlcore_plan_arguments``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.config import Plan, RunConfig
from rlcore.contracts.errors import PluginError
from rlcore.registry.offers import offered

__all__ = ["Config", "plan_arguments"]

Config = RunConfig | Mapping[str, Any] | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def plan_arguments(given: Mapping[str, Any], kept: dict[Path, str], **more: Any) -> Plan:
    """Return the plan of arguments of Python. Raises UsageError with all problems that are found.

    :param given: arguments by name, key or path of a setting. Those that are None count as absent.
    :param kept: receives the name of the argument whose rows a file holds, for ``python_errors``.
    :param more: ``config``: settings below the arguments; ``below``: files below ``config``; ``defaults``: settings between the two;
        ``folder``: for the files of rows, the folder ``data`` of the project if absent; and options of ``plan_run``.
    """
    plan: Plan = offered("rlcore_plan_arguments", "a run from Python", PluginError)(given, kept, **more)
    return plan
