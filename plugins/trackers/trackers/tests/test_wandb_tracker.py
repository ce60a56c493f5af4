"""What wandb's own reader (that of ``wandb leet inspect``) finds in an offline run, and that nothing asks, hangs or stays behind."""

from __future__ import annotations

import gzip
import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import wandb
from rlcore_plugin_trackers.wandb_options import WandbOptions
from rlcore_plugin_trackers.wandb_tracker import WandbTracker
from wandb.sdk.lib.service import service_port_file

from rlcore.api import RunInfo, Tracker
from rlcore.testing import TrackerSuite
from tests.wandb_records import QUICK, wandb_records

KEY = "0123456789" * 4
NOWHERE = "http://127.0.0.1:9"
"""A port of this machine on which nobody answers."""


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a key, and a server that is not there."""
    folder = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("NETRC", str(folder / "netrc"))
    monkeypatch.setenv("WANDB_BASE_URL", NOWHERE)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(service_port_file, "_SLEEP", lambda seconds: time.sleep(seconds / 20))  # between looks whether its service is there
    return folder


class LittleServer:
    """As much of W&B's server as a run needs: ``history`` are the rows that it was sent, ``runs`` the ids of the runs that began."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self.runs: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answering", (_Handler,), {"outer": self}))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> LittleServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, sent: dict[str, Any]) -> dict[str, Any]:
        if "file_stream" in path:
            rows = sent.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            self.history += [{name: value for name, value in json.loads(row).items() if name[0] != "_"} for row in rows]
            return {"exitcode": None, "limits": {}}
        asked, given = sent.get("query", ""), sent.get("variables", {})
        if "upsertBucket" in asked:
            self.runs.add(given["name"])
            project = {"id": "P", "name": given["project"], "entity": {"id": "E", "name": "me"}}
            bucket = {"id": "B", "name": given["name"], "displayName": given["displayName"], "config": "{}", "project": project}
            return {"data": {"upsertBucket": {"bucket": {**bucket, "historyLineCount": 0}, "inserted": True}}}
        if "createRunFiles" in asked:
            files = [{"name": name, "uploadUrl": f"{self.address}/{name}"} for name in given["files"]]
            return {"data": {"createRunFiles": {"runID": "B", "uploadHeaders": [], "files": files}}}
        return {"data": {"model": {"id": "P", "name": "p", "entity": {"id": "E", "name": "me"}, "bucket": None}}}


class _Handler(BaseHTTPRequestHandler):
    outer: LittleServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        self.say(self.outer.answer(self.path, json.loads(body)))

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.say({})

    def say(self, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: object) -> None:
        """Nothing."""


def rows(folder: Path) -> list[dict[str, Any]]:
    """The history of the only run in a folder that W&B wrote."""
    (run,) = folder.glob("wandb/*run-*/")
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in items(run, "history", "item")]


def items(run: Path, kind: str, *inside: str) -> list[Any]:
    found = wandb_records(run, kind)
    for name in inside:
        found = [record[name] for record in found]
    return found


def a_run(folder: Path, said: list[str] | None = None, **other: Any) -> RunInfo:
    (folder / "run-1").mkdir(parents=True, exist_ok=True)
    note = print if said is None else said.append
    config = {"run": {"project": "p"}, "training": {"learning_rate": 0.5}}
    return RunInfo(folder=folder / "run-1", config=config, manifest={"rlcore": "0.1.0", "plugins": [{"code": "abc"}]}, note=note, **other)


def tracked(run: RunInfo, *records: Mapping[str, Any], **options: Any) -> WandbTracker:
    tracker = WandbTracker(WandbOptions(**options))
    tracker.open(run)
    for record in records:
        tracker.log(record)
    return tracker


class TestWandbTracker(TrackerSuite):
    def make(self, folder: Path) -> Tracker:
        return WandbTracker(WandbOptions(mode="offline", system_metrics=False))

    def kept(self, folder: Path) -> list[Mapping[str, Any]] | None:
        return list(rows(folder / "run"))


class TestDisabledWandb(TrackerSuite):
    def make(self, folder: Path) -> Tracker:
        return WandbTracker(WandbOptions(mode="disabled"))


def test_an_offline_run_says_what_it_is_and_how_to_send_it(tmp_path: Path) -> None:
    said: list[str] = []
    run = a_run(tmp_path, said)
    tracked(run, {"step": 3, "reward/mean": 0.1}, {"step": 2, "eval/held": math.nan}, group="g", tags=("a", "b"), entity="team").close()
    assert rows(run.folder) == [{"step": 3, "reward/mean": 0.1}, {"step": 2, "eval/held": "NaN"}]
    (where,) = run.folder.glob("wandb/offline-run-*/")
    assert said == [f"wandb: type wandb sync {where} to send the figures"]
    (info,) = items(where, "run")
    said_of_it = {name: info[name] for name in ("project", "display_name", "run_group", "tags", "entity")}
    assert said_of_it == {"project": "p", "display_name": "run-1", "run_group": "g", "tags": ["a", "b"], "entity": "team"}
    config = info["config"]["update"]
    assert config["training"] == {"learning_rate": 0.5}
    assert config["rlcore"] == run.manifest
    assert {item.get("glob_name"): item.get("step_metric") for item in items(where, "metric")}["*"] == "step"


def test_a_run_that_goes_on_is_the_same_run_with_each_record_once(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    tracked(run, *({"step": step, "a": float(step)} for step in (1, 2, 3)), mode="offline").close()
    kept = json.loads((run.folder / "wandb.json").read_text())
    lines = [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}, {"step": 2, "eval/held": 0.5}]
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    tracked(replace(run, step=2), {"step": 3, "a": 30.0}, mode="offline").close()
    assert rows(run.folder) == [*lines, {"step": 3, "a": 30}]
    assert json.loads((run.folder / "wandb.json").read_text()) == kept
    assert len(list(run.folder.glob(f"wandb/offline-run-*-{kept['id']}*"))) == 1


def test_what_was_sent_is_not_sent_again(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    tracked(run, {"step": 1, "a": 1.0}, mode="offline").close()
    (first,) = run.folder.glob("wandb/offline-run-*/")
    (first / f"run-{first.name.rpartition('-')[2]}.wandb.synced").touch()  # what wandb sync leaves
    (run.folder / "metrics.jsonl").write_text('{"step": 1, "a": 1.0}\n')
    tracked(replace(run, step=1), {"step": 2, "a": 2.0}, mode="offline", dir=str(tmp_path / "elsewhere")).close()
    # In another folder the mark is not seen: everything is there once more. In the same one it is.
    assert [row["step"] for row in rows(tmp_path / "elsewhere")] == [1, 2]
    tracked(replace(run, step=1), {"step": 2, "a": 2.0}, mode="offline").close()
    (second,) = (one for one in run.folder.glob("wandb/offline-run-*/") if one != first)
    assert json.loads((run.folder / "wandb.json").read_text())["sent"]
    assert [row["step"] for row in items(second, "history", "item")] == [2]


@pytest.mark.parametrize(("options", "variables"), [({}, {}), ({"mode": "online"}, {}), ({}, {"WANDB_MODE": "online"})])
def test_without_a_key_the_figures_are_kept_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    run = a_run(tmp_path, said)
    tracked(run, {"step": 1, "a": 1.0}, **options).close()
    assert rows(run.folder) == [{"step": 1, "a": 1}]
    asked = bool(options or variables)
    assert [("wandb login" in line) for line in said] == [True, False][not asked :]


@pytest.mark.parametrize("mode", ["disabled", "offline"])
def test_the_variable_decides_where_no_option_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("WANDB_MODE", mode)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    tracked(a_run(tmp_path), {"step": 1, "a": 1.0}).close()
    assert len(list(tmp_path.glob("run-1/wandb/offline-run-*/"))) == (mode == "offline")


def test_a_server_that_does_not_answer_leaves_the_run_offline_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    said: list[str] = []
    run = a_run(tmp_path, said)
    began = time.monotonic()
    tracked(run, {"step": 1, "a": 1.0}, timeout=2).close()
    assert time.monotonic() - began < 60  # a hang, and no measurement
    (offline,) = run.folder.glob("wandb/offline-run-*/")
    assert [row["a"] for row in items(offline, "history", "item")] == [1]
    assert said[0].startswith("wandb: no run online (")
    assert json.loads((run.folder / "wandb.json").read_text())["sent"] is False


@pytest.mark.parametrize("key", ["too-short", "x" * 39])
def test_a_key_that_is_none_is_told_and_the_run_is_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("WANDB_API_KEY", key)
    said: list[str] = []
    run = a_run(tmp_path, said)
    tracked(run, {"step": 1, "a": 1.0}, mode="online", timeout=2).close()
    assert len(list(run.folder.glob("wandb/offline-run-*/"))) == 1
    assert said[0].endswith("the figures are kept offline")


def test_neither_threads_nor_files_in_the_home_stay_behind(tmp_path: Path, home: Path) -> None:
    before = set(threading.enumerate())
    tracked(a_run(tmp_path), {"step": 1, "a": 1.0}).close()
    assert set(threading.enumerate()) <= before
    assert wandb.run is None
    assert {path.suffix for path in home.rglob("*") if path.is_file()} == {".log"}  # of W&B's service


PROGRAM = """
import sys
from pathlib import Path
from rlcore.api import RunInfo
from rlcore_plugin_trackers.wandb_options import WandbOptions
from rlcore_plugin_trackers.wandb_tracker import WandbTracker

tracker = WandbTracker(WandbOptions(mode="online", timeout=2))
tracker.open(RunInfo(folder=Path(sys.argv[1]), config={"run": {"project": "p"}}, note=lambda text: None))
tracker.log({"step": 1, "a": 1.0})
print("logged", flush=True)
if sys.argv[2] == "wait":
    sys.stdin.read()
tracker.close()
print("closed", flush=True)
"""


def test_in_a_terminal_nothing_is_asked_and_nothing_is_printed(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), "go"], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert process.wait(60) == 0
    assert shown.decode().split() == ["logged", "closed"]


@pytest.mark.serial
def test_the_service_of_a_run_that_is_killed_ends(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "logged\n"
    assert services(process.pid)
    process.kill()
    process.communicate()
    until = time.monotonic() + 60
    while services(process.pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert not services(process.pid)


DYING = """
import sys, time
from pathlib import Path
from rlcore.api import RunError, RunInfo
from rlcore_plugin_trackers.wandb_options import WandbOptions
from rlcore_plugin_trackers.wandb_tracker import WandbTracker

tracker = WandbTracker(WandbOptions(mode="offline"))
tracker.open(RunInfo(folder=Path(sys.argv[1]), config={"run": {"project": "p"}}, note=print))
print("opened", flush=True)
sys.stdin.read()
try:
    for step in range(1000):
        tracker.log({"step": step, "a": 1.0})
        time.sleep(0.01)
except RunError as error:
    print(error)
"""


def test_a_service_that_dies_is_one_sentence(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DYING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "opened\n"
        for number in services(process.pid):
            os.kill(number, signal.SIGKILL)
        said, errors = process.communicate(timeout=60)
    (where,) = tmp_path.glob("wandb/offline-run-*/")
    assert re.fullmatch(rf"W&B's service has died \(.*\); wandb sync {where} sends the figures that it had\n", said)
    assert (process.returncode, errors) == (0, "")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LittleServer]:
    with LittleServer() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.address)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        yield server


def test_online_the_server_has_the_figures_and_a_resume_sends_what_is_new(tmp_path: Path, server: LittleServer) -> None:
    said: list[str] = []
    run = a_run(tmp_path, said)
    tracked(run, {"step": 1, "a": 1.0}, {"step": 1, "eval/held": 0.5}).close()
    kept = json.loads((run.folder / "wandb.json").read_text())
    assert said == [f"wandb: {server.address}/me/p/runs/{kept['id']}"]
    (run.folder / "metrics.jsonl").write_text('{"step": 1, "a": 1.0}\n{"step": 1, "eval/held": 0.5}\n')
    tracked(replace(run, step=1), {"step": 2, "a": 2.0}).close()
    assert server.history == [{"step": 1, "a": 1}, {"step": 1, "eval/held": 0.5}, {"step": 2, "a": 2}]
    assert server.runs == {kept["id"]}


def test_what_was_kept_offline_goes_to_the_server_once_there_is_one(tmp_path: Path, server: LittleServer) -> None:
    run = a_run(tmp_path)
    tracked(run, {"step": 1, "a": 1.0}, mode="offline").close()
    (run.folder / "metrics.jsonl").write_text('{"step": 1, "a": 1.0}\n')
    tracked(replace(run, step=1), {"step": 2, "a": 2.0}).close()
    assert server.history == [{"step": 1, "a": 1}, {"step": 2, "a": 2}]
    assert not list(run.folder.glob("wandb/offline-run-*"))


def test_a_server_that_goes_away_costs_the_timeout_and_says_how_to_send_the_rest(tmp_path: Path, server: LittleServer) -> None:
    said: list[str] = []
    tracker = tracked(a_run(tmp_path, said), {"step": 1, "a": 1.0}, timeout=2)
    server.stop()
    tracker.log({"step": 2, "a": 2.0})
    tracker.close()
    (where,) = tmp_path.glob("run-1/wandb/run-*/")
    assert said[1:] == [f"wandb: type wandb sync {where} to send the figures that were not sent within 2 s"]
    assert [row["step"] for row in items(where, "history", "item")] == [1, 2]


def services(parent: int) -> list[int]:
    """W&B's services of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:  # it has ended meanwhile
            continue
        if "wandb-core" in words[0] and str(parent) in words:
            found.append(int(path.parent.name))
    return found
