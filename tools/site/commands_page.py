"""The page of the commands: usage, arguments and options of each, from the parser that the command itself makes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from rlcore.api import PluginKind
from rlcore.cli.parser import CollectWords, Parser
from rlcore.config.setting_table import core_settings
from rlcore.registry.plugin_registry import Registry
from tools.site.markdown import cell, escape, prose, table

__all__ = ["command_parser", "commands_page", "subcommands"]

_INTRO = """# Commands

`rlcore COMMAND --help` prints the same text in a terminal. `rlcore -p no:NAME COMMAND …` runs a command without a plugin.

"""


def command_parser(registry: Registry, name: str) -> Parser:
    """Return the parser of an installed command, as ``rlcore NAME`` makes it."""
    parser = Parser(prog=f"rlcore {name}", description=registry.spec(PluginKind.COMMAND, name).summary)
    parser.set_defaults(registry=registry)
    registry.load(PluginKind.COMMAND, name)().add_arguments(parser)
    return parser


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the words that may follow, by word."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: inner for action in groups for name, inner in action.choices.items()}


def commands_page(registry: Registry) -> str:
    """Return the page, in the order of ``rlcore --help``."""
    specs = sorted(registry.specs(PluginKind.COMMAND), key=lambda spec: (getattr(spec, "position", 0), spec.name))
    rows = [
        (f"[`rlcore {spec.name}`](#command-{spec.name})", cell(spec.summary), f"`{registry.owner(PluginKind.COMMAND, spec.name)}`")
        for spec in specs
    ]
    parts = (f"(command-{spec.name})=\n## rlcore {spec.name}\n\n" + _body(command_parser(registry, spec.name), 3) for spec in specs)
    return _INTRO + table(("command", "purpose", "package"), rows) + "".join(parts)


def _body(parser: argparse.ArgumentParser, level: int) -> str:
    said = (parser.description or "").strip()
    told = (
        "```text\n" + said + "\n```\n\n"
        if "\n  " in said
        else prose(said[:1].upper() + said[1:] + "." * (bool(said) and not said.endswith((".", ":"))))
    )
    settings = [action for action in parser._actions if isinstance(action, CollectWords)]
    foreign = {action for action in settings if action.setting.path in core_settings()}
    shown = [
        action
        for action in parser._actions
        if action not in foreign and action.help != argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction)
    ]
    words = [action for action in shown if not action.option_strings]
    flags = [action for action in shown if action.option_strings and action.dest != "help"]
    usage = parser.format_usage().partition(": ")[2].rstrip()
    text = (
        f"```text\n{usage}\n```\n\n{told}"
        + table(("argument", "meaning"), map(_row, words))
        + table(("option", "meaning"), map(_row, flags))
    )
    text += _settings(action for action in settings if action in foreign)
    if parser.epilog:
        text += f"```text\n{parser.epilog.strip()}\n```\n\n"
    return text + _inner(parser, level)


def _row(action: argparse.Action) -> tuple[str, str]:
    metavar = action.metavar or (("{" + ",".join(map(str, action.choices)) + "}") if action.choices else action.dest.upper())
    values = " ".join(metavar) if isinstance(metavar, tuple) else str(metavar)
    values = (
        ""
        if action.nargs == 0
        else f" [{values}]"
        if action.nargs == "?"
        else f" {values} …"
        if action.nargs in ("*", "+")
        else f" {values}"
    )
    name = ", ".join(getattr(action, "shown", action.option_strings)) + values if action.option_strings else values.strip()
    known = vars(action) | {"prog": ""}
    return cell(f"`{name}`"), cell((action.help or "") % known)


def _settings(actions: Iterable[CollectWords]) -> str:
    """Return the sentence on the settings of a run that a command reads."""
    paths = list(dict.fromkeys(action.setting.path for action in actions))
    if not paths:
        return ""
    if len(paths) >= len(core_settings()):
        return "It takes the flags of all [settings of a run](options.md), and those of the options of the chosen plugins.\n\n"
    links = ", ".join(f"[`{path}`](options.md#{path})" if path != "rewards" else "[`rewards`](options.md#rewards)" for path in paths)
    return f"It takes the flags of these [settings of a run](options.md), and of the options of the chosen plugins: {links}.\n\n"


def _inner(parser: argparse.ArgumentParser, level: int) -> str:
    """Return the sections of the words that may follow. Words with the same arguments share one."""
    helps = {
        choice.dest: choice.help or ""
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    }
    metavar = next((str(action.metavar) for action in parser._actions if isinstance(action, argparse._SubParsersAction)), "")
    same: dict[str, list[str]] = {}
    for name, inner in subcommands(parser).items():
        arguments = str([_row(action) for action in inner._actions if action.help != argparse.SUPPRESS])
        same.setdefault(arguments, []).append(name)
    text = table((metavar.lower() or "word", "meaning"), [(f"`{name}`", escape(said)) for name, said in helps.items()])
    for names in same.values():
        inner = subcommands(parser)[names[0]]
        title = inner.prog if len(names) == 1 else f"{parser.prog} {metavar}"
        text += f"{'#' * level} {title}\n\n{_body(inner, level + 1)}"
    return text
