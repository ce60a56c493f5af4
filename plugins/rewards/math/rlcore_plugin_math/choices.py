r"""Multiple choice: the letter of an option, with or without the option's content, and sentences that give only the letter.

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
    r"(?:(?:so|thus|hence|therefore),? )?(?:the )?(?:(?:final|correct|right|best) )*(?:answer|option|choice)(?: (?:choice|option))?"
    r"(?: is| ?[:=])*:? ?(?:(?:option|choice) )?",
    re.IGNORECASE,
)
_ANOTHER = re.compile(
    r"\([A-J]\)|(?<![A-Za-z(])[A-J]\)|(?:,|;|\b(?:or|and|no|not|so|but|actually|rather)\b,?)\s*[A-J](?![A-Za-z])[^A-Za-z0-9]*$",
    re.IGNORECASE,
)
_LONGEST = 400
_MAY_NAME = re.compile(r"[A-J](?![A-Za-z])|^[^A-Za-z0-9]{0,3}[A-Za-z][^A-Za-z0-9]{0,3}$|\\text")
_GOES_ON = re.compile(
    r"[^A-Za-z0-9]*$|(?i:no|not|wrong|incorrect)[^A-Za-z]*$|[A-J] (?i:is)\b|(?i:it|this|that) (?i:is|was) (?i:wrong|incorrect|not)\b"
    r"|(?i:or|and|nor|not|is|isnt|isn't|was|but|with)\b|[,;&/*^=<>_|]|\\(?:le|ge|ne|in|cdot|times|cup|cap|to)\b|[-+] "
)


@dataclass(frozen=True, slots=True)
class Choice:
    """``content`` of the option if it is given; ``marked``: more than the bare letter, which may be a variable."""

    letter: str
    content: str
    marked: bool


def choice(text: str) -> Choice | None:
    """Return the only option that a normalised text names; None if it names none or two, or takes one back (``B or C``, ``(B) is
    wrong``)."""
    if not _MAY_NAME.search(text):
        return None
    said = " ".join(_TEXT.sub(r" \1 ", text).split())
    if not said or len(said) > _LONGEST:
        return None
    rest = said[sentence.end() :] if (sentence := _SAID.match(said)) else said
    if letter := _LETTER.fullmatch(rest):
        return Choice(letter[1] or letter[2], "", marked=")" in said or "\\text" in text or rest != said)
    marked = _MARKED.fullmatch(rest)
    if marked is None or _GOES_ON.match(marked[4]) or _ANOTHER.search(marked[4]):
        return None
    return Choice(marked[1] or marked[2] or marked[3], marked[4].strip(), marked=True)
