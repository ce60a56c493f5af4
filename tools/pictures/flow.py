"""The data flow of a run: from prompts to an update, and the weights back to the producers."""

from __future__ import annotations

from tools.pictures.svg import LARGE, SMALL, Picture

LEFT, BOX = 104.0, 202.0
GAP = 30.0
STAGES = (
    ("green", ("Data", "files, the hub, endless sources"), "prompts"),
    ("grey", ("Sampler", "draws the next prompts"), "leases"),
    ("blue", ("Producers", "an inference engine samples", "a group of answers per prompt"), "answers (tokens)"),
    ("green", ("Rewards", "worker processes score answers"), "scored groups"),
    ("grey", ("Filter", "removes groups out of its range"), "kept groups"),
    ("grey", ("Buffer", "groups wait for a full batch"), "a batch"),
    ("orange", ("Trainer", "advantages, loss, gradient,", "one update"), "figures, states"),
    ("grey", ("Run folder", "metrics, rollouts, checkpoints"), ""),
)
"""Colour, lines of the box, and what goes to the next box."""
COORDINATOR = (
    "Coordinator",
    "decides with",
    "numbers which",
    "group is made",
    "next and which",
    "is trained;",
    "limits the age",
    "of each group",
)
PARTS_OF_IT = ("Sampler", "Filter", "Buffer")


def draw() -> str:
    """Return the picture."""
    picture = Picture(
        "How data flows through a run",
        "Data, sampler, producers, rewards, filter, buffer, trainer, and the weights back to the producers. A coordinator decides.",
    )
    picture.text(14, 24, "How data flows through a run", size=LARGE, bold=True)
    top, edges = 42.0, {}
    for colour, lines, goes_on in STAGES:
        bottom = picture.box(LEFT, top, BOX, lines, colour)
        edges[lines[0]] = (top, bottom)
        if goes_on:
            picture.line([(LEFT + BOX / 2, bottom), (LEFT + BOX / 2, bottom + GAP)], arrow=True)
            picture.text(LEFT + BOX / 2 + 8, bottom + 19, goes_on, colour="muted", size=SMALL)
        top = bottom + GAP
    _coordinator(picture, edges)
    _weights(picture, edges)
    return picture.svg(top - GAP + 12)


def _coordinator(picture: Picture, edges: dict[str, tuple[float, float]]) -> None:
    """Draw the box that spans its parts, and join it to them."""
    top, bottom = edges["Sampler"][0], edges["Buffer"][1]
    picture.rect(6, top, 84, bottom - top, "grey", edge="line", round_=5)
    for place, words in enumerate(COORDINATOR):
        name = place == 0
        picture.text(48, top + 104 + 19 * place, words, anchor="middle", bold=name, size=SMALL, colour="ink" if name else "muted")
    for part in PARTS_OF_IT:
        middle = sum(edges[part]) / 2
        picture.line([(90, middle), (LEFT, middle)], dashed=True)


def _weights(picture: Picture, edges: dict[str, tuple[float, float]]) -> None:
    """Draw the way of the weights, from the trainer up to the producers."""
    start, end, x = sum(edges["Trainer"]) / 2, sum(edges["Producers"]) / 2, LEFT + BOX + 14
    picture.line([(LEFT + BOX, start), (x, start), (x, end), (LEFT + BOX, end)], "strong-orange", width=2.0, arrow=True)
    for place, words in enumerate(("weights", "of the", "next", "version")):
        picture.text(x + 6, (start + end) / 2 - 20 + 16 * place, words, size=SMALL)
