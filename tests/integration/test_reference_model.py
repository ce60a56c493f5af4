"""The reference model as docs/how_to/training.md says: another model, and one that moves towards the policy, also over a resume."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.testing import RunTester, write_fake_model
from tests.quickstart_folder import quickstart_in

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "training.md").read_text(encoding="utf-8")
FOUND = re.search(r"## The reference model\n.*?```toml\n(?P<text>.*?)```", PAGE, re.DOTALL)
assert FOUND is not None
PRINTED: dict[str, dict[str, Any]] = tomllib.loads(FOUND["text"])


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_fakes()


def a_run(tester: RunTester, model: dict[str, Any], **run: int) -> str:
    return tester.fake_run(
        run={"num_episodes": 50, **run},
        model=model,
        training={"name": "fake-pipeline", "learning_rate": 0.4, "lr_schedule": "constant"},
        sampling={"max_new_tokens": 4, "num_generations": 4},
        algorithm=PRINTED["algorithm"],
        log={"save_interval": 1, "keep_checkpoints": 2},
    )


def trained(tester: RunTester, *words: str) -> Path:
    return tester.folder / tester.run("train", *words, "--json").assert_ok().json["run"]


def figures(run: Path) -> list[tuple[float, float, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["loss"], row["grad_norm"], row["kl_reference"]) for row in rows if "loss" in row]


def test_the_printed_settings_are_run_and_resumed_with_the_same_bits(tester: RunTester) -> None:
    teacher = write_fake_model(tester.folder / "models" / "teacher", "abcdef", seed=7)
    assert PRINTED["model"]["reference"] == "models/teacher"
    straight = trained(tester, a_run(tester, PRINTED["model"], max_steps=6))
    assert tomllib.loads((straight / "run.toml").read_text())["model"]["reference"] == str(teacher)
    broken = trained(tester, a_run(tester, PRINTED["model"], max_steps=3))
    told = tester.run("resume", str(broken), "--max-steps", "6").assert_ok()
    assert "the KL reference is that of the checkpoint" in told.stdout + told.stderr
    assert figures(broken) == figures(straight)
    weights = [(run / "checkpoints/step-6/model/fake_policy.npz").read_bytes() for run in (straight, broken)]
    assert weights[0] == weights[1]


def test_it_becomes_the_policy_after_every_k_updates(tester: RunTester) -> None:
    """The first step after a hard sync finds policy and reference equal, bit for bit, so its KL is 0."""
    kl = [row[2] for row in figures(trained(tester, a_run(tester, {"reference_sync_steps": 2}, max_steps=6)))]
    assert [value == 0.0 for value in kl] == [True, False, True, False, True, False]
    soft = [
        row[2] for row in figures(trained(tester, a_run(tester, {"reference_sync_steps": 2, "reference_mixup_alpha": 0.5}, max_steps=6)))
    ]
    assert [value == 0.0 for value in soft] == [True, False, False, False, False, False]
    still = [row[2] for row in figures(trained(tester, a_run(tester, {}, max_steps=6)))]
    assert still[:2] == soft[:2] == kl[:2]
    assert still[3] > soft[3]


def test_a_checkpoint_of_another_run_is_the_reference(tester: RunTester) -> None:
    first = trained(tester, a_run(tester, {}, max_steps=3))
    checkpoint = first / "checkpoints" / "step-3"
    run = trained(tester, a_run(tester, {"reference": str(checkpoint / "model")}, max_steps=1))
    assert figures(run)[0][2] > 0.0
    changed = tester.run("resume", str(run), "--max-steps", "2", "--reference", str(tester.folder / "model"))
    changed.assert_refused("a resumed run keeps its model.reference")


def test_what_has_no_effect_is_said(tester: RunTester) -> None:
    told = tester.run("train", a_run(tester, {"reference_mixup_alpha": 0.5}), "--dry-run").assert_ok()
    assert "reference_mixup_alpha = 0.5" in told.stdout
    assert "has no effect: the reference stays as it is; --reference-sync-steps moves it" in told.stdout
    run = tester.run("train", a_run(tester, {"reference_sync_steps": 1}, max_steps=1), "-kl", "0").assert_ok()
    assert "model.reference_sync_steps has no effect: the run has no reference model" in run.stdout + run.stderr


def test_what_cannot_be_compared_is_refused_before_the_run(tester: RunTester, tmp_path_factory: pytest.TempPathFactory) -> None:
    quickstart_in(tester.folder / "qs", tmp_path_factory, train=8, heldout=4)
    base = tester.folder / "qs" / "base"

    def refused(*words: str, says: str) -> None:
        tester.run("train", "qs/run.toml", "--kl-coeff", "0.1", *words, "--dry-run").assert_refused(says)

    refused("--reference", "nowhere", says="--reference nowhere: there is no such folder")
    refused(
        "--reference",
        "qs",
        says="--reference qs: model qs has no config.json, so it is not a Hugging Face checkpoint; name another --reference",
    )
    lora = "with adapters (--lora-rank 4) the reference is the model without them; leave it out, or type --lora-rank 0"
    refused("--lora-rank", "4", "--reference", str(base), says=lora)
    refused("--lora-rank", "4", "--reference-sync-steps", "2", says=f"--reference-sync-steps 2: {lora}")
    refused("--reference-mixup-alpha", "0", says="--reference-mixup-alpha 0")
    config = json.loads((base / "config.json").read_text())
    for name, field in (("other", "vocab_size"), ("wider", "intermediate_size")):
        changed = {**config, field: config[field] + 1}
        tester.write(f"{name}/config.json", json.dumps(changed))
        (tester.folder / name / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes())
    refused("--reference", "other", says=f"--reference other has vocab_size {config['vocab_size'] + 1}, and the model ")
    tester.run("train", "qs/run.toml", "--kl-coeff", "0.1", "--reference", "wider", "--dry-run").assert_ok()
    refused("--reference", "wider", "--reference-sync-steps", "2", says="which --reference-sync-steps 2 makes it has")
    (tester.folder / "run" / "step-3").mkdir(parents=True)
    base.rename(tester.folder / "run" / "step-3" / "model")
    base.symlink_to(tester.folder / "run" / "step-3" / "model")
    refused(
        "--reference", "run/step-3", says="is a checkpoint of a run, and its model is in a folder of it; type --reference run/step-3/model"
    )


@pytest.mark.full
def test_the_torch_trainer_moves_its_reference_and_resumes_with_the_same_bits(
    tester: RunTester, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from safetensors.numpy import load_file

    quickstart_in(tester.folder / "qs", tmp_path_factory, train=64, heldout=4)
    few = ["-tbs", "4", "-g", "4", "-ei", "0", "--max-staleness", "0", "--save-interval", "1", "--kl-coeff", "0.05"]
    moving = ["--reference-sync-steps", "2", "--reference-mixup-alpha", "0.6"]
    straight = trained(tester, "qs/run.toml", *few, *moving, "--max-steps", "4")
    broken = trained(tester, "qs/run.toml", *few, *moving, "--max-steps", "3")
    tester.run("resume", str(broken), "--max-steps", "4").assert_ok()
    assert figures(broken) == figures(straight)
    last = [load_file(run / "checkpoints/step-4/model/model.safetensors") for run in (straight, broken)]
    assert all(np.array_equal(last[1][name], weight) for name, weight in last[0].items())
    still = trained(tester, "qs/run.toml", *few, "--max-steps", "4")
    assert figures(still)[:2] == figures(straight)[:2]
    assert figures(still)[2][2] > figures(straight)[2][2] > 0.0
