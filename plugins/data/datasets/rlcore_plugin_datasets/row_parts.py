"""Parts that several formats read from a row: a prompt, a gold answer, the last box of a solution, the columns that stay. BadRow if one is
missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlcore.api.data import BadRow, number_text

__all__ = ["answer_of", "boxed_in", "holds_tests", "is_chat", "is_text", "kept", "messages_of", "object_in", "row_of"]

_TESTS = frozenset({"inputs", "outputs", "fn_name", "functional", "assert_case", "input_output", "test_cases", "tests", "testtype"})
"""Keys of a ground truth that consists of tests of a program."""
_BOXES = ("\\boxed{", "\\fbox{")


def is_text(value: object) -> bool:
    """Return whether the value is text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_chat(value: object) -> bool:
    """Return whether the value is a list of messages, as chat templates take it."""
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) and "role" in item for item in value)


def messages_of(row: Mapping[str, Any], column: str) -> list[dict[str, str]]:
    """Return the prompt in a column: a text of the user, or messages, of which role and content are kept."""
    return _messages(row.get(column), column)


def _messages(value: object, name: str) -> list[dict[str, str]]:
    if isinstance(value, str) and value.strip():
        return [{"role": "user", "content": value}]
    value = [value] if isinstance(value, Mapping) else value  # a CSV file gives its prompt as one message
    if not isinstance(value, list | tuple) or not is_chat(value):
        raise BadRow(f'"{name}" must be text, or a list of messages with "role" and "content"')
    return [{"role": str(message["role"]), "content": _content(message.get("content"), name)} for message in value]


def _content(value: object, name: str) -> str:
    """Return the text of one message, which may come in parts."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, Sequence) else ()
    texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") in ("text", "input_text")]
    if not texts or len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise BadRow(f'a message of "{name}" has a content that is not text; rlcore trains only on text')
    return "".join(str(text) for text in texts)


def answer_of(value: object, column: str) -> str:
    """Return a gold answer as text. Numbers become text; a list of one gives its element."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRow(f'"{column}" has no answer to compare with: it must be text or a number')
    text = value.strip() if isinstance(value, str) else number_text(value)
    if not text:
        raise BadRow(f'"{column}" is empty, so there is no answer to compare with')
    return text


def object_in(row: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    """Return a column that is an object, or JSON of one in a text."""
    value = row.get(column)
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_int=str)  # a gold answer is text, and may have more digits than Python converts
        except (ValueError, RecursionError):
            raise BadRow(f'"{column}" is text that is not JSON') from None
    if not isinstance(value, Mapping):
        raise BadRow(f'"{column}" must be an object, or JSON of one')
    return value


def holds_tests(truth: object) -> bool:
    """Return whether a ground truth consists of tests of a program."""
    if isinstance(truth, str) and truth.lstrip().startswith(("{", "[")):
        try:
            truth = json.loads(truth, parse_int=str)
        except (ValueError, RecursionError):
            return False
    first = truth[0] if isinstance(truth, list | tuple) and truth else truth
    return isinstance(first, Mapping) and (not _TESTS.isdisjoint(first) or {"input", "output"} <= set(first))


def boxed_in(text: str) -> str:
    """Return the content of the last box of a text, with balanced braces; "" if it has none."""
    start = max(text.rfind(box) + len(box) if box in text else -1 for box in _BOXES)
    depth, place = 1, start
    while 0 < start <= place < len(text):
        character = text[place]
        if character == "\\":
            place += 2  # an escaped brace is a character, not a brace
            continue
        depth += (character == "{") - (character == "}")
        if not depth:
            return text[start:place].strip()
        place += 1
    return ""


def kept(row: Mapping[str, Any], *dropped: str) -> dict[str, Any]:
    """Return the other columns, for rewards that read them. Left out are null, an ``id`` that is not text or a whole number, and
    ``reward``, which names a reward in rlcore."""
    out = {"messages", "reward", *dropped} | (set() if isinstance(row.get("id"), str | int) else {"id"})
    return {name: value for name, value in row.items() if value is not None and name not in out}


def row_of(messages: list[dict[str, str]], answer: str, others: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of rlcore."""
    return {**others, "messages": messages, "gt_answer": answer}
