"""``train --help``: common flags by group on about two screens, then the options of the chosen plugins; ``--help-all`` has the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlcore.config.setting_table import core_settings
from rlcore.testing import RunTester

COMMON = ["-m", "-d", "-rt", "-a", "-e", "--max-steps", "-tbs", "-g", "-mpt", "-mnt", "-temp", "-lr", "-kl", "-b", "-i", "-t", "-ei", "-si"]
COMMON += ["-tp", "-zero", "--lora-rank"]
TWO_SCREENS = 90


@pytest.fixture
def tester(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTester:
    monkeypatch.setenv("COLUMNS", "80")
    return RunTester(tmp_path, in_process=True).with_fakes()


def flags_of(lines: list[str]) -> list[str]:
    return [line.split()[0].rstrip(",") for line in lines if line.startswith("  -")]


def test_the_common_flags_come_first_and_fit_two_screens(tester: RunTester) -> None:
    lines = tester.run("train", "--help", "-b", "fake", "--trainer", "fake", "--loss", "clipped").assert_ok().lines
    assert next(number for number, line in enumerate(lines) if line.startswith("options of ")) <= TWO_SCREENS
    assert max(map(len, lines)) <= 80
    found = flags_of(lines)
    assert set(COMMON) <= set(found)
    assert found.index("-m") < found.index("-lr") < found.index("--clip-eps-low")
    assert "--help-all" in found
    assert not {"-tMbs", "-cbsl", "--betas"} & set(found)


def test_help_all_has_every_setting_once_and_begins_as_help_does(tester: RunTester) -> None:
    few, every = (tester.run("train", tester.fake_run(), flag).assert_ok().lines for flag in ("--help", "--help-all"))
    found = flags_of(every)
    for path, setting in core_settings().items():
        assert sum(found.count(flag) for flag in setting.flags) == 1, path
    last = flags_of(few).index("--run-dir") + 1
    assert flags_of(few)[:last] == found[:last]
    assert "[training]: the trainers, their batches and the optimizer:" in every
    assert "[training]: the trainers, their batches and the optimizer:" not in few


@pytest.mark.parametrize("flag", ["--help", "--help-all"])
def test_the_options_of_each_chosen_plugin_are_a_group(flag: str, tester: RunTester) -> None:
    tester.fake_run()
    lines = tester.run("train", "run.toml", "--loss", "clipped", flag).assert_ok().lines
    start = lines.index("options of loss clipped of rlcore  [algorithm.options]:")
    assert flags_of(lines[start : start + 9])[:2] == ["--clip-eps-low", "--clip-eps-high"]
    assert "options of reward fake of rlcore-plugin-fakes  [rewards.options]:" in lines


@pytest.mark.parametrize("command", [("show", "config"), ("quickstart",), ("launch", "slurm")], ids=" ".join)
def test_the_other_commands_with_flags_of_train_have_it_too(command: tuple[str, ...], tester: RunTester) -> None:
    few, every = (tester.run(*command, flag).assert_ok().lines for flag in ("--help", "--help-all"))
    assert "-tMbs" not in flags_of(few)
    assert "-tMbs" in flags_of(every)


def test_a_flag_that_takes_auto_beside_a_number_says_so_and_max_staleness_says_what_it_means(tester: RunTester) -> None:
    text = told(tester, "train", "--help")
    meaning = "versions that a group may lag behind the policy; 0: none; auto: 1 if generation can run ahead, else 0"
    assert re.search(rf"--max-staleness INT\|auto {meaning} \[(auto|[01], auto)\]", text)
    assert "-i, --num-inferencer INT number of producers" in text


def told(tester: RunTester, *words: str) -> str:
    return " ".join(" ".join(tester.run(*words).assert_ok().lines).split())


def test_help_shows_the_value_of_this_run_and_its_origin(tester: RunTester) -> None:
    (tester.folder / "mine.toml").write_text('[training]\nlearning_rate = 0.0004\nwarmup_steps = 7\n[run]\nproject = "100 %"\n')
    text = told(tester, "train", "mine.toml", "-g", "4", "--help-all")
    for wanted in (
        "weight of the KL penalty; 0: no penalty [0.01, recipe grpo]",
        "peak learning rate [0.0004, mine.toml]",
        "[7, mine.toml]",
        "completions per prompt [4, -g]",
        "stop after this many updates [none]",
        "100 %",
        "how far the ratio may fall below 1 before its gradient stops [0.2, recipe grpo]",
    ):
        assert wanted in text, wanted


def test_help_shows_the_defaults_if_the_words_cannot_be_planned(tester: RunTester) -> None:
    assert "peak learning rate [1e-06]" in told(tester, "train", "-tbs", "0", "--help")


def test_every_heading_of_settings_names_its_table(tester: RunTester) -> None:
    lines = tester.run("train", "--help", "--loss", "clipped").assert_ok().lines
    headings = [line for line in lines if line.endswith(":") and not line.startswith(("  ", "options:", "positional", "usage"))]
    assert len(headings) > 10
    assert [line for line in headings if "[" not in line] == []
