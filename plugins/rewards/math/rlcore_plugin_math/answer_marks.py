"""The marks of an answer that a prompt asks for, against those that ``boxed`` reads.

A prompt that asks for ``Answer:`` under a reward that reads only boxes makes every answer malformed, and nothing else says so.

>>> sorted(asked_marks('Output the final answer after "####".'))
['hashes']
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlcore.api import Prompt
from rlcore_plugin_math import BOXED
from rlcore_plugin_math.options import BoxedOptions

__all__ = ["asked_marks", "notes"]

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
"""Mark in the words of the option ``extract.by`` -> how a person sees it, the pattern that shows that a prompt asks for it, and a pattern
without which that one, which is slow, is not tried."""


def asked_marks(text: str) -> frozenset[str]:
    """Return the marks that a prompt asks for."""
    return frozenset(mark for mark, (_, pattern, sign) in _MARKS.items() if sign.search(text) and pattern.search(text))


def notes(config: Any, data: Mapping[str, Sequence[Prompt]]) -> Iterator[str]:
    """Yield a note for each data set whose prompts ask for an answer in another way than a reward ``boxed`` of the run reads.

    Prompts count as the data has them, without the system prompt of the run.
    """
    readers = [read for entry in config.rewards if entry.name.lower() == BOXED.name and (read := _reads(entry.options))]
    for name, prompts in data.items() if readers else ():
        own = [prompt for prompt in prompts if prompt.reward in (None, BOXED.name)]
        asked = [asked_marks("\n".join(message.content for message in prompt.messages)) for prompt in own]
        for reads in readers:
            counts = Counter(mark for marks in asked if not marks & reads for mark in marks)
            if counts:
                ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
                yield _note(name, ordered, len(own), reads, prompted=config.data.system_prompt is None)


def _reads(options: Mapping[str, Any]) -> frozenset[str]:
    """Return the marks that a reward with these options reads; none if it reads answers without a mark, too."""
    ways = frozenset(BoxedOptions.model_validate(options).extract.by)
    return ways if ways <= _MARKS.keys() else frozenset()


def _note(name: str, counts: Sequence[tuple[str, int]], total: int, reads: frozenset[str], *, prompted: bool) -> str:
    """:param prompted: the run takes its system prompt, which asks for the box, from the reward."""
    shown = " or ".join(_MARKS[known][0] for known in sorted(reads))
    (first, count), *others = counts
    asked = f"with {_MARKS[first][0]}" + "".join(f", {number} with {_MARKS[mark][0]}" for mark, number in others)
    typed = f"--rewards.boxed.extract '{json.dumps({'by': [mark for mark, _ in counts]})}'" + (' -s ""' if prompted else "")
    return (
        f"{name}: {count} of {total} prompts ask for an answer {asked}, and the reward boxed reads only {shown}, so such answers "
        f"are malformed; to read what the prompts ask for, type {typed}"
    )
