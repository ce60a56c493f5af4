"""The JSON lines between the gateway and the programs that play episodes.

To a program: ``{"episode", "row", "base_url", "key", "model", "deadline"}`` begins an episode, ``{"cancel": episode}`` ends it early. With
``"players"``, the first line has ``{"base_url", "key", "model"}`` of each player by its name.

From it, one line for each episode: ``{"episode", "outcome", "reward", "turn_rewards", "branch_rewards", "player_rewards", "calls",
"sampled", "extra", "reason"}``. All but "episode" may be missing.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LONGEST_LINE", "BadLineError", "EpisodeEnd", "as_line", "parsed"]

LONGEST_LINE = 64 << 20
"""The longest line of a program, in bytes."""
_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEnd:
    """How an episode ended.

    ``outcome``: "ok"; "timeout"; "crashed", the agent's fault; "environment", the fault of the environment or of the grader; "lost", its
        process died; "exhausted", a budget of the policy was used up.
    ``reason``: why it is not "ok".
    ``turn_rewards``: the reward of a call, by its id. ``branch_rewards``: of a branch, by the id of its last call. ``player_rewards``: of
        a player.
    ``calls``: the ids of the calls that train, None for those of the main conversation.
    ``sampled``: the token ids of the policy's answers in the environment's own record, None if it has none.
    """

    outcome: str = "ok"
    reason: str = ""
    reward: float | None = None
    turn_rewards: Mapping[str, float] = field(default_factory=dict)
    branch_rewards: Mapping[str, float] = field(default_factory=dict)
    player_rewards: Mapping[str, float] = field(default_factory=dict)
    calls: tuple[str, ...] | None = None
    sampled: Sequence[Sequence[int]] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class BadLineError(ValueError):
    """A program wrote something that is not the end of an episode. ``episode`` is the one that it names, "" if it names none."""

    def __init__(self, text: str, episode: str = "") -> None:
        super().__init__(text)
        self.episode = episode


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -sys.float_info.max <= value <= sys.float_info.max


def _is_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_answers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, list) and all(type(token) is int for token in one) for one in value)


_OUTCOMES = ("ok", "timeout", "crashed", "environment")
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "episode": (lambda value: isinstance(value, str), "a text"),
    "outcome": (lambda value: value in _OUTCOMES, f"one of {', '.join(_OUTCOMES)}"),
    "reward": (lambda value: value is None or _is_number(value), "a finite number or null"),
    "turn_rewards": (_is_numbers, "an object of finite numbers by call id"),
    "branch_rewards": (_is_numbers, "an object of finite numbers by call id"),
    "player_rewards": (_is_numbers, "an object of finite numbers by player"),
    "calls": (lambda value: value is None or _is_texts(value), "a list of call ids or null"),
    "sampled": (lambda value: value is None or _is_answers(value), "a list with the token ids of each answer, or null"),
    "extra": (lambda value: isinstance(value, dict), "an object"),
    "reason": (lambda value: isinstance(value, str), "a text"),
}


def as_line(value: Mapping[str, Any]) -> bytes:
    """Return a line of JSON. Raises TypeError or ValueError if JSON cannot represent the value."""
    return json.dumps(value, allow_nan=False).encode() + b"\n"


def parsed(line: bytes) -> tuple[str, EpisodeEnd]:
    """Return the id and the end of an episode. Raises BadLineError, with one sentence, if the line is wrong."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLineError(
            f"the environment wrote a line that is not JSON ({error}): {_shown(line)}; standard output is only for answers, "
            "print everything else to standard error"
        ) from None
    if not isinstance(said, dict) or "episode" not in said:
        raise BadLineError(f'the environment wrote a line that is not an object with "episode": {_shown(line)}')
    episode = said["episode"] if isinstance(said["episode"], str) else ""
    if unknown := sorted(said.keys() - _RULES):
        raise BadLineError(f'the answer of the environment has an unknown field "{unknown[0]}"; it may have {", ".join(_RULES)}', episode)
    for name, (valid, words) in _RULES.items():
        if name in said and not valid(said[name]):
            raise BadLineError(f'"{name}" in the answer of the environment is {_shown(repr(said[name]))}; it must be {words}', episode)
    values = {name: value for name, value in said.items() if name != "episode"}
    try:
        pickle.dumps(values)  # as the channel to the producer will
    except RecursionError:
        raise BadLineError('"extra" in the answer of the environment is nested too deeply', episode) from None
    if values.get("calls") is not None:
        values["calls"] = tuple(values["calls"])
    return episode, EpisodeEnd(**values)


def _shown(said: bytes | str) -> str:
    text = said.decode(errors="replace").strip() if isinstance(said, bytes) else said
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
