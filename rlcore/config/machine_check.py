"""Check before the start whether this machine fits a plan: the folders to create, and what plugins check."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlcore.config.layers import get_path
from rlcore.config.plan import Plan
from rlcore.contracts.errors import ConfigError, PluginError, RlcoreError
from rlcore.registry.error_context import reason

__all__ = ["check_machine"]

_FOLDERS = (("run.run_dir", "--run-dir"), ("log.save_dir", "-sd"), ("eval.eval_save_dir", "-esd"), ("log.rollout_save_dir", "-rsd"))


def check_machine(plan: Plan) -> Plan:
    """Return the plan, with the remarks of plugins on this machine.

    Raises ConfigError for a folder of the run that cannot be made, or what a plugin refuses. Leaves nothing behind.
    """
    for path, flag in _FOLDERS:
        if path == "run.run_dir" and plan.resume is not None:
            _check_folder(plan, path, flag, plan.resume.run)  # it may have been moved
        elif folder := get_path(plan.config, path):
            _check_folder(plan, path, flag, Path(folder, plan.config.run.project if path == "run.run_dir" else ""))
    found = [(owner, manager.hook.rlcore_check_machine) for owner, manager in plan.registry.hooks()]
    remarks = [sentence for owner, ask in found for sentences in _asked(owner, ask, plan) for sentence in sentences]
    return replace(plan, notes=(*plan.notes, *remarks))


def _asked(owner: str, ask: Callable[..., Any], plan: Plan) -> list[Sequence[str]]:
    try:
        return list(ask(plan=plan))
    except RlcoreError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{owner}: rlcore_check_machine raised {reason(error)}") from error


def _check_folder(plan: Plan, path: str, flag: str, folder: Path) -> None:
    nearest = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), Path())
    if not nearest.is_dir():
        what = "file" if nearest.exists() else "broken link"
        raise ConfigError(f"{plan.cite(path)}: the folder cannot be created, because {nearest} is a {what}; name another one with {flag}")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"{plan.cite(path)}: {nearest} cannot be written; name another folder with {flag}")
    if refusal := _refusal(nearest):
        raise ConfigError(f"{plan.cite(path)}: no folder can be created in {nearest} ({refusal}); name another one with {flag}")


def _refusal(place: Path) -> str:
    """Return why no folder can be made in ``place``, "" if one can.

    In /proc the permissions allow it and the kernel refuses it. Kernel file systems have no blocks, but some network file systems report
    none either; only a trial folder distinguishes them."""
    if os.statvfs(place).f_blocks:
        return ""
    try:
        trial = place / f".rlcore-{os.getpid()}"
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        return str(error.strerror)
    return ""
