"""From the text of a flag to a value: by the setting's type where the text reads so, else left as text for pydantic to refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from rlcore.config.settings import alternatives, bare

__all__ = ["arity", "from_text"]

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def arity(annotation: Any) -> str | int:
    """How many words a flag takes: ``"bool"`` (none, or true/false), ``"many"``, 2 for a pair, else 1."""
    for part in alternatives(annotation):
        inner = bare(part)
        origin, parts = get_origin(inner), get_args(inner)
        if inner is bool:
            return "bool"
        if origin is tuple and len(parts) == 2 and parts[1] is not Ellipsis:
            return 2
        if origin in (tuple, list, set, frozenset):
            return "many"
    return 1


def from_text(words: Sequence[str], annotation: Any) -> Any:
    """The value that the words of one flag mean. "none" is None where the setting may be none."""
    options = [bare(part) for part in alternatives(annotation)]
    if type(None) in options and list(words) == ["none"]:
        return None
    for option in options:
        origin, parts = get_origin(option), get_args(option)
        if origin in (tuple, list, set, frozenset) and not (len(words) == 1 and str in options):
            items = [parts[0]] * len(words) if parts else [str] * len(words)
            return [from_text([word], item) for word, item in zip(words, items, strict=True)]
    if len(words) != 1:
        return list(words)
    return _scalar(words[0], options)


def _scalar(word: str, options: Sequence[Any]) -> Any:
    for option in options:
        if get_origin(option) is Literal:
            match = next((value for value in get_args(option) if str(value) == word), None)
            if match is not None:
                return match
        if option is bool and word.lower() in _TRUE + _FALSE:
            return word.lower() in _TRUE
        if option in (int, float):
            number = _number(word, option)
            if number is not None:
                return number
        if (get_origin(option) or option) is dict or (isinstance(option, type) and issubclass(option, BaseModel)):
            return _json(word)
    return word


def _number(word: str, kind: type[int] | type[float]) -> int | float | None:
    try:
        return kind(word)
    except ValueError:
        return None


def _json(word: str) -> Any:
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        return word
