"""The messages after the prompt in a logged rollout, as the terminal and the report show them. A file may hold anything, so every field is
checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["ChatTurn", "chat_turns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn:
    """One message.

    ``policy``: the policy wrote it, so it trains.
    ``pieces``: its text in parts, each with True if it was inserted into the policy's message.
    ``calls``: name and arguments (JSON) of each tool call.
    ``branch``: the number of its segment from 1, None if the rollout has one segment. A message that is not the policy's belongs to the
        segment of the policy's next message.
    ``tokens``, ``reward``, ``branch_reward``: None if the log does not have them.
    """

    role: str
    name: str
    policy: bool
    pieces: tuple[tuple[str, bool], ...]
    calls: tuple[tuple[str, str], ...]
    tokens: int | None
    branch: int | None
    reward: float | None
    branch_reward: float | None = None


def chat_turns(row: Mapping[str, Any]) -> list[ChatTurn]:
    """Return the messages of a row; [] if it has none, as a single answer."""
    turns = row.get("turns")
    told = [turn for turn in turns if isinstance(turn, Mapping)] if isinstance(turns, list) else []
    rewards = row.get("turn_rewards")
    given = iter(rewards if isinstance(rewards, list) and len(rewards) == sum(turn.get("policy") is True for turn in told) else [])
    made = [_turn(turn, next(given, None) if turn.get("policy") is True else None) for turn in told]
    branch = next((turn.branch for turn in reversed(made) if turn.branch is not None), None)
    for place in reversed(range(len(made))):
        branch = made[place].branch or branch
        made[place] = replace(made[place], branch=branch, branch_reward=_branch_reward(row.get("branches"), branch or 1))
    return made


def _branch_reward(branches: object, number: int) -> float | None:
    """Return the reward of a segment, from ``branches``: pairs of a number of segments and their reward."""
    for pair in branches if isinstance(branches, list) else []:
        if not (isinstance(pair, list) and len(pair) == 2 and _whole(pair[0]) and isinstance(pair[1], int | float)):
            return None
        number -= pair[0]
        if number <= 0:
            return float(pair[1])
    return None


def _turn(turn: Mapping[str, Any], reward: object) -> ChatTurn:
    calls, segment = turn.get("tool_calls"), _whole(turn.get("segment"))
    return ChatTurn(
        role=_text(turn.get("role")),
        name=_text(turn.get("name")),
        policy=turn.get("policy") is True,
        pieces=_pieces(_text(turn.get("content")), turn.get("inserted")),
        calls=tuple(_call(call) for call in calls if isinstance(call, Mapping)) if isinstance(calls, list) else (),
        tokens=_whole(turn.get("tokens")),
        branch=None if segment is None else segment + 1,
        reward=float(reward) if isinstance(reward, int | float) else None,
    )


def _pieces(content: str, spans: object) -> tuple[tuple[str, bool], ...]:
    pieces, end = [], 0
    for span in spans if isinstance(spans, list) else []:
        if isinstance(span, list) and len(span) == 2 and all(isinstance(place, int) for place in span) and end <= span[0] <= span[1]:
            pieces += [(content[end : span[0]], False), (content[span[0] : span[1]], True)]
            end = span[1]
    return tuple(piece for piece in [*pieces, (content[end:], False)] if piece[0])


def _call(call: Mapping[str, Any]) -> tuple[str, str]:
    function = call.get("function")
    told = function if isinstance(function, Mapping) else call
    return _text(told.get("name")) or "?", _text(told.get("arguments"))


def _text(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
