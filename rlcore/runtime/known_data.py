"""Facts about large data sets that earlier runs found, in the user's cache: the lengths of prompts, and that every row can be scored.

The name of a fact is the hash of everything that it depends on, so that a changed row, template, option, plugin or library asks again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np

from rlcore.config import Plan
from rlcore.contracts.interfaces import Tokenizer
from rlcore.contracts.specs import PluginKind
from rlcore.data import DataSet
from rlcore.host.user_cache import cached_bytes, keep_bytes

__all__ = ["MANY_ROWS", "check_name", "is_good", "keep_good", "keep_lengths", "known_lengths", "lengths_name"]

MANY_ROWS = 20_000
"""Smaller data sets are checked in seconds, and leave nothing in the cache."""
_NEWEST = 100
_GOOD = b"every row can be scored\n"


def lengths_name(plan: Plan, data: DataSet, tokenizer: Tokenizer) -> str:
    """Return the name of the lengths of the prompts; "" if they are not kept."""
    if len(data) < MANY_ROWS:
        return ""
    asked = [plan.config.data.system_prompt, [[spec.name, spec.system_prompt] for spec in plan.reward_specs()]]
    return _name(["lengths", data.fingerprint, tokenizer.fingerprint(), getattr(tokenizer, "rows", None), asked])


def known_lengths(name: str, count: int) -> list[int] | None:
    """Return the tokens of each of ``count`` prompts, or None if they are not known."""
    content = cached_bytes(name) if name else None
    return np.frombuffer(content, dtype="<i4").tolist() if content is not None and len(content) == 4 * count else None


def keep_lengths(name: str, lengths: Iterable[int]) -> None:
    """Keep the tokens of each prompt."""
    if name:
        keep_bytes(name, np.asarray(list(lengths), dtype="<i4").tobytes(), newest=_NEWEST)


def check_name(plan: Plan, data: DataSet) -> str:
    """Return the name of the fact that the rewards can score every row; "" if it is not kept, because the check of a reward may depend on
    more than its row, its options and its plugin."""
    specs = plan.reward_specs()
    if len(data) < MANY_ROWS or not all(spec.pure_check for spec in specs):
        return ""
    rewards = [
        [
            repr(plan.registry.attest(PluginKind.REWARD, reward.name)),
            options.model_dump(mode="json") if options is not None else None,
            _files(spec.target.partition(":")[0]),
        ]
        for reward, options, spec in zip(plan.config.rewards, plan.reward_options, specs, strict=True)
    ]
    return _name(["checks", data.fingerprint, rewards])


def is_good(name: str) -> bool:
    """Return whether it is known that the rewards can score every row."""
    return bool(name) and cached_bytes(name) == _GOOD


def keep_good(name: str) -> None:
    """Keep the fact that the rewards can score every row."""
    if name:
        keep_bytes(name, _GOOD, newest=_NEWEST)


def _name(facts: list[Any]) -> str:
    installed = list(importlib.metadata.distributions())
    libraries = sorted(f"{found.name} {found.version}" for found in installed)
    edited = [_stamps(folder) for folder in sorted(filter(None, map(_editable, installed)))]
    return f"data/{hashlib.sha256(json.dumps([facts, libraries, edited], sort_keys=True).encode()).hexdigest()}"


def _editable(distribution: importlib.metadata.Distribution) -> str:
    """Return the folder of a distribution that is installed in editable form, whose author edits it without a new version; else ""."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        return unquote(urlparse(origin["url"]).path) if origin.get("dir_info", {}).get("editable") else ""
    except (OSError, ValueError, LookupError, AttributeError):  # damaged: it says nothing
        return ""


def _files(module: str) -> list[list[str | int]]:
    """Return the stamps of a package, which may be edited where it is installed."""
    found = importlib.util.find_spec(module.partition(".")[0])
    return [stamp for folder in (found.submodule_search_locations or () if found is not None else ()) for stamp in _stamps(folder)]


def _stamps(folder: str) -> list[list[str | int]]:
    """Return the name, the time and the size of each Python file below the folder, without environments and hidden folders."""
    stamps: list[list[str | int]] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__")) and not Path(place, name, "pyvenv.cfg").exists()]
        for name in files:
            with suppress(OSError):  # a link to nowhere, or a file that an editor has just removed
                if name.endswith(".py"):
                    status = (file := Path(place, name)).stat()
                    stamps.append([str(file), status.st_mtime_ns, status.st_size])
    return sorted(stamps)
