"""The HTTP side of a request: its body and key, and the response, whole or as a stream."""

from __future__ import annotations

import select
from collections.abc import Awaitable, Callable, Mapping
from traceback import format_exception
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rlcore_gateway.api_dialect import ApiDialect, json_bytes
from rlcore_gateway.refusal import Refusal

__all__ = ["CONNECTION", "Endpoint", "HttpReply", "json_response", "keys_of_request", "read_body", "refusal_response", "says_retry"]

CONNECTION = "rlcore.connection"
"""The extension of an ASGI scope with the socket of its request."""
_LARGEST_BODY = 64 << 20


class HttpReply:
    """The response to one request. It begins with the first event, so that an earlier refusal has its own status."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self.begun = self.broken = False

    async def disconnected(self) -> None:
        """Return when the client hangs up."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.broken = True

    def left(self) -> bool:
        """Return whether the client has hung up, also if the event loop has not read that from the connection yet."""
        connection = self._scope.get("extensions", {}).get(CONNECTION)
        if connection is not None and not self.broken:
            self.broken = connection.fileno() < 0 or _is_closed(connection.fileno())
        return self.broken

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


class Endpoint:
    """An ASGI application that refuses in the form of a dialect. Starlette's own endpoints would read the connection a second time.

    :param say: receives a sentence if the gateway itself fails.
    """

    def __init__(self, dialect: ApiDialect, handle: Callable[[Request, HttpReply], Awaitable[None]], say: Callable[[str], None]) -> None:
        self._dialect, self._handle, self._say = dialect, handle, say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = HttpReply(scope, receive, send)
        try:
            await self._handle(Request(scope, receive), reply)
        except ClientDisconnect:
            pass
        except Refusal as refusal:
            await self._refuse(refusal, reply)
        except Exception as error:  # a defect of the engine or of the gateway: the client must not repeat the request
            self._say(f"the gateway failed to answer a request:\n{''.join(format_exception(error))}")
            await self._refuse(Refusal(f"the gateway failed: {type(error).__name__}: {error}", status=500), reply)

    async def _refuse(self, refusal: Refusal, reply: HttpReply) -> None:
        """Send an error, as an event if the stream has begun."""
        if reply.begun:
            await reply.event(self._dialect.refusal_event(refusal))
            await reply.end()
        else:
            await reply.whole(refusal_response(refusal, self._dialect.refusal(refusal)))


def _is_closed(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, getattr(select, "POLLRDHUP", 0))  # other systems than Linux only report POLLHUP, which needs no asking
    return bool(poll.poll(0))


def refusal_response(refusal: Refusal, body: Mapping[str, Any]) -> Response:
    """Return the response of a refusal that no client repeats."""
    return json_response(body, refusal.status, {"x-should-retry": "false"})


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a JSON body."""
    return Response(json_bytes(body), status, headers, "application/json")


def keys_of_request(request: Request) -> list[str]:
    """Return the API keys of a request: those of OpenAI and of Anthropic are in different headers, and a client may send both."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return [found for found in (key.strip() if kind.lower() == "bearer" else "", request.headers.get("x-api-key", "").strip()) if found]


async def read_body(request: Request) -> bytes:
    """Return the body. Raises Refusal if it is too large."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _LARGEST_BODY:
            raise Refusal(f"the request is larger than {_LARGEST_BODY >> 20} MiB; send less", status=413)
    return bytes(data)


def says_retry(request: Request) -> bool:
    """Return whether the client says that it repeats a request, as the SDKs of OpenAI and Anthropic do."""
    return request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
