"""Serves the page and its data on the loopback address, to a browser of this machine and to nobody else.

A name that an attacker's server points at 127.0.0.1 would make a browser read the data for the attacker's page (DNS rebinding), so a
request whose Host is not this server is refused.
"""

from __future__ import annotations

import hashlib
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rlcore.api import RlcoreError, UsageError
from rlcore_plugin_report.page_text import packed, page
from rlcore_plugin_report.report_content import ReportContent

__all__ = ["PageServer"]

_HOST = "127.0.0.1"


class PageServer(ThreadingHTTPServer):
    """``/`` is the page, ``/figures`` and ``/rollouts`` its data (gzip of JSON, with an ETag). UsageError if the port is taken."""

    daemon_threads = True  # a browser holds connections open, and Ctrl-C must end all

    def __init__(self, content: ReportContent, port: int) -> None:
        self._page = page()
        self._parts: Mapping[str, Callable[[], dict[str, Any]]] = {"/figures": content.figures, "/rollouts": content.rollouts}
        self._one_at_a_time = threading.Lock()
        try:
            super().__init__((_HOST, port), PageRequest)
        except OSError as error:
            raise UsageError(f"port {port} cannot be served ({error.strerror}); choose another one with --port, or leave it out") from None

    @property
    def url(self) -> str:
        """What to type into a browser."""
        return f"http://{_HOST}:{self.server_port}/"

    def is_host(self, named: str | None) -> bool:
        """Whether a request's ``Host`` names this server."""
        return named in {f"{name}:{self.server_port}" for name in (_HOST, "localhost")}

    def body(self, path: str) -> tuple[bytes, str] | None:
        """Bytes and type of what a path names; None if it names nothing."""
        if path == "/":
            return self._page, "text/html; charset=utf-8"
        if path not in self._parts:
            return None
        with self._one_at_a_time:  # several windows must not take the training's cores
            return packed(self._parts[path](), level=1), "application/json"

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """A browser that went away is nobody's concern; anything else is a defect, and shown."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class PageRequest(BaseHTTPRequestHandler):
    """One connection."""

    server: PageServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The page, its data, or what is wrong in one sentence."""
        if not self.server.is_host(self.headers.get("Host")):
            self._answer(HTTPStatus.FORBIDDEN, b"type the address that rlcore watch printed\n")
            return
        try:
            found = self.server.body(self.path.partition("?")[0])
        except RlcoreError as error:  # the folder was removed, say
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode("utf-8", "replace"))
            return
        if found is None:
            self._answer(HTTPStatus.NOT_FOUND, b"there is / alone\n")
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
            "Cache-Control": "no-cache",
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
