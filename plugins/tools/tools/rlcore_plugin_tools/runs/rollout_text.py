"""One rollout as text for a person. Control characters that a model wrote are made escape_control."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlcore.api.commands import escape_control
from rlcore_plugin_tools.runs.figures_text import figure, signed
from rlcore_plugin_tools.runs.rollout_rows import plain_text

__all__ = ["rollout_lines"]

_LABEL = 14


def rollout_lines(row: Mapping[str, Any]) -> list[str]:
    """Return lines without control characters, not wrapped."""
    lines = [_title(row), *_conversation(row.get("prompt"))]
    lines += _block(f"answer ({_how(row)})", row.get("text"))
    facts = [("gold", plain_text(row.get("gold"))), ("parsed", plain_text(row.get("parsed"))), ("reward", _reward(row))]
    facts += [("outcome", _outcome(row)), ("advantage", _advantage(row)), *_turns(row)]
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


def _turns(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), plain_text(row[name])) for name in ("turns", "turn_rewards") if row.get(name)]


def _number(value: object) -> str:
    return figure(float(value)) if isinstance(value, int | float) else plain_text(value) or "–"
