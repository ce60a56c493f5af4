"""The page of a ledger: its chats, turn by turn, with the sampled tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, Template
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rlcore.api import Message, Tokenizer
from rlcore_gateway.gateway import Gateway
from rlcore_gateway.ledger import EpisodeLedger, LedgerCall
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.trained import lines_of

__all__ = ["add_ledger_page", "ledger_page"]

_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def add_ledger_page(gateway: Gateway, tokenizer: Tokenizer) -> None:
    """Let the gateway serve the page of an open episode at ``/?key=KEY``."""

    async def page(request: Request) -> Response:
        try:
            ledger = gateway.ledger(request.query_params.get("key", ""))
        except KeyError:
            raise Refusal("the key belongs to no open episode; open the address that the gateway printed", status=401) from None
        return HTMLResponse(ledger_page(ledger, tokenizer), headers=_HEADERS)

    gateway.app.router.routes.append(Route("/", page))


def ledger_page(ledger: EpisodeLedger, tokenizer: Tokenizer) -> str:
    """Return the page as HTML. Every text of the chats is escaped."""
    result = ledger.trained()
    answered = [call for call in ledger.calls if call.completion is not None]
    decode = getattr(tokenizer, "decode_all", tokenizer.decode)
    lines = [
        {
            "title": _title(line[0]),
            "fork": line[0].parent is not None,
            "turns": [_turn(call, call.id in result.calls, decode) for call in line],
        }
        for line in lines_of(answered, set(answered))
    ]
    waiting = [call.id for call in ledger.calls if call.completion is None]
    counts = {name: f"{value:g}" for name, value in sorted(result.counts.items())}
    trained = sum(result.turn_lengths)
    return _template().render(
        episode=ledger.episode, lines=lines, waiting=waiting, counts=counts, trained=trained, exhausted=result.exhausted
    )


def _title(first: LedgerCall) -> str:
    """Return what the line of calls is that begins with this one."""
    of = f" of {first.player}" if first.player else ""
    return f"chat {first.id}{of}" if first.parent is None else f"fork {first.id}{of}, after {first.parent.id}"


@cache
def _template() -> Template:
    text = files("rlcore_gateway").joinpath("ledger.html").read_text("utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(text)


def _turn(call: LedgerCall, trained: bool, decode: Any) -> dict[str, Any]:
    assert call.completion is not None
    said = call.completion
    tokens = [
        {
            "text": decode([token]),
            "told": f"token {token}, log probability {logprob:.3f}, version {version}",
            "surprise": min(9, int(-logprob * 2)),
        }
        for token, logprob, version in zip(said.token_ids.tolist(), said.logprobs.tolist(), said.versions.tolist(), strict=True)
    ]
    return {
        "id": call.id,
        "messages": [_message(message) for message in call.messages],
        "tokens": tokens,
        "calls": _calls(call.answer.tool_calls if call.answer else ()),
        "trained": trained,
        "added": len(call.tail_ids),
        "finish": str(said.finish),
    }


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.content, "calls": _calls(message.tool_calls), "folded": message.role == "tool"}


def _calls(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    functions = [call["function"] for call in calls]
    return [{"name": one["name"], "arguments": json.dumps(one["arguments"], ensure_ascii=False, indent=1)} for one in functions]
