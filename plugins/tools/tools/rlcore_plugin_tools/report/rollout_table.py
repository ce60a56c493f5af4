"""Rollouts and answers of evaluations as columns, which the page searches. Each prompt is stored once, and long texts are cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_plugin_tools.chat_turns import ChatTurn, chat_turns
from rlcore_plugin_tools.report.distributions import plain_number
from rlcore_plugin_tools.run_record import as_rollout

__all__ = ["TRAINING", "RolloutTable", "trimmed"]

TRAINING = "training"
"""The source of rollouts; the source of an evaluation's answers is the name of its task."""

_NUMBERS = ("step", "index", "episode", "length", "version", "temperature", "reward", "accuracy", "advantage")
_WORDS = ("kind", "finish", "outcome", "reason", "parsed")
_FLAGS = ("format_ok", "masked")
_MESSAGES = 100
"""The most messages of one conversation in the page."""
_LEAST = 300
"""Characters that a message has at least, before it is cut."""
_TAIL = 0.4
"""The share of a cut text that its end gets, since the answer is there."""


def trimmed(row: Mapping[str, Any], characters: int) -> dict[str, Any]:
    """Return a row with the field names of a rollout and a text of at most ``characters`` characters. ``cut`` gives the place and the
    number of the characters left out."""
    found = as_rollout(row)
    text = _string(found.get("text"))
    found["text"] = text
    if len(text) > characters:
        tail = int(characters * _TAIL)
        head = characters - tail
        found["text"] = text[:head] + text[len(text) - tail :]
        found["cut"] = [_units(text[:head]), len(text) - characters]
    for key in ("parsed", "reason", "gold"):
        found[key] = _string(found.get(key))[:characters]
    found["prompt"] = _messages(found.get("prompt"), characters)
    found["chat"] = _chat(found, characters)
    return found


class RolloutTable:
    """Columns that grow row by row. ``plain()`` returns the data for the page."""

    def __init__(self) -> None:
        self._prompts: list[dict[str, Any]] = []
        self._places: dict[tuple[str, str, str], int] = {}
        self._sources: dict[str, int] = {}
        self._columns: dict[str, list[Any]] = {}
        self._sparse: dict[str, dict[int, Any]] = {"parts": {}, "cut": {}, "turns": {}, "chat": {}, "extra": {}}
        self._count = 0

    def add(self, run: int, source: str, step: int, row: Mapping[str, Any]) -> None:
        """Add one row, which ``trimmed`` made."""
        values: dict[str, Any] = {
            "run": run,
            "source": self._sources.setdefault(source, len(self._sources)),
            "prompt": self._prompt(source, row),
            "text": row["text"],
            **{name: plain_number(row.get(name)) for name in _NUMBERS},
            **{name: _string(row.get(name)) for name in _WORDS},
            **{name: value if isinstance(value := row.get(name), bool) else None for name in _FLAGS},
            "step": step,
        }
        for name, value in values.items():
            self._columns.setdefault(name, []).append(value)
        if isinstance(parts := row.get("parts"), Mapping) and parts:
            self._sparse["parts"][self._count] = {str(name): plain_number(value) for name, value in parts.items()}
        if "cut" in row:
            self._sparse["cut"][self._count] = row["cut"]
        if isinstance(rewards := row.get("turn_rewards"), list) and rewards:
            self._sparse["turns"][self._count] = [plain_number(value) for value in rewards]
        if chat := row.get("chat"):
            self._sparse["chat"][self._count] = chat
        if isinstance(extra := row.get("extra"), Mapping) and extra:
            self._sparse["extra"][self._count] = {str(name): plain_number(value) for name, value in extra.items()}
        self._count += 1

    def plain(self) -> dict[str, Any]:
        """Return ``columns`` with one value per row; ``sparse`` with values of some rows; ``prompts`` and ``sources``, which columns refer
        to by index."""
        return {
            "count": self._count,
            "sources": list(self._sources),
            "prompts": self._prompts,
            "columns": self._columns,
            "sparse": self._sparse,
        }

    def _prompt(self, source: str, row: Mapping[str, Any]) -> int:
        """Return the index of the prompt. The same prompt at two steps, or in two runs, has one index."""
        name, text, gold = _string(row.get("prompt_id")), row["prompt"], row["gold"]
        key = (name, "\0".join(f"{role}\0{content}" for role, content in text), source if not text else "")
        place = self._places.setdefault(key, len(self._prompts))
        if place == len(self._prompts):
            self._prompts.append({"id": name, "messages": text, "gold": gold})
        elif gold and not self._prompts[place]["gold"]:
            self._prompts[place]["gold"] = gold
        return place


def _chat(row: Mapping[str, Any], characters: int) -> list[dict[str, Any]]:
    """Return the messages after the prompt: at most ``_MESSAGES`` of them, with about ``characters`` characters together.

    ``left_out`` counts the messages that are missing at this place, and ``cut`` the characters of a message."""
    turns = chat_turns(row)
    head, tail = turns, turns[:0]
    if left := max(0, len(turns) - _MESSAGES):
        head, tail = turns[: _MESSAGES // 2], turns[-(_MESSAGES // 2) :]
    most = max(_LEAST, characters // max(1, len(head) + len(tail)))
    gap = [{"left_out": left}] if left else []
    return [*(_told(turn, most) for turn in head), *gap, *(_told(turn, most) for turn in tail)]


def _told(turn: ChatTurn, most: int) -> dict[str, Any]:
    pieces, left, room = [], 0, most
    for text, inserted in turn.pieces:
        pieces.append([text[:room], int(inserted)])
        left += max(0, len(text) - room)
        room = max(0, room - len(text))
    numbers = {"tokens": turn.tokens, "branch": turn.branch, "reward": plain_number(turn.reward)}
    numbers["branch_reward"] = plain_number(turn.branch_reward)
    texts = {"name": turn.name[:most], "calls": [[name[:most], arguments[:most]] for name, arguments in turn.calls], "cut": left}
    return {
        "role": turn.role[:most],
        "policy": int(turn.policy),
        "pieces": [piece for piece in pieces if piece[0]],
        **{name: value for name, value in numbers.items() if value is not None},
        **{name: value for name, value in texts.items() if value},
    }


def _messages(prompt: Any, characters: int) -> list[list[str]]:
    """Return ``[{"role": …, "content": …}]``, or a text, as pairs."""
    if isinstance(prompt, str):
        return [["user", prompt[:characters]]]
    if not isinstance(prompt, list):
        return []
    messages = (item for item in prompt if isinstance(item, Mapping))
    return [[_string(item.get("role")), _string(item.get("content"))[:characters]] for item in messages]


def _string(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _units(text: str) -> int:
    """Return the length of the text in JavaScript."""
    return len(text) + sum(character > "\uffff" for character in text)
