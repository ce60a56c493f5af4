"""Remarks of plugins on a legal configuration that the user should read. The run continues."""

from __future__ import annotations

from collections.abc import Iterator

from rlcore.config.rules import RuleContext
from rlcore.registry.error_context import reason
from rlcore.registry.plugin_registry import Registry

__all__ = ["remarks"]


def remarks(facts: RuleContext, registry: Registry) -> Iterator[str]:
    """Yield a sentence for each broken plugin, then the sentences of every plugin."""
    for row in registry.rows:
        if row.problems:
            yield f"plugin {row.distribution} is installed but broken, so the run does not use it: {row.problems[0]}"
    for owner, manager in registry.hooks():
        try:
            for sentences in manager.hook.rlcore_remark_run(facts=facts):
                yield from sentences
        except (Exception, SystemExit) as error:
            yield f"{owner}: rlcore_remark_run raised {reason(error)}"
