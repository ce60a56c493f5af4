"""A package index of this machine: our distributions from the folder of ``build``, every other name from the index behind it.

pip takes the highest version of a name that any of its indexes and folders offers, and of equal versions the file of the last one. With
``--find-links dist`` or ``--extra-index-url``, a package of a stranger that is named like one of ours could therefore be installed, even
where ``constraints.txt`` pins the version. Here a name has one origin.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tools.dependencies import normal


@contextmanager
def serve(dist: Path, behind: str) -> Iterator[str]:
    """Serve the wheels and sources of ``dist`` on a free port of this machine; yield the address for ``pip --index-url``."""
    files: dict[str, dict[str, bytes]] = {}
    for path in (*dist.glob("*.whl"), *dist.glob("*.tar.gz")):
        files.setdefault(normal(path.name.split("-")[0]), {})[path.name] = path.read_bytes()

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            words = self.path.strip("/").split("/")
            name, ours = words[1], files.get(words[1])
            if ours is None:
                self._answer(302, b"", "Location", f"{behind.rstrip('/')}/{name}/")
            elif len(words) == 3:
                self._answer(200 if words[2] in ours else 404, ours.get(words[2], b""), "Content-Type", "application/octet-stream")
            else:
                links = (f'<a href="{file}#sha256={sha256(data).hexdigest()}">{file}</a><br>' for file, data in ours.items())
                self._answer(200, "".join(["<!DOCTYPE html>", *links]).encode(), "Content-Type", "text/html")

        def _answer(self, status: int, body: bytes, header: str, value: str) -> None:
            self.send_response(status)
            self.send_header(header, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing: pip says what it downloads."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple/"
        finally:
            server.shutdown()
