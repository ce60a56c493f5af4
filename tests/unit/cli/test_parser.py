"""The parser: words are sorted, nothing is guessed, every error is one sentence."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from rlcore.cli.flags import add_train_flags, train_flags
from rlcore.cli.parser import Parser
from rlcore.contracts.errors import UsageError


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="rlcore train")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--json", action="store_true")
    add_train_flags(parser)
    return parser.parse_args(list(words))


def words(*typed: str) -> dict[str, tuple[str, ...]]:
    return {path: given.words for path, given in train_flags(parsed(*typed)).items()}


def test_files_may_stand_between_flags(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("a.toml", "b.toml"))
    first.write_text("")
    second.write_text("")
    args = parsed(str(first), "-e", "2", str(second), "--json", "-d", "x.jsonl", "y.jsonl")
    assert args.files == [first, second]
    assert args.json
    assert train_flags(args)["data.dataset"].words == ("x.jsonl", "y.jsonl")


def test_a_toml_file_after_a_data_set_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("")
    args = parsed("-d", "x.jsonl", str(file))
    assert args.files == [file]
    assert train_flags(args)["data.dataset"].words == ("x.jsonl",)


@pytest.mark.parametrize("value", ["-x", "- be brief", "a=b", "--not a flag", ""])
def test_a_value_may_look_like_anything(value: str) -> None:
    assert words("-s", value) == {"data.system_prompt": (value,)}


def test_a_negative_number_is_a_value() -> None:
    assert words("--filter-range", "-0.5", "1", "--entropy-coeff", "-1e-3") == {
        "algorithm.filter_range": ("-0.5", "1"),
        "algorithm.entropy_coeff": ("-1e-3",),
    }


@pytest.mark.parametrize(
    ("typed", "meaning"),
    [
        (["--dynamic-batching"], "true"),
        (["--dynamic-batching", "false"], "false"),
        (["--dynamic_batching=true"], "true"),
        (["--no-dynamic-batching"], "false"),
        (["--no-dynamic_batching"], "false"),
        (["--no-algorithm.dynamic-batching"], "false"),
        (["--no-dynamic-batching", "--dynamic-batching"], "true"),
    ],
)
def test_a_switch_has_three_forms(typed: list[str], meaning: str) -> None:
    assert words(*typed) == {"algorithm.dynamic_batching": (meaning,)}


def test_a_switch_does_not_swallow_what_follows(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("")
    assert parsed("--dynamic-batching", str(file)).files == [file]


def test_none_stands_for_a_pair() -> None:
    assert words("--filter-range", "none", "-e", "2")["algorithm.filter_range"] == ("none",)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["-tbz", "4"], "-tbz is not an option of rlcore train, did you mean '-tbs'"),
        (["--lr", "4"], "--lr is not an option of rlcore train, did you mean '-lr'"),
        (["-max-steps", "4"], "-max-steps is not an option of rlcore train, did you mean '--max-steps'"),
        (["-t4"], "-t4 is not an option"),
        (["--train-batch", "4"], "--train-batch is not an option"),
        (["--train-batch-siz", "4"], "'--train-batch-size'"),
        (["-e"], "-e needs a value: type -e INT"),
        (["-e", "--seed", "1"], "-e needs a value"),
        (["-d"], "-d needs at least one value"),
        (["-d", "none/run.toml"], "-d needs at least one value before none/run.toml, which is a configuration file: type -d TEXT"),
        (["--betas", "0.9"], "--betas needs two values: type --betas NUMBER NUMBER"),
    ],
)
def test_an_error_is_one_sentence(typed: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed(*typed)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_of_the_chosen_plugins_are_flags() -> None:
    assert words("--loss", "clipped", "--clip-eps-high", "0.3") == {
        "algorithm.loss": ("clipped",),
        "algorithm.options.clip_eps_high": ("0.3",),
    }


def test_help_shows_the_sections_the_defaults_and_the_options_of_the_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parsed("--loss", "clipped", "--help")
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "-tbs, --train-batch-size INT prompts per update, over all trainers [32]" in text
    assert "options of loss clipped of rlcore" in text
    assert "--clip-eps-low NUMBER" in text
    assert "--train_batch_size" not in text
