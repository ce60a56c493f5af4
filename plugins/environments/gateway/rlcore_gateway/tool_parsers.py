"""Parsers of tool calls in an answer, by the names of the formats in which models write them.

A parser receives the text of an answer, with its special tokens and without its reasoning, and the names of the known tools. It returns the
rest of the text and the calls. A malformed call stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from rlcore.api import ConfigError

__all__ = ["PARSERS", "ParsedCall", "guessed_parser", "parser_named"]

ParsedCall = tuple[str, Mapping[str, Any]]
"""The name of the tool and its arguments."""
Parser = Callable[[str, Collection[str]], tuple[str, list[ParsedCall]]]

_HERMES = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_PYTHON_TAG = "<|python_tag|>"
_TOOL_CALLS = "[TOOL_CALLS]"
_NAMED_CALL = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{)")
_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)


def hermes(text: str, names: Collection[str]) -> tuple[str, list[ParsedCall]]:
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, any number of times (Hermes, Qwen)."""
    calls: list[ParsedCall] = []

    def taken(found: re.Match[str]) -> str:
        call = _whole_call(found[1])
        calls.extend([call] if call else [])
        return "" if call else found[0]

    rest = _HERMES.sub(taken, text)
    return (rest.strip(), calls) if calls else (text, [])


def llama(text: str, names: Collection[str]) -> tuple[str, list[ParsedCall]]:
    """``{"name": ..., "parameters": {...}}``, several with ``;`` between them, after ``<|python_tag|>`` or alone (Llama 3)."""
    before, mark, after = text.partition(_PYTHON_TAG)
    calls = _sequence(after if mark else text)
    if not calls or (not mark and not all(name in names for name, _ in calls)):
        return text, []
    return before.strip() if mark else "", calls


def mistral(text: str, names: Collection[str]) -> tuple[str, list[ParsedCall]]:
    """``[TOOL_CALLS] [{"name": ..., "arguments": {...}}]``, or ``[TOOL_CALLS]name[ARGS]{...}`` for each call (Mistral)."""
    before, *parts = text.split(_TOOL_CALLS)
    calls: list[ParsedCall] = []
    for part in parts:
        found = _listed(part) if part.lstrip().startswith("[") else _named(part)
        if not found:
            return text, []
        calls += found
    return (before.strip(), calls) if calls else (text, [])


def plain_json(text: str, names: Collection[str]) -> tuple[str, list[ParsedCall]]:
    """The whole answer is the JSON text of a call, or of a list of calls, of known tools. It may stand between code fences."""
    fenced = _FENCE.match(text)
    body = fenced[1] if fenced else text
    one = _whole_call(body)
    calls = [one] if one else _listed(body)
    return ("", calls) if calls and all(name in names for name, _ in calls) else (text, [])


PARSERS: Mapping[str, Parser] = {"hermes": hermes, "qwen": hermes, "llama": llama, "mistral": mistral, "json": plain_json}


def guessed_parser(template: str) -> str:
    """Return the name of the format that a chat template writes."""
    marks = {"<tool_call>": "hermes", _TOOL_CALLS: "mistral", _PYTHON_TAG: "llama"}
    return next((name for mark, name in marks.items() if mark in template), "json")


def parser_named(name: str, template: str) -> Parser:
    """Return a parser. "auto": the one that fits the template. Raises ConfigError for an unknown name."""
    chosen = guessed_parser(template) if name == "auto" else name
    if chosen not in PARSERS:
        raise ConfigError(f"tool_parser {name!r} is unknown; choose auto, {', '.join(PARSERS)}")
    return PARSERS[chosen]


def _call(value: Any) -> ParsedCall | None:
    if not isinstance(value, Mapping) or not isinstance(name := value.get("name"), str) or not name:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _json(arguments)
    return (name, arguments) if isinstance(arguments, Mapping) and _is_sendable((name, arguments)) else None


def _is_sendable(value: Any) -> bool:
    """Return whether a client can receive and send back a value without a change: numbers are finite, and texts are valid Unicode."""
    try:
        return bool(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, RecursionError):
        return False


def _whole_call(text: str) -> ParsedCall | None:
    return _call(_json(text))


def _listed(text: str) -> list[ParsedCall]:
    values = _json(text)
    calls = [_call(value) for value in values] if isinstance(values, list) else []
    found = [call for call in calls if call]
    return found if len(found) == len(calls) else []


def _named(text: str) -> list[ParsedCall]:
    found = _NAMED_CALL.match(text)
    call = _call({"name": found[1], "arguments": _json(text[found.end() :])}) if found else None
    return [call] if call else []


def _sequence(text: str) -> list[ParsedCall]:
    """Return calls with ``;`` between them; [] if there is anything else."""
    calls = [_call(value) for value in _values(text)]
    found = [call for call in calls if call]
    return found if len(found) == len(calls) else []


def _values(text: str) -> Iterator[Any]:
    decoder, place = json.JSONDecoder(), 0
    while place < len(text):
        begin = re.compile(r"[\s;]*").match(text, place)
        place = begin.end() if begin else place
        if place == len(text):
            return
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            value, place = None, len(text)
        yield value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
