"""Parse the tools of a row, the calls in an assistant's message, and the result of a tool. A ValueError has the reason, without a place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["tool_calls_of", "tools_of"]


def tools_of(value: object) -> tuple[Mapping[str, Any], ...]:
    """Return the schemas of tools, from a list of objects with a name, or from its JSON text. None means that there are none."""
    return tuple(_named(item, "a tool") for item in _items(value, "tools"))


def tool_calls_of(value: object) -> tuple[Mapping[str, Any], ...]:
    """Return an assistant's calls in the form that chat templates read. Arguments that are the JSON text of an object become that object.

    A call may also be written without ``function``: ``{"name": …, "arguments": {…}}``."""
    return tuple(_call(_named(item, "a tool call")) for item in _items(value, "tool_calls"))


def _items(value: object, name: str) -> Sequence[Any]:
    decoded = _decoded(value) if isinstance(value, str) else value
    if decoded is None or (isinstance(value, str) and not value.strip()):
        return ()
    if not isinstance(decoded, Sequence) or isinstance(decoded, str | bytes):
        raise ValueError(f'"{name}" must be a list of objects, or its JSON text')
    return decoded


def _named(item: object, what: str) -> Mapping[str, Any]:
    """Return the item without nulls. Raises ValueError if it has no name."""
    plain = _without_nulls(item)
    inner = plain.get("function", plain) if isinstance(plain, Mapping) else None
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if not isinstance(plain, Mapping) or not isinstance(name, str) or not name:
        raise ValueError(f'{what} must be an object with "function": {{"name": …}}')
    return plain


def _call(item: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = item.get("function", item)
    arguments = inner.get("arguments", {})
    decoded = _decoded(arguments) if isinstance(arguments, str) else arguments
    function = {"name": inner["name"], "arguments": decoded if isinstance(decoded, Mapping) else arguments}
    named = {"id": item["id"]} if isinstance(item.get("id"), str) else {}
    return {**named, "type": "function", "function": function}


def _without_nulls(value: Any) -> Any:
    """Return a value without the empty fields that tables add to objects of different shapes."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def _decoded(text: str) -> object:
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError):
        return text
