"""The gateway: an ASGI application that answers Chat Completions with completions of the policy, and keeps a ledger for each episode.

One event loop owns it: call its methods from there.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from traceback import format_exception

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rlcore.api import Completion, FinishReason, RlcoreError, Tokenizer
from rlcore_gateway.answer_reading import CompletionReader
from rlcore_gateway.chat_answer import ChatAnswer, answer_events, answer_json
from rlcore_gateway.chat_request import ChatRequest, parse_chat
from rlcore_gateway.ledger import EpisodeLedger, EpisodeLimits, History, LedgerCall
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.rendering import ChatRenderer

__all__ = ["Ask", "Gateway", "GatewaySettings"]

_LARGEST_BODY = 64 << 20
_CLOSED_KEYS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ask:
    """A request for tokens: ``context_ids`` int32[C], and the number of the call's random stream within its episode."""

    episode: str
    call: str
    context_ids: np.ndarray
    max_new_tokens: int
    stop: tuple[str, ...]
    noise: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """``model``: the name of the policy. ``tool_parser``: a name of ``tool_parsers.PARSERS``, or "auto" for the one that fits the chat
    template. ``ping_seconds``: the time between two signs of life to a client that waits for a stream."""

    model: str = "policy"
    history: History = "as_sampled"
    tool_parser: str = "auto"
    ping_seconds: float = 10.0


@dataclass(slots=True, eq=False)
class _Pending:
    """An open call. It is cancelled if nobody waits for it any more."""

    call: LedgerCall
    task: asyncio.Task[ChatAnswer]
    waiting: int = 0


class _Episode:
    def __init__(self, ledger: EpisodeLedger) -> None:
        self.ledger = ledger
        self.pending: dict[LedgerCall, _Pending] = {}
        self.answers: dict[LedgerCall, ChatAnswer] = {}
        """The answers that a client may still ask for again, or that are on their way."""


class Gateway:
    """Answers the requests of all episodes. The key of a request alone says to which episode it belongs.

    :param generate: returns the completion of an ``Ask``. It is cancelled if the client hangs up, or if the episode is closed.
    :param say: receives a sentence if the gateway itself fails.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        generate: Callable[[Ask], Awaitable[Completion]],
        settings: GatewaySettings | None = None,
        *,
        say: Callable[[str], None] = print,
    ) -> None:
        self.settings = settings or GatewaySettings()
        self._tokenizer, self._generate = tokenizer, generate
        self._renderer = ChatRenderer(tokenizer)
        self._reader = CompletionReader(tokenizer, self.settings.tool_parser)
        self._episodes: dict[str, _Episode] = {}
        self._closed: dict[str, None] = {}
        routes = [Route("/v1/models", self._models), Route("/v1/chat/completions", _Endpoint(self._chat, say), methods=["POST"])]
        self.app = Starlette(routes=routes, exception_handlers={HTTPException: _unknown, Refusal: _refused})
        """The ASGI application."""

    def open(self, episode: str, limits: EpisodeLimits) -> str:
        """Begin an episode, and return its key, which clients send as their API key."""
        key = secrets.token_urlsafe(24)
        self._episodes[key] = _Episode(EpisodeLedger(episode, self._renderer, limits, self.settings.history))
        return key

    def ledger(self, key: str) -> EpisodeLedger:
        """Return the ledger of an open episode. Raises KeyError for another key."""
        return self._episodes[key].ledger

    def close(self, key: str) -> EpisodeLedger:
        """End an episode and return its ledger. Open calls are cancelled, and every later request is answered with 410."""
        episode = self._episodes.pop(key)
        self._closed[key] = None
        if len(self._closed) > _CLOSED_KEYS:
            del self._closed[next(iter(self._closed))]
        for pending in list(episode.pending.values()):
            pending.task.cancel()
            episode.ledger.drop(pending.call)
        return episode.ledger

    def _episode_of(self, request: Request) -> _Episode:
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        key = key.strip()
        if kind.lower() == "bearer" and (episode := self._episodes.get(key)) is not None:
            return episode
        if key in self._closed:
            raise _ended()
        raise Refusal(
            "the API key belongs to no episode; send the key that the environment received for its episode",
            status=401,
            code="invalid_api_key",
        )

    async def _models(self, request: Request) -> Response:
        self._episode_of(request)
        model = {"id": self.settings.model, "object": "model", "created": 0, "owned_by": "rlcore"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _chat(self, request: Request, stream: _Reply) -> None:
        episode = self._episode_of(request)
        try:
            asked = parse_chat(await _body(request))
            episode = self._episode_of(request)  # again: it may have ended while the body came
            for name in asked.ignored:
                episode.ledger.counts[f"ignored_{name}"[:60]] += 1
            self._check_stop(asked.stop)
            pending = self._pending(episode, asked, _retries(request))
        except Refusal as refusal:
            episode.ledger.counts["refusals"] += 1
            raise refusal
        except (RlcoreError, ValueError) as error:  # the chat template refuses the messages
            episode.ledger.counts["refusals"] += 1
            raise Refusal(f"{error}", param="messages") from error
        answer = pending if isinstance(pending, ChatAnswer) else await self._waited(episode, pending, asked, stream)
        if answer is not None:
            answer.call.delivered |= await self._deliver(answer, asked, stream)

    def _check_stop(self, strings: tuple[str, ...]) -> None:
        unmatched = getattr(self._tokenizer, "unmatched", None)
        if unmatched is not None and (found := unmatched(strings)):
            raise Refusal(f"the stop string {found[0]!r} would never match, because it contains the special token {found[1]}", param="stop")

    def _pending(self, episode: _Episode, asked: ChatRequest, retry: bool) -> _Pending | ChatAnswer:
        """Return the open call of a request, or the answer, if the request repeats one that is answered."""
        ledger = episode.ledger
        sampling = (asked.stop, asked.tool_calls)
        call = ledger.begin(asked.messages, asked.tools, max_tokens=asked.max_tokens, sampling=sampling, retry=retry)
        if call in episode.answers:
            return episode.answers[call]
        if call in episode.pending:
            return episode.pending[call]
        if call.parent is not None:  # it is extended, so its answer has arrived
            episode.answers.pop(call.parent, None)
        pending = _Pending(call, asyncio.ensure_future(self._answered(episode, call, asked)))
        episode.pending[call] = pending
        return pending

    async def _answered(self, episode: _Episode, call: LedgerCall, asked: ChatRequest) -> ChatAnswer:
        ledger = episode.ledger
        try:
            stop = tuple(dict.fromkeys((*ledger.limits.stop, *asked.stop)))
            said = await self._generate(
                Ask(
                    episode=ledger.episode,
                    call=call.id,
                    context_ids=call.context_ids(),
                    max_new_tokens=call.max_new_tokens,
                    stop=stop,
                    noise=call.noise,
                )
            )
            if said.finish is FinishReason.ABORTED:
                raise _ended()
            read = self._reader.read(said.token_ids.tolist(), call, asked)
            ledger.finish(call, said, read.answer, read.sent)
            answer = episode.answers[call] = ChatAnswer(call=call, sent=read.sent, reasoning=read.reasoning)
            return answer
        finally:
            episode.pending.pop(call, None)
            ledger.drop(call)  # nothing happens if it is answered

    async def _waited(self, episode: _Episode, pending: _Pending, asked: ChatRequest, stream: _Reply) -> ChatAnswer | None:
        """Return the answer of an open call; None if the client hangs up before it is there."""
        pending.waiting += 1
        gone = asyncio.ensure_future(stream.disconnected())
        try:
            while True:
                done, _ = await asyncio.wait(
                    {pending.task, gone}, timeout=self.settings.ping_seconds if asked.stream else None, return_when=asyncio.FIRST_COMPLETED
                )
                if pending.task in done:
                    if pending.task.cancelled():
                        raise _ended()
                    return pending.task.result()
                if gone in done:
                    return None
                await stream.event(b": waiting\n\n")
        finally:
            gone.cancel()
            pending.waiting -= 1
            if not pending.waiting and not pending.task.done():
                pending.task.cancel()
                episode.ledger.drop(pending.call)
                episode.pending.pop(pending.call, None)

    async def _deliver(self, answer: ChatAnswer, asked: ChatRequest, stream: _Reply) -> bool:
        """Send an answer. Return whether the client was still there."""
        if asked.stream:
            for event in answer_events(answer, asked, self._tokenizer, self.settings.model):
                await stream.event(event)
            await stream.end()
        else:
            await stream.whole(JSONResponse(answer_json(answer, asked, self._tokenizer, self.settings.model)))
        return not stream.broken


class _Reply:
    """The response to one request. It begins with the first event, so that an earlier refusal has its own status."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self.begun = self.broken = False

    async def disconnected(self) -> None:
        """Return when the client hangs up."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.broken = True

    async def event(self, data: bytes) -> None:
        """Send a part of a stream."""
        if not self.begun:
            self.begun = True
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """End a stream."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def whole(self, response: Response) -> None:
        """Send a response that is no stream."""
        self.begun = True
        await response(self._scope, self._receive, self._send)

    async def refuse(self, refusal: Refusal) -> None:
        """Send an error, as an event if the stream has begun."""
        if self.begun:
            await self.event(b"data: " + json.dumps(refusal.body()).encode() + b"\n\n")
            await self.end()
        else:
            await self.whole(_refusal_response(refusal))


class _Endpoint:
    """An ASGI application that refuses in the form of the API. Starlette's own endpoints would read the connection a second time."""

    def __init__(self, handle: Callable[[Request, _Reply], Awaitable[None]], say: Callable[[str], None]) -> None:
        self._handle, self._say = handle, say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = _Reply(scope, receive, send)
        try:
            await self._handle(Request(scope, receive), stream)
        except ClientDisconnect:
            pass
        except Refusal as refusal:
            await stream.refuse(refusal)
        except Exception as error:  # a defect of the engine or of the gateway: the client must not repeat the request
            self._say(f"the gateway failed to answer a request:\n{''.join(format_exception(error))}")
            await stream.refuse(Refusal(f"the gateway failed: {type(error).__name__}: {error}", status=500))


async def _body(request: Request) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _LARGEST_BODY:
            raise Refusal(f"the request is larger than {_LARGEST_BODY >> 20} MiB; send less", status=413)
    return bytes(data)


def _retries(request: Request) -> bool:
    """Return whether the client says that it repeats a request, as the SDKs of OpenAI and Anthropic do."""
    return request.headers.get("x-stainless-retry-count", "0") not in ("", "0")


def _ended() -> Refusal:
    return Refusal("the episode of this API key has ended; stop", status=410, code="episode_closed")


def _refusal_response(refusal: Refusal) -> Response:
    return JSONResponse(refusal.body(), status_code=refusal.status, headers={"x-should-retry": "false"})


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return _refusal_response(error)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = f"{request.method} {request.url.path}"
    return _refusal_response(
        Refusal(f"the gateway does not offer {path}; it has POST /v1/chat/completions and GET /v1/models", status=error.status_code)
    )
