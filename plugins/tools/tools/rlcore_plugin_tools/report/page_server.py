"""Serves the page and its data on the loopback address, to anybody that knows the address that the command printed.

Every user of the machine can reach the port, so each path begins with a token that only that address contains. A host name that an attacker
points at 127.0.0.1 would let the attacker's page read the data (DNS rebinding). The server therefore refuses a request whose Host does not
name it.
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
"""The most connections at a time; each has a thread. A browser opens six. Every user of the machine can open connections, also without the
token."""
_IDLE_SECONDS = 30
"""Seconds until a silent connection is closed; the page sends requests more often."""
_REFUSED = b"open the whole address that rlcore watch printed in its terminal; it holds a token\n"


class PageServer(ThreadingHTTPServer):
    """An HTTP server: ``/TOKEN/`` is the page; ``figures`` and ``rollouts`` below it are its data (gzip of JSON, with an ETag). Raises
    UsageError if the port is taken."""

    daemon_threads = True  # a browser keeps connections open, and Ctrl-C must end all of them

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
        """The address to type into a browser."""
        return f"http://{_HOST}:{self.server_port}/{self.token}/"

    def is_host(self, named: str | None) -> bool:
        """Return whether a request's ``Host`` names this server."""
        return named in {f"{name}:{self.server_port}" for name in (_HOST, "localhost")}

    def asked(self, path: str) -> str | None:
        """Return the part of a path behind the token; None if the path lacks the token."""
        token, slash, name = path.removeprefix("/").partition("/")
        known = hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode("ascii"))
        return name if known and slash else None

    def body(self, path: str) -> tuple[bytes, str] | None:
        """Return the bytes and content type for a path behind the token; None if the path names nothing."""
        if not path:
            return self._page, "text/html; charset=utf-8"
        if path not in self._parts:
            return None
        with self._one_at_a_time:  # several windows must not take the cores that training needs
            return packed(self._parts[path](), level=1), "application/json"

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """Serve a connection in its own thread, or close it if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """Serve the connection, in that thread, and release its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """Ignore a browser that closed its connection; print any other error, which is a defect."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class PageRequest(BaseHTTPRequestHandler):
    """The requests of one connection."""

    server: PageServer
    timeout = _IDLE_SECONDS
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send the page, its data, or one sentence that says what is wrong."""
        asked = self.server.asked(self.path.partition("?")[0])
        if asked is None or not self.server.is_host(self.headers.get("Host")):
            self._answer(HTTPStatus.FORBIDDEN, _REFUSED)
            return
        try:
            found = self.server.body(asked)
        except RlcoreError as error:  # for example, the folder was removed
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
        """Log nothing: a line each second would scroll the address away."""
