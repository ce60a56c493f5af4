"""The quickstart's second task: answer ``what is 47*36`` with the help of a calculator. It uses no files, models or tokenizers.

A problem is a sum or a product of two numbers of two digits. The chats of the warm start use the calculator if the user says "calculate",
and mostly guess if the user asks "what is": the model has to learn that it should not guess. No problem is in both parts of a split.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlcore_plugin_quickstart.task import Split

__all__ = ["TOOLS", "Calculation", "make_calculations"]

TOOLS: Sequence[dict[str, Any]] = ({"type": "function", "function": {"name": "calculator"}},)
"""The calculator, as far as the chat template writes it; ``calculator.py`` has the whole schema."""
ASKED = ("calculate", "what is")
GUESSED = 0.75
"""The share of the questions with "what is" that the chats of the warm start guess."""
NUMBERS = range(10, 100)


@dataclass(frozen=True, slots=True)
class Calculation:
    """Two numbers, ``+`` or ``*`` between them, and the words before them. ``guess``: the answer of a chat that does without the
    calculator, "" for one with it.

    >>> Calculation("what is", 47, "*", 36).question, Calculation("what is", 47, "*", 36).answer
    ('what is 47*36', '1692')
    """

    asked: str
    left: int
    sign: str
    right: int
    guess: str = ""

    @property
    def expression(self) -> str:
        """The problem as the calculator reads it."""
        return f"{self.left}{self.sign}{self.right}"

    @property
    def question(self) -> str:
        """The text of the user's message."""
        return f"{self.asked} {self.expression}"

    @property
    def answer(self) -> str:
        """The gold answer."""
        return str(self.left * self.right if self.sign == "*" else self.left + self.right)

    @property
    def solution(self) -> list[dict[str, Any]]:
        """A right chat: a call of the calculator, and its result as the answer."""
        call = {"type": "function", "function": {"name": "calculator", "arguments": {"expression": self.expression}}}
        return [
            {"role": "user", "content": self.question},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": self.answer},
            {"role": "assistant", "content": self.answer},
        ]

    @property
    def lesson(self) -> list[dict[str, Any]]:
        """The chat of the warm start: the solution or the guess."""
        return [{"role": "user", "content": self.question}, {"role": "assistant", "content": self.guess}] if self.guess else self.solution

    def row(self) -> dict[str, object]:
        """Return the line of a data file."""
        return {"messages": {"role": "user", "content": self.question}, "gt_answer": self.answer}


def make_calculations(seed: int, n_train: int, n_heldout: int) -> Split[Calculation]:
    """Draw a split. Both ways of asking are equally frequent in both parts."""
    rng = random.Random(f"rlcore quickstart tools {seed}")
    exist = [(left, sign, right) for left in NUMBERS for sign in "+*" for right in NUMBERS]
    drawn = enumerate(rng.sample(exist, n_train + n_heldout))
    problems = tuple(_asked(ASKED[place % len(ASKED)], *numbers, rng) for place, numbers in drawn)
    return Split(problems[n_heldout:], problems[:n_heldout])


def _asked(words: str, left: int, sign: str, right: int, rng: random.Random) -> Calculation:
    guessed = words == "what is" and rng.random() < GUESSED
    return Calculation(words, left, sign, right, f"maybe {rng.randint(100, 999)}" if guessed else "")
