"""Producers that run vLLM on Ray, in the environment that holds it: the quickstart's task, and the reference's published command lines.

`make test-vllm` builds the environment and names it in RLCORE_TEST_VLLM; without that these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_quickstart.assets import prepare

from rlcore.testing import RunOutcome, RunTester
from tests.integration.ray.conftest import SmallCluster
from tests.unit.cli.test_train_command import ONE_MACHINE, ZERO_BUBBLE

ENVIRONMENT = os.environ.get("RLCORE_TEST_VLLM", "")
SECONDS = 900.0
"""What a run may take on a machine that has other work: its engines alone need a minute to start."""
pytestmark = [
    pytest.mark.skipif(not ENVIRONMENT, reason="needs the environment of vLLM: make test-vllm builds it and runs these tests"),
    pytest.mark.timeout(SECONDS + 100),
]
HERE = f"-t 1 -i 2 -zero 0 --inference-environment {shlex.quote(ENVIRONMENT)} --json"
"""What turns an example for eight GPUs into one for this machine."""


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm") / "demo"
    prepare(folder, 0, lambda line: None)
    return folder


@pytest.fixture
def example(quickstart: Path, tmp_path: Path) -> RunTester:
    """``MODEL`` and ``train.jsonl`` as the examples name them. The model is the quickstart's, with room for their lengths; it was taught
    without a system prompt, so its template leaves one out."""
    model = shutil.copytree(quickstart / "base", tmp_path / "MODEL")
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}), encoding="utf-8")
    template = (model / "chat_template.jinja").read_text(encoding="utf-8")
    assert "in messages %}" in template
    (model / "chat_template.jinja").write_text(template.replace("in messages %}", "in messages if message['role'] != 'system' %}"), "utf-8")
    rows = (quickstart / "train.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "train.jsonl").write_text("\n".join(rows[:16]) + "\n", encoding="utf-8")
    return RunTester(tmp_path)


def rows_of(tester: RunTester, outcome: RunOutcome, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tester.folder / outcome.json["run"] / name).read_text(encoding="utf-8").splitlines()]


def assert_both_producers_worked(tester: RunTester, outcome: RunOutcome) -> None:
    workers = [row["workers"] for row in rows_of(tester, outcome, "times.jsonl")]
    for name in ("producer-0", "producer-1"):
        assert sum(row[name]["compute"] for row in workers if name in row) > 0, name


def test_two_producers_train_and_say_what_the_trainer_says_of_their_tokens(quickstart: Path, cluster: SmallCluster) -> None:
    tester = RunTester(quickstart)
    flags = f"run.toml -b vllm -i 2 --max-staleness 2 --max-steps 4 -ei 0 --inference-environment {shlex.quote(ENVIRONMENT)} --json"
    outcome = tester.run("train", *shlex.split(flags), "--master_address", cluster.address, timeout=SECONDS).assert_ok()
    assert (outcome.json["steps"], outcome.json["ledger"]["failed"], outcome.json["remarks"]) == (4, 0, [])
    assert_both_producers_worked(tester, outcome)
    first, *later = [row for row in rows_of(tester, outcome, "metrics.jsonl") if row["step"]]
    assert (first["staleness/max"], first["sampler_gap"] < 1e-5) == (0.0, True)  # the same weights on both sides
    assert any(row["staleness/max"] > 0 for row in later)
    assert (tester.folder / outcome.json["checkpoint"] / "model" / "model.safetensors").is_file()


def test_the_first_published_example_is_refused_as_it_stands(example: RunTester) -> None:
    example.run("train", *shlex.split(ONE_MACHINE)).assert_refused("-tMbs 8 is more than -tbs 2", "type -tMbs 2 or -tbs 8")


@pytest.mark.nightly
def test_the_first_published_example_runs_to_its_end_on_this_machine(example: RunTester) -> None:
    outcome = example.run("train", *shlex.split(f"{ONE_MACHINE} -tMbs 2 {HERE}"), timeout=SECONDS).assert_ok()
    assert (outcome.json["steps"], outcome.json["ledger"]) == (8, {"trained": 16, "filtered": 0, "failed": 0})
    assert "GRPO-Train-Align-Debug" in outcome.json["run"]
    assert_both_producers_worked(example, outcome)


@pytest.mark.nightly
def test_the_zero_bubble_example_runs_to_its_end_on_this_machine(example: RunTester) -> None:
    outcome = example.run("train", *shlex.split(f"{ZERO_BUBBLE} {HERE}"), timeout=SECONDS).assert_ok()
    ledger = outcome.json["ledger"]
    assert outcome.json["steps"] >= 1
    assert ledger["trained"] + ledger["filtered"] == 32, "each prompt twice"
    assert_both_producers_worked(example, outcome)
