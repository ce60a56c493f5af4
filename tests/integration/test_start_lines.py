"""What a run says before its first update: a line each for derived settings, a short last batch and prompts that are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester


def start_of(tester: RunTester, *words: str) -> list[str]:
    lines = tester.run("train", *words).assert_ok().lines
    return lines[: next(number for number, line in enumerate(lines) if line.startswith("run folder:"))]


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    run, data = {"num_episodes": 1, "max_steps": 2}, {"max_prompt_tokens": 3, "overlong": "drop"}
    config: dict[str, dict[str, Any]] = {"run": run, "training": {"train_batch_size": 3}, "data": data}
    tester.fake_run(**config, eval={"eval_dataset": {"say": "train.jsonl"}, "eval_interval": 9})
    texts = ("abcabc", "b", "abcdefabcdef", "a", "c", "d")
    tester.write_jsonl("train.jsonl", [{"messages": {"role": "user", "content": text}, "gt_answer": "a"} for text in texts])
    return tester


def test_a_line_each_tells_what_was_derived_how_it_repeats_what_is_worth_what_and_what_was_cut(tester: RunTester) -> None:
    derived, repeats, rate, mark, temperature, short, cut = start_of(tester, "run.toml")
    assert derived.endswith(" settings are derived from the others; rlcore show config, with the same files and flags, shows how")
    assert repeats == "reproducible: bitwise (max_staleness 0, CPU, and both backends are bitwise reproducible)"
    assert rate.endswith(" looks mistyped: AdamW trains with 1e-6 to 1e-3")  # the learning rate of the fake is 0.1
    assert mark == "reward fake: a right answer is worth 1"
    assert temperature.startswith("evaluation: eval_temperature = 0.6 (default); training samples with temperature = 1.0")
    assert short == "the last of 2 updates is short, with 1 instead of 3 prompts: -tbs 3 does not divide 4 prompts"
    assert cut.count("2 prompts are longer than 3 tokens and are left out (--overlong drop)") == 2
    assert cut.startswith("train: ")


def test_show_config_has_the_derived_settings_and_why(tester: RunTester) -> None:
    count = int(start_of(tester, "run.toml")[0].split()[0])
    lines = tester.run("show", "config", "run.toml").assert_ok().lines
    assert len([line for line in lines if "   auto: " in line]) == count
    assert any(line.split()[:2] == ["inference.inference_batch_size", "3"] and line.endswith("auto: train_batch_size") for line in lines)


@pytest.mark.parametrize("flags", [("-tbs", "4"), ("--max-steps", "1"), ("--dynamic-batching", "--filter-range", "-1", "2")], ids=" ".join)
def test_a_last_batch_that_is_whole_or_not_known_is_not_told(flags: tuple[str, ...], tester: RunTester) -> None:
    assert not [line for line in start_of(tester, "run.toml", *flags) if line.startswith("the last of")]


def test_updates_that_the_data_cannot_give_are_told_with_what_to_type(tester: RunTester) -> None:
    said = "--max-steps 3 cannot be reached: 4 prompts are 2 updates of -tbs 3; type -e 3 for more"
    assert said in start_of(tester, "run.toml", "--max-steps", "3")
    assert not [line for line in start_of(tester, "run.toml", "--max-steps", "3", "-e", "3") if "cannot be reached" in line]


def test_what_a_person_chose_and_should_read_is_still_told(tester: RunTester) -> None:
    lines = start_of(tester, "run.toml", "--skip-threshold", "3")
    assert len(lines) == 8
    assert lines[2].startswith("--skip-threshold 3 and clipping have no effect")


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_says_whether_generation_runs_ahead_and_what_weighs_stale_data(
    count: int, tester: RunTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcore.config.resolve.cores", lambda: count)
    made = tester.run("train", "run.toml", "--max-staleness", "auto", "--json").assert_ok()
    told = next(line for line in made.stderr.splitlines() if line.startswith("schedule.max_staleness"))
    if count > 1:
        assert told.startswith(
            "schedule.max_staleness = 1 (2 cores; stale data is weighed by the ratio of loss fake); reproducible: seeded"
        )
        assert (made.json["max_staleness"], made.json["reproducible"]) == (1, "seeded")
    else:
        assert told.startswith("schedule.max_staleness = 0 (one core); reproducible: bitwise")
        assert (made.json["max_staleness"], made.json["reproducible"]) == (0, "bitwise")


def test_a_dry_run_tells_it_too(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.config.resolve.cores", lambda: 2)
    why = "2 cores; stale data is weighed by the ratio of loss fake"
    lines = tester.run("train", "run.toml", "--max-staleness", "auto", "--dry-run").assert_ok().lines
    assert f"  schedule.max_staleness = 1 ({why})" in lines
    assert any(line.startswith("  reproducible: seeded (max_staleness above 0") for line in lines)
    found = tester.run("train", "run.toml", "--max-staleness", "auto", "--dry-run", "--json").assert_ok().json
    assert found["origins"]["schedule.max_staleness"] == {"layer": "auto", "detail": f"auto: {why}"}
    assert found["reproducible"]["level"] == "seeded"
    assert found["max_staleness"] == {"value": 1, "why": why, "correction": "none"}
    typed = tester.run("train", "run.toml", "--max-staleness", "2", "--dry-run", "--json").assert_ok().json
    assert typed["max_staleness"] == {"value": 2, "why": "", "correction": "none"}


def test_a_large_file_is_read_once_and_a_bad_row_of_it_leaves_nothing(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    tester.write_jsonl("train.jsonl", [{"messages": {"role": "user", "content": "a"}}])
    tester.run("train", "run.toml").assert_refused('train.jsonl:1: the row has no "gt_answer"')  # a small one: the only line
    monkeypatch.setattr("rlcore.cli.train._READ_TWICE", 10)
    monkeypatch.setattr("rlcore.cli.train.check_data", None)
    done = tester.run("train", "run.toml")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith(f"error: {tester.folder / 'train.jsonl'}:1: the row has no")
    assert not (tester.folder / "runs").exists()
