"""The published command lines of ColossalChat on this machine: trainer colossalai and producers of vLLM, each in its environment.

`make test-reference` builds both environments and names them in RLCORE_TEST_VLLM and RLCORE_TEST_COLOSSALAI; without both these tests are
skipped. A line is run as it was published. What comes behind it fits it to this machine, since the last value of a repeated flag counts:
fewer trainers and producers, the environments, and `-tMbs 2`, without which the first line is refused.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from rlcore_plugin_quickstart.digits_tokenizer import build_tokenizer
from rlcore_plugin_quickstart.task import make_split
from rlcore_plugin_quickstart.warmstart import WarmStartSettings, save_model, warm_start

from rlcore.testing import RunTester
from tests.integration.ray.conftest import SmallCluster
from tests.integration.ray.faults import BackgroundRun, Outcome
from tests.unit.cli.test_train_command import FOUR_NODES, ONE_MACHINE, ZERO_BUBBLE

VLLM, COLOSSALAI = (os.environ.get(f"RLCORE_TEST_{name}", "") for name in ("VLLM", "COLOSSALAI"))
pytestmark = [
    pytest.mark.skipif(not (VLLM and COLOSSALAI), reason="needs the environments of vLLM and of ColossalAI: make test-reference"),
    pytest.mark.timeout(900),
]
ENVIRONMENTS = ("--trainer", "colossalai", "--training-environment", COLOSSALAI, "--inference-environment", VLLM)
ROWS = 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose heads two ranks can divide, which is right at times, and has room for the published lengths. It was taught without a
    system prompt, so its template leaves one out."""
    folder, tokenizer = tmp_path_factory.mktemp("model"), build_tokenizer()
    settings = WarmStartSettings(heads=4, target=0.3)
    save_model(warm_start(make_split(0, 400, 8).train, tokenizer, 0, settings, lambda line: None).model, folder)
    tokenizer.save_pretrained(folder)
    config, template = folder / "config.json", folder / "chat_template.jinja"
    config.write_text(json.dumps({**json.loads(config.read_text("utf-8")), "max_position_embeddings": 4096}), "utf-8")
    text = template.read_text("utf-8")
    assert "in messages %}" in text
    template.write_text(text.replace("in messages %}", "in messages if message['role'] != 'system' %}"), "utf-8")
    return folder


@pytest.fixture
def example(model: Path, tmp_path: Path) -> RunTester:
    """``MODEL`` and ``train.jsonl`` as the examples name them."""
    (tmp_path / "MODEL").symlink_to(model)
    made = RunTester(tmp_path)
    made.write_jsonl("train.jsonl", [problem.row() for problem in make_split(0, ROWS, 8).train])
    return made


def line(published: str, *here: str) -> tuple[str, ...]:
    """A published line, what fits it to this machine, and the environments."""
    return ("train", *shlex.split(published), *here, *ENVIRONMENTS, "--json")


def assert_all_worked(outcome: Outcome, *, updates: int, ranks: int, producers: int) -> None:
    """All of them computed, the trainer says of the first tokens what the engine said, and some update moves the weights."""
    assert outcome.exit_code == 0, outcome
    workers = [row["workers"] for row in outcome.rows("times.jsonl")]
    names = [f"trainer-{rank}" for rank in range(ranks)] + [f"producer-{number}" for number in range(producers)]
    assert {name for row in workers for name in row if name.startswith(("trainer-", "producer-"))} == set(names)
    for name in names:
        assert sum(row[name]["compute"] for row in workers if name in row) > 0, name
    rows = [row for row in outcome.rows("metrics.jsonl") if "grad_norm" in row]
    assert [row["step"] for row in rows] == list(range(1, updates + 1))
    assert (rows[0]["staleness/max"], rows[0]["sampler_gap"] < 1e-4) == (0.0, True), rows[0]
    assert max(row["grad_norm"] for row in rows) > 0.01, rows


def test_one_machine_with_zero_2(example: RunTester) -> None:
    """Published for eight GPUs, one a trainer or producer; here four processes. Its title says ZeRO 2."""
    with BackgroundRun(example, line(ONE_MACHINE, "-tMbs", "2", "-zero", "2", "-t", "2", "-i", "2"), example.folder) as run:
        outcome = run.outcome()
    assert_all_worked(outcome, updates=4, ranks=2, producers=2)
    assert outcome.summary["ledger"] == {"trained": ROWS, "filtered": 0, "failed": 0}
    assert outcome.folder is not None
    assert outcome.folder.parent.name == "GRPO-Train-Align-Debug"


def test_tensor_and_pipeline_parallel_over_machines(example: RunTester, joint_cluster: SmallCluster) -> None:
    """Published for 4 x 2 devices a model on four nodes; here 2 x 2 processes on one, and the producer on another."""
    cluster, node = joint_cluster, joint_cluster.add(2)
    here = ("--master_address", cluster.address, "-t", "4", "-i", "1", "-tp", "2", "-pp", "2")
    try:
        with BackgroundRun(example, line(FOUR_NODES, *here), cluster.folder) as run:
            run.reach(1)
            homes = cluster.homes()
            outcome = run.outcome()
    finally:
        cluster.remove(node)
    assert_all_worked(outcome, updates=8, ranks=4, producers=1)
    assert not homes["ProducerWorker"] & homes["TrainerWorker"], homes
    assert outcome.summary["ledger"] == {"trained": 2 * ROWS, "filtered": 0, "failed": 0}


@pytest.mark.nightly
def test_zero_bubble(example: RunTester) -> None:
    with BackgroundRun(example, line(ZERO_BUBBLE, "-t", "2", "-i", "2"), example.folder) as run:
        outcome = run.outcome()
    assert_all_worked(outcome, updates=outcome.summary["steps"], ranks=2, producers=2)
    ledger = outcome.summary["ledger"]
    assert ledger["trained"] + ledger["filtered"] == 2 * ROWS, "each prompt twice"
