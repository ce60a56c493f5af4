"""``rlcore show config [files] [flags]``: every value of a run and its origin, as a table, JSON, or TOML to paste."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

from rlcore.api.commands import Parser, Plan, Registry, add_train_flags, escape_control, plan_json, plan_of
from rlcore.api.settings import as_typed, get_path

__all__ = ["run"]

_COLUMNS = 160


def run(words: Sequence[str], registry: Registry) -> int:
    """Parse and print. Takes the arguments of ``rlcore train``, and needs neither model nor data."""
    parser = Parser(
        prog="rlcore show config",
        usage="rlcore show config [FILE.toml …] [--json | --toml] [flags]",
        description="Every value of a run, and where it comes from: the core, the recipe, a file, a flag, or resolved from auto.",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.toml", help="configuration files, merged from left to right")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--toml", action="store_true", help="print TOML only")
    add_train_flags(parser)
    parser.set_defaults(registry=registry)
    args = parser.parse_args(list(words))
    plan = plan_of(args.files, args, require=False)
    if args.json:
        print(json.dumps(plan_json(plan), ensure_ascii=False))
    elif args.toml:
        print(plan.to_toml(), end="")
    else:
        _show(plan)
    return 0


def _folded(start: str, origin: str, column: int) -> list[str]:
    """Return a row whose origin continues below itself, in ``column``, if the line would be wider than ``_COLUMNS``. Paths stay whole."""
    lines = textwrap.wrap(origin, max(_COLUMNS - column, 20), break_long_words=False, break_on_hyphens=False) or [""]
    below = [f"{'':<{column}}{line}" for line in lines]
    return [start.rstrip(), *below] if len(start) > column else [f"{start}{lines[0]}".rstrip(), *below[1:]]


def _show(plan: Plan) -> None:
    origins = [(path, origin) for path, origin in plan.origins.items() if path != "rewards"]
    chosen = [(plan.named(path), as_typed(get_path(plan.config, path)), str(origin)) for path, origin in origins]
    rows = [[escape_control(cell) for cell in row] for row in chosen]
    name, value = max(len(row[0]) for row in rows), min(40, max(len(row[1]) for row in rows))
    section = ""
    for row in rows:
        if row[0].partition(".")[0] != section:
            section = row[0].partition(".")[0]
            print(f"\n[{section}]")
        print("\n".join(_folded(f"  {row[0]:<{name}}   {row[1]:<{value}}   ", row[2], name + value + 8)))
    for item in plan.missing:
        print(f"\nmissing: {escape_control(str(item))}")
    print(f"\nTo paste into run.toml:\n\n{plan.to_toml()}", end="")
