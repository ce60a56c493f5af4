"""Passes the requests of a player on to the server of another model. The player's key is the gateway's, and ends with the episode."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from hashlib import sha256

import httpx2
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rlcore_gateway.http_reply import HttpReply, json_response, keys_of_request, read_body, refusal_response
from rlcore_gateway.refusal import Refusal

__all__ = ["RelayApp", "RelayedPlayer"]

_KEPT_HERE = {"authorization", "x-api-key", "host", "content-length", "connection", "accept-encoding", "transfer-encoding"}
"""Headers of a request that are not passed on."""
_PASSED_BACK = ("content-type", "retry-after", "x-should-retry", "request-id", "x-request-id")
_SERVERS_FAULT = (401, 403, 404, 408, 429)
"""Refusals, besides those from 500 on, that say nothing about the request: the key, the name of the model, or the load."""


_OFFERED = {
    "POST": re.compile(r"(/v1)?/(chat/completions|completions|embeddings|responses|messages(/count_tokens)?)|/inference/v1/generate"),
    "GET": re.compile(r"(/v1)?/models(/.*)?"),
}
"""What a player may ask: the key of another server may open much more, such as files and accounts."""


class RelayApp:
    """An ASGI application around that of a gateway, which takes the requests whose key is in ``players``."""

    def __init__(self, app: ASGIApp, players: Mapping[str, RelayedPlayer]) -> None:
        self._app, self._players = app, players

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive) if scope["type"] == "http" else None
        keys = [] if request is None else [key for key in keys_of_request(request) if key in self._players]
        if request is None or not keys:
            await self._app(scope, receive, send)
            return
        reply = HttpReply(scope, receive, send)
        try:
            await self._players[keys[0]].answer(request, reply)
        except ClientDisconnect:
            pass
        except Refusal as refusal:
            if not reply.begun:
                body = {"type": "error", **refusal.body()}  # readable for clients of OpenAI and of Anthropic
                await reply.whole(refusal_response(refusal, body))


class RelayedPlayer:
    """A player of one episode whose requests another server answers.

    :param base_url: of that server, which ends in /v1.
    :param api_key: of that server, "" for none.
    :param failed: called if the server does not answer.
    """

    def __init__(self, client: httpx2.AsyncClient, base_url: str, api_key: str, failed: Callable[[], None] = lambda: None) -> None:
        self.unanswered: dict[bytes, str] = {}
        """What the server has not answered, also if it was asked again, and why."""
        self.answered = 0
        """The number of calls that the server answered."""
        self._client, self._base_url, self._api_key, self._failed = client, base_url.rstrip("/"), api_key, failed
        self._closed = False
        self._open: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Cancel what is open, and refuse every later request."""
        self._closed = True
        for task in self._open:
            task.cancel()

    async def answer(self, request: Request, reply: HttpReply) -> None:
        """Answer a request as the server does. Raises Refusal if the episode has ended or the server does not answer."""
        if self._closed:
            raise _ended()
        method, path = request.method, request.url.path
        if method not in _OFFERED or _OFFERED[method].fullmatch(path) is None:
            raise Refusal(f"the key of a player does not reach {method} {path}; it reaches models and their answers", status=404)
        body = await read_body(request)
        if self._closed:
            raise _ended()
        copying = asyncio.ensure_future(self._copy(self._asked(request, body), _name(request, body), reply))
        gone = asyncio.ensure_future(reply.disconnected())
        self._open.add(copying)
        try:
            await asyncio.wait({copying, gone}, return_when=asyncio.FIRST_COMPLETED)
            if copying.cancelled():
                raise _ended()
            if copying.done():
                copying.result()
        finally:
            self._open.discard(copying)
            gone.cancel()
            copying.cancel()

    async def _copy(self, asked: httpx2.Request, name: bytes, reply: HttpReply) -> None:
        try:
            response = await self._client.send(asked, stream=True)
            try:
                await self._copy_response(response, name, reply)
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            self._fail(name, f"its server did not answer ({type(error).__name__}: {error})".replace(": )", ")"))
            if self._closed:
                raise _ended() from error
            if reply.begun:
                raise  # the client sees that the answer is not whole
            await reply.whole(json_response({"error": {"message": self.unanswered[name], "type": "server_error", "code": None}}, 502))

    async def _copy_response(self, response: httpx2.Response, name: bytes, reply: HttpReply) -> None:
        status, headers = response.status_code, {header: response.headers[header] for header in _PASSED_BACK if header in response.headers}
        if headers.get("content-type", "").startswith("text/event-stream"):
            async for part in response.aiter_bytes():
                await reply.event(part)
            await reply.end()
        else:
            body = await response.aread()
            if status >= 500 or status in _SERVERS_FAULT:
                text = " ".join(body.decode(errors="replace").split())
                self._fail(name, f"its server answered {status}{': ' * bool(text)}{text[:300]}")
            if self._closed:
                raise _ended()
            await reply.whole(Response(body, status, headers))
        if status < 400:
            self.unanswered.pop(name, None)
            self.answered += response.request.method == "POST"

    def _fail(self, name: bytes, why: str) -> None:
        self.unanswered[name] = why
        self._failed()

    def _asked(self, request: Request, body: bytes) -> httpx2.Request:
        """Return the request to the server, with its key in the header in which the client sent its own."""
        headers = {name: value for name, value in request.headers.items() if name not in _KEPT_HERE}
        if self._api_key and "x-api-key" in request.headers:
            headers["x-api-key"] = self._api_key
        if self._api_key and "authorization" in request.headers:
            headers["authorization"] = f"Bearer {self._api_key}"
        path, root = request.url.path, self._base_url.removesuffix("/v1")
        url = self._base_url + path.removeprefix("/v1") if path.startswith("/v1/") else root + path
        return self._client.build_request(request.method, url, params=str(request.query_params), headers=headers, content=body)


def _name(request: Request, body: bytes) -> bytes:
    """Return what a request has in common with its repetitions."""
    return sha256(f"{request.method} {request.url.path}\n".encode() + body).digest()


def _ended() -> Refusal:
    return Refusal("the episode of this API key has ended; stop", status=410, code="episode_closed")
