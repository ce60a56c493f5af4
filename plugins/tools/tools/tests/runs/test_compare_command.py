"""``rlcore compare``: what differs, whose figures are better, and how sure that is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.runs.intervals import difference_of_means, mean_interval

from rlcore.testing import RunTester
from tests.written_runs import HOSTILE, an_answer, an_update, write_run

PLUGIN = {"kind": "reward", "name": "boxed", "distribution": "rlcore-plugin-math", "version": "0.1.0", "spec_sha256": "s" * 64}


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_only("rlcore-plugin-tools")


def held_out(step: int, accuracy: float, **more: float) -> dict[str, Any]:
    return {"step": step, "eval/aime": accuracy, "eval/aime/low": accuracy - 0.1, "eval/aime/high": accuracy + 0.1, **more}


def compared(tester: RunTester, *words: str) -> dict[str, Any]:
    return tester.run("compare", *words, "--json").assert_ok().json


def row_of(rows: list[dict[str, Any]], metric: str, at: str = "") -> dict[str, Any]:
    (found,) = [row for row in rows if row["metric"] == metric and row["at"].startswith(at)]
    return found


@pytest.fixture
def two(tester: RunTester, tmp_path: Path) -> RunTester:
    """A was evaluated at 0, 2 and 4, B was killed after 2; four prompts in common, of which B answers two more."""
    a = [an_answer(number, accuracy) for number, accuracy in enumerate([0.0, 0.0, 1.0, 0.0])]
    b = [an_answer(number, accuracy) for number, accuracy in enumerate([1.0, 1.0, 1.0, 0.0])]
    write_run(
        tmp_path / "a",
        settings={"training": {"learning_rate": 1e-5}, "eval": {"eval_dataset": {"aime": "x"}}},
        metrics=[
            held_out(0, 0.1),
            an_update(1, 0.2),
            an_update(2, 0.4, truncated=0.5),
            held_out(2, 0.25, **{"eval/aime/pass@2": 0.3, "eval/aime/pass@4": 0.4}),
            held_out(4, 0.2),
        ],
        manifest={"plugins": [{**PLUGIN, "source_sha256": "a" * 64}], "packages": {"numpy": "2.0", "torch": "2.13"}},
        answers={"aime": {2: a}},
    )
    write_run(
        tmp_path / "b",
        settings={"training": {"learning_rate": 1e-6}, "eval": {"eval_dataset": {"aime": "x"}}},
        metrics=[
            held_out(0, 0.1),
            an_update(1, 0.3, seconds=4.0),
            an_update(2, 0.8),
            held_out(2, 0.75, **{"eval/aime/pass@2": 0.8, "eval/aime/pass@8": 0.9}),
        ],
        manifest={"plugins": [{**PLUGIN, "source_sha256": "b" * 64}], "packages": {"numpy": "2.1"}, "data": {"train": "bbbb"}},
        answers={"aime": {2: b}},
        finished=False,
    )
    return tester


def test_other_files_of_a_glob_are_left_out_with_a_note(two: RunTester) -> None:
    two.write("report.html", "a report of them")
    done = two.run("compare", "a", "b", "report.html", "--json").assert_ok()
    assert "left out, because they are not run folders: report.html" in done.stderr
    assert done.json == two.run("compare", "a", "b", "--json").assert_ok().json
    two.run("compare", "a", "report.html").assert_refused("report.html")
    write_run(two.folder / "project" / "20260131-120000-aaaaaa")
    groups = compared(two, "a", "b", "project", "report.html")["groups"]  # of a project its newest run
    assert [Path(run["run"]).name for group in groups for run in group["runs"]] == ["a", "b", "20260131-120000-aaaaaa"]


def test_what_they_were_made_of(two: RunTester) -> None:
    found = compared(two, "a", "b")
    assert found["settings"] == [{"name": "training.learning_rate", "values": [1e-5, 1e-6]}]
    assert found["versions"] == [{"name": "numpy", "values": ["2.0", "2.1"]}, {"name": "torch", "values": ["2.13", None]}]
    assert found["data"] == [{"name": "train", "values": ["aaaa", "bbbb"]}]
    (plugin,) = found["plugins"]
    assert plugin["name"] == "reward boxed"
    assert plugin["values"][0] == "rlcore-plugin-math 0.1.0 code aaaaaaaaaaaa spec ssssssssssss"
    assert [[run["state"] for run in group["runs"]] for group in found["groups"]] == [["finished"], ["ended"]]


def test_evaluations_at_the_last_common_step_and_each_ones_last_and_best(two: RunTester) -> None:
    found = compared(two, "a", "b")["evaluations"]
    common = row_of(found, "eval/aime", "step 2")
    assert [figure["mean"] for figure in common["figures"]] == [0.25, 0.75]
    assert common["figures"][0]["low"] == pytest.approx(0.15)
    assert common["overlap"] == [False]
    assert common["differences"][0]["mean"] == 0.5
    last, best = row_of(found, "eval/aime", "last"), row_of(found, "eval/aime", "best")
    assert [(figure["mean"], figure["steps"]) for figure in last["figures"]] == [(0.2, [4]), (0.75, [2])]
    assert [(figure["mean"], figure["steps"]) for figure in best["figures"]] == [(0.25, [2]), (0.75, [2])]
    assert last["paired"] == []
    assert {row["metric"] for row in found} == {"eval/aime", "eval/aime/pass@2"}  # the greatest k of both


def test_the_paired_difference_by_hand(two: RunTester) -> None:
    """Differences 1, 1, 0, 0: mean 0.5, s = sqrt(1/3), half = 3.182446 s / 2."""
    (pair,) = row_of(compared(two, "a", "b")["evaluations"], "eval/aime", "step 2")["paired"]
    half = 3.182446305284 * math.sqrt(1 / 3) / 2
    assert pair["mean"] == 0.5
    assert (pair["low"], pair["high"]) == (pytest.approx(0.5 - half), pytest.approx(0.5 + half))
    assert (pair["count"], pair["differing"]) == (4, 2)


def test_pairs_are_of_the_same_prompt_gold_and_of_judged_answers(tester: RunTester, tmp_path: Path) -> None:
    """Several completions a prompt are averaged first: differences of prompts 0 and 1 are 0.5 and 0."""
    metrics = [{"step": 0, "eval/aime": 0.5}]
    a = [an_answer(0, 0.0), an_answer(0, 1.0, 1), an_answer(1, 1.0), an_answer(2, 1.0), an_answer(3, 0.0, gold="other"), an_answer(4, 1.0)]
    b = [an_answer(0, 1.0), an_answer(0, 1.0, 1), an_answer(1, 1.0), an_answer(2, None, outcome="timeout"), an_answer(3, 1.0)]
    b += [an_answer(4, 0.0, outcome="infra"), an_answer(5, 1.0)]
    for name, rows in {"a": a, "b": b}.items():
        write_run(tmp_path / name, metrics=metrics, answers={"aime": {0: rows}})
    (pair,) = row_of(compared(tester, "a", "b")["evaluations"], "eval/aime")["paired"]
    assert (pair["mean"], pair["count"], pair["differing"]) == (0.25, 2, 1)


def test_final_figures_pace_and_throughput(two: RunTester) -> None:
    found = compared(two, "a", "b")["figures"]
    assert [figure["mean"] for figure in row_of(found, "reward/mean")["figures"]] == pytest.approx([0.3, 0.55])
    assert row_of(found, "truncated")["figures"][1] is None
    assert row_of(found, "truncated")["differences"] == [None]
    assert [figure["mean"] for figure in row_of(found, "seconds an update")["figures"]] == [2.0, 3.0]
    assert [figure["mean"] for figure in row_of(found, "tokens a second")["figures"]] == pytest.approx([50.0, 200 / 6])


def test_final_figures_are_of_the_last_ten_updates(tester: RunTester, tmp_path: Path) -> None:
    for name in "ab":
        write_run(tmp_path / name, metrics=[an_update(step, 100.0 if step <= 5 else float(step)) for step in range(1, 16)])
    assert row_of(compared(tester, "a", "b")["figures"], "reward/mean")["figures"][0]["mean"] == sum(range(6, 16)) / 10


def test_named_metrics_only(two: RunTester) -> None:
    found = compared(two, "a", "b", "--metric", "eval/aime/pass@2", "truncated")
    assert [(row["metric"], row["at"]) for row in found["evaluations"]] == [("eval/aime/pass@2", "step 2")]
    assert [row["metric"] for row in found["figures"]] == ["truncated", "seconds an update", "tokens a second"]
    two.run("compare", "a", "b", "--metric", "trunctated").assert_refused("no", "did you mean 'truncated'")


def seeds(tmp_path: Path) -> list[str]:
    """Two learning rates with three seeds each, and a run of another kind."""
    names = []
    for rate, accuracies in {1e-5: [0.1, 0.2, 0.3], 1e-6: [0.2, 0.4, 0.9]}.items():
        for seed, accuracy in enumerate(accuracies):
            names.append(f"{rate}-{seed}")
            write_run(
                tmp_path / names[-1],
                settings={"run": {"seed": seed}, "training": {"learning_rate": rate}},
                metrics=[an_update(1, accuracy / 2), held_out(1, accuracy)],
            )
    names.append("other")
    write_run(
        tmp_path / "other", settings={"run": {"seed": 7}, "algorithm": {"name": "rloo"}}, metrics=[an_update(1, 0.5), held_out(1, 0.7)]
    )
    return names


def test_runs_that_differ_only_in_their_seed_are_one_column(tester: RunTester, tmp_path: Path) -> None:
    found = compared(tester, *seeds(tmp_path))
    assert [(group["label"], [run["seed"] for run in group["runs"]]) for group in found["groups"]] == [
        ("A", [0, 1, 2]),
        ("B", [0, 1, 2]),
        ("C", [7]),
    ]
    row = row_of(found["evaluations"], "eval/aime")
    expected = mean_interval([0.1, 0.2, 0.3])
    assert row["figures"][0] == {**expected.as_json(), "steps": [1, 1, 1], "over": "seeds"}
    assert row["figures"][0]["high"] == pytest.approx(0.2 + 4.302652729749 * 0.1 / math.sqrt(3))
    assert row["differences"] == [
        difference_of_means([0.1, 0.2, 0.3], [0.2, 0.4, 0.9]).as_json(),
        difference_of_means([0.1, 0.2, 0.3], [0.7]).as_json(),
    ]
    assert (row["figures"][2]["over"], row["differences"][1]["low"]) == ("prompts", None)
    assert {item["name"] for item in found["settings"]} == {"training.learning_rate", "algorithm.name"}
    text = tester.run("compare", *seeds_there(tmp_path)).assert_ok().stdout
    assert "n=3" in text
    assert "B - A" in text
    assert "C - A" in text


def seeds_there(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.iterdir() if (path / "run.toml").exists())


def test_the_same_seed_twice_is_no_group_and_neither_are_two_runs(tester: RunTester, tmp_path: Path) -> None:
    for name, seed in {"a": 0, "b": 0, "c": 1}.items():
        write_run(tmp_path / name, settings={"run": {"seed": seed}}, metrics=[an_update(1, 0.5)])
    assert [len(group["runs"]) for group in compared(tester, "a", "b", "c")["groups"]] == [2, 1]
    found = compared(tester, "a", "c")
    assert [len(group["runs"]) for group in found["groups"]] == [1, 1]
    assert found["settings"] == [{"name": "run.seed", "values": [0, 1]}]


def test_a_group_whose_runs_had_several_versions_names_them(tester: RunTester, tmp_path: Path) -> None:
    for seed, version in enumerate(["2.0", "2.1", "2.0"]):
        write_run(tmp_path / f"s{seed}", settings={"run": {"seed": seed}}, manifest={"packages": {"numpy": version}})
    write_run(tmp_path / "other", settings={"training": {"learning_rate": 1.0}})
    found = compared(tester, "s0", "s1", "s2", "other")
    assert found["versions"] == [{"name": "numpy", "values": ["2.0, 2.1", "2.0"]}]


def test_in_words(two: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    text = two.run("compare", "a", "b").assert_ok().stdout
    for words in (
        "training.learning_rate  1e-05  1e-06",
        "0.250 [0.150, 0.350]",
        "+0.500; intervals apart; paired +0.500 [-0.419, +1.419] over 4 prompts, 2 differ",
        "0.200 [0.100, 0.300] @4",
    ):
        assert words in text
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    narrow = two.run("compare", "a", "b").assert_ok().stdout
    assert "paired +0.500" in " ".join(narrow.split())


def test_many_runs_fit_into_160_columns_of_a_pipe(tester: RunTester, tmp_path: Path) -> None:
    names = [f"run-{number}" for number in range(9)]
    for number, name in enumerate(names):
        write_run(
            tmp_path / name,
            settings={"training": {"learning_rate": 1e-5 * (number + 1)}, "eval": {"eval_dataset": {"aime": "x"}}},
            metrics=[an_update(1, 0.1 * number), held_out(1, 0.1 * number)],
            answers={"aime": {1: [an_answer(0, 0.0), an_answer(1, 1.0)]}},
        )
    lines = tester.run("compare", *names).assert_ok().lines
    assert max(map(len, lines)) <= 160
    shown = [line.split("  ") for line in lines if line.startswith("evaluations  at")]
    labels = [cell.strip() for cells in shown for cell in cells[1:] if cell.strip() not in ("", "at", "unit")]
    assert labels == [*"ABCDEFGHI", *(f"{label} - A" for label in "BCDEFGHI")], "each run once, each difference once"
    assert sum(line.startswith("eval/aime") for line in lines) == len(shown) > 2


def test_what_is_the_same_is_said(tester: RunTester, tmp_path: Path) -> None:
    for name in "ab":
        write_run(tmp_path / name)
    text = tester.run("compare", "a", "b").assert_ok().stdout
    assert "the same in all: settings, versions, plugins, data" in text
    assert "no held-out task was evaluated" in text


def test_a_resumed_run_has_the_versions_of_its_last_part(tester: RunTester, tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", manifest={"resumes": [{"step": 1, "packages": {"numpy": "2.2"}, "settings": {}}]})
    assert compared(tester, "a", "b")["versions"] == [{"name": "numpy", "values": ["2.0", "2.2"]}]


def test_hostile_settings_reach_no_terminal_raw(tester: RunTester, tmp_path: Path) -> None:
    write_run(tmp_path / "a", settings={"model": {"model": HOSTILE.replace("\ud800", "")}})
    write_run(tmp_path / "b", settings={"model": {"model": "plain"}})
    for words in ((), ("--json",)):
        text = tester.run("compare", "a", "b", *words).assert_ok().stdout
        assert not set(text) & set("\x1b\x07\x9b\x7f\r\x00\u202e\u2028")


@pytest.mark.parametrize(
    ("words", "said"),
    [(("a",), "at least two runs"), (("a", "./a"), "named twice"), (("a", "nowhere"), "neither a run folder nor a project")],
)
def test_refusals(tester: RunTester, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    write_run(tmp_path / "a")
    tester.run("compare", *words).assert_refused(said)
