"""``rlcore watch``: who is answered, with what, and how it ends."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from rlcore_plugin_tools.report.page_server import PageServer
from rlcore_plugin_tools.report.report_content import Bounds, ReportContent

from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET
from tests.synthetic_runs import SyntheticRun


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return SyntheticRun(steps=4, groups=2, ends="killed").write(tmp_path / "run")


@pytest.fixture
def server(run: Path) -> Iterator[PageServer]:
    with PageServer(ReportContent([run], Bounds(100, 1000)), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: PageServer, path: str, *, token: str | None = None, **headers: str) -> http.client.HTTPResponse:
    """``token``: another one than the server's; "" for none."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    first = f"/{server.token}" if token is None else f"/{token}" if token else ""
    connection.request("GET", first + path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def test_the_page_asks_its_server_alone(server: PageServer) -> None:
    answer = ask(server, "/")
    assert answer.status == 200
    text = answer.body.decode()  # type: ignore[attr-defined]
    assert 'data-live="yes"' in text
    assert "connect-src 'self'" in text
    assert server.server_address[0] == "127.0.0.1"


def test_data_has_a_mark_and_is_sent_once(server: PageServer, run: Path) -> None:
    first = ask(server, "/figures")
    told = json.loads(gzip.decompress(first.body))  # type: ignore[attr-defined]
    assert told["runs"][0]["steps"] == [1, 2, 3, 4]
    tag = first.headers["ETag"]
    assert ask(server, "/figures", If_None_Match=tag).status == 304
    with (run / "metrics.jsonl").open("r+") as file:
        text = file.read()
        file.seek(text.rindex("\n") + 1)
        file.truncate()
        file.write(json.dumps({"step": 5, "reward/mean": 1.0, "seconds": 1.0}) + "\n")
    again = ask(server, "/figures", If_None_Match=tag)
    assert again.status == 200
    assert json.loads(gzip.decompress(again.body))["runs"][0]["steps"] == [1, 2, 3, 4, 5]  # type: ignore[attr-defined]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1.evil.example:{port}", "evil.example:{port}", "127.0.0.1:1"])
@pytest.mark.parametrize("path", ["/", "/figures", "/rollouts"])
def test_a_name_that_points_here_is_refused(server: PageServer, host: str, path: str) -> None:
    answer = ask(server, path, Host=host.format(port=server.server_port))
    assert answer.status == 403
    assert b"rlcore watch" in answer.body  # type: ignore[attr-defined]
    assert ask(server, path, Host=f"localhost:{server.server_port}").status == 200


@pytest.mark.parametrize("wrong", ["", "figures", "{token}x", "{cut}", "%00", "{token}%00", "\u00e9", "..", "?token={token}", "{swapped}"])
def test_other_users_of_the_machine_are_refused(server: PageServer, wrong: str) -> None:
    token = server.token
    first = quote(wrong.format(token=token, cut=token[:-1], swapped=token.swapcase()), safe="%?=./")
    for path in ("/", "/figures", "/rollouts", "/favicon.ico", "/run.toml"):
        answer = ask(server, path, token=first)
        assert answer.status == 403
        assert answer.body.count(b"\n") == 1  # type: ignore[attr-defined]
        assert b"rlcore watch" in answer.body  # type: ignore[attr-defined]
        assert token.encode() not in answer.body  # type: ignore[attr-defined]


def test_the_token_is_long_and_of_this_server_alone(server: PageServer, run: Path) -> None:
    with PageServer(ReportContent([run], Bounds(1, 100)), 0) as other:
        assert other.token != server.token
        assert min(len(other.token), len(server.token)) >= 32
        assert server.url == f"http://127.0.0.1:{server.server_port}/{server.token}/"


@pytest.mark.parametrize("path", ["/", "/figures", "/rollouts", "/nothing"])
def test_an_answer_is_kept_nowhere_and_tells_no_other_site(server: PageServer, path: str) -> None:
    for token in (None, "wrong"):
        headers = ask(server, path, token=token).headers
        assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")


def test_requests_are_not_logged(server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    ask(server, "/figures")
    ask(server, "/nothing", token="wrong")
    assert capfd.readouterr() == ("", "")


def test_nothing_else_is_served(server: PageServer) -> None:
    assert ask(server, "/../run.toml").status == 404
    assert ask(server, "/run.toml").status == 404


def test_a_run_that_is_removed_is_a_sentence(server: PageServer, run: Path) -> None:
    (run / "run.toml").rename(run / "gone.toml")
    answer = ask(server, "/figures")
    assert answer.status == 503
    assert b"is not a run folder" in answer.body  # type: ignore[attr-defined]
    (run / "gone.toml").rename(run / "run.toml")
    assert ask(server, "/figures").status == 200


def test_a_taken_port_is_refused_in_one_sentence(run: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        RunTester(tmp_path, in_process=True).run("watch", "run", "--port", str(port)).assert_refused(
            f"port {port} cannot be served", "--port"
        )


def test_ctrl_c_ends_it_with_0_while_a_browser_is_connected(run: Path) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "watch", str(run)], env=os.environ | QUIET, stdout=subprocess.PIPE, text=True
    )
    assert watching.stdout is not None
    with watching, watching.stdout:
        found = re.search(r"http://127\.0\.0\.1:(\d+)(/[\w-]{32,}/) ", watching.stdout.readline())
        assert found is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
        connection.request("GET", f"{found[2]}figures")
        assert connection.getresponse().read()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=60) == 0
        connection.close()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that is made after this serves three connections at a time."""
    monkeypatch.setattr("rlcore_plugin_tools.report.page_server._MOST_CONNECTIONS", 3)


@pytest.mark.usefixtures("few")
def test_connections_that_say_nothing_take_no_more_than_their_number_of_threads(request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue("server")
    silent = [socket.create_connection(("127.0.0.1", server.server_port), timeout=30) for _ in range(3)]
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as another:
            assert another.recv(1) == b""  # closed at once
    finally:
        for one in silent:
            one.close()
    for _ in range(3000):
        if server._free.acquire(blocking=False):
            server._free.release()
            break
        threading.Event().wait(0.01)
    assert ask(server, "/").status == 200


def test_a_connection_that_says_nothing_is_closed(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_plugin_tools.report.page_server.PageRequest.timeout", 0.1)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as silent:
        silent.sendall(b"GET /x HTTP/1.1\r\n")
        assert silent.recv(1) == b""
