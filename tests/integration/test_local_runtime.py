"""The local runtime, the whole program, on fakes: ledger, reproducibility, overlap, faults, Ctrl-C, observers."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_workers.driver_loop import DriverLoop

from rlcore.testing import RunOutcome, RunTester
from tests.ray_in_one_process import ray_in_one_process

OBSERVER = """
from rlcore.api import hookimpl
rlcore_api = "2.0"
seen = []
@hookimpl
def rlcore_run_started(run): print("SEEN started", run.folder.exists())
@hookimpl
def rlcore_groups_scored(groups, version): print("SEEN groups", len(groups), version)
@hookimpl
def rlcore_step_finished(step, metrics):
    print("SEEN step", step, "loss" in metrics)
    if step == 2: raise RuntimeError("observer is tired")
@hookimpl
def rlcore_run_finished(summary): print("SEEN finished")
"""

ORDER = """
from rlcore.api import hookimpl
rlcore_api = "2.0"
@hookimpl
def rlcore_checkpoint_saved(step, folder):
    evaluated = (folder.parents[1] / f"eval/say/step-{step}.jsonl").exists()
    with open("order.txt", "a") as file:
        file.write(f"{step} {evaluated};")
"""


def folder_of(tester: RunTester, outcome: RunOutcome) -> Path:
    return tester.folder / outcome.json["run"]


def weights_of(tester: RunTester, outcome: RunOutcome) -> bytes:
    return (tester.folder / outcome.json["checkpoint"] / "model" / "fake_policy.npz").read_bytes()


def metrics_of(tester: RunTester, outcome: RunOutcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder_of(tester, outcome) / "metrics.jsonl").read_text().splitlines()]


def project(tmp_path: Path, **sections: Any) -> tuple[RunTester, str]:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    return tester, tester.fake_run(**sections)


def test_a_run_leaves_behind_what_the_architecture_names(tmp_path: Path) -> None:
    tester, config = project(tmp_path, eval={"eval_dataset": {"say": str(tmp_path / "train.jsonl")}, "eval_interval": 2})
    done = tester.run("train", config, "--json").assert_ok()
    folder = folder_of(tester, done)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    times = [json.loads(line) for line in (folder / "times.jsonl").read_text().splitlines()]
    assert [row.get("step", "total") for row in times] == [1, 2, 3, "total"]
    assert all(row["workers"].keys() == {"producer-0", "trainer-0"} for row in times)
    assert {
        "run.toml",
        "manifest.json",
        "metrics.jsonl",
        "times.jsonl",
        "summary.json",
        "rollouts/step-1.jsonl.gz",
        "eval/say/step-0.jsonl",
        "eval/say/step-3.jsonl",
    } <= names
    assert {"checkpoints/latest", "checkpoints/step-3/state.json", "checkpoints/step-3/model/fake_policy.npz"} <= names
    manifest = json.loads((folder / "manifest.json").read_text())
    names_of = {plugin["kind"]: plugin["name"] for plugin in manifest["plugins"]}
    built_in = {
        "runtime": "local",
        "transfer": "memory",
        "data": "jsonl",
        "aggregation": "sample_level",
        "lr_schedule": "cosine",
        "optimizer": "adamw",
        "sampler": "shuffled",
        "kl": "k3",
        "conversation": "single_turn",
    }
    assert {kind: name for kind, name in names_of.items() if name != "fake"} == built_in
    assert {"inference", "training", "algo", "estimator", "loss", "reward"} <= names_of.keys()
    assert manifest["origins"]["training.train_batch_size"].endswith("run.toml")
    assert tester.run("train", str(folder / "run.toml"), "--dry-run").assert_ok()


def test_the_last_update_is_saved_before_the_last_evaluation(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("order", ORDER)
    config = tester.fake_run(eval={"eval_dataset": {"say": str(tmp_path / "train.jsonl")}, "eval_interval": 100})
    done = tester.run("train", config, "--json").assert_ok()
    assert (tester.folder / "order.txt").read_text() == "3 False;"
    assert (folder_of(tester, done) / "eval/say/step-3.jsonl").exists()


def test_every_prompt_of_the_episodes_is_accounted_for_and_a_short_batch_is_trained(tmp_path: Path) -> None:
    tester, config = project(tmp_path, run={"num_episodes": 3}, training={"train_batch_size": 4})
    text = Path(config).read_text().replace("max_steps = 3\n", "")
    Path(config).write_text(text)
    done = tester.run("train", config, "--json").assert_ok().json
    assert done["ledger"] == {"trained": 18, "filtered": 0, "failed": 0}
    assert done["steps"] == 5


@pytest.fixture(scope="module")
def of_seeds(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The weights of the run of each of two seeds."""
    tester, config = project(tmp_path_factory.mktemp("seeds"))
    return [weights_of(tester, tester.run("train", config, "--json", "--seed", seed).assert_ok()) for seed in "01"]


@pytest.mark.parametrize("flags", [[], ["-imbs", "1"], ["-ibs", "2"], ["-tmbs", "1"]], ids=["again", "imbs", "ibs", "tmbs"])
def test_staleness_zero_is_bitwise_reproducible_however_the_work_is_cut(tmp_path: Path, flags: list[str], of_seeds: list[bytes]) -> None:
    tester, config = project(tmp_path)
    again = weights_of(tester, tester.run("train", config, "--json", *flags).assert_ok())
    assert [again == weights for weights in of_seeds] == [True, False]


def test_staleness_two_overlaps_within_its_bound_and_trains_everything(tmp_path: Path) -> None:
    tester, config = project(tmp_path, run={"num_episodes": 10, "max_steps": 20}, schedule={"max_staleness": 2})
    done = tester.run("train", config, "--json").assert_ok()
    ages = [record["staleness/max"] for record in metrics_of(tester, done)]
    assert len(ages) == 20
    assert 0 < max(ages) <= 2
    assert done.json["ledger"]["trained"] == 60


def test_dynamic_batching_replaces_filtered_groups_and_masking_keeps_their_place(tmp_path: Path) -> None:
    algorithm = {"filter_range": [0.01, 0.99]}
    tester, config = project(tmp_path, run={"num_episodes": 8, "max_steps": 4}, algorithm={**algorithm, "dynamic_batching": True})
    replaced = tester.run("train", config, "--json").assert_ok()
    assert all(record["groups"] == 3 and record["groups/masked"] == 0 for record in metrics_of(tester, replaced))
    tester, config = project(tmp_path, run={"num_episodes": 8, "max_steps": 4}, algorithm=algorithm)
    masked = tester.run("train", config, "--json").assert_ok()
    assert any(record["groups/masked"] > 0 for record in metrics_of(tester, masked))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("stale", ["does not serve version"]),
        ("partial", ["does not serve version"]),
        ("behind", ["reports version"]),
        ("loses", ["never answered"]),
        ("repeats", ["not open"]),
        ("dies", ["FaultyInference", "the faulty engine died"]),
        ("memory", ["FaultyInference", "ran out of memory while generating", "lower -imbs"]),
    ],
)
@pytest.mark.parametrize("staleness", [0, 1])
def test_a_faulty_engine_ends_the_run_with_its_name(
    tmp_path: Path, fault: str, words: list[str], staleness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it runs ahead, one fault of each kind of error comes out of a process of its own; the others are played on Ray's crew. Nobody
    waits for the news of a death behind it, except where an engine reports another version."""

    async def itself(driver: DriverLoop, error: BaseException) -> BaseException:
        return error

    monkeypatch.setattr(DriverLoop, "cause", itself if staleness and fault == "behind" else None)
    played = staleness and fault in ("partial", "behind", "repeats")
    tester, config = project(
        tmp_path,
        inference={"name": "faulty", "options": {"fault": fault}},
        schedule={"max_staleness": staleness, "producer_restarts": 0, "max_restores": 0},
        run={"num_episodes": 20, "max_steps": 12, **({"runtime": "ray"} if played else {})},
        training={"learning_rate": 0.5},
    )
    with ray_in_one_process(monkeypatch) if played else nullcontext():
        done = tester.run("train", config)
    assert done.exit_code == 1
    for word in words:
        assert word in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("drops", ["tensor"]),
        ("nan", ["diverged"]),
        ("dies", ["FaultyTraining"]),
        ("memory", ["FaultyTraining", "ran out of memory while updating", "lower -tmbs or --tokens-per-forward"]),
    ],
)
def test_a_faulty_trainer_ends_the_run_with_its_name(tmp_path: Path, fault: str, words: list[str]) -> None:
    tester, config = project(tmp_path, training={"name": "faulty", "options": {"fault": fault}})
    done = tester.run("train", config)
    assert done.exit_code == 1
    for word in words:
        assert word in done.stderr.splitlines()[-1], done.stderr


def test_an_observer_that_raises_is_switched_off_and_named_and_the_run_goes_on(tmp_path: Path) -> None:
    tester, config = project(tmp_path)
    tester.plugins.install("watcher", OBSERVER)
    done = tester.run("train", config, "--json").assert_ok()
    assert done.stderr.count("SEEN step") == 2
    assert "SEEN started True" in done.stderr
    assert "SEEN groups 3 0" in done.stderr
    assert "SEEN finished" not in done.stderr
    assert "SEEN" not in done.stdout
    assert any("tired" in reason for reason in done.json["switched_off"].values())


def interrupted(tmp_path: Path, signals: int, generations: int) -> tuple[int, str, Path]:
    tester = RunTester(tmp_path).with_fakes()
    config = tester.fake_run(run={"num_episodes": 100000, "max_steps": 100000}, sampling={"num_generations": generations})
    # Signals that come together would be one: the second waits for the answer to the first.
    done = tester.interrupt("train", config, on=lambda line: line.startswith("step 2/") or "interrupted:" in line, signals=signals)
    (root,) = (tmp_path / "runs" / "rlcore").iterdir()
    return done.exit_code, done.stdout, root


def test_ctrl_c_once_finishes_the_step_saves_and_says_so(tmp_path: Path) -> None:
    code, said, root = interrupted(tmp_path, 1, generations=8)
    assert code == 130, said
    assert "interrupted: this step is finished and saved" in said
    assert "Stopped early, and saved." in said
    (checkpoint,) = [path for path in (root / "checkpoints").iterdir() if path.is_dir()]
    assert json.loads((checkpoint / "checkpoint.json").read_text())["files"]
    assert json.loads((root / "summary.json").read_text())["interrupted"] is True


def test_ctrl_c_twice_stops_now_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    code, said, root = interrupted(tmp_path, 2, generations=300)
    assert code == 130, said
    assert not [path for path in root.rglob("*") if ".partial" in path.name]
    for line in (root / "metrics.jsonl").read_text().splitlines():
        json.loads(line)


def test_prompts_that_no_reward_can_judge_fail_with_their_reason_and_an_empty_run_is_an_error(tmp_path: Path) -> None:
    tester, config = project(tmp_path)
    tester.write("broken.py", "def broken(item):\n    raise RuntimeError('no verdict today')\n")
    done = tester.run("train", config, "-rt", "./broken.py:broken", "--reward-error-budget", "1.0")
    assert done.exit_code == 1
    assert "nothing was trained: of 12 prompts, 12 failed" in done.stderr
    (log,) = [path for path in done.written if path.name == "failures.jsonl"]
    rows = [json.loads(line) for line in (tmp_path / log).read_text().splitlines()]
    assert len(rows) == 12
    assert all("no verdict today" in row["reason"] for row in rows)


@pytest.mark.parametrize("staleness", [0, 1])
def test_the_seconds_of_each_worker_sum_to_those_of_the_loop(tmp_path: Path, staleness: int) -> None:
    tester, config = project(tmp_path, schedule={"max_staleness": staleness}, run={"num_episodes": 20, "max_steps": 20})
    done = tester.run("train", config, "--json").assert_ok().json
    for worker in ("producer", "trainer"):
        parts = {name: spent for name, spent in done["time"].items() if name.startswith(f"{worker}/") and name.count("/") == 1}
        assert sum(parts.values()) == pytest.approx(done["train_seconds"], abs=0.0005 * (len(parts) + 1))  # each is rounded


@pytest.mark.parametrize(("staleness", "names"), [(0, {"trainer", "producer-0"}), (1, {"driver", "trainer-0", "producer-0"})])
def test_profiling_leaves_a_profile_of_every_thread(tmp_path: Path, staleness: int, names: set[str]) -> None:
    tester, config = project(tmp_path, schedule={"max_staleness": staleness})
    done = tester.run("train", config, "--enable_profiling", "--json").assert_ok()
    assert {path.stem.removeprefix("profile-") for path in folder_of(tester, done).glob("*.prof")} == names
