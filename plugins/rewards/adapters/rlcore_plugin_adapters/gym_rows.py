"""Rows of a data set of reasoning-gym: ``gym:NAME?size=500&seed=0&OPTION=VALUE``, or without end ``gym-endless:NAME?seed=0&levels=10``."""

from __future__ import annotations

import importlib
import json
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import fields
from functools import lru_cache
from hashlib import sha256
from io import StringIO
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl

from rlcore.api import DataError
from rlcore.api.data import RowGenerator, RowSource

__all__ = ["EndlessGym", "GymRows", "digest", "gym", "gym_dataset", "gym_entry"]

_PREFIX = "gym:"
_ENDLESS = "gym-endless:"
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
            yield index + 1, _row(gym_entry(dataset, index), {"dataset": name, "settings": dict(settings), "index": index})


class EndlessGym(RowGenerator):
    """The data source without end. ``levels=N`` in the path takes the first N levels of the data set's curriculum, all parts of it at the
    same level; without it, every row has the settings of the path.

    After ``size`` rows, another data set begins, because some cannot make more. Its seed is higher by ``size``. Most data sets draw an
    entry by the sum of seed and index, so their rows continue as if there were one."""

    def row(self, path: str, number: int, level: int) -> object:
        name, settings, levels = _asked(path)
        made = settings | {"seed": settings["seed"] + number // settings["size"] * settings["size"]}
        dataset = _opened(path, json.dumps(made), level if levels > 1 else None)
        place = {"dataset": name, "settings": made, "index": number % settings["size"]} | ({"level": level} if levels > 1 else {})
        return _row(gym_entry(dataset, place["index"]), place)

    def levels(self, path: str) -> int:
        _, settings, levels = _asked(path)
        for level in range(levels):  # the curricula of some data sets have levels that they refuse
            _opened(path, json.dumps(settings), level if levels > 1 else None)
        return levels


@lru_cache(maxsize=64)
def _opened(path: str, settings: str, level: int | None) -> Any:
    return gym_dataset(_asked(path)[0], json.loads(settings), path, level)


def _asked(path: str) -> tuple[str, dict[str, Any], int]:
    """Return the name, the settings and the number of levels."""
    name, settings = _parsed(path, _ENDLESS)
    levels = settings.pop("levels", 1)
    _check_order(name, settings, path)
    for key, value, least in (("levels", levels, 1), ("size", settings["size"], 1), ("seed", settings["seed"], 0)):
        if not isinstance(value, int) or value < least:
            raise DataError(f"{path}: {key} is {value!r}, it must be a whole number from {least} on")
    if levels > 1 and (known := gym_levels(name)) < levels:
        has = f"has {known}" if known else "has no curriculum"
        raise DataError(f"{path}: the path asks for {levels} levels, and the data set {has}" + (f"; type levels={known}" if known else ""))
    return name, settings, levels


def _row(entry: Mapping[str, Any], place: dict[str, Any]) -> dict[str, Any]:
    answer = entry["answer"]
    known = {"gt_answer": str(answer)} if answer is not None and str(answer).strip() else {}
    asked = {"messages": [{"role": "user", "content": str(entry["question"])}]}
    return {**asked, "reasoning_gym": place | {"digest": digest(entry)}, **known}


def _parsed(path: str, prefix: str = _PREFIX) -> tuple[str, dict[str, Any]]:
    name, _, query = path.removeprefix(prefix).partition("?")
    if not name:
        raise DataError(f"{path}: name a data set of reasoning-gym, for example {prefix}leg_counting?seed=0")
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


def gym_levels(name: str) -> int:
    """Return the number of levels of a data set's curriculum, 0 if it has none."""
    gym()
    factory = importlib.import_module("reasoning_gym.factory")
    if not factory.has_curriculum(name):
        return 0
    return max((len(part.levels) for part in factory.create_curriculum(name).attributes.values()), default=0)


def _at_level(name: str, settings: Mapping[str, Any], level: int) -> dict[str, Any]:
    """Return the settings at a level of the curriculum. Those that the curriculum does not set are as given."""
    curriculum = importlib.import_module("reasoning_gym.factory").create_curriculum(name)
    curriculum.set_global_level(level)
    made = curriculum.generate_configuration(dict(settings))
    return {field.name: getattr(made, field.name) for field in fields(made)}


def gym_dataset(name: str, settings: dict[str, Any], typed: str = "", level: int | None = None) -> Any:
    """Return the data set, which generates its entries by index. DataError, with what was ``typed``, if reasoning-gym has no such data set
    or refuses the settings. ``composite`` takes the weights of its parts: ``datasets={"leg_counting": 2, "gcd": 1}``.

    :param level: of the data set's curriculum; None: as the settings say."""
    package = gym()
    if name == "composite" and isinstance(parts := settings.get("datasets"), Mapping):
        part = importlib.import_module("reasoning_gym.composite").DatasetSpec
        settings = settings | {"datasets": [part(name=one, weight=weight, config={}) for one, weight in parts.items()]}
    try:
        return package.create_dataset(name, **(settings if level is None else _at_level(name, settings, level)))
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError(f"{typed or _PREFIX + name}: reasoning-gym refuses it: {error}") from error
