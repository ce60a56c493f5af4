"""``rlcore plugins``: the installed plugins, what each of them offers, and why a plugin does not work."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from rlcore.config.recipe_check import check_recipe
from rlcore.contracts.command_line import Command
from rlcore.contracts.errors import PluginError
from rlcore.contracts.specs import PluginKind

if TYPE_CHECKING:
    from rlcore.registry.plugin_registry import Registry

__all__ = ["PluginsCommand", "describe"]


class PluginsCommand(Command):
    """``rlcore plugins``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """``--json`` and ``--strict``."""
        parser.description = "list installed plugins: version, API, what each offers, or why it failed"
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
        parser.add_argument("--strict", action="store_true", help="also import everything that each plugin offers; exit 1 if any is broken")

    def run(self, args: argparse.Namespace) -> int:
        """Print the table. Return 0 even if a plugin is broken, because rlcore itself works, unless ``--strict`` is given."""
        described = describe(args.registry, imported=args.strict)
        if args.json:
            print(json.dumps(described, indent=2))
        else:
            _print_table(described)
        broken = described["name_conflicts"] or any(plugin["status"] == "broken" for plugin in described["plugins"])
        return int(args.strict and bool(broken))


def describe(registry: Registry, *, imported: bool = False) -> dict[str, Any]:
    """Return ``{"plugins": [one object per plugin], "name_conflicts": [sentence], "notes": [sentence]}``. ``status`` is ok, broken or
    disabled.

    :param imported: also import the plugins' targets and compare them with their specs.
    """
    faults = registry.faults(imported=imported)
    for name in registry.names(PluginKind.ALGORITHM):
        try:
            check_recipe(registry, name)
        except PluginError as error:
            faults.setdefault((PluginKind.ALGORITHM, name), []).append(str(error))
    strays, notes = registry.overlooked
    plugins = []
    for row in (*registry.rows, *strays):
        problems = [*row.problems, *(fault for offer in row.offers for fault in faults.get(offer, []))]
        plugins.append(
            {
                "distribution": row.distribution,
                "version": row.version,
                "api": row.api,
                "entry_point": row.entry_point,
                "module": row.module,
                "offers": [{"kind": str(kind), "name": name} for kind, name in row.offers],
                "status": "disabled" if row.disabled else "broken" if problems else "ok",
                "disabled_by": row.disabled,
                "problems": problems,
            }
        )
    return {"plugins": plugins, "name_conflicts": registry.name_conflicts(), "notes": [*registry.notes, *notes]}


def _print_table(described: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        _print_lines(described)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("distribution", "version", "API", "offers, or why it failed"):
        table.add_column(heading, overflow="fold")
    for plugin in described["plugins"]:
        table.add_row(*(escape(plugin[field]) for field in ("distribution", "version", "api")), "\n".join(_account(plugin, escape)))
    console.print(table)
    for sentence in [*described["name_conflicts"], *described["notes"]]:
        console.print(escape(sentence), style="yellow", soft_wrap=True)


def _print_lines(described: dict[str, Any]) -> None:
    """Print a line for each plugin and kind, as ``grep`` reads them: distribution, version, API, then the names or the reason."""
    for plugin in described["plugins"]:
        for line in (*_offers(plugin), *_faults(plugin)) or ("hooks only",):
            print(plugin["distribution"], plugin["version"], plugin["api"] or "-", line)
    for sentence in [*described["name_conflicts"], *described["notes"]]:
        print(sentence)


def _account(plugin: dict[str, Any], escape: Any) -> list[str]:
    colour = "yellow" if plugin["disabled_by"] else "red"
    lines = [escape("; ".join(_offers(plugin))), *(f"[{colour}]{escape(fault)}[/{colour}]" for fault in _faults(plugin))]
    return [line for line in lines if line] or ["hooks only"]


def _offers(plugin: dict[str, Any]) -> list[str]:
    by_kind: dict[str, list[str]] = {}
    for offer in plugin["offers"]:
        by_kind.setdefault(offer["kind"], []).append(offer["name"])
    return [f"{kind}: {', '.join(names)}" for kind, names in by_kind.items()]


def _faults(plugin: dict[str, Any]) -> list[str]:
    switched = [f"switched off by {plugin['disabled_by']}"] if plugin["disabled_by"] else []
    return [*(f"failed: {problem}" for problem in plugin["problems"]), *switched]
