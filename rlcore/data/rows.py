"""Parse one row of a data set from a decoded object to a ``Prompt``, or give the reason why its shape is not accepted.

This module does not know files or line numbers; the reader of a file adds them to the reason. Of the columns that rewards need, it checks
only ``gt_answer``, which many rewards share and a run shows. The reward checks the content of any other column (``Reward.check``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.contracts.public_members import PublicMembers
from rlcore.contracts.specs import RewardSpec
from rlcore.contracts.types import Message, Prompt
from rlcore.data.json_texts import number_text
from rlcore.data.likely_columns import columns_advice
from rlcore.data.row_sense import unwrapped, why_invalid, why_no_answer, why_no_choices
from rlcore.data.tool_messages import tool_calls_of, tools_of

__all__ = ["ROLES", "BadRow", "Routes", "kind_of", "listed", "parse_row", "readable"]

ROLES = ("system", "user", "assistant", "tool")


class BadRow(Exception, metaclass=PublicMembers):
    """A row that breaks a rule. The text is the reason, without its place."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The rewards of the run that a row may route itself to, and the columns that it then needs."""

    specs: tuple[RewardSpec, ...] = ()

    def find(self, name: str) -> RewardSpec | None:
        """Return the reward with this name or alias, ignoring case."""
        wanted = name.lower()
        return next((spec for spec in self.specs if wanted == spec.name or wanted in spec.aliases), None)

    def judging(self, route: RewardSpec | None) -> tuple[RewardSpec, ...]:
        """Return the rewards that judge a row: the routed reward, or all rewards if the row has no route."""
        return self.specs if route is None else (route,)

    def required(self, route: RewardSpec | None) -> dict[str, str]:
        """Return column -> the reward that needs it."""
        return {column: spec.name for spec in reversed(self.judging(route)) for column in spec.requires}


def readable(value: object) -> Mapping[Any, Any] | BadRow:
    """Return the value if it is an object, else a BadRow: a file may hold any value in place of a row. A list of turns becomes an object
    with their places as names, as the library ``datasets`` reads it."""
    if isinstance(value, list) and value and all(isinstance(turn, Mapping) and "from" in turn for turn in value):
        return {str(place): turn for place, turn in enumerate(value)}
    return value if isinstance(value, Mapping | BadRow) else _no_object(value)


def _no_object(value: object) -> BadRow:
    return BadRow(f'a row must be an object like {{"messages": …, "gt_answer": "3"}}, not {kind_of(value)}')


def parse_row(row: object, *, index: int, default_id: str, source: str, routes: Routes) -> Prompt:
    """Return a checked prompt. Raises ``BadRow`` with the reason. Absent columns and ``null`` mean the same."""
    if not isinstance(row, Mapping):
        raise _no_object(row)
    if unnamed := [key for key in row if not isinstance(key, str)]:
        raise BadRow(f"column names must be text, {unnamed[0]!r} is {kind_of(unnamed[0])}")
    columns = {key: value for key, value in row.items() if key not in ("messages", "reward") and value is not None}
    tools = _read(tools_of, columns.get("tools"), "")
    route = _route(row.get("reward"), routes)
    messages = _messages(row)
    _check_columns(columns, routes.required(route))
    invalid = why_invalid(columns)
    if "gt_answer" in columns:
        columns["gt_answer"] = _sensible_gold(columns, messages, routes.judging(route), invalid)
    if invalid:
        raise BadRow(invalid)
    return Prompt(
        prompt_id=_prompt_id(columns.get("id"), default_id),
        index=index,
        messages=messages,
        columns=columns,
        reward=None if route is None else route.name,
        source=source,
        tools=tools,
    )


def _messages(row: Mapping[str, Any]) -> tuple[Message, ...]:
    value = row.get("messages")
    if value is None:
        raise BadRow(
            f'the row has no "messages" (it has {listed(row) or "nothing"}); add {{"role": "user", "content": "…"}} or a list of these'
        )
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise BadRow(f'"messages" must be one message or a list of messages, not {kind_of(value)}')
    if not items:
        raise BadRow('"messages" is an empty list; a prompt needs at least one message')
    messages = tuple(_message(item, "" if item is value else f" {number}") for number, item in enumerate(items, start=1))
    if messages[-1].role not in ("user", "tool"):
        raise BadRow(f'the last message has role "{messages[-1].role}"; it must be "user" or "tool", because the model answers it')
    if not messages[-1].content.strip():
        raise BadRow("the last message is empty; the model would have nothing to answer")
    return messages


def _message(item: object, number: str) -> Message:
    if not isinstance(item, Mapping):
        raise BadRow(f'message{number} must be an object with "role" and "content", not {kind_of(item)}')
    calls = _read(tool_calls_of, item.get("tool_calls"), f"message{number}: ")
    for key in ("role", "content"):
        if item.get(key) is None and not (key == "content" and calls):
            raise BadRow(f'message{number} has no "{key}"')
        if not isinstance(item.get(key), str | None):
            raise BadRow(f'message{number}: "{key}" must be text, not {kind_of(item[key])}')
    if item["role"] not in ROLES:
        raise BadRow(f'message{number} has the unknown role "{item["role"]}"; use one of {", ".join(ROLES)}')
    own = _OWN.get(item["role"], ())
    if extra := [key for key, value in item.items() if key not in ("role", "content", *own) and not _is_empty(value)]:
        keep = '", "'.join(("role", "content", *own))
        raise BadRow(f'message{number} has "{extra[0]}", which would not reach the model; keep only "{keep}"')
    told: dict[str, Any] = {key: str(item[key]) for key in ("tool_call_id", "name") if key in own and item.get(key)}
    return Message(role=item["role"], content=item.get("content") or "", tool_calls=calls, **told)


def _is_empty(value: object) -> bool:
    """Return whether a table may have added this value because other messages have the key."""
    return value is None or (isinstance(value, str | list | tuple) and not value)


_OWN = {"assistant": ("tool_calls",), "tool": ("tool_call_id", "name")}
"""The keys that a message of a role may have in addition to role and content."""


def _read(read: Callable[[object], tuple[Mapping[str, Any], ...]], value: object, place: str) -> tuple[Mapping[str, Any], ...]:
    try:
        return read(value)
    except ValueError as error:
        raise BadRow(f"{place}{error}") from None


def _route(value: object, routes: Routes) -> RewardSpec | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadRow(f'"reward" must be the name of a reward, not {kind_of(value)}')
    spec = routes.find(value)
    if spec is None:
        names = ", ".join(spec.name for spec in routes.specs) or "none"
        raise BadRow(f'the row asks for the reward "{value}", but the rewards of this run are: {names}; add it under [[rewards]]')
    return spec


def _prompt_id(value: object, default: str) -> str:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise BadRow(f'"id" must be text or a whole number, not {kind_of(value) if value != "" else "empty"}')
    return str(value)


def _check_columns(columns: Mapping[str, Any], required: Mapping[str, str]) -> None:
    for column, reward in required.items():
        if column not in columns:
            has = listed(columns) or "nothing except its messages"
            named = columns_advice(columns, column) or (f'if another column holds it, name that: [data.columns] {column} = "…"')
            advice = f"; {named}" if columns else ""
            raise BadRow(f'the row has no "{column}", which the reward "{reward}" needs (it has {has}){advice}')
    if "gt_answer" in columns:
        _check_gold(columns["gt_answer"])


def _check_gold(value: object) -> None:
    if not isinstance(value, str):
        raise BadRow(f'"gt_answer" must be text, not {kind_of(value)}; put it in quotes')
    if not value.strip():
        raise BadRow('"gt_answer" is empty; every answer would be wrong')


def _sensible_gold(row: Mapping[str, Any], messages: Sequence[Message], rewards: Sequence[RewardSpec], invalid: str) -> str:
    """Return the gold answer as the rewards of the row compare it. Raises BadRow if it is none.

    :param invalid: why the row says that it is not valid, for the reason."""
    gold: str = row["gt_answer"]
    if any(spec.gold == "text" for spec in rewards):
        return gold
    question = "\n".join(message.content for message in messages)
    if any(spec.gold == "answer" for spec in rewards):
        gold, why = unwrapped(gold)
        if why := why or why_no_choices(gold, question, row):
            raise BadRow(why)
    if why := why_no_answer(gold, question):
        raise BadRow(f"{why} ({invalid})" if invalid else why)
    return gold


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "text"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
    (type(None), "null"),
)


def kind_of(value: object) -> str:
    """Return the kind of a value in JSON terms, with the value if it is short."""
    name = next((name for types, name in _KINDS if isinstance(value, types)), f"a Python {type(value).__name__}")
    return f"{name} ({_short(value)})" if isinstance(value, bool | int | float | str) else name


def _short(value: object, limit: int = 24) -> str:
    text = number_text(value) if isinstance(value, int | float) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def listed(row: Mapping[Any, Any]) -> str:
    """Return the names of its first columns, in quotes."""
    names = [f'"{name}"' for name in row]
    return ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
