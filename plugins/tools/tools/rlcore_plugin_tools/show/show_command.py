"""``rlcore show reward boxed``: describes one plugin, its options, the origin of each default, and TOML to paste.

``rlcore show config`` passes its arguments unchanged to the configuration's own parser.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from typing import Any

from rlcore.api import PluginKind, UsageError
from rlcore.api.commands import Command

__all__ = ["ShowCommand"]

_NO_OPTIONS = "\0"

_HELP = {
    PluginKind.REWARD: "a reward: the columns it needs, its options",
    PluginKind.INFERENCE: "an inference backend",
    PluginKind.TRAINING: "a training backend",
    PluginKind.ESTIMATOR: "an advantage estimator",
    PluginKind.LOSS: "a policy-gradient loss",
    PluginKind.AGGREGATION: "an aggregation: how losses per token become one number",
    PluginKind.KL: "an estimator of the KL divergence from the reference",
    PluginKind.CORRECTION: "a weight for data of another policy",
    PluginKind.LR_SCHEDULE: "a course of the learning rate after the warm-up",
    PluginKind.CONTROLLER: "a controller, which stops, evaluates, saves or changes settings",
    PluginKind.FILTER: "a filter of groups: which rollouts of a group train",
    PluginKind.MODEL_HOOK: "a change of the model before it is trained",
    PluginKind.OPTIMIZER: "a rule that moves the weights",
    PluginKind.SAMPLER: "a sampler: which prompt comes next",
    PluginKind.ALGORITHM: "a recipe: its formula, and every default with its origin",
    PluginKind.TRACKER: "a tracker of metrics",
    PluginKind.RUNTIME: "a runtime: where the roles of a run are executed",
    PluginKind.TRANSFER: "a weight transfer: how weights get from the trainer to the engines",
    PluginKind.SANDBOX: "a sandbox, which runs untrusted programs",
    PluginKind.COMMAND: "a command of the command line",
    PluginKind.DATA: "a data source: a reader of data sets",
    PluginKind.CONVERSATION: "a conversation: how a prompt becomes a rollout",
    PluginKind.ENVIRONMENT: "an environment: it plays episodes with the policy",
    PluginKind.FORMAT: "a row format: how rows of a published data set are read",
}


class ShowCommand(Command):
    """The command ``rlcore show``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add one sub-command per kind of plugin, and ``config``."""
        parser.description = "explain one plugin, or where each setting of a run comes from"

        def parser_of(**settings: Any) -> argparse.ArgumentParser:
            plain = settings.get("prefix_chars") == _NO_OPTIONS
            return argparse.ArgumentParser(**settings) if plain else type(parser)(**settings)

        kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT", parser_class=parser_of)  # type: ignore[call-overload]
        for kind, meaning in _HELP.items():
            own = kinds.add_parser(str(kind), help=meaning, description=meaning)
            own.add_argument("name", nargs="?", metavar="NAME", help="a name from `rlcore plugins`, ./my.py:NAME or package.module:NAME")
            own.add_argument("--json", action="store_true", help="print one JSON object")
        meaning = "the resolved run configuration and the origin of each value; takes the arguments of `rlcore train`"
        # No prefix character: every argument, also one that starts with '-', goes to the configuration's own parser.
        config = kinds.add_parser("config", help=meaning, add_help=False, prefix_chars=_NO_OPTIONS)
        config.add_argument("rest", nargs="*")

    def run(self, args: argparse.Namespace) -> int:
        """Print the description; PluginError if the name is unknown."""
        if args.what == "config":
            from rlcore_plugin_tools.show import show_config

            return show_config.run(args.rest, args.registry)

        if args.name is None:
            names = ", ".join(args.registry.names(args.what))
            known = f"type one of {names}" if names else "none is installed; type the place of one, such as ./mine.py:NAME"
            raise UsageError(f"rlcore show {args.what} needs a name: {known}")
        from rlcore_plugin_tools.show.describe import describe

        described = describe(args.registry, PluginKind(args.what), args.name)
        if args.json:
            print(json.dumps(described, indent=2, ensure_ascii=False))
        else:
            _print(described)
        return 0


def _print(described: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    width = console.width if console.is_terminal else None  # in a file or a pipe, lines may have any length
    owner = " ".join(filter(None, (described["owner"], described["version"])))
    console.print(Text.assemble((f"{described['kind']} {described['name']}", "bold"), f"  ({owner})"), soft_wrap=True)
    facts = [f"{label}: {value}" for label, value in _facts(described)]
    lines = [line for fact in (described["summary"], *facts) for line in _folded(fact, width)]
    if notes := described["properties"].get("notes", ""):
        lines += ["", "Formula, and what differs from other conventions:", "", *_folded_notes(notes, width)]
    console.print(Text("\n".join(lines)), soft_wrap=True)
    if described["options"]:
        console.print()
        _print_options(described["options"], console, width)
    if described["toml"]:
        console.print(Text(f"\nTo paste into run.toml:\n\n{described['toml']}"), soft_wrap=True, end="")


def _facts(described: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [("source", described["source"]), ("also called", ", ".join(described["aliases"])), ("code", described["target"])]
    facts += [(name.replace("_", " "), _plain(value)) for name, value in described["properties"].items() if name != "notes"]
    return [(label, value) for label, value in facts if value]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else "not said" if value is None else str(value)


# --- lines that fit a terminal -----------------------------------------------------------------------------------------

_LABEL = re.compile(r"\S+(?: \S+)?\s{2,}(?=\S)")
"""The label before a formula: one or two words, then at least two spaces."""


def _folded(text: str, width: int | None, first: str = "", rest: str = "") -> list[str]:
    """Return the text in lines of at most ``width``, broken only between words; in one line if ``width`` is None."""
    if width is None:
        return [first + text]
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False) or [""]


def _folded_notes(notes: str, width: int | None) -> list[str]:
    """Return notes with the author's line breaks if they fit. Otherwise wrap each paragraph, item or formula by itself, with its indent."""
    lines = notes.strip("\n").splitlines()
    if width is None or max(map(len, lines)) <= width:
        return lines
    folded: list[str] = []
    for paragraph in _paragraphs(lines):
        label = _LABEL.match(paragraph)
        start = label.group() if label else "- " if paragraph.startswith("- ") else ""
        folded += _folded(paragraph[len(start) :], width, start, " " * len(start))
    return folded


def _paragraphs(lines: list[str]) -> list[str]:
    """Join lines that continue the one before; empty lines stay."""
    paragraphs: list[str] = []
    for line in lines:
        resume_plan = bool(line and paragraphs and paragraphs[-1]) and not line.startswith("- ") and not _LABEL.match(line)
        if resume_plan and not (paragraphs[-1].endswith(":") and not line.startswith(" ")):
            paragraphs[-1] += " " + line.strip()
        else:
            paragraphs.append(line)
    return paragraphs


def _print_options(options: list[dict[str, Any]], console: Any, width: int | None) -> None:
    """Print one line per option if that fits (always into a file or a pipe). On a narrower terminal its description is printed below it."""
    from rich.text import Text

    rows = [_HEADINGS, *map(_row, options)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    if width is None or sum(widths) + 2 * (len(widths) - 1) <= width:
        for number, row in enumerate(rows):
            line = "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
            console.print(Text(line, style="" if number else "bold"), soft_wrap=True)
        return
    for path, kind, default, description, source in rows[1:]:
        console.print(Text.assemble((path, "bold"), f" = {default}"), soft_wrap=True)
        said = "; ".join(filter(None, (kind, description)))
        console.print(Text("\n".join(_folded(said, width, "    ", "    "))), soft_wrap=True)
        console.print(Text("\n".join(_folded(f"from {source}", width, "    ", "    "))), soft_wrap=True)


_HEADINGS = ("setting", "type", "default", "description", "default from")


def _row(option: dict[str, Any]) -> tuple[str, ...]:
    default = "(required)" if option["required"] else json.dumps(option["default"], ensure_ascii=False)
    return option["path"], option["type"], default, option["description"], option["source"]
