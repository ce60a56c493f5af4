r"""Multiple choice: the letter of an option, with the option's content or without, and sentences that say no more than the letter.

>>> choice(r"\text{(E)} 7")
Choice(letter='E', content='7', marked=True)
>>> choice("The answer is B").letter
'B'
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Choice", "choice"]

_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_LETTER = re.compile(r"([A-Za-z])[.)]?|\(([A-Za-z])\)[.]?")
_MARKED = re.compile(r"(?:\(([A-J])\)(?= )|([A-J])\)|([A-J])[.:](?= )) ?(\S.*)", re.DOTALL)
_SAID = re.compile(
    r"(?:(?i:so|thus|hence|therefore),? )?(?i:the )?(?:(?i:final|correct|right|best) )*(?i:answer|option|choice)(?: (?i:choice|option))?"
    r"(?: (?i:is)| ?[:=])*:? ?(?:(?i:option|choice) )?\(?([A-J])\)?[.)]?(?: ?(?:(?<=\)|\.|:) )?(.*))?",
    re.DOTALL,
)
_ANOTHER = re.compile(r"\([A-J]\)|(?<![A-Za-z(])[A-J]\)|(?:,|;|\b(?:or|and|no|not|so|but|actually|rather))\s*[A-J]\.?$", re.IGNORECASE)
_GOES_ON = re.compile(r"(?i:or|and|nor|not|is|isnt|isn't|was|but|with)\b|[,;&/*^=<>_|]|\\(?:le|ge|ne|in|cdot|times|cup|cap|to)\b|[-+] ")


@dataclass(frozen=True, slots=True)
class Choice:
    """``content`` of the option where it is told; ``marked``: more than the bare letter, which may be a variable."""

    letter: str
    content: str
    marked: bool


def choice(text: str) -> Choice | None:
    """The one option that a normalised text names; None where it names none, two, or takes it back (``B or C``, ``(B) is wrong``)."""
    said = " ".join(_TEXT.sub(r" \1 ", text).split())
    if letter := _LETTER.fullmatch(said):
        return Choice(letter[1] or letter[2], "", marked=")" in said or "\\text" in text)
    if marked := _MARKED.fullmatch(said):
        content = marked[4].strip()
        if _GOES_ON.match(content) or _ANOTHER.search(content):
            return None
        return Choice(marked[1] or marked[2] or marked[3], content, marked=True)
    sentence = _SAID.fullmatch(said)
    if sentence is None or (sentence[2] or "").strip():
        return None
    return Choice(sentence[1], "", marked=True)
