"""TOML files: read one, with errors of one sentence; find the line of a setting; write a configuration that loads back equal."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from rlcore.config.file_paths import relocated, seen_from
from rlcore.config.run_config import RunConfig, RunSection
from rlcore.contracts.errors import ConfigError

__all__ = ["line_of", "read_toml", "to_toml"]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\-\"']+(?:\s*\.\s*[A-Za-z0-9_\-\"']+)*)\s*=")


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Return the tables and the text of a file. Raises ConfigError if it is absent, a folder, not UTF-8, or not TOML."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ConfigError(f"{path} is not a regular file; type the path of a TOML file")
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {path}; type the path of a TOML file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder, not a configuration file; type the path of a TOML file in it") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start}), which TOML requires; save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); type the path of a TOML file") from None
    try:
        return tomllib.loads(text), text
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply to be read; flatten it") from None
    except ValueError as error:  # TOMLDecodeError, or an integer with more digits than Python reads
        raise ConfigError(f"{path} is not valid TOML: {error}; fix that place in the file") from None


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def line_of(text: str, path: str) -> int | None:
    """Return the line of the setting ``path``, or of its table; None if the text shows neither."""
    wanted = tuple(path.split("."))
    table: tuple[str, ...] = ()
    seen: dict[tuple[str, ...], int] = {}
    near: dict[int, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _parts(header[2])
            table = _below_item(table, seen)
            if header[1] == "[[":
                seen[table] = seen.get(table, -1) + 1
                table = (*table, str(seen[table]))
            found = table
        elif key := _KEY.match(line):
            found = (*table, *_parts(key[1]))
        else:
            continue
        shared = min(len(found), len(wanted))
        if found == wanted:
            return number
        if found[:shared] == wanted[:shared]:
            near.setdefault(shared, number)
    return near[max(near)] if near else None


def _below_item(table: tuple[str, ...], seen: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """Return the table's path with the index of each list item: ``[rewards.options]`` belongs to the last ``[[rewards]]``."""
    path: tuple[str, ...] = ()
    for part in table:
        path = (*path, str(seen[path]), part) if path in seen else (*path, part)
    return path


def _without_none(values: Mapping[str, Any], path: str, spelled: Collection[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in values.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            if value:
                kept[key] = _without_none(value, here, spelled)
        elif isinstance(value, list):
            kept[key] = [
                _without_none(item, f"{here}.{place}", spelled) if isinstance(item, Mapping) else item for place, item in enumerate(value)
            ]
        elif value is not None:
            kept[key] = value
        elif here in spelled:
            kept[key] = "none"
    return kept


def to_toml(config: RunConfig, spelled: Collection[str] = ()) -> str:
    """Return TOML that loads back equal from any folder.

    Paths are absolute. The default of ``run_dir`` is left out, because it is relative to the working directory of each command. TOML has no
    null: settings that are None are left out, or written as "none" if ``spelled`` contains their path (to override a recipe)."""
    plain = relocated(config.plain(), RunConfig, partial(seen_from, str(Path.cwd())))
    if config.run.run_dir == RunSection().run_dir:
        del plain["run"]["run_dir"]
    return tomli_w.dumps(_without_none(plain, "", spelled))
