"""``rlcore env build NAME`` makes an environment; there are also ``list``, ``path`` and ``remove``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rlcore_plugin_workers.environment_folders import build, folder_of, is_whole, kept, remove
from rlcore_plugin_workers.environment_locks import Lock, find_locks, named_lock

from rlcore.api import PluginError, UsageError
from rlcore.api.commands import Command

__all__ = ["EnvCommand"]

_TEXT = (
    "Engines and trainers whose packages conflict with others run in separate virtual environments. A plugin describes its "
    "environments by lock files. Each is made once, in the user's cache folder, and contains only third-party packages."
)
_WORDS = {
    "build": "make an environment, unless it is there, and print its folder",
    "list": "list the environments of installed plugins, and which of them have been made",
    "path": "print the folder of an environment that was made",
    "remove": "delete an environment, and those of older versions of its lock",
}


class EnvCommand(Command):
    """The command ``rlcore env``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add one sub-command per verb."""
        parser.description = _TEXT
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for verb, meaning in _WORDS.items():
            own = verbs.add_parser(verb, help=meaning, description=meaning)
            if verb != "list":
                own.add_argument("name", metavar="NAME", help="a name from `rlcore env list`")
            if verb == "build":
                own.add_argument("--dry-run", action="store_true", help="report what would be made, and make nothing")
            own.add_argument("--json", action="store_true", help="print one JSON object as the last line")

    def run(self, args: argparse.Namespace) -> int:
        """Run the verb; UsageError for a name that no plugin has."""
        if args.verb == "list":
            _list([_told(name) for name in find_locks()], as_json=args.json)
            return 0
        lock = named_lock(args.name)
        answer = {"build": _build, "path": _path, "remove": _remove}[args.verb](lock, args)
        if args.json:
            print(json.dumps(answer))
        return 0


def _told(name: str) -> dict[str, Any]:
    """Return the state of a lock. An error in one lock is listed next to the others."""
    try:
        return _state(named_lock(name))
    except PluginError as error:
        return {"name": name, "error": str(error)}


def _state(lock: Lock) -> dict[str, Any]:
    folder = folder_of(lock)
    old = [str(path) for path in kept(lock) if path != folder]
    return {
        "name": lock.name,
        "owner": lock.owner,
        "packages": len(lock.requirements),
        "megabytes": lock.cost[0] if lock.cost else None,
        "minutes": lock.cost[1] if lock.cost else None,
        "folder": str(folder),
        "built": is_whole(folder),
        "old": old,
    }


def _list(states: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"environments": states}))
        return
    for state in states:
        if "error" in state:
            print(f"{state['name']}  {state['error']}")
            continue
        made = state["folder"] if state["built"] else f"not made; type rlcore env build {state['name']}"
        print(f"{state['name']}  ({state['owner']}, {state['packages']} packages)  {made}")
        for folder in state["old"]:
            print(f"  from an older lock: {folder}; rlcore env remove {state['name']} deletes it")
    if not states:
        print("no installed plugin describes an environment")


def _build(lock: Lock, args: argparse.Namespace) -> dict[str, Any]:
    lock.check_machine()
    lock.check_packages()
    lock.interpreter()
    if args.dry_run:
        print(_announced(lock), file=sys.stderr if args.json else sys.stdout)
        return _state(lock)
    made = build(lock, _progress)
    if not args.json:
        print(folder_of(lock))
    return {**_state(lock), "made": made}


def _announced(lock: Lock) -> str:
    """Return what a build would make, and its cost if the lock names it."""
    if is_whole(folder_of(lock)):
        return f"{lock.name} is there: {folder_of(lock)}"
    cost = f"; about {lock.cost[0]} MB, {lock.cost[1]} min with a fast package index" if lock.cost else ""
    return f"{lock.name} would be made of {len(lock.requirements)} packages: {folder_of(lock)}{cost}"


def _path(lock: Lock, args: argparse.Namespace) -> dict[str, Any]:
    if not is_whole(folder_of(lock)):
        raise UsageError(f"environment {lock.name} has not been made; type: rlcore env build {lock.name}")
    if not args.json:
        print(folder_of(lock))
    return _state(lock)


def _remove(lock: Lock, args: argparse.Namespace) -> dict[str, Any]:
    removed = []
    for folder in kept(lock):
        if remove(lock, folder, _progress):
            removed.append(str(folder))
            print(f"removed {folder}", file=sys.stderr if args.json else sys.stdout)
    if not removed and not args.json:
        print(f"environment {lock.name} has not been made")
    return {"removed": removed}


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
