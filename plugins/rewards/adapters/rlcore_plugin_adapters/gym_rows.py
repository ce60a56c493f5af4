"""Rows of a data set of reasoning-gym, generated when they are read: ``gym:NAME?size=500&seed=0&OPTION=VALUE``."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl

from rlcore.api import DataError
from rlcore.api.data import RowSource

__all__ = ["GymRows", "gym", "gym_dataset"]

_PREFIX = "gym:"
_DEFAULTS = {"size": 500, "seed": 0}


class GymRows(RowSource):
    """The data source. A row has the question as its message and, if there is only one answer, ``gt_answer``. Under ``reasoning_gym`` it
    has the place of the entry, since the entry's metadata need not be plain data. The seed is 0 unless the path has another, so that a run
    can be repeated."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        name, settings = _parsed(path)
        dataset = gym_dataset(name, settings, path)
        for index in range(len(dataset)):
            entry = dataset[index]
            known = {} if entry["answer"] is None else {"gt_answer": str(entry["answer"])}
            place = {"dataset": name, "settings": dict(settings), "index": index}
            yield index + 1, {"messages": [{"role": "user", "content": str(entry["question"])}], "reasoning_gym": place} | known


def _parsed(path: str) -> tuple[str, dict[str, Any]]:
    name, _, query = path.removeprefix(_PREFIX).partition("?")
    if not name:
        raise DataError(f"{path}: name a data set of reasoning-gym, for example gym:leg_counting?size=500&seed=0")
    return name, _DEFAULTS | {key: _value(text) for key, text in parse_qsl(query, keep_blank_values=True)}


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
    or refuses the settings."""
    package = gym()
    try:
        return package.create_dataset(name, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError(f"{typed or _PREFIX + name}: reasoning-gym refuses it: {error}") from error
