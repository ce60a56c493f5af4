"""The life of one step: what happens to one prompt from its lease to the weights that learned from it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, stdev

from tools.pictures.svg import LARGE, SIZE, SMALL, WIDTH, Picture

LEFT, RIGHT = 12.0, WIDTH - 12.0
PROMPT, GOLD = "sort 7 0 3 2", "0 2 3 7"
ANSWERS = ("0 2 3 7", "0 3 2 7", "0 2 3 7", "0 2 3 7")
REWARD = 10.0
"""Of a right answer, as ``boxed`` gives it."""
VERSION, BATCH = 4, 32
TOKENS = ((58, 40, 66, 30), (82, 34, 50), (44, 74, 28, 42))
"""Widths of the answers in each micro-batch, as examples."""

Body = Callable[[Picture, float], None]


def draw() -> str:
    """Return the picture."""
    picture = Picture(
        "The life of a step",
        "One prompt: lease, rollouts, verdicts, filter, advantages, micro-batches, update, and the weights of the next version.",
    )
    picture.text(14, 24, "The life of a step, with one prompt", size=LARGE, bold=True)
    rewards = [REWARD * (answer == GOLD) for answer in ANSWERS]
    advantages = [(reward - mean(rewards)) / (stdev(rewards) + 1e-4) for reward in rewards]
    right = sum(answer == GOLD for answer in ANSWERS)
    stages: tuple[tuple[str, str, str, Body, float], ...] = (
        ("Lease", "coordinator", "grey", _line(f"the prompt “{PROMPT}”, for version {VERSION} of the weights"), 24),
        ("Rollouts", "producer", "blue", _cells(ANSWERS), 30),
        ("Verdicts", "rewards", "green", _cells([f"reward {reward:g}" for reward in rewards]), 30),
        ("Filter", "coordinator", "grey", _line(f"{right} of {len(ANSWERS)} are right; the verdicts differ, so the group stays"), 24),
        ("Advantages", "trainer", "orange", _cells([f"{value:+.2f}".replace("-", "−") for value in advantages]), 30),
        ("Micro-batches", "trainer", "orange", _micro_batches, 92),
        ("Update", "trainer", "orange", _line("one optimizer step; the division does not change it"), 24),
        ("Weights", "trainer to producer", "blue", _line(f"version {VERSION + 1}; a probe checks them before the next token"), 24),
    )
    top = 40.0
    for number, (name, actor, colour, body, height) in enumerate(stages, start=1):
        picture.rect(LEFT, top, RIGHT - LEFT, 30 + height, colour, edge="line", round_=5)
        picture.text(LEFT + 10, top + 20, f"{number}  {name}", bold=True)
        picture.text(RIGHT - 10, top + 20, actor, anchor="end", colour="muted", size=SMALL)
        body(picture, top + 30)
        top += 30 + height
        if number < len(stages):
            picture.line([(WIDTH / 2, top), (WIDTH / 2, top + 16)], arrow=True)
        top += 16
    return picture.svg(top - 4)


def _line(words: str) -> Body:
    return lambda picture, y: picture.text(LEFT + 10, y + 11, words, size=SMALL)


def _cells(texts: list[str] | tuple[str, ...]) -> Body:
    """One cell for each answer of the group."""

    def body(picture: Picture, y: float) -> None:
        width = (RIGHT - LEFT - 16) / len(texts)
        for place, words in enumerate(texts):
            left = LEFT + 8 + place * width
            picture.rect(
                left + 2, y - 1, width - 4, 22, "page", edge="strong-green" if ANSWERS[place] == GOLD else "strong-orange", round_=3
            )
            picture.text(left + width / 2, y + 14, words, anchor="middle", size=SIZE)

    return body


def _micro_batches(picture: Picture, y: float) -> None:
    picture.text(LEFT + 10, y + 11, f"{BATCH} groups, packed without padding; each token has its", size=SMALL)
    picture.text(LEFT + 10, y + 27, "weight in the loss before they are divided", size=SMALL)
    for row, widths in enumerate(TOKENS):
        x = LEFT + 10
        for width in widths:
            picture.rect(x, y + 37 + 17 * row, width * 1.6, 12, "page", edge="strong-orange", round_=2)
            x += width * 1.6 + 3
