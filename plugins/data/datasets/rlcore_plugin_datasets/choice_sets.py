"""Rows of questions with a list of choices: MMLU-Pro, MMLU, SuperGPQA, ARC, AQuA-RAT.

Sources: the cards of TIGER-Lab/MMLU-Pro, cais/mmlu, m-a-p/SuperGPQA, allenai/ai2_arc and deepmind/aqua_rat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from rlcore.api.data import BadRow, RowFormat
from rlcore_plugin_datasets.row_parts import is_text, kept, row_of

__all__ = ["ChoiceRows"]

_LISTS = ("options", "choices")
_ANSWERS = ("answer_index", "answer_letter", "answerKey", "correct", "answer")
"""Columns of the answer. The first that is not empty counts; ``answer`` is last, because it may hold the text of a choice."""
_LABEL = re.compile(r"\(?([A-Z])[).:]\s*")
_ASKED = "Answer with the letter of the right choice."


class ChoiceRows(RowFormat):
    """``question``, ``options`` or ``choices``, and the right one: its letter, its number from 0, or its text. The prompt lists the choices
    with letters, and the gold answer is a letter."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        answered = any(row.get(name) is not None for name in _ANSWERS)
        return is_text(row.get("question")) and len(_choices(row)) > 1 and answered and "prompt" not in row

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat. A question that already contains its choices gets no second list."""
        choices, question = _choices(row), row.get("question")
        if not isinstance(question, str) or not question.strip():
            raise BadRow('"question" must be text')
        if not 2 <= len(choices) <= len(ascii_uppercase):
            raise BadRow('"options" or "choices" must be a list of 2 to 26 texts')
        letter = ascii_uppercase[_right(row, choices)]
        listed = "\n".join(f"{label}. {choice}" for label, choice in zip(ascii_uppercase, choices, strict=False))
        prompt = question.strip() if _contains(question, choices) else f"{question.strip()}\n\n{listed}\n\n{_ASKED}"
        return row_of([{"role": "user", "content": prompt}], letter, kept(row, "question"))


def _choices(row: Mapping[str, Any]) -> list[str]:
    """Return the texts of the choices, without letters before them; an empty list if there are none."""
    found = next((row[name] for name in _LISTS if row.get(name)), None)
    texts = found.get("text") if isinstance(found, Mapping) else found
    if not isinstance(texts, list | tuple) or not all(is_text(text) for text in texts):
        return []
    labels = [match[1] if (match := _LABEL.match(text)) else "" for text in texts]
    labelled = labels == list(ascii_uppercase[: len(texts)])
    return [(_LABEL.sub("", text, count=1) if labelled else text).strip() for text in texts]


def _labels(row: Mapping[str, Any], count: int) -> list[str]:
    """Return the label of each choice: as the row says it, else a letter."""
    found = next((row[name] for name in _LISTS if row.get(name)), None)
    told = found.get("label") if isinstance(found, Mapping) else None
    if isinstance(told, list | tuple) and len(told) == count:
        return [str(label) for label in told]
    return list(ascii_uppercase[:count])


def _right(row: Mapping[str, Any], choices: Sequence[str]) -> int:
    """Return the number of the right choice."""
    name = next((name for name in _ANSWERS if row.get(name) not in (None, "")), "answer")
    said = row.get(name)
    places = _places(said, choices, _labels(row, len(choices)))
    if len(places) != 1:
        why = "is none of the choices" if not places else "may be more than one of the choices"
        raise BadRow(f'"{name}" is {str(said)[:40]!r}, which {why}')
    return places.pop()


def _places(said: object, choices: Sequence[str], labels: Sequence[str]) -> set[int]:
    """Return the numbers of the choices that an answer may mean."""
    if isinstance(said, int) and not isinstance(said, bool):
        return {said} if 0 <= said < len(choices) else set()
    text = str(said).strip()
    return {place for place in range(len(choices)) if text in (labels[place], choices[place])}


def _contains(question: str, choices: Sequence[str]) -> bool:
    """Return whether the question lists all choices, each after its letter."""
    listed = (rf"(?:^|[\s(]){letter}[).:]\s*{re.escape(choice)}" for letter, choice in zip(ascii_uppercase, choices, strict=False))
    return all(re.search(pattern, question) for pattern in listed)
