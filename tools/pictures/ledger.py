"""The ledger of an agent's episode, as a tree of calls, and the segments that train. The gateway's own ledger makes both."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from rlcore_gateway.ledger import EpisodeLedger, EpisodeLimits, LedgerCall
from rlcore_gateway.rendering import ChatRenderer
from rlcore_gateway.trained import LedgerResult

from rlcore.api import Completion, FinishReason, Message
from rlcore.testing import FakeTokenizer
from tools.pictures.svg import LARGE, SMALL, WIDTH, Picture

LEFT, COLUMN, GAP = 12.0, 114.0, 7.0
CONTEXT, ANSWER, BETWEEN = 24.0, 40.0, 20.0
TOKENIZER = FakeTokenizer(" 0123456789abcdefghijklmnopqrstuvwxyz*+?")
COLUMNS = ("main chat", "a fork", "another chat")

Place = tuple[int, int]
"""Column, row."""


def draw() -> str:
    """Return the picture."""
    calls = episode()
    ledger = next(iter(calls))[1]
    result = ledger.trained()
    picture = Picture(
        "The ledger of an agent's episode",
        f"A tree of {len(calls)} calls; {len(result.calls)} train, in {len(result.segments)} segments, each sampled token once.",
    )
    picture.text(14, 24, "The ledger of an agent's episode", size=LARGE, bold=True)
    picture.text(14, 43, "messages, and the answers that the model sampled", size=SMALL, colour="muted")
    tops = [_node(picture, call, place, call.id in result.calls) for call, _, place in calls]
    for column, words in enumerate(COLUMNS):
        picture.text(_left(column) + COLUMN / 2, 66 if column != 1 else tops[3] - 15, words, anchor="middle", size=SMALL, colour="muted")
    _edges(picture, calls)
    bottom = max(tops) + CONTEXT + ANSWER
    return picture.svg(_segments(picture, result, bottom + 34) + 10)


def episode() -> list[tuple[LedgerCall, EpisodeLedger, Place]]:
    """Play an agent that calls a calculator twice, asks one question a second time, and begins another chat."""
    ledger = EpisodeLedger("sum", ChatRenderer(TOKENIZER), EpisodeLimits(tokens=1000, context=1000))
    asked = [Message(role="user", content="47*36+8?")]
    first = [*asked, Message(role="assistant", content="calc 47*36"), Message(role="tool", content="1692")]
    second = [*first, Message(role="assistant", content="calc 1692+8"), Message(role="tool", content="1700")]
    other = [Message(role="user", content="is 1700 even?")]
    played = (
        (asked, "calc 47*36", (0, 0)),
        (first, "calc 1692+8", (0, 1)),
        (second, "1700", (0, 2)),
        (first, "1699", (1, 1)),
        (other, "yes", (2, 0)),
    )
    return [(_answered(ledger, messages, answer), ledger, place) for messages, answer, place in played]


def _answered(ledger: EpisodeLedger, messages: list[Message], answer: str) -> LedgerCall:
    call = ledger.begin(messages)
    ids = np.array([*TOKENIZER.encode(answer), 0], np.int32)
    completion = Completion(
        request_id=call.id, token_ids=ids, logprobs=-np.ones(len(ids)), versions=np.zeros(len(ids), np.int32), finish=FinishReason.STOP
    )
    said = Message(role="assistant", content=answer)
    ledger.finish(call, completion, said, said)
    call.delivered = True
    return call


def _node(picture: Picture, call: LedgerCall, place: Place, trains: bool) -> float:
    """Draw what a call adds and its answer; return its top."""
    x, y = _left(place[0]), _top(place[1])
    message = call.messages[-1]
    picture.rect(x, y, COLUMN, CONTEXT, "page", edge="line", round_=3)
    picture.text(x + COLUMN / 2, y + 16, f"{message.role}: {message.content}", anchor="middle", size=SMALL)
    picture.rect(x, y + CONTEXT, COLUMN, ANSWER, "green" if trains else "grey", edge="line", round_=3)
    picture.text(x + COLUMN / 2, y + CONTEXT + 17, str(call.answer and call.answer.content), anchor="middle", bold=True)
    picture.text(x + COLUMN / 2, y + CONTEXT + 33, "trains" if trains else "does not train", anchor="middle", size=SMALL, colour="muted")
    return y


def _edges(picture: Picture, calls: list[tuple[LedgerCall, EpisodeLedger, Place]]) -> None:
    places = {call.id: place for call, _, place in calls}
    for call, _, (column, row) in calls:
        if call.parent is None:
            continue
        above = places[call.parent.id]
        x, y, to = _left(above[0]) + COLUMN / 2, _top(above[1]) + CONTEXT + ANSWER, _left(column) + COLUMN / 2
        bend = [(x, y + 9), (to, y + 9)] if column != above[0] else []
        picture.line([(x, y), *bend, (to, _top(row))], arrow=True)


def _segments(picture: Picture, result: LedgerResult, top: float) -> float:
    """Draw each segment as a bar of tokens; return the bottom."""
    longest = max(len(segment.context_ids) + len(segment.token_ids) for segment in result.segments)
    scale = (WIDTH - 2 * LEFT) / longest
    picture.text(14, top, "What trains: segments of tokens", bold=True)
    for number, segment in enumerate(result.segments):
        y = top + 14 + 46 * number
        marks = [*(False for _ in segment.context_ids), *segment.policy_mask.tolist()]
        x = LEFT
        for green, run in groupby(marks):
            width = scale * len(list(run))
            picture.rect(x, y, width, 16, "strong-green" if green else "strong-grey")
            x += width
        ids = np.concatenate([segment.context_ids, segment.token_ids]).tolist()
        runs = groupby(zip(marks, ids, strict=True), key=lambda pair: pair[0])
        answers = [TOKENIZER.decode([token for _, token in run]) for green, run in runs if green]
        picture.text(14, y + 31, f"{len(marks)} tokens, {sum(marks)} train: {', '.join(answers)}", size=SMALL, colour="muted")
    y = top + 14 + 46 * len(result.segments) + 6
    for x, colour, words in ((LEFT, "strong-green", "sampled, trains once"), (LEFT + 170, "strong-grey", "context only")):
        picture.rect(x, y - 10, 12, 12, colour)
        picture.text(x + 18, y, words, size=SMALL)
    return y


def _left(column: int) -> float:
    return LEFT + column * (COLUMN + GAP)


def _top(row: int) -> float:
    return 74 + row * (CONTEXT + ANSWER + BETWEEN)
