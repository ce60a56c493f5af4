"""``rlcore eval`` with real models: the numbers of a real run, and the same ones from every engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rlcore_plugin_quickstart.assets import Assets, prepare
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunTester
from tests.engine_servers import vllm_server
from tests.eval_rows import answers_of, tasks_of

ENVIRONMENT = os.environ.get("RLCORE_TEST_VLLM", "")
needs_vllm = pytest.mark.skipif(not ENVIRONMENT, reason="needs the environment of vLLM: make test-vllm builds it and runs these tests")
pytestmark = pytest.mark.timeout(900)
GREEDY = ("run.toml", "--eval-temperature", "0", "-d", "heldout.jsonl")


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Assets:
    return prepare(tmp_path_factory.mktemp("demo") / "demo", 0, lambda line: None)


@pytest.mark.full
@pytest.mark.parametrize(
    "drawn",
    [
        pytest.param(("--eval-temperature", "0.6", "--eval-samples", "4"), id="sampled"),
        pytest.param(("--eval-temperature", "0"), id="greedy", marks=pytest.mark.nightly),
    ],
)
def test_a_real_run_and_its_checkpoint_have_the_same_numbers(drawn: tuple[str, ...], assets: Assets) -> None:
    tester = RunTester(assets.folder)
    short = ("--max-steps", "2", "-tbs", "8", "-ei", "1", "-si", "1", *drawn)
    record = RunRecord(assets.folder / tester.run("train", "run.toml", *short, "--json").assert_ok().json["run"])
    here = RunTester(assets.folder, in_process=True)
    for step in (0, 1):
        rows = f"{record.root.name}-{step}.jsonl"
        done = here.run("eval", str(record.root), "--step", str(step), "--out", rows, "--json").assert_ok()
        (logged,) = [row for row in record.evaluations() if row["step"] == step]
        assert {"step": step, **tasks_of(done.json)["sort"]["figures"]} == logged
        assert answers_of(assets.folder / rows) == [{"task": "sort", **row} for row in record.evaluation_rows("sort", step)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("files", "said"),
    [({}, "no config.json"), ({"adapter_config.json": "{}"}, "no config.json"), ({"config.json": "{}"}, "config.json")],
    ids=["nothing", "adapters alone", "no model"],
)
def test_a_folder_without_a_whole_model_is_refused(files: dict[str, str], said: str, assets: Assets) -> None:
    tester = RunTester(assets.folder, in_process=True)
    (assets.folder / "odd").mkdir(exist_ok=True)
    for name, text in files.items():
        tester.write(f"odd/{name}", text)
    tester.run("eval", "odd", *GREEDY).assert_refused("odd", said)


def transformers_answers(assets: Assets) -> tuple[dict[str, object], list[dict[str, object]]]:
    """The tasks and the rows of the backend that all others are held against."""
    (assets.folder / "here.jsonl").unlink(missing_ok=True)
    done = RunTester(assets.folder).run("eval", "base", *GREEDY, "--out", "here.jsonl", "--json").assert_ok()
    return tasks_of(done.json), answers_of(assets.folder / "here.jsonl")


@needs_vllm
def test_vllm_in_an_environment_of_its_own_answers_as_transformers(assets: Assets) -> None:
    """Greedy, in float32; the reward's packages are not in the environment."""
    tester = RunTester(assets.folder)
    words = ("-b", "vllm", "--inference-environment", ENVIRONMENT, "--out", "there.jsonl", "--json")
    done = tester.run("eval", "base", *GREEDY, *words, timeout=600).assert_ok()
    tasks, rows = transformers_answers(assets)
    assert tasks_of(done.json) == tasks
    assert answers_of(assets.folder / "there.jsonl") == rows


@needs_vllm
@pytest.mark.nightly
def test_a_server_that_runs_already_answers_as_transformers(assets: Assets, tmp_path: Path) -> None:
    """No folder for weights is named: an evaluation sends none."""
    server = vllm_server(Path(ENVIRONMENT), assets.folder / "base", tmp_path / "server.log", words=("--max-model-len", "256"))
    server.start()
    try:
        server.wait()
        words = ("-b", "endpoint", "--addresses", server.address, "--out", "served.jsonl", "--json")
        done = RunTester(assets.folder).run("eval", "base", *GREEDY, *words, timeout=600).assert_ok()
    finally:
        server.kill()
    tasks, rows = transformers_answers(assets)
    assert tasks_of(done.json) == tasks
    assert answers_of(assets.folder / "served.jsonl") == rows
