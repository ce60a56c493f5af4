"""The pages on rewards as a stranger follows them: exactly their text becomes files, passes the suite, trains and judges over a network."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import get_args

import pytest

from rlcore.api import FinishReason, Message, Outcome, Prompt, RewardInput, Rollout, Score, Segment
from rlcore.config.run_config import RewardBudget, RewardPolicy, ScheduleSection
from rlcore.contracts.reward_interface import AsyncReward, Reward
from rlcore.contracts.specs import RewardSpec
from rlcore.registry.plugin_registry import Registry
from rlcore.rewards.judge import Judge
from rlcore.rewards.pool import RewardPool
from rlcore.rewards.reward_entry import RewardEntry
from rlcore.rewards.worker_protocol import USUAL_LIMITS
from rlcore.testing import RunTester
from rlcore.testing.run_tester import QUIET

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "authors" / "rewards.md").read_text(encoding="utf-8")
USERS = (DOCS / "how_to" / "rewards.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- test: (?P<name>\S+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
BLOCKS = {match["name"]: match["text"] for match in BLOCK.finditer(PAGE + USERS)}
PYTEST = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"


def written(folder: Path) -> RunTester:
    tester = RunTester(folder, in_process=True).with_fakes()
    for name, text in BLOCKS.items():
        tester.write(name, text)
    return tester


def test_the_reward_conforms(tmp_path: Path) -> None:
    written(tmp_path)
    environment = os.environ | QUIET | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PYTEST, "test_my_reward.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_is_trained_with_it(tmp_path: Path) -> None:
    tester = written(tmp_path)
    tester.fake_run()
    tester.run("train", "run.toml", "rewards.toml").assert_ok()
    (path,) = tmp_path.rglob("metrics.jsonl")
    names = set(json.loads(path.read_text(encoding="utf-8").splitlines()[0]))
    assert {"reward/latency_p50", "reward/latency_p99", "reward/timeouts", "reward/outcome/wrong"} <= names
    (resolved,) = tmp_path.rglob("runs/**/run.toml")
    assert 'error = "stop"' in resolved.read_text(encoding="utf-8")


@pytest.fixture
def service() -> Iterator[str]:
    """The address of a service that gives the length of a text, and fails at every first attempt."""
    asked: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
            self.send_response(200 if text in asked else 503)
            self.end_headers()
            asked.add(text)
            self.wfile.write(json.dumps({"value": len(text)}).encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_the_judge_over_a_network_judges(tmp_path: Path, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written(tmp_path).folder)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    registry, name = Registry.discover(), "./my_judge.py:Judge"
    spec, model = registry.spec("reward", name), registry.options_model("reward", name)
    assert isinstance(spec, RewardSpec)
    assert model is not None
    entry = RewardEntry(name="judge", spec=spec, options=model(url=service), payload=registry.payload("reward", name))
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[-0.1], versions=[0], policy_mask=[True])
    with Judge([entry], workers=1, error_budget=0.0) as judge:
        rollouts = [
            Rollout(prompt_id="p", index=0, segments=(segment,), text="x" * size, finish=FinishReason.STOP) for size in range(1, 20)
        ]
        judge.submit(0, Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="?"),)), rollouts)
        ((_, scores),) = judge.poll(60.0)
    assert [score.value for score in scores] == [float(size) for size in range(1, 20)]


def test_the_page_names_every_field() -> None:
    for heading, fields in (("declares the reward", RewardSpec), ("is a `RewardInput`", RewardInput), ("is a `Score`", Score)):
        table = PAGE.partition(heading)[2].partition("| field |")[2].partition("\n\n")[0]
        assert set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:]))) == {
            field.name for field in dataclasses.fields(fields)
        }


def test_the_page_names_what_there_is() -> None:
    table = PAGE[PAGE.index("| member |") : PAGE.index("A plain function of one item")]
    for member in re.findall(r"^\| `(\w+)", table, re.MULTILINE):
        assert hasattr(Reward, member), member
    for member in ("concurrency", "retries", "backoff", "rate_limit", "retryable", "open_async", "close_async", "score_async"):
        assert hasattr(AsyncReward, member)
        assert member in PAGE
    for outcome in {outcome.value for outcome in Outcome} - {"invalid"}:
        assert f"`{outcome}`" in USERS
    assert set(RewardPolicy.model_fields) == {outcome.value for outcome in Outcome} - {"ok", "invalid"}
    assert set(RewardBudget.model_fields) == {"timeout", "error", "infra"}
    for action in get_args(RewardPolicy.model_fields["wrong"].annotation):
        assert f"`{action}`" in USERS
    assert f"`schedule.reward_error_budget` ({ScheduleSection().reward_error_budget})" in USERS


def test_the_page_says_when_workers_are_replaced() -> None:
    settings, said = ScheduleSection(), " ".join((PAGE + USERS).split())
    assert f"replaced after {settings.reward_worker_items} calls (`schedule.reward_worker_items`)" in said
    assert f"grew by {settings.reward_worker_growth_mb} MiB (`schedule.reward_worker_growth_mb`)" in said
    assert (settings.reward_worker_items, settings.reward_worker_growth_mb << 20) == (USUAL_LIMITS.items, USUAL_LIMITS.growth)
    assert f"{settings.reward_call_memory_mb} MiB more (`schedule.reward_call_memory_mb`)" in said
    assert settings.reward_call_memory_mb << 20 == USUAL_LIMITS.call
    assert f"{inspect.signature(RewardPool).parameters['start_seconds'].default:g} seconds to import and open" in said
