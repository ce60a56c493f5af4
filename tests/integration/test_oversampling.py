"""A run that oversamples, on fakes: groups are as large as without it, what they hold depends on no timing, and the waste is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunOutcome, RunTester

KEPT, SPARE = 4, 3


def trained(tester: RunTester, config: str, *flags: str) -> RunOutcome:
    return tester.run("train", config, "--json", *flags).assert_ok()


def project(folder: Path, **sections: Any) -> tuple[RunTester, str]:
    tester = RunTester(folder, in_process=True).with_fakes()
    sampling = {"num_generations": KEPT, "max_new_tokens": 12, **sections.pop("sampling", {})}
    return tester, tester.fake_run(sampling=sampling, log={"rollout_interval": 1}, **sections)


def rows(tester: RunTester, outcome: RunOutcome, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tester.folder / outcome.json["run"] / name).read_text().splitlines()]


def groups(tester: RunTester, outcome: RunOutcome, step: int) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """By prompt and episode: a batch of stale data may have groups of two episodes."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in RunRecord(tester.folder / outcome.json["run"]).rollouts(step):
        found.setdefault((row["prompt_id"], row["episode"]), []).append(row)
    return found


def weights(tester: RunTester, outcome: RunOutcome) -> bytes:
    return (tester.folder / outcome.json["checkpoint"] / "model/fake_policy.npz").read_bytes()


def test_the_first_to_finish_of_more_are_trained_and_the_rest_is_told_as_waste(tmp_path: Path) -> None:
    tester, config = project(tmp_path)
    everything = groups(tester, trained(tester, config, "-g", str(KEPT + SPARE)), 1)
    done = trained(tester, config, "--oversampling", str(SPARE))
    for prompt, found in groups(tester, done, 1).items():
        first = sorted(everything[prompt], key=lambda row: (row["length"], row["index"]))[:KEPT]
        assert [(row["index"], row["text"]) for row in found] == sorted((row["index"], row["text"]) for row in first)
    of_run = [group for step in (1, 2, 3) for group in groups(tester, done, step).values()]
    assert {len(group) for group in of_run} == {KEPT}
    assert any(row["index"] >= KEPT for group in of_run for row in group)
    assert done.json["ledger"] == {"trained": 9, "filtered": 0, "failed": 0}
    metrics = rows(tester, done, "metrics.jsonl")
    assert all(0 < row["cut_share"] < 1 for row in metrics)
    assert all(row["time/producers/wasted"] > 0 for row in metrics)
    assert any("long answers, and those that reach max_new_tokens, are under-represented" in note for note in notes(tester, config))


def notes(tester: RunTester, config: str) -> list[str]:
    return list(tester.run("train", config, "--oversampling", str(SPARE), "--dry-run", "--json").assert_ok().json["notes"])


@pytest.mark.full
def test_what_is_kept_depends_on_no_timing(tmp_path: Path) -> None:
    """An evaluation beside the training and other cuts of the work: at staleness 0 the weights stay the same to the last bit."""
    tester, config = project(tmp_path, sampling={"oversampling": SPARE})
    one = trained(tester, config)
    other = trained(tester, config, "-imbs", "1", "-ibs", "2", "-ed", json.dumps({"say": str(tmp_path / "train.jsonl")}), "-ei", "1")
    assert weights(tester, one) == weights(tester, other)
    plain = trained(tester, config, "--oversampling", "0")
    assert weights(tester, one) != weights(tester, plain)


@pytest.mark.full
def test_groups_are_whole_with_stale_data_several_turns_and_an_engine_that_aborts(tmp_path: Path) -> None:
    tester, config = project(
        tmp_path,
        run={"num_episodes": 10, "max_steps": 20},
        sampling={"oversampling": SPARE, "conversation": "fake", "options": {"rounds": 2, "tokens": 4}},
        inference={"options": {"in_flight": "abort", "steps_per_poll": 1}},
        schedule={"max_staleness": 2},
    )
    done = trained(tester, config)
    assert done.json["ledger"]["trained"] == 60
    for step in range(1, 21):
        found = groups(tester, done, step)
        assert {len(group) for group in found.values()} == {KEPT}
        assert {row["finish"] for group in found.values() for row in group} <= {"stop", "length"}
