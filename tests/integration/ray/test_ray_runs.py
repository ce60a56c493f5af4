"""The same run on Ray as in one process: results, logs, observers, unpackaged parts, and what is refused before anything is trained."""

from __future__ import annotations

import gzip
import hashlib
import json
import signal
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunOutcome, RunTester
from tests.integration.ray.conftest import SmallCluster
from tests.integration.ray.faults import BackgroundRun
from tests.other_environment import install_engine_there, other_environment

EVALUATED = {"eval_dataset": {"held": "train.jsonl"}, "eval_interval": 2}


def on_ray(tester: RunTester, cluster: SmallCluster, config: str, *flags: str) -> RunOutcome:
    return tester.run("train", config, "--json", "--master_address", cluster.address, *flags)


def in_one_process(tester: RunTester, config: str) -> RunOutcome:
    """What the run on Ray is held against, in this process: it has everything loaded."""
    return RunTester(tester.folder, in_process=True).run("train", config, "--json").assert_ok()


def run_folder(tester: RunTester, outcome: RunOutcome) -> Path:
    return tester.folder / str(outcome.json["run"])


def policy(tester: RunTester, outcome: RunOutcome) -> str:
    """A hash of what was learnt."""
    folder = tester.folder / str(outcome.json["checkpoint"]) / "model"
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.iterdir()))).hexdigest()


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_on_policy_any_number_of_producers_makes_the_run_of_one_process(tester: RunTester, cluster: SmallCluster) -> None:
    config = tester.fake_run(run={"num_episodes": 3, "max_steps": 6}, eval=EVALUATED, log={"rollout_interval": 1})
    alone = in_one_process(tester, config)
    several = on_ray(tester, cluster, config, "-i", "3").assert_ok()
    assert policy(tester, alone) == policy(tester, several)
    assert several.json["ledger"] == alone.json["ledger"]
    assert several.json["accuracy_after"] == alone.json["accuracy_after"]
    for name in ("rollouts", "eval/held"):
        here, there = (sorted((run_folder(tester, outcome) / name).iterdir()) for outcome in (alone, several))
        assert [path.name for path in here] == [path.name for path in there]
        assert [path.read_bytes() for path in here] == [path.read_bytes() for path in there]


def test_a_producer_in_another_environment_trains_the_same(tester: RunTester, cluster: SmallCluster, tmp_path: Path) -> None:
    config = tester.fake_run()
    alone = in_one_process(tester, config)
    install_engine_there(tester.plugins)
    environment = str(other_environment(tmp_path / "env"))
    apart = on_ray(tester, cluster, config, "-b", "there", "--inference-environment", environment).assert_ok()
    assert policy(tester, alone) == policy(tester, apart)


@pytest.mark.nightly
def test_several_turns_on_ray_make_the_run_of_one_process(tester: RunTester, cluster: SmallCluster) -> None:
    sampling = {"max_new_tokens": 8, "conversation": "fake", "options": {"rounds": 2, "tokens": 2}}
    config = tester.fake_run(run={"num_episodes": 3, "max_steps": 4}, sampling=sampling, log={"rollout_interval": 1})
    alone = in_one_process(tester, config)
    several = on_ray(tester, cluster, config, "-i", "2", "-t", "2").assert_ok()
    here, there = (RunRecord(run_folder(tester, outcome)) for outcome in (alone, several))
    for step in range(1, 5):
        assert [row["turns"] for row in here.rollouts(step)] == [row["turns"] for row in there.rollouts(step)] != []
    manifest = json.loads((run_folder(tester, several) / "manifest.json").read_text("utf-8"))
    assert {"conversation": "fake"} in [{one["kind"]: one["name"]} for one in manifest["plugins"]]


def test_several_ranks_learn_the_same_and_every_second_is_accounted_for(tester: RunTester, cluster: SmallCluster) -> None:
    config = tester.fake_run(run={"num_episodes": 3, "max_steps": 6})
    alone = in_one_process(tester, config)
    ranks = on_ray(tester, cluster, config, "-i", "2", "-t", "2").assert_ok()
    last = [rows(run_folder(tester, outcome) / "metrics.jsonl")[-1] for outcome in (alone, ranks)]
    assert last[0]["reward/mean"] == last[1]["reward/mean"]
    assert last[0]["grad_norm"] == pytest.approx(last[1]["grad_norm"], rel=1e-9)
    assert ranks.json["shares"]["trainer_busy"] + ranks.json["shares"]["bubble"] <= 1.0
    trace = json.loads((run_folder(tester, ranks) / "trace.json").read_text("utf-8"))
    named = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert {"trainer-0", "trainer-1", "producer-0", "producer-1"} <= named


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param("shared", marks=pytest.mark.nightly),  # test_ray_producers has it every day
        "object_store",
        pytest.param("collective", marks=pytest.mark.nightly),  # and test_weight_transports this one
    ],
)
def test_stale_runs_keep_their_bound_over_every_transport(tester: RunTester, cluster: SmallCluster, transport: str) -> None:
    config = tester.fake_run(run={"num_episodes": 6, "max_steps": 12}, schedule={"max_staleness": 2}, eval=EVALUATED)
    outcome = on_ray(tester, cluster, config, "-i", "2", "--transport", transport).assert_ok()
    staleness = [row["staleness/max"] for row in rows(run_folder(tester, outcome) / "metrics.jsonl") if "staleness/max" in row]
    assert len(staleness) == 12
    assert max(staleness) <= 2
    assert outcome.json["ledger"]["trained"] == 36


def test_colocated_producers_take_turns_with_the_trainer(tester: RunTester, cluster: SmallCluster) -> None:
    config = tester.fake_run(run={"num_episodes": 3, "max_steps": 6})
    alone = in_one_process(tester, config)  # what separate producers make, too: see above
    turns = on_ray(tester, cluster, config, "-i", "2", "--placement", "colocated").assert_ok()
    assert policy(tester, alone) == policy(tester, turns)


def test_parts_that_are_not_packaged_travel_and_observers_see_every_group(tester: RunTester, cluster: SmallCluster) -> None:
    tester.write("mine.py", "def longer(item):\n    return float(len(item.text))\n")
    tester.plugins.install(
        "watcher",
        "from pathlib import Path\nfrom rlcore.api import hookimpl\nrlcore_api = '2.0'\n\n"
        "@hookimpl\ndef rlcore_groups_scored(groups, version):\n"
        "    with Path('seen.txt').open('a') as file:\n        file.writelines(f'{group.prompt_id}\\n' for group in groups)\n",
    )
    config = tester.fake_run(run={"num_episodes": 2, "max_steps": 4})
    outcome = on_ray(tester, cluster, config, "-i", "2", "--reward", "./mine.py:longer").assert_ok()
    assert len((tester.folder / "seen.txt").read_text("utf-8").splitlines()) == outcome.json["ledger"]["trained"] == 12


SAMPLER = """
from rlcore.api import Sampler

class Backwards(Sampler):
    def __init__(self, context):
        self.items, self.drawn = context.items, 0

    def next(self):
        self.drawn += 1
        return (self.items - self.drawn) % self.items
"""


def test_a_sampler_of_a_file_travels(tester: RunTester, cluster: SmallCluster) -> None:
    """Ray pickles with a library of its own, which does not know that classes of a file are sent with their code."""
    tester.write("mine.py", SAMPLER)
    config = tester.fake_run(run={"num_episodes": 1, "max_steps": 2})
    outcome = on_ray(tester, cluster, config, "-i", "2", "--sampler", "./mine.py:Backwards").assert_ok()
    path = tester.folder / str(outcome.json["run"]) / "rollouts" / "step-1.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert [row["prompt_index"] for row in rows[::8]] == [5, 4, 3]


def test_an_own_cluster_is_started_for_the_run_and_profiles_are_written(tester: RunTester, ray_dir: Path) -> None:
    config = tester.fake_run(run={"num_episodes": 10_000, "max_steps": 20_000}, log={"rollout_interval": 0})
    with BackgroundRun(tester, ("train", config, "--runtime", "ray", "--enable-profiling", "--ray-dir", str(ray_dir)), ray_dir) as run:
        run.said("Ray dashboard: ")
        (address,) = [line.removeprefix("Ray dashboard: ") for line in run.stderr + run.stdout if line.startswith("Ray dashboard: ")]
        with build_opener(ProxyHandler({})).open(f"{address}/api/authentication_mode") as answer:  # it asks for no token
            assert json.load(answer)["authentication_mode"] in ("token", "disabled")
        run.reach(1)
        run.process.send_signal(signal.SIGINT)
        outcome = run.outcome()
    assert outcome.exit_code == 130, outcome
    assert outcome.folder is not None
    assert (outcome.folder / "profile-producer-0.prof").is_file()


def test_a_row_that_no_reward_can_judge_is_refused_before_anything_is_written(tester: RunTester, cluster: SmallCluster) -> None:
    config = tester.fake_run()
    tester.write_jsonl("train.jsonl", [{"messages": {"role": "user", "content": "a"}}])
    on_ray(tester, cluster, config, "-i", "2").assert_refused("train.jsonl:1")


def test_an_engine_that_cannot_be_made_on_a_node_ends_the_run_in_one_sentence(tester: RunTester, cluster: SmallCluster) -> None:
    config = tester.fake_run(model={"model": "nowhere"})
    outcome = on_ray(tester, cluster, config, "-i", "2")
    assert outcome.exit_code == 2
    assert "nowhere" in outcome.stderr.splitlines()[-1]
