"""One rollout as text for a person. Control characters that a model wrote are made escape_control."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlcore.api.commands import escape_control
from rlcore_plugin_tools.chat_turns import ChatTurn, chat_turns
from rlcore_plugin_tools.runs.figures_text import figure, signed
from rlcore_plugin_tools.runs.rollout_rows import plain_text

__all__ = ["rollout_lines"]

_LABEL = 14
_POLICY, _OTHER = "  │ ", "    "
_MOST_LINES = 20
"""Lines of a tool's result that are shown."""
_MOST_CALL = 160
"""Characters of a tool call that are shown."""


def rollout_lines(row: Mapping[str, Any]) -> list[str]:
    """Return lines without control characters, not wrapped."""
    lines = [_title(row), *_conversation(row.get("prompt"))]
    turns = chat_turns(row)
    lines += _chat(turns, _how(row)) if turns else _block(f"answer ({_how(row)})", row.get("text"))
    facts = [("gold", plain_text(row.get("gold"))), ("parsed", plain_text(row.get("parsed"))), ("reward", _reward(row))]
    facts += [
        ("outcome", _outcome(row)),
        ("advantage", _advantage(row)),
        ("turn rewards", plain_text(row.get("turn_rewards") or None)),
        ("extra", _extra(row)),
    ]
    return lines + [f"{label:<{_LABEL}}{escape_control(said)}" for label, said in facts if said]


def _title(row: Mapping[str, Any]) -> str:
    words = [f"step {row.get('step', '–')}", f"prompt {row.get('prompt_id', '–')}", f"completion {row.get('index', 0)}"]
    words += [f"task {row['task']}"] if "task" in row else [f"episode {row['episode']}"] if row.get("episode") else []
    words += [str(row["kind"])] if row.get("kind") not in (None, "sampled") else []
    return escape_control("── " + ", ".join(words))


def _conversation(prompt: object) -> Iterable[str]:
    for message in prompt if isinstance(prompt, list) else []:
        told = message if isinstance(message, Mapping) else {"role": "prompt", "content": message}
        yield from _block(plain_text(told.get("role")) or "prompt", told.get("content"))


def _block(label: str, content: object) -> list[str]:
    text = escape_control(plain_text(content) or "(empty)", lines=True)
    return [escape_control(label), *(f"    {line}" for line in text.split("\n"))]


def _how(row: Mapping[str, Any]) -> str:
    told = [f"{row['length']} tokens"] if row.get("length") is not None else []
    told += [plain_text(row["finish"])] if row.get("finish") else []
    told += [f"version {row['version']}"] if row.get("version") is not None else []
    told += [f"temperature {figure(row['temperature'])}"] if isinstance(row.get("temperature"), int | float) else []
    return ", ".join(told)


def _reward(row: Mapping[str, Any]) -> str:
    parts = row.get("parts")
    words = [_number(row.get("reward"))]
    if isinstance(parts, Mapping) and parts:
        words.append(f"= {', '.join(f'{name} {_number(value)}' for name, value in parts.items())}")
    for name, label in (("accuracy", "accuracy"), ("format_ok", "format")):
        if row.get(name) is not None:
            words.append(f"  {label} {'right' if row[name] is True else 'wrong' if row[name] is False else _number(row[name])}")
    return " ".join(words)


def _outcome(row: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (plain_text(row.get("outcome")), plain_text(row.get("reason")))))


def _advantage(row: Mapping[str, Any]) -> str:
    if "advantage" not in row:
        return ""
    value = row["advantage"]
    said = signed(value) if isinstance(value, int | float) else plain_text(value) or "–"
    return f"{said} (its group was filtered out)" if row.get("masked") else said


def _extra(row: Mapping[str, Any]) -> str:
    extra = row.get("extra")
    if not isinstance(extra, Mapping):
        return ""
    fractions = {name: isinstance(value, float) and not value.is_integer() for name, value in extra.items()}
    return ", ".join(
        f"{name} {figure(value) if fractions[name] else plain_text(value).removesuffix('.0')}" for name, value in extra.items()
    )


def _chat(turns: Sequence[ChatTurn], how: str) -> Iterable[str]:
    """Yield the messages after the prompt. Lines that train begin with a bar; tool calls have one line each."""
    yield escape_control(f"conversation ({how}); the policy wrote the lines with a bar, and they train")
    branches, branch = max((turn.branch or 0 for turn in turns), default=0), None
    for turn in turns:
        if turn.branch != branch:
            branch = turn.branch
            yield f"─ branch {branch} of {branches}" + ("" if turn.branch_reward is None else f", reward {_number(turn.branch_reward)}")
        told = [f"{turn.tokens} token{'s' * (turn.tokens != 1)}"] if turn.tokens is not None else []
        told += [f"reward {_number(turn.reward)}"] if turn.reward is not None else []
        told += ["does not train"] if turn.role == "assistant" and not turn.policy else []
        yield escape_control(" ".join(filter(None, (turn.role or "message", turn.name, f"({', '.join(told)})" if told else ""))))
        for text, inserted in turn.pieces or (("", False),) * (not turn.calls):
            edge = _POLICY if turn.policy and not inserted else _OTHER
            lines = escape_control(text or "(empty)", lines=True).split("\n")
            most = _MOST_LINES if turn.role == "tool" or inserted else len(lines)
            yield from (f"{edge}{line}" for line in lines[:most])
            if more := len(lines) - most if len(lines) > most else 0:
                yield f"{edge}… {more} more lines; --json has them"
        for name, arguments in turn.calls:
            call = escape_control(f"→ {name} {arguments}")
            yield (_POLICY if turn.policy else _OTHER) + (call if len(call) <= _MOST_CALL else call[:_MOST_CALL] + " …")


def _number(value: object) -> str:
    return figure(float(value)) if isinstance(value, int | float) else plain_text(value) or "–"
