"""One request to an OpenAI-compatible service. It blocks, and is called in threads."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.api import InfrastructureError

__all__ = ["ChatReply", "JudgeBusyError", "JudgeRefusedError", "ask"]

_BUSY = {408, 409, 425, 429}  # and all from 500 on
_SERVER_FAULT = 500
_MOST_TOKENS = 1 << 40  # a larger number counts as no number
_MOST_BYTES = 10 << 20


class JudgeRefusedError(RuntimeError):
    """The service will never answer this request: a wrong key, no such model, a text that it refuses."""


class JudgeBusyError(InfrastructureError):
    """Another attempt may succeed, but only after ``wait`` seconds, according to the service (``Retry-After``)."""

    def __init__(self, said: str, wait: float) -> None:
        super().__init__(said)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A reply. Token counts are None if the service does not give them."""

    content: str
    prompt_tokens: int | None
    reply_tokens: int | None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, since the key belongs to one address."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def ask(url: str, body: Mapping[str, Any], key: str, seconds: float) -> ChatReply:
    """Send the request and return the reply. InfrastructureError if another attempt may succeed, JudgeRefusedError if none will."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(f"{url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers)
    try:
        with _OPENER.open(request, timeout=seconds) as answer:
            data = answer.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            said = f"{url} answered {error.code}: {error.read(300).decode(errors='replace')}"
            wait = _seconds(error.headers.get("Retry-After", ""))
        if error.code not in _BUSY and error.code < _SERVER_FAULT:
            raise JudgeRefusedError(said) from error
        raise (InfrastructureError(said) if wait is None else JudgeBusyError(said, wait)) from error
    except (OSError, http.client.HTTPException) as error:
        raise InfrastructureError(f"{url} does not answer: {error or type(error).__name__}") from error
    return _read(url, data)


def _seconds(said: str) -> float | None:
    """Return ``Retry-After`` if it is a number of seconds. A date is not read, since it depends on two clocks."""
    return float(said[:9]) if said.isascii() and said.isdigit() else None


def _read(url: str, data: bytes) -> ChatReply:
    try:
        whole = json.loads(data)
        content = whole["choices"][0]["message"]["content"]
        usage = whole.get("usage") or {}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InfrastructureError(f"{url} did not answer with a chat completion: {data[:200]!r}") from error
    return ChatReply(content if isinstance(content, str) else "", _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))


def _count(usage: Any, name: str) -> int | None:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _MOST_TOKENS else None
