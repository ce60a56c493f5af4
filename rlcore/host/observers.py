"""Calls the observer hooks of all plugins, each plugin on its own: one that raises is reported once and switched off; the run goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pluggy

from rlcore.host.blame import reason, set_aside

if TYPE_CHECKING:
    from rlcore.contracts.interfaces import RunInfo
    from rlcore.contracts.types import Group

__all__ = ["Observers"]

_log = logging.getLogger("rlcore")


class Observers:
    """The observer hooks as methods, called in the driver process. What they are given is read-only.

    ``switched_off`` maps the distribution of every observer that raised to its reason; ``report`` receives the same once, as a
    sentence, when it happens.
    """

    def __init__(self, plugins: Sequence[tuple[str, pluggy.PluginManager]], report: Callable[[str], None] = _log.warning) -> None:
        self._plugins = list(plugins)
        self._report = report
        self.switched_off: dict[str, str] = {}

    @property
    def want_groups(self) -> bool:
        """Whether anybody observes scored groups, which must travel for it."""
        return any(manager.hook.rlcore_groups_scored.get_hookimpls() for _, manager in self._plugins)

    def run_started(self, run: RunInfo) -> None:
        """The run folder exists and training is about to begin."""
        self._call("rlcore_run_started", run=run)

    def groups_scored(self, groups: Sequence[Group], version: int) -> None:
        """Groups were scored while ``version`` was the policy."""
        self._call("rlcore_groups_scored", groups=tuple(groups), version=version)

    def step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        """Update ``step`` (from 1) was completed and published."""
        self._call("rlcore_step_finished", step=step, metrics=MappingProxyType(dict(metrics)))

    def checkpoint_saved(self, step: int, folder: Path) -> None:
        """A checkpoint was written whole."""
        self._call("rlcore_checkpoint_saved", step=step, folder=folder)

    def run_finished(self, summary: Mapping[str, Any]) -> None:
        """The run ended, well or not."""
        self._call("rlcore_run_finished", summary=MappingProxyType(dict(summary)))

    def _call(self, hook: str, **arguments: Any) -> None:
        for plugin in list(self._plugins):
            owner, manager = plugin
            try:
                with set_aside():
                    getattr(manager.hook, hook)(**arguments)
            except (Exception, SystemExit) as error:
                self._plugins.remove(plugin)
                self.switched_off[owner] = f"{hook} raised {reason(error)}"
                self._report(f"observer {owner} is switched off for the rest of the run: {self.switched_off[owner]}")
