"""The marks of an answer that a prompt asks for, against those that a reward reads.

A prompt that asks for ``Answer:`` under a reward that reads only boxes makes every answer malformed, and nothing else says so.

>>> sorted(asked_marks('Output the final answer after "####".'))
['hashes']
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.contracts.specs import RewardSpec
from rlcore.contracts.types import Prompt

__all__ = ["AnswerReader", "asked_marks", "mark_remarks"]

_MARKS: dict[str, tuple[str, re.Pattern[str], re.Pattern[str]]] = {
    "boxed": (r"\boxed{}", re.compile(r"\\?\bboxed\s*\{|\\f?box(?:ed)?\b"), re.compile("box")),
    "hashes": (
        "####",
        re.compile(r"(?:answer|result|solution|number|output)[^\n]{0,80}####(?!#)|(?<!#)####\s*(?:[<\[{($]+\s*\w|-?\d)", re.IGNORECASE),
        re.compile("####"),
    ),
    "answer_line": (
        "Answer:",
        re.compile(
            r"\b(?:form|format|lines?|after|with|write|end|ends|begin|begins|starts?|like|as|put|give|state|prints?|output|respond|conclude"
            r"|finish|using|say|use)\b[^\n]{0,60}?(?<![A-Za-z])(?:final\s+)?answers?[*_]{0,3}\s?:",
            re.IGNORECASE,
        ),
        re.compile(r"nswers?[*_]{0,3}\s?:", re.IGNORECASE),
    ),
    "answer_tags": ("<answer>", re.compile("<answer>"), re.compile("<answer>")),
}
"""Mark in the words of the rewards' options -> how a person sees it, the pattern that shows that a prompt asks for it, and a pattern
without which that one, which is slow, is not tried."""


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """A reward of the run that declares the marks at which it looks for an answer.

    ``reads``: those that its options name. ``option``: the place of that option. ``prompted``: the run asks for them in a system prompt
    that it takes from the reward."""

    name: str
    reads: frozenset[str]
    option: str
    prompted: bool

    @classmethod
    def of(cls, spec: RewardSpec, options: Any, system_prompt: str | None) -> AnswerReader | None:
        """Return the reader of a reward with these options, None if its spec declares none or it reads answers without a mark."""
        value = options
        for part in spec.answer_marks.split(".") if spec.answer_marks else ():
            value = getattr(value, part, None)
        if not spec.answer_marks or not isinstance(value, list | tuple) or not set(value) <= set(_MARKS):
            return None
        return cls(spec.name, frozenset(value), spec.answer_marks, bool(spec.system_prompt) and system_prompt is None)

    def typed(self, marks: Sequence[str]) -> str:
        """Return what the user types so that the reward reads these marks: ``--rewards.boxed.extract '{"by": ["hashes"]}'``."""
        first, *inner = self.option.split(".")
        value: Any = list(marks)
        for part in reversed(inner):
            value = {part: value}
        return f"--rewards.{self.name}.{first} '{json.dumps(value)}'" + (' -s ""' if self.prompted else "")


def asked_marks(text: str) -> frozenset[str]:
    """Return the marks that a prompt asks for."""
    return frozenset(mark for mark, (_, pattern, sign) in _MARKS.items() if sign.search(text) and pattern.search(text))


def mark_remarks(name: str, prompts: Sequence[Prompt], readers: Sequence[AnswerReader]) -> Iterator[str]:
    """Yield a remark for each reward whose answers the prompts of the data set ``name`` ask for in another way than it reads.

    Prompts count as the data has them, without the system prompt of the run."""
    if not readers:
        return
    asked = [(prompt.reward, asked_marks("\n".join(message.content for message in prompt.messages))) for prompt in prompts]
    for reader in readers:
        own = [marks for reward, marks in asked if reward in (None, reader.name)]
        unread = [marks for marks in own if marks and not marks & reader.reads]
        counts = Counter(mark for marks in unread for mark in marks)
        if counts:
            yield _remark(name, sorted(counts.items(), key=lambda item: (-item[1], item[0])), len(own), reader)


def _remark(name: str, counts: Sequence[tuple[str, int]], total: int, reader: AnswerReader) -> str:
    reads = " or ".join(_MARKS[known][0] for known in sorted(reader.reads))
    (first, count), *others = counts
    asked = f"with {_MARKS[first][0]}" + "".join(f", {number} with {_MARKS[mark][0]}" for mark, number in others)
    return (
        f"{name}: {count} of {total} prompts ask for an answer {asked}, and the reward {reader.name} reads only {reads}, so such answers "
        f"are malformed; to read what the prompts ask for, type {reader.typed([mark for mark, _ in counts])}"
    )
