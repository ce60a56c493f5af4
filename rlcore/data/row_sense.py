r"""Decide whether a row that can be read makes sense: whether it says that it is valid, and whether its gold answer is an answer.

Published data sets mark an absent answer with a word ("notfound", "NaN"), or put a JSON list into the text of an answer (``["5"]``).

>>> unwrapped('["5"]'), unwrapped("[1, 2]")
(('5', ''), ('[1, 2]', ''))
>>> why_no_answer("notfound", "What is 2 + 3?")
'"gt_answer" is "notfound", which stands for an answer that is absent'
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["is_object_text", "unwrapped", "why_invalid", "why_no_answer", "why_no_choices"]

_VALIDITY = re.compile(r"(?:\w+_)?is_valid")
_YES = frozenset({"yes", "y", "true", "t", "valid", "correct", "ok", "1"})
_SAYS_NOTHING = frozenset({"", "none", "null", "nan", "n/a", "na", "unknown", "unverified", "not verified", "not checked", "?"})

_NEVER_AN_ANSWER = frozenset(
    {
        *("notfound", "not found", "not_found", "not-found", "answer not found", "no answer", "no answer found", "not available"),
        *("see solution", "see the solution", "see solutions", "see explanation", "see above", "see below", "see proof"),
        *("proof", "see the proof", "<na>", "#n/a"),
    }
)
"""Words that no question offers as an answer. "no solution" and "undefined" are answers, and so is "Na"."""
_PERHAPS_AN_ANSWER = frozenset({"none", "nan", "null", "n/a", "n.a", "not applicable"})
"""Words that stand for an absent answer, unless the question offers them."""
_AROUND = " \t\r\n.$*`\"'"
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|boxed)\s*\{([^{}]*)\}")
_OFFER = (
    r"(?:(?:^|[\s(])[A-Za-z0-9]{1,2}[).:\]]|(?:^|\n)\s*[-*•]|[\"'`“‘(|]|,"
    r"|\b(?:answer|write|say|state|return|returns|print|prints|output|outputs|respond|reply|type|or|put|give|enter|is)\b)"
)
"""The text before a word that a question offers: the label of a choice, a quotation mark, a comma, or a verb that asks for it."""
_OF_A_PROGRAM = frozenset({"None", "null", "NaN", "nan"})
_PROGRAM = re.compile(r"`[^`]*`[^`]*\b(?:prints?|returns?|outputs?|evaluates?)\b|\b(?:prints?|returns?|outputs?|value of)\b[^`]*`[^`]+`")
"""A question about what a piece of a program gives, which may be one of these words."""
_QUOTED_PROOF = re.compile(r"[\"'`“‘]proof[\"'`”’]", re.IGNORECASE)
_ONE_QUOTED = re.compile(r'\[\s*"([^"]*)"\s*\]')
_CONTROL = re.compile(r"[\x00-\x1f]")
_OBJECT = re.compile(r"""\[?\s*\{\s*(?:"\w[^"]*"|'\w[^']*')\s*:""")
_CHOICES = ("options", "choices")
_LABEL = re.compile(r"^\(?[A-Z][).:]\s*")
_LETTER = re.compile(r"\(?([A-Z])[).]?")


def why_invalid(row: Mapping[Any, Any]) -> str:
    """Return why a row says that it is not valid; "" if it does not.

    A column ``is_valid`` or ``…_is_valid`` says so with false, 0, or a text other than "Yes" ("No", "Incomplete", "Problem not solved").
    """
    for name, value in row.items():
        if isinstance(name, str) and _VALIDITY.fullmatch(name) and _denies(value):
            shown = json.dumps(value, ensure_ascii=False)
            return f'the row says that it is not valid: "{name}" is {shown if len(shown) <= 40 else shown[:39] + "…"}'
    return ""


def _denies(value: object) -> bool:
    if isinstance(value, bool | int | float):
        return value == 0
    said = value.strip().lower() if isinstance(value, str) else ""
    return said not in _YES and said not in _SAYS_NOTHING and said != "1.0"


def why_no_answer(gold: str, question: str) -> str:
    """Return why a gold answer is none: it is a word that stands for an absent one; "" if it is an answer.

    :param question: the prompt. ``None``, ``NaN``, ``null`` and ``N/A`` are answers if it offers them, as one of its choices does."""
    bare = _bare(gold)
    word = " ".join(bare.lower().split())
    if word in _PERHAPS_AN_ANSWER and _offers(question, bare):
        return ""
    if word == "proof" and _QUOTED_PROOF.search(question):
        return ""
    if word not in _NEVER_AN_ANSWER and word not in _PERHAPS_AN_ANSWER:
        return ""
    return f'"gt_answer" is "{gold.strip()}", which stands for an answer that is absent'


def _bare(gold: str) -> str:
    r"""Return an answer without ``$``, ``\text{}``, quotes and a full stop around it."""
    if len(gold) > 80:
        return gold
    text = gold.strip(_AROUND)
    inner = _TEXT.fullmatch(text)
    return inner[1].strip(_AROUND) if inner else text


def _offers(question: str, word: str) -> bool:
    """Return whether a question offers a word, spelled like this, as an answer."""
    lone = rf"(?:^|\n)\s*{re.escape(word)}\s*(?:\n|$)"
    return bool(re.search(rf"(?i:{_OFFER})\s*[\"'`“‘*]*(?:\\\\text\{{)?{re.escape(word)}(?!\w)|{lone}", question)) or (
        word in _OF_A_PROGRAM and bool(_PROGRAM.search(question))
    )


def unwrapped(gold: str) -> tuple[str, str]:
    r"""Return the answer in a text that is a JSON list of one text (``["5"]``), else the text itself; and why there is none, or "".

    Only quoted elements make a list of answers: ``[1, 2]`` and ``[5]`` are answers themselves, an interval or a list of numbers. If
    backslashes of LaTeX were not escaped (``["\frac{1}{2}"]``), the text between the quotation marks counts."""
    text = gold.strip()
    if is_object_text(text):
        return gold, f'"gt_answer" is an object in a text ({_short(text)}), not an answer that this reward can compare with'
    if not (text.startswith("[") and text.endswith("]")):
        return gold, ""
    raw = _ONE_QUOTED.fullmatch(text)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return (raw[1].strip(), "") if raw and raw[1].strip() else (gold, "")
    if found == [] or found == [None] or (isinstance(found, list) and len(found) == 1 and found[0] == ""):
        return gold, f'"gt_answer" is {text}, a list without an answer'
    if not any(isinstance(item, str) for item in found):
        return gold, ""
    if len(found) > 1:
        return (
            gold,
            f'"gt_answer" is a JSON list of {len(found)} answers ({_short(text)}), and this reward compares with one; keep one of them',
        )
    only = str(found[0])
    return (raw[1] if raw and _CONTROL.search(only) else only).strip(), ""


def is_object_text(text: str) -> bool:
    """Return whether a text is an object of JSON or of Python, or a list of objects: tests, or conditions that an answer must meet."""
    bare = text.strip()
    return bare.endswith(("}", "]")) and bool(_OBJECT.match(bare))


def why_no_choices(gold: str, question: str, row: Mapping[Any, Any]) -> str:
    """Return why a gold answer that is a letter means nothing: its choices are in a column and not in the prompt; "" if it may."""
    name = next((name for name in _CHOICES if row.get(name)), "")
    texts = row[name] if name else ()
    texts = texts.get("text") if isinstance(texts, Mapping) else texts
    if not isinstance(texts, list | tuple) or len(texts) < 2 or not _LETTER.fullmatch(_bare(gold)):
        return ""
    asked = " ".join(question.split())
    shown = sum(_LABEL.sub("", " ".join(str(text).split())) in asked for text in texts)
    if 2 * shown >= len(texts):  # a short choice may be in any question
        return ""
    missing = f'"gt_answer" is the letter {_bare(gold)}, and the prompt does not contain the choices, which are in "{name}"'
    return f"{missing}; write them into the prompt, or leave out --columns and type --data-format choices"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
