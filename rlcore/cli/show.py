"""``rlcore show reward boxed``: what one plugin is, its options, where each default comes from, and TOML to paste.

``rlcore show config`` belongs to the configuration: its arguments are handed on as they are.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from rlcore.specs import PluginKind

__all__ = ["add_parser", "run"]

_NO_OPTIONS = "\0"

_HELP = {
    PluginKind.REWARD: "a reward: the columns it needs, its options",
    PluginKind.INFERENCE: "an inference backend",
    PluginKind.TRAINING: "a training backend",
    PluginKind.ESTIMATOR: "an advantage estimator",
    PluginKind.LOSS: "a policy-gradient loss",
    PluginKind.ALGORITHM: "a recipe: its formula, every default and where it comes from",
    PluginKind.TRACKER: "a tracker of metrics",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command, with one sub-command a kind of plugin, to the main parser."""
    text = "explain one plugin, or where each setting of a run comes from"
    show = subparsers.add_parser("show", help=text, description=text)
    show.set_defaults(func=run)

    def parser_of(**settings: Any) -> argparse.ArgumentParser:
        plain = settings.get("prefix_chars") == _NO_OPTIONS
        return argparse.ArgumentParser(**settings) if plain else type(show)(**settings)

    kinds = show.add_subparsers(dest="what", required=True, metavar="WHAT", parser_class=parser_of)  # type: ignore[call-overload]
    for kind, meaning in _HELP.items():
        parser = kinds.add_parser(str(kind), help=meaning, description=meaning)
        parser.add_argument("name", metavar="NAME", help="a name from `rlcore plugins`, ./my.py:NAME or package.module:NAME")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
    meaning = "the resolved run configuration and the origin of each value; takes what `rlcore train` takes"
    # no prefix character: every argument, also one that starts with '-', is left to the configuration's own parser
    config = kinds.add_parser("config", help=meaning, add_help=False, prefix_chars=_NO_OPTIONS)
    config.add_argument("rest", nargs="*")


def run(args: argparse.Namespace) -> int:
    """Print it; PluginError where the name is unknown."""
    if args.what == "config":
        from rlcore.cli import show_config

        return show_config.run(args.rest)

    from rlcore.describe import describe
    from rlcore.registry import Registry

    described = describe(Registry.discover(), PluginKind(args.what), args.name)
    if args.json:
        print(json.dumps(described, indent=2, ensure_ascii=False))
    else:
        _print(described)
    return 0


def _print(described: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    owner = " ".join(filter(None, (described["owner"], described["version"])))
    console.print(Text.assemble((f"{described['kind']} {described['name']}", "bold"), f"  ({owner})"), soft_wrap=True)
    console.print(Text(described["summary"]), soft_wrap=True)
    for label, value in _facts(described):
        console.print(Text(f"{label}: {value}"), soft_wrap=True)
    if described["options"]:
        console.print()
        console.print(_table(described["options"], console))
    console.print(Text(f"\nTo paste into run.toml:\n\n{described['toml']}"), soft_wrap=True, end="")


def _facts(described: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [("source", described["source"]), ("also called", ", ".join(described["aliases"])), ("code", described["target"])]
    facts += [(name.replace("_", " "), _plain(value)) for name, value in described["properties"].items()]
    return [(label, value) for label, value in facts if value]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _table(options: list[dict[str, Any]], console: Any) -> Any:
    from rich.table import Table
    from rich.text import Text

    if not console.is_terminal:
        console.width = 1000  # a file or a pipe: one option, one line
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("setting", "type", "default", "description", "default from"):
        table.add_column(heading, overflow="fold")
    for option in options:
        default = "(required)" if option["required"] else json.dumps(option["default"], ensure_ascii=False)
        table.add_row(*(Text(text) for text in (option["path"], option["type"], default, option["description"], option["source"])))
    return table
