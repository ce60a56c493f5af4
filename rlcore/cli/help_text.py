"""The list of commands that ``rlcore`` and ``rlcore --help`` print.

Collecting it takes six times as long as starting Python, because it finds plugins and imports their entry modules. Therefore the text is
cached in the user's cache folder, with its inputs: this Python, the switches, the folders of ``sys.path``, and the imported modules.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlcore.host.user_cache import cached_bytes, keep_bytes

if TYPE_CHECKING:
    from rlcore.contracts.specs import CommandSpec
    from rlcore.registry.discovery import Plugin

__all__ = ["help_text"]

_FILE = "help.json"
_SWITCHES = ("RLCORE_PLUGINS", "RLCORE_DISABLE")
_LIBRARIES = {"pluggy", "rlcore"}


def help_text() -> str:
    """Return the usage, and a line for each command. Imports the entry modules of plugins if the text is not cached, and never a target."""
    with suppress(ValueError, LookupError, TypeError, RecursionError):  # there is no cached text, or it is damaged
        kept = json.loads(cached_bytes(_FILE) or b"")
        if kept["made_of"] == _made_of([file for file, *_ in kept["made_of"][-1]]):
            return str(kept["text"])
    text, modules = _collected()
    if modules:
        keep_bytes(_FILE, json.dumps({"made_of": _made_of(modules), "text": text}).encode())
    return text


def _made_of(modules: Sequence[str]) -> list[Any]:
    """Return the inputs of the text, as JSON reads them back."""
    return [sys.version, [os.environ.get(name, "") for name in _SWITCHES], _stamps(sys.path), _stamps(modules)]


def _stamps(paths: Iterable[str]) -> list[list[str | int]]:
    """Return each path with its modification time in nanoseconds and its size in bytes."""
    stamps: list[list[str | int]] = []
    for path in paths:
        try:
            status = Path(path).absolute().stat()
            stamps.append([path, status.st_mtime_ns, status.st_size])
        except OSError:
            stamps.append([path, 0, 0])
    return stamps


def _collected() -> tuple[str, list[str]]:
    """Return the text, and the files of the modules that it depends on. The list is empty if a plugin is broken, because a fix may be
    elsewhere."""
    from rlcore.contracts.specs import PluginKind
    from rlcore.registry.discovery import find_plugins

    before = set(sys.modules)
    plugins = find_plugins(kinds=(PluginKind.COMMAND,))
    broken = sorted({plugin.row.distribution for plugin in plugins if plugin.row.problems})
    packages = _LIBRARIES | {plugin.row.module.partition(".")[0] for plugin in plugins}
    tops = {name: name.partition(".")[0] for name in sys.modules}
    read = [name for name, top in tops.items() if top in packages or (name not in before and top not in sys.stdlib_module_names)]
    files = {getattr(sys.modules[name], "__file__", None) for name in read}
    return _text(plugins, ", ".join(broken)), [] if broken else sorted(file for file in files if file)


def _text(plugins: Sequence[Plugin], broken: str) -> str:
    commands = dict(_listed(plugins))
    width = max(map(len, commands))
    return "\n".join(
        [
            "usage: rlcore [-p no:NAME …] COMMAND …",
            "",
            "Reinforcement learning of language models on verifiable rewards.",
            "",
            *(f"  {name:<{width}}   {line}" for name, line in commands.items()),
            *(["", f"Installed but broken: {broken}; rlcore plugins says why."] if broken else []),
            "",
            "rlcore COMMAND --help says more; rlcore --version names the version; rlcore -p no:NAME COMMAND … runs it without a plugin.",
        ]
    )


def _listed(plugins: Sequence[Plugin]) -> Iterator[tuple[str, str]]:
    """Yield (command, line of help) in the order of the help. The line reports a command that two plugins claim."""
    offers: dict[str, list[tuple[CommandSpec, str]]] = {}
    for plugin in plugins:
        for _, spec in plugin.specs:
            offers.setdefault(spec.name, []).append((cast("CommandSpec", spec), plugin.row.distribution))
    for name, found in sorted(offers.items(), key=lambda item: (min(spec.position for spec, _ in item[1]), item[0])):
        owners = " and ".join(owner for _, owner in found)
        yield name, found[0][0].summary if len(found) == 1 else f"cannot be used: {owners} both offer it"
