"""A stranger's sandbox, installed: programs of a run are judged by a service over HTTP, and rlcore has no line about it."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.api.sandbox import Job, Limits, Sandbox, SandboxOptions, open_sandbox
from rlcore.testing import FakePolicy, FakeTokenizer, RunTester, SandboxSuite
from tests.plain_programs import run_plainly
from tests.stranger_site import link_stranger, stranger_site

RIGHT, WRONG = (f"```python\nprint({what})\n```" for what in ("input()[::-1]", "1"))


class Service(ThreadingHTTPServer):
    """Runs what it is sent by ``subprocess``, and counts."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.runs = 0
        self.broken = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self._answer(b"acme box 1.0")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.broken:
            self.send_error(500)
            return
        self.server.runs += 1
        self._answer(json.dumps(_ran(asked)).encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _ran(asked: dict[str, Any]) -> dict[str, Any]:
    job = Job(
        source=None if asked["source"] is None else b64decode(asked["source"]),
        argv=tuple(b64decode(word).decode() for word in asked["argv"]),
        stdin=b64decode(asked["stdin"]),
        files={b64decode(name).decode(): b64decode(content) for name, content in asked["files"].items()},
        limits=Limits(**asked["limits"]),
    )
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir()
        ran = run_plainly(job, home)
    plain = {name: getattr(ran, name) for name in ("exit_code", "signal", "limit", "wall_seconds", "cpu_seconds", "memory_bytes")}
    return {**plain, "stdout": b64encode(ran.stdout).decode(), "stderr": b64encode(ran.stderr).decode()}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stranger_site(tmp_path_factory)


@pytest.fixture
def tester(tmp_path: Path, site: Path) -> RunTester:
    """Fakes for model and trainer; the policy writes a right or a wrong program, each with one token."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    link_stranger(site, tester.plugins)
    tokenizer = FakeTokenizer([RIGHT, WRONG, "a", "b", "c"])
    size = len(tokenizer)
    last = np.zeros((size, size), np.float32)
    last[4, 5:7] = 8.0  # after the assistant's token: one of the two programs
    last[5:7, 0] = 12.0  # after a program: the end
    model = tmp_path / "model"
    FakePolicy(last, np.zeros(((size + 1) * size, size), np.float32)).save(model)
    tokenizer.save(model)
    cases = {"inputs": ["abc"], "outputs": ["cba"]}
    tester.write_jsonl("train.jsonl", [{"messages": {"role": "user", "content": word}, "test_cases": cases} for word in "abc"])
    return tester


def config(tester: RunTester, **sandbox: Any) -> str:
    return str(
        tester.write_toml(
            "run.toml",
            {
                "run": {"num_episodes": 2, "max_steps": 2},
                "model": {"model": str(tester.folder / "model")},
                "data": {"dataset": str(tester.folder / "train.jsonl"), "system_prompt": ""},
                "sampling": {"num_generations": 4, "max_new_tokens": 2},
                "inference": {"name": "fake"},
                "training": {"name": "fake", "train_batch_size": 3, "learning_rate": 0.1},
                "algorithm": {"name": "fake"},
                "schedule": {"max_staleness": 0},
                "rewards": [{"name": "code", "options": {"sandbox": sandbox}}],
            },
        )
    )


@pytest.mark.serial
def test_a_run_is_judged_by_the_service(tester: RunTester, service: Service) -> None:
    run = tester.run("train", config(tester, backend="acme_http", backend_options={"url": service.url}), "--json").assert_ok()
    assert run.json["steps"] == 2
    assert service.runs >= 24
    folder = tester.folder / run.json["run"]
    plugins = json.loads((folder / "manifest.json").read_text())["plugins"]
    (attested,) = [row for row in plugins if row["kind"] == "sandbox"]
    assert (attested["name"], attested["distribution"], attested["version"]) == ("acme_http", "acme-rlcore", "0.1")
    rewards = [json.loads(line)["reward/mean"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(0 < reward < 10 for reward in rewards), "some programs are right, and some are wrong"
    assert "remote (acme box 1.0 at http://127.0.0.1:" in run.stdout + run.stderr


def test_it_is_listed_and_explained(tester: RunTester) -> None:
    assert "sandbox: acme_http" in tester.run("plugins").assert_ok().stdout
    shown = tester.run("show", "sandbox", "acme_http").assert_ok().stdout
    for words in ("acme-rlcore 0.1", "levels: remote", "rewards.options.sandbox.backend_options.url", 'backend = "acme_http"'):
        assert words in shown


@pytest.mark.parametrize(
    ("sandbox", "words"),
    [
        ({"backend": "acme_http"}, ("run.toml", "sandbox.backend_options", "url", "acme_http of acme-rlcore")),
        ({"backend": "acme_http", "backend_options": {"url": "here"}}, ("sandbox.backend_options.url", '"here"')),
        ({"backend": "acme_http", "backend_options": {"url": "http://h", "port": 1}}, ("backend_options.port", "not a setting")),
        ({"backend": "acme_http", "level": "landlock", "backend_options": {"url": "http://h"}}, ("line", "landlock", "gives remote")),
        ({"backend": "acme_htp"}, ("line", "there is no sandbox 'acme_htp'", "acme_http")),
    ],
)
def test_what_cannot_work_is_refused_before_the_run(tester: RunTester, sandbox: dict[str, Any], words: tuple[str, ...]) -> None:
    tester.run("train", config(tester, **sandbox)).assert_refused(*words)


@pytest.mark.interpreter
def test_a_sandbox_that_is_not_installed_is_refused_with_what_to_type(tester: RunTester, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(HIDE)
    apart = RunTester(tmp_path)  # what hides it is imported when a process starts
    refused = apart.run("train", config(tester), env={"PYTHONPATH": f"{tester.plugins.root}:{hidden}"})
    refused.assert_refused("sandbox local, which reward code uses, is not installed: pip install", "sandbox")
    tester.write_jsonl("said.jsonl", [{"completion": RIGHT, "test_cases": {"inputs": ["abc"], "outputs": ["cba"]}}])
    refused = apart.run("score", "said.jsonl", "--reward", "code", env={"PYTHONPATH": f"{tester.plugins.root}:{hidden}"})
    refused.assert_refused("error: sandbox 'local' is not installed: pip install")


HIDE = """
import importlib.metadata as metadata
found = metadata.distributions
metadata.distributions = lambda **where: (one for one in found(**where) if "rlcore-plugin-sandbox" not in str(one.metadata["Name"]))
"""


class TestAcmeHttp(SandboxSuite):
    """The stranger's class keeps the rules of every sandbox; its service, in this test, has no walls."""

    walls = False
    bounds_processes = False

    @pytest.fixture(autouse=True)
    def _service(self, service: Service, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(site))
        self.service = service

    def open(self) -> Sandbox:
        return open_sandbox(SandboxOptions(backend="acme_http", level="remote", backend_options={"url": self.service.url}))

    def break_down(self, sandbox: Sandbox) -> bool:
        self.service.broken = True
        return True


def test_nothing_but_the_api_is_imported(site: Path) -> None:
    source = (site / "acme_rlcore" / "sandbox.py").read_text()
    assert {line.split()[1] for line in source.splitlines() if line.startswith("from rlcore")} == {"rlcore.api.sandbox"}
    assert str(site) not in sys.path
