r"""Finds the answer in a model's text, in the formats of data sets. It does not know which answer is right.

A reward that reads text puts ``Extraction`` into its options and judges the result of ``find``. It makes one pass over any text: no pattern
here can be made to backtrack, and a user's pattern has a time limit.

>>> Extraction().find(r"<think>\boxed{1}</think> so \boxed{\frac{1}{2}}").answer
'\\frac{1}{2}'
>>> Extraction(by=("hashes", "last_number")).find("I count 3.").answer
'3'
"""

from __future__ import annotations

import json
import re
import signal
import string
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rlcore_plugin_extraction.choice_letters import answered, bracketed, last_line, stated, taken_back

__all__ = ["Extraction", "ExtractionWay", "Found", "after_thinking", "last_answer", "last_boxed"]

ExtractionWay = Literal["boxed", "answer_tags", "hashes", "answer_line", "last_number", "letter", "pattern", "json", "text"]

_PATTERN_CHARS = 10_000
_JSON_CHARS = 100_000
_JSON_TRIES = 200
_JSON_DEPTH = 200
_BOX = re.compile(r"\\\\?(?:boxed|fbox|framebox(?:\s*\[[^\[\]{}]{0,20}\]){0,2})\s*\{|\\.|[{}]", re.DOTALL)
_NUMBER = re.compile(
    r"(?:(?<![\w.,)\]}])[-+−])?(?<![\w.])(?:\d{1,3}(?:,\d{3})+(?![\d,]*\d)|\d+)?(?:\.\d+|(?<=\d))"
    r"(?:[eE][-+]?\d+)?(?:/\d+)?(?:\\?%)?"
)
_LINE = re.compile(r"(?<![A-Za-z])answers?[*_]{0,3}\s{0,3}:", re.IGNORECASE)
_HASHES = re.compile(r"(?<!#)####(?!#)")
_MARKS = " \t*_`"


@dataclass(frozen=True, slots=True)
class Found:
    """``answer``: the span to judge, without surrounding white space; None if there is none, and ``reason`` says which rule the text
    broke."""

    answer: str | None
    reason: str = ""


class Extraction(BaseModel):
    """How an answer is marked. For the options of a reward: ``extract: Extraction = Field(default=Extraction(by=("boxed",)))``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: tuple[ExtractionWay, ...] = Field(
        default=("boxed",), min_length=1, description="ways of marking an answer, tried in this order; a single one needs no list"
    )
    think: Literal["auto", "required", "ignore"] = Field(
        default="auto",
        description="auto: only text after the last </think> counts; none if the reasoning never ends, all if there is none; "
        "required: only after </think>; ignore: the whole text",
    )
    think_open: str = Field(default="<think>", min_length=1, description="mark that begins the reasoning")
    think_close: str = Field(default="</think>", min_length=1, description="mark that ends it")
    pattern: str = Field(
        default="", description="regular expression of by = 'pattern': the last match counts; its group `answer`, else its first group"
    )
    pattern_seconds: float = Field(default=0.5, gt=0, le=10, description="seconds for it on one text; a text that needs more has no answer")
    field: str = Field(default="answer", min_length=1, description="for by = 'json': the field; a dot enters an object")
    letters: str = Field(default="ABCDEFGHIJ", min_length=2, description="for by = 'letter': the available choices")

    @field_validator("by", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("letters")
    @classmethod
    def _capitals(cls, value: str) -> str:
        if set(value) - set(string.ascii_uppercase) or len(set(value)) < len(value):
            raise ValueError(f"letters {value!r} must be different capital letters")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(set(self.by)) < len(self.by):
            raise ValueError(f"by names a way twice: {', '.join(self.by)}")
        if ("pattern" in self.by) != bool(self.pattern):
            raise ValueError("pattern and by = 'pattern' belong together: set both or neither")
        try:
            groups = re.compile(self.pattern).groupindex
        except re.error as error:
            raise ValueError(f"pattern {self.pattern!r} is not a regular expression: {error}") from error
        if groups and "answer" not in groups:
            raise ValueError(f"pattern {self.pattern!r} names the groups {', '.join(groups)}; the one that counts must be called `answer`")
        return self

    def find(self, text: str) -> Found:
        """Return the answer that the text marks, by the first of the ways that finds one."""
        if self.think != "ignore":
            spoken = after_thinking(text, opens=self.think_open, closes=self.think_close)
            if spoken is None:
                return Found(None, f"the reasoning never ends: no {self.think_close} after the last {self.think_open}")
            if self.think == "required" and self.think_close not in text:
                return Found(None, f"there is no {self.think_close}")
            text = spoken
        reasons = []
        for way in self.by:
            found = _WAYS[way](text, self)
            if found.answer is not None:
                return Found(found.answer.strip())
            reasons.append(found.reason)
        return Found(None, "; ".join(reasons))


def after_thinking(text: str, *, opens: str = "<think>", closes: str = "</think>") -> str | None:
    """Return the text after the last ``closes``, which ends the reasoning, or the whole text if it contains neither mark. None if the
    reasoning is opened again and never ends."""
    end = text.rfind(closes)
    if text.rfind(opens) > end:
        return None
    return text if end < 0 else text[end + len(closes) :]


def last_boxed(text: str) -> str | None:
    r"""Return the content of the ``\boxed{…}`` (or ``\fbox{…}``) that closes last, with balanced braces; None if there is none. Of nested
    boxes, the outer one counts."""
    open_braces: list[int] = []
    last: tuple[int, int] | None = None
    for token in _BOX.finditer(text):
        word = token.group()
        if word == "{":
            open_braces.append(-1)
        elif word.endswith("{") and "box" in word:
            open_braces.append(token.end())
        elif word == "}" and open_braces:
            start = open_braces.pop()
            if start >= 0:
                last = (start, token.start())
    return text[last[0] : last[1]] if last else None


def last_answer(text: str) -> str | None:
    """Return the content of the last ``<answer>…</answer>``; None if there is none."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    return text[start + len("<answer>") : end] if start >= 0 else None


# --- the ways ----------------------------------------------------------------------------------------------------------


def _boxed(text: str, _: Extraction) -> Found:
    return Found(last_boxed(text), "no \\boxed{} with balanced braces")


def _answer_tags(text: str, _: Extraction) -> Found:
    return Found(last_answer(text), "no <answer>…</answer>")


def _hashes(text: str, _: Extraction) -> Found:
    last = _last(_HASHES, text)
    line = text[last.end() :].partition("\n")[0].strip() if last else ""
    return Found(line or None, "no #### followed by an answer")


def _answer_line(text: str, _: Extraction) -> Found:
    return Found(_stated(_LINE, text), "no line `Answer: …`")


def _stated(mark: re.Pattern[str], text: str) -> str | None:
    """Return the text after the last ``mark``: the rest of its line, or the next line with content if that is empty."""
    last = _last(mark, text)
    lines = text[last.end() :].lstrip(_MARKS + "\r\n").partition("\n")[0] if last else ""
    return lines.strip(_MARKS + "\r") or None


def _last_number(text: str, _: Extraction) -> Found:
    last = _last(_NUMBER, text)
    return Found(last.group() if last else None, "no number")


def _text(text: str, _: Extraction) -> Found:
    return Found(text)


def _letter(text: str, how: Extraction) -> Found:
    """Find the letter in a box, in a statement (``the answer is B``), in a last line that is a letter or says ``it is B``, or in the only
    ``(B)``."""
    boxed, (statement, later) = last_boxed(text), stated(text) or ("", "")
    if len(only := text.strip(" .\n")) == 1 and only in how.letters:
        return Found(only)
    found = answered(boxed, how.letters, statement=True) if boxed else None
    if found is None:
        spans = {answered(last_line(text), how.letters), answered(statement, how.letters, statement=True) if statement else None}
        said = spans - {None}
        found = (said.pop() if len(said) == 1 else "") if said else None
        if statement and taken_back(later, how.letters):
            found = ""
    if found is not None:
        return Found(found or None, "several letters are given as answers")
    marked = bracketed(text, how.letters)
    return Found(marked.pop() if len(marked) == 1 else None, "no letter of a choice, or several letters")


def _pattern(text: str, how: Extraction) -> Found:
    compiled = re.compile(how.pattern)
    try:
        with _alarm(how.pattern_seconds):
            last = _last(compiled, text[-_PATTERN_CHARS:])
    except _PatternTime:
        return Found(None, f"limit: the pattern took more than {how.pattern_seconds:g} s on this text")
    if last is None:
        return Found(None, f"the pattern {how.pattern} does not match")
    group: str | None = last["answer"] if "answer" in compiled.groupindex else last[min(1, compiled.groups)]
    return Found(group, "the group of the pattern matched nothing")


def _json(text: str, how: Extraction) -> Found:
    """Return the last object of the text that has the field; objects inside others are not searched."""
    answer: str | None = None
    for found in _objects(text[-_JSON_CHARS:]):
        value: Any = found
        for part in how.field.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            try:
                answer = value if isinstance(value, str) else _spelled(value)
            except RecursionError:
                return Found(None, f"limit: the field {how.field} is nested too deeply")
    return Found(answer, f"no JSON object with the field {how.field}")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(parse_float=_Digits, parse_int=_Digits)
    place, tries = text.find("{"), 0
    while place >= 0 and tries < _JSON_TRIES:
        try:
            found, end = decoder.raw_decode(text, place)
            yield found
        except (ValueError, RecursionError):
            tries, end = tries + 1, place + 1
        place = text.find("{", end)


def _spelled(value: Any, depth: int = 0) -> str:
    """Return a value as JSON spells it, with its numbers as the text had them. RecursionError if it is nested deeper than _JSON_DEPTH."""
    if depth > _JSON_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        parts = (f"{json.dumps(name, ensure_ascii=False)}: {_spelled(part, depth + 1)}" for name, part in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_spelled(part, depth + 1) for part in value) + "]"
    return str(value) if isinstance(value, _Digits) else json.dumps(value, ensure_ascii=False)


class _Digits(str):
    """A number of a JSON text as it is spelled: 0.10 stays 0.10, and 5000 digits cost nothing."""


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for last in pattern.finditer(text):  # noqa: B007  # the last match counts
        pass
    return last


_WAYS: dict[str, Callable[[str, Extraction], Found]] = {
    "boxed": _boxed,
    "answer_tags": _answer_tags,
    "hashes": _hashes,
    "answer_line": _answer_line,
    "last_number": _last_number,
    "letter": _letter,
    "pattern": _pattern,
    "json": _json,
    "text": _text,
}
assert set(_WAYS) == set(get_args(ExtractionWay))


# --- the limit of a pattern --------------------------------------------------------------------------------------------


class _PatternTime(BaseException):
    """The time limit was reached. It is not an Exception, so that no code in between takes it for its own error."""


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise in the block after ``seconds``: the matcher checks for signals while it backtracks. An alarm that the caller set is kept.

    Outside the main thread no signal arrives; the deadline of the reward ends the matcher there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _PatternTime

    handler = signal.signal(signal.SIGALRM, ring)
    started = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - started), 1e-6), interval)
