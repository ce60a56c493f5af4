"""Rows of a data set of reasoning-gym, generated when they are read: ``gym:NAME?size=500&seed=0&OPTION=VALUE``."""

from __future__ import annotations

import importlib
import json
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from hashlib import sha256
from io import StringIO
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl

from rlcore.api import DataError
from rlcore.api.data import RowSource

__all__ = ["GymRows", "digest", "gym", "gym_dataset", "gym_entry"]

_PREFIX = "gym:"
_DEFAULTS = {"size": 500, "seed": 0}
_BY_HASH = ("isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder")
"""Data sets of reasoning-gym 0.1.25 that draw from sets of texts, whose order differs between processes."""


class GymRows(RowSource):
    """The data source. A row has the question as its message and, if there is only one answer, ``gt_answer``. Under ``reasoning_gym`` it
    has the place of the entry, since the entry's metadata need not be plain data, and a digest, since the reward makes it again in another
    process. The seed is 0 unless the path has another, so that a run can be repeated."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        name, settings = _parsed(path)
        dataset = gym_dataset(name, settings, path)
        _check_order(name, settings, path)
        for index in range(len(dataset)):
            entry = gym_entry(dataset, index)
            known = {} if entry["answer"] is None else {"gt_answer": str(entry["answer"])}
            place = {"dataset": name, "settings": dict(settings), "index": index, "digest": digest(entry)}
            yield index + 1, {"messages": [{"role": "user", "content": str(entry["question"])}], "reasoning_gym": place} | known


def _parsed(path: str) -> tuple[str, dict[str, Any]]:
    name, _, query = path.removeprefix(_PREFIX).partition("?")
    if not name:
        raise DataError(f"{path}: name a data set of reasoning-gym, for example gym:leg_counting?size=500&seed=0")
    return name, _DEFAULTS | {key: _value(text) for key, text in parse_qsl(query, keep_blank_values=True)}


def _check_order(name: str, settings: Mapping[str, Any], typed: str) -> None:
    """Raise DataError if another process would make other entries."""
    parts = settings.get("datasets")
    names = [name, *(parts if isinstance(parts, Mapping) else ())]
    if (found := [one for one in names if one in _BY_HASH]) and os.environ.get("PYTHONHASHSEED", "random") in ("", "random"):
        raise DataError(
            f"{typed}: the entries of {' and '.join(found)} differ from process to process; type PYTHONHASHSEED=0 before the command"
        )


def gym_entry(dataset: Any, index: int) -> dict[str, Any]:
    """Return an entry. Some data sets, such as list_functions, draw from the global generator: it is seeded, and then as it was before.
    Others print dots while they search; these must not get into the output of a command."""
    state = random.getstate()
    random.seed(index)
    try:
        with redirect_stdout(StringIO()):
            entry: dict[str, Any] = dataset[index]
    finally:
        random.setstate(state)
    return entry


def digest(entry: Mapping[str, Any]) -> str:
    """Return a text that differs if the question or the answer does."""
    return sha256(f"{entry['question']}\0{entry['answer']}".encode()).hexdigest()[:16]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def gym() -> ModuleType:
    """Return the package; DataError, with what to type, if it is not installed."""
    try:
        return importlib.import_module("reasoning_gym")
    except ModuleNotFoundError as error:
        if error.name != "reasoning_gym":
            raise
        raise DataError("the package reasoning-gym is not installed here; type: pip install reasoning-gym") from error


def gym_dataset(name: str, settings: dict[str, Any], typed: str = "") -> Any:
    """Return the data set, which generates its entries by index. DataError, with what was ``typed``, if reasoning-gym has no such data set
    or refuses the settings. ``composite`` takes the weights of its parts: ``datasets={"leg_counting": 2, "gcd": 1}``."""
    package = gym()
    if name == "composite" and isinstance(parts := settings.get("datasets"), Mapping):
        part = importlib.import_module("reasoning_gym.composite").DatasetSpec
        settings = settings | {"datasets": [part(name=one, weight=weight, config={}) for one, weight in parts.items()]}
    try:
        return package.create_dataset(name, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError(f"{typed or _PREFIX + name}: reasoning-gym refuses it: {error}") from error
