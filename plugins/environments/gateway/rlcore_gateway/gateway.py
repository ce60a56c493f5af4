"""The gateway: an ASGI application that answers in several dialects with completions of the policy, and keeps a ledger for each episode.

One event loop owns it: call its methods from there.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlcore.api import Completion, FinishReason, Message, RlcoreError, Tokenizer
from rlcore_gateway.answer_reading import CompletionReader
from rlcore_gateway.api_dialect import CANNED_ID, ApiDialect, Policy, PolicyAnswer, PolicyRequest
from rlcore_gateway.chat_answer import CHAT
from rlcore_gateway.generate_dialect import GENERATE, messages_in
from rlcore_gateway.http_reply import Endpoint, HttpReply, json_response, keys_of_request, read_body, refusal_response, says_retry
from rlcore_gateway.known_bodies import KnownBodies
from rlcore_gateway.ledger import EpisodeLedger, EpisodeLimits, History, LedgerCall
from rlcore_gateway.messages_answer import MESSAGES
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.rendering import ChatRenderer
from rlcore_gateway.responses_answer import RESPONSES
from rlcore_gateway.stored import StoredResponses

__all__ = ["Ask", "Gateway", "GatewaySettings"]

_DIALECTS = (CHAT, RESPONSES, MESSAGES, GENERATE)
_CLOSED_KEYS = 65_536
_MOST_CANNED = 8  # an agent that does not end after these is refused
_CANNED = "The budget of this episode is used up, so this is the last answer. The work ends here."


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
    template. ``ping_seconds``: the time between two signs of life to a client that waits for a stream.
    ``on_budget``: whether a call beyond the budget is refused, or answered with a fixed text, which never trains. Command line agents
        repeat a request that is refused, or end as if they had crashed."""

    model: str = "policy"
    history: History = "as_sampled"
    tool_parser: str = "auto"
    ping_seconds: float = 10.0
    on_budget: Literal["refuse", "answer"] = "refuse"


@dataclass(slots=True, eq=False)
class _Pending:
    """An open call. It is cancelled if nobody waits for it any more."""

    call: LedgerCall
    task: asyncio.Task[PolicyAnswer]


@dataclass(slots=True, eq=False)
class _Episode:
    """``keys``: all keys of the episode. ``answers``: those that a client may still ask for again, or that are on their way.

    ``sent``: each answer as the client received it. ``stored``: the responses of each player.
    """

    ledger: EpisodeLedger
    keys: list[str] = field(default_factory=list)
    pending: dict[LedgerCall, _Pending] = field(default_factory=dict)
    answers: dict[LedgerCall, PolicyAnswer] = field(default_factory=dict)
    sent: dict[LedgerCall, Message] = field(default_factory=dict)
    bodies: KnownBodies = field(default_factory=KnownBodies)
    stored: defaultdict[str, StoredResponses] = field(init=False)

    def __post_init__(self) -> None:
        self.stored = defaultdict(lambda: StoredResponses(self.sent))


class Gateway:
    """Answers the requests of all episodes. The key of a request alone says to which episode, and to which of its players, it belongs.

    :param generate: returns the completion of an ``Ask``. It is cancelled if the client hangs up, or if the episode is closed.
    :param say: receives a sentence if the gateway itself fails.
    :param called_tools: receives the name of an episode that is sent an answer with tool calls.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        generate: Callable[[Ask], Awaitable[Completion]],
        settings: GatewaySettings | None = None,
        *,
        say: Callable[[str], None] = print,
        called_tools: Callable[[str], None] = lambda episode: None,
    ) -> None:
        self.settings = settings or GatewaySettings()
        self._tokenizer, self._generate, self._called_tools = tokenizer, generate, called_tools
        self._policy = Policy(self.settings.model, tokenizer)
        self._rows = getattr(tokenizer, "rows", None) or (len(tokenizer) if isinstance(tokenizer, Sized) else math.inf)
        self._renderer = ChatRenderer(tokenizer)
        self._reader = CompletionReader(tokenizer, self.settings.tool_parser)
        self._keys: dict[str, tuple[_Episode, str]] = {}
        """Key -> its episode, and the name of its player."""
        self._closed: dict[str, None] = {}
        endpoints = {path: Endpoint(one, partial(self._converse, one), say) for one in _DIALECTS for path in one.paths}
        endpoints |= {f"{path}/count_tokens": Endpoint(MESSAGES, self._count, say) for path in MESSAGES.paths}
        routes = [Route(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()]
        routes += [Route(f"{before}/v1/models{one}", self._models) for before in ("", "/v1") for one in ("", "/{model:path}")]
        routes.append(Route("/v1/responses/{response}", self._response, methods=["GET", "DELETE"]))
        self.app = Starlette(routes=routes, exception_handlers={HTTPException: _unknown, Refusal: _refused})
        """The ASGI application."""

    def open(self, episode: str, limits: EpisodeLimits) -> str:
        """Begin an episode, and return its key, which clients send as their API key. It is that of the player ""."""
        return self._new_key(_Episode(EpisodeLedger(episode, self._renderer, limits, self.settings.history)), "")

    def add_player(self, key: str, player: str) -> str:
        """Return a further key of the episode of ``key``, for a player of this name. Raises KeyError if no open episode has ``key``."""
        return self._new_key(self._keys[key][0], player)

    def _new_key(self, episode: _Episode, player: str) -> str:
        key = secrets.token_urlsafe(24)
        episode.keys.append(key)
        self._keys[key] = episode, player
        return key

    def ledger(self, key: str) -> EpisodeLedger:
        """Return the ledger of an open episode. Raises KeyError for another key."""
        return self._keys[key][0].ledger

    def close(self, key: str) -> EpisodeLedger:
        """End an episode with all its keys and return its ledger.

        Open calls are cancelled, and every later request is answered with 410.
        """
        episode, _ = self._keys[key]
        for one in episode.keys:
            del self._keys[one]
            self._closed[one] = None
        while len(self._closed) > _CLOSED_KEYS:
            del self._closed[next(iter(self._closed))]
        for pending in list(episode.pending.values()):
            pending.task.cancel()
            episode.ledger.drop(pending.call)
        return episode.ledger

    def _episode_of(self, request: Request) -> tuple[_Episode, str]:
        """Return the episode and the player of a request."""
        keys = keys_of_request(request)
        for key in keys:
            if (found := self._keys.get(key)) is not None:
                return found
        if any(key in self._closed for key in keys):
            raise _ended()
        raise Refusal(
            "the API key belongs to no episode; send the key that the environment received for its episode",
            status=401,
            code="invalid_api_key",
        )

    async def _models(self, request: Request) -> Response:
        """Answer in the forms of OpenAI and of Anthropic at once. Any name of a model means the policy."""
        self._episode_of(request)
        asked = request.path_params.get("model")
        name = asked or self.settings.model
        model = {"id": name, "object": "model", "created": 0, "owned_by": "rlcore"}
        model |= {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
        return json_response(model if asked else {"object": "list", "data": [model], "has_more": False, "first_id": name, "last_id": name})

    async def _response(self, request: Request) -> Response:
        """Return or forget a stored response."""
        episode, player = self._episode_of(request)
        name, stored = request.path_params["response"], episode.stored[player]
        answer, asked = stored.get(name)
        if request.method == "DELETE":
            stored.delete(name)
            return json_response({"id": name, "object": "response", "deleted": True})
        return json_response(RESPONSES.body(answer, asked, self._policy))

    async def _count(self, request: Request, reply: HttpReply) -> None:
        """Answer with the number of tokens of a chat."""
        self._episode_of(request)
        asked = MESSAGES.parse(await read_body(request))
        try:
            ids = self._renderer.chat(asked.messages, asked.tools)
        except (RlcoreError, ValueError) as error:
            raise Refusal(f"{error}", param="messages") from error
        await reply.whole(json_response({"input_tokens": len(ids)}))

    async def _converse(self, dialect: ApiDialect, request: Request, reply: HttpReply) -> None:
        """Answer one request of a dialect."""
        episode, player = self._episode_of(request)
        try:
            asked = episode.bodies.parse(dialect, await read_body(request))
            self._episode_of(request)  # again: it may have ended while the body came
            self._check(asked)
            for name in (*asked.ignored, *["stop_token_ids"] * bool(set(asked.stop_ids) - self._tokenizer.stop_ids)):
                episode.ledger.counts[f"ignored_{name}"[:60]] += 1
            pending = self._pending(episode, player, episode.stored[player].continued(asked), says_retry(request))
        except Refusal as refusal:
            episode.ledger.counts["refusals"] += 1
            raise refusal
        except (RlcoreError, ValueError) as error:  # the chat template refuses the messages
            episode.ledger.counts["refusals"] += 1
            raise Refusal(f"{error}", param="messages") from error
        ping, call = dialect.ping if asked.stream else None, pending.call
        if call is not None:
            call.awaited += 1
        try:
            answer = await self._waited(pending, ping, reply) if isinstance(pending, _Pending) else pending
            if answer is not None:
                episode.stored[player].add(answer, asked)
                delivered = await self._deliver(dialect, answer, asked, reply)
                if call is not None:
                    call.delivered |= delivered
        finally:
            if call is not None:
                call.awaited -= 1
                _cancel_unless_awaited(episode, call)

    def _check(self, asked: PolicyRequest) -> None:
        """Refuse what this tokenizer cannot do."""
        unmatched = getattr(self._tokenizer, "unmatched", None)
        if unmatched is not None and (found := unmatched(asked.stop)):
            raise Refusal(f"the stop string {found[0]!r} would never match, because it contains the special token {found[1]}", param="stop")
        if asked.token_ids is not None and (most := int(asked.token_ids.max())) >= self._rows:
            raise Refusal(f"token_ids contains {most}, and the policy knows tokens below {self._rows:.0f}", param="token_ids")

    def _pending(self, episode: _Episode, player: str, asked: PolicyRequest, retry: bool) -> _Pending | PolicyAnswer:
        """Return the open call of a request, or the answer, if the request repeats one that is answered."""
        try:
            call = self._begun(episode.ledger, player, asked, retry)
        except Refusal as refusal:
            refuses = self.settings.on_budget == "refuse" or episode.ledger.counts["canned_answers"] >= _MOST_CANNED
            if refusal.code != "budget_exhausted" or refuses:
                raise
            return _canned(episode.ledger, player, asked)
        if call in episode.answers:
            return episode.answers[call]
        if call in episode.pending:
            return episode.pending[call]
        if call.parent is not None:  # it is extended, so its answer has arrived
            episode.answers.pop(call.parent, None)
        pending = _Pending(call, asyncio.ensure_future(self._answered(episode, call, asked)))
        episode.pending[call] = pending
        return pending

    def _begun(self, ledger: EpisodeLedger, player: str, asked: PolicyRequest, retry: bool) -> LedgerCall:
        words: dict[str, Any] = {
            "max_tokens": asked.max_tokens,
            "sampling": (asked.stop, asked.tool_calls),
            "retry": retry,
            "player": player,
        }
        if asked.token_ids is not None:
            read = partial(messages_in, tokenizer=self._tokenizer)
            return ledger.begin_ids(asked.token_ids, read, **words)
        return ledger.begin(asked.messages, asked.tools, after=asked.after, **words)

    async def _answered(self, episode: _Episode, call: LedgerCall, asked: PolicyRequest) -> PolicyAnswer:
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
            if read.answer.tool_calls:
                self._called_tools(ledger.episode)
            episode.sent[call] = read.sent
            answer = PolicyAnswer(id=call.id, call=call, sent=read.sent, reasoning=read.reasoning, stop=read.stop)
            episode.answers[call] = answer
            return answer
        finally:
            episode.pending.pop(call, None)
            ledger.drop(call)  # nothing happens if it is answered

    async def _waited(self, pending: _Pending, ping: bytes | None, reply: HttpReply) -> PolicyAnswer | None:
        """Return the answer of an open call; None if the client hangs up before it is there."""
        gone = asyncio.ensure_future(reply.disconnected())
        try:
            while True:
                done, _ = await asyncio.wait(
                    {pending.task, gone}, timeout=self.settings.ping_seconds if ping else None, return_when=asyncio.FIRST_COMPLETED
                )
                if pending.task in done:
                    if pending.task.cancelled():
                        raise _ended()
                    return pending.task.result()
                if gone in done:
                    return None
                await reply.event(ping or b"")
        finally:
            gone.cancel()

    async def _deliver(self, dialect: ApiDialect, answer: PolicyAnswer, asked: PolicyRequest, reply: HttpReply) -> bool:
        """Send an answer. Return whether the client was still there."""
        left = reply.left()  # it gets the answer all the same, because the server wants one
        if asked.stream:
            for data in dialect.events(answer, asked, self._policy):
                await reply.event(data)
            await reply.end()
        else:
            await reply.whole(json_response(dialect.body(answer, asked, self._policy)))
        return not (left or reply.broken)


def _cancel_unless_awaited(episode: _Episode, call: LedgerCall) -> None:
    """Cancel a call that is open, if nobody waits for it."""
    pending = episode.pending.get(call)
    if pending is not None and not call.awaited and not pending.task.done():
        pending.task.cancel()
        episode.ledger.drop(call)
        del episode.pending[call]


def _canned(ledger: EpisodeLedger, player: str, asked: PolicyRequest) -> PolicyAnswer:
    """Return an answer to a call beyond the budget. The ledger only has its id, at the call that it follows."""
    ledger.counts["canned_answers"] += 1
    name = f"{CANNED_ID}{ledger.episode}-{ledger.counts['canned_answers']}"
    if asked.token_ids is not None:
        last = ledger.last_call_ids(asked.token_ids, player)
    else:
        last = ledger.last_call(asked.messages, asked.tools, player=player, after=asked.after)
    if last is not None:
        last.canned.append(name)
    return PolicyAnswer(id=name, call=None, sent=Message(role="assistant", content=_CANNED))


def _ended() -> Refusal:
    return Refusal("the episode of this API key has ended; stop", status=410, code="episode_closed")


async def _refused(request: Request, error: Exception) -> Response:
    """Refuse in the form of the dialect whose address it is."""
    assert isinstance(error, Refusal)
    dialect = next((one for one in _DIALECTS if request.url.path.startswith(one.paths)), CHAT)
    return refusal_response(error, dialect.refusal(error))


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    offered = ", ".join(f"POST {dialect.paths[0]}" for dialect in _DIALECTS)
    message = f"the gateway does not offer {request.method} {request.url.path}; it has {offered} and GET /v1/models"
    return await _refused(request, Refusal(message, status=error.status_code))
