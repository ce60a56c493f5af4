"""Serves the page and its data on the loopback address, to whoever has the address that the command printed.

Every user of the machine reaches the port, so each path begins with a token that only that address holds. A name that an attacker's
server points at 127.0.0.1 would make a browser read the data for the attacker's page (DNS rebinding), so a request whose Host is not this
server is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rlcore.api import RlcoreError, UsageError
from rlcore_plugin_tools.report.page_text import packed, page
from rlcore_plugin_tools.report.report_content import ReportContent

__all__ = ["PageServer"]

_HOST = "127.0.0.1"
_TOKEN_BYTES = 32
_MOST_CONNECTIONS = 64
"""At a time, each a thread; a browser holds six. Every user of the machine can open them, without the token too."""
_IDLE_SECONDS = 30
"""Until a connection that says nothing is closed; the page asks more often."""
_REFUSED = b"open the whole address that rlcore watch printed in its terminal; it holds a token\n"


class PageServer(ThreadingHTTPServer):
    """``/TOKEN/`` is the page, ``figures`` and ``rollouts`` below it its data (gzip of JSON, with an ETag). UsageError if the port is
    taken."""

    daemon_threads = True  # a browser holds connections open, and Ctrl-C must end all

    def __init__(self, content: ReportContent, port: int) -> None:
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._page = page()
        self._parts: Mapping[str, Callable[[], dict[str, Any]]] = {"figures": content.figures, "rollouts": content.rollouts}
        self._one_at_a_time = threading.Lock()
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        try:
            super().__init__((_HOST, port), PageRequest)
        except OSError as error:
            raise UsageError(f"port {port} cannot be served ({error.strerror}); choose another one with --port, or leave it out") from None

    @property
    def url(self) -> str:
        """What to type into a browser."""
        return f"http://{_HOST}:{self.server_port}/{self.token}/"

    def is_host(self, named: str | None) -> bool:
        """Whether a request's ``Host`` names this server."""
        return named in {f"{name}:{self.server_port}" for name in (_HOST, "localhost")}

    def asked(self, path: str) -> str | None:
        """What a path asks for behind the token; None if it lacks the token."""
        token, slash, name = path.removeprefix("/").partition("/")
        known = hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode("ascii"))
        return name if known and slash else None

    def body(self, path: str) -> tuple[bytes, str] | None:
        """Bytes and type of what a path behind the token names; None if it names nothing."""
        if not path:
            return self._page, "text/html; charset=utf-8"
        if path not in self._parts:
            return None
        with self._one_at_a_time:  # several windows must not take the training's cores
            return packed(self._parts[path](), level=1), "application/json"

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """Serve a connection in a thread of its own, or close it if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """In that thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """A browser that went away is nobody's concern; anything else is a defect, and shown."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class PageRequest(BaseHTTPRequestHandler):
    """One connection."""

    server: PageServer
    timeout = _IDLE_SECONDS
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The page, its data, or what is wrong in one sentence."""
        asked = self.server.asked(self.path.partition("?")[0])
        if asked is None or not self.server.is_host(self.headers.get("Host")):
            self._answer(HTTPStatus.FORBIDDEN, _REFUSED)
            return
        try:
            found = self.server.body(asked)
        except RlcoreError as error:  # the folder was removed, say
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode("utf-8", "replace"))
            return
        if found is None:
            self._answer(HTTPStatus.NOT_FOUND, b"there is nothing here; open the address that rlcore watch printed\n")
            return
        data, kind = found
        tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
        if self.headers.get("If-None-Match") == tag:
            self._answer(HTTPStatus.NOT_MODIFIED, b"", tag=tag)
        else:
            self._answer(HTTPStatus.OK, data, kind, tag)

    def _answer(self, status: HTTPStatus, data: bytes, kind: str = "text/plain; charset=utf-8", tag: str = "") -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
        }
        if kind == "application/json":
            headers["Content-Encoding"] = "gzip"
        if tag:
            headers["ETag"] = tag
        if status != HTTPStatus.NOT_MODIFIED:
            headers["Content-Length"] = str(len(data))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a line a second would bury the address."""
