"""A real HTTP server that answers as an OpenAI-compatible one does, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, str]
"""Status, and the content of the message (of 200), or the body."""


class JudgingService(ThreadingHTTPServer):
    """``rule`` is given the body of each request; ``asked`` are all bodies, ``headers`` those of the newest."""

    daemon_threads = True

    def __init__(self, rule: Callable[[dict[str, Any]], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.rule, self.asked, self.headers = rule, [], {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append(body)
        server.headers = dict(self.headers)
        status, content = server.rule(body) if self.path == "/v1/chat/completions" else (404, self.path)
        said = content
        if status == 200:
            message = {"role": "assistant", "content": content}
            said = json.dumps({"choices": [{"message": message}], "usage": {"prompt_tokens": 1000, "completion_tokens": 200}})
        self.send_response(status)
        if status == 302:
            self.send_header("Location", content)
        if status == 429:
            self.send_header("Retry-After", content)
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


def judged_texts(body: dict[str, Any], title: str) -> str:
    """What stands between the lines of one part of the question, found as a reader would who trusts the mark of the system message."""
    system, user = (message["content"] for message in body["messages"])
    mark = system.split("BEGIN ")[1].split(" ")[0]
    return user.split(f"{title}:\nBEGIN {mark}\n")[1].split(f"\nEND {mark}")[0]
