"""Layers: what wins, what merges, and whose each value is."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.config.layers import Origin, TypedFlag, as_typed, combine, file_layer, flag_layer, python_layer, recipe_layer
from rlcore.config.setting_table import core_settings
from rlcore.config.toml_text import line_of
from rlcore.contracts.errors import ConfigError
from rlcore.contracts.specs import AlgorithmSpec

RECIPE = AlgorithmSpec(
    name="dapo",
    estimator="group_norm",
    loss="clipped",
    summary="",
    defaults={"training.train_batch_size": (512, "table 1"), "algorithm.filter_range": ((0.01, 0.99), "section 3.2")},
)


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def flags(**typed: TypedFlag) -> dict[str, TypedFlag]:
    return {key.replace("__", "."): value for key, value in typed.items()}


def test_recipe_then_files_then_python_then_flags(tmp_path: Path) -> None:
    first = written(tmp_path, "a.toml", "[training]\ntrain_batch_size = 1\nlearning_rate = 0.1\nwarmup_steps = 1\nzero_stage = 1\n")
    second = written(tmp_path, "b.toml", "[training]\nlearning_rate = 0.2\nwarmup_steps = 2\nzero_stage = 2\n")
    layers = [
        recipe_layer(RECIPE),
        file_layer(first),
        file_layer(second),
        python_layer({"warmup_steps": 3, "training.zero_stage": 3}),
        flag_layer(flags(training__zero_stage=TypedFlag("-zero", ("0",))), core_settings()),
    ]
    draft = combine(layers)
    assert draft.data["training"] == {"train_batch_size": 1, "learning_rate": 0.2, "warmup_steps": 3, "zero_stage": 0}
    assert draft.data["algorithm"] == {"filter_range": [0.01, 0.99]}
    assert draft.origin("training.train_batch_size") == Origin("file", str(first))
    assert draft.origin("training.learning_rate") == Origin("file", str(second))
    assert draft.origin("training.warmup_steps") == Origin("python", "Python")
    assert draft.origin("training.zero_stage") == Origin("flag", "-zero")
    assert draft.origin("algorithm.filter_range") == Origin("recipe", "recipe dapo")
    assert draft.origin("run.seed") == Origin("core", "default")


def test_tables_merge_and_lists_replace(tmp_path: Path) -> None:
    first = written(tmp_path, "a.toml", '[algorithm.options]\na = 1\n[[rewards]]\nname = "x"\n[[rewards]]\nname = "y"\n')
    second = written(tmp_path, "b.toml", '[algorithm.options]\nb = 2\n[[rewards]]\nname = "z"\n')
    draft = combine([file_layer(first), file_layer(second)])
    assert draft.data["algorithm"]["options"] == {"a": 1, "b": 2}
    assert [entry["name"] for entry in draft.data["rewards"]] == ["z"]
    assert draft.origin("algorithm.options.a").detail == str(first)
    assert draft.origin("rewards.0.name").detail == str(second)


def test_citing_what_was_typed(tmp_path: Path) -> None:
    file = written(tmp_path, "a.toml", "[sampling]\n\nnum_generations = 4\n")
    typed = flags(training__train_batch_size=TypedFlag("--train_batch_size", ("07",)), data__shuffle=TypedFlag("--no-shuffle", ("false",)))
    draft = combine([file_layer(file), flag_layer(typed, core_settings())])
    assert draft.cite("training.train_batch_size", 7) == "--train_batch_size 07"
    assert draft.cite("data.shuffle", False) == "--no-shuffle"
    assert draft.cite("sampling.num_generations", 4) == f"num_generations = 4 ({file}, line 3)"
    assert draft.cite("run.seed", 0) == "seed = 0 (default)"


def test_none_may_be_written_in_toml_where_a_setting_may_be_none(tmp_path: Path) -> None:
    file = written(tmp_path, "a.toml", '[algorithm]\nfilter_range = "none"\n[run]\nproject = "none"\n')
    draft = combine([recipe_layer(RECIPE), file_layer(file)])
    assert draft.data["algorithm"]["filter_range"] is None
    assert draft.data["run"]["project"] == "none"


def test_python_takes_keys_paths_tables_and_a_reward_s_name() -> None:
    layer = python_layer(
        {"train_batch_size": 2, "training.zero_stage": 1, "run": {"seed": 3}, "rewards": "boxed", "eval_dataset": {"a": "b"}}
    )
    assert layer.data == {
        "training": {"train_batch_size": 2, "zero_stage": 1},
        "run": {"seed": 3},
        "rewards": [{"name": "boxed"}],
        "eval": {"eval_dataset": {"a": "b"}},
    }


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("run.seed", 2),
        ("training", 4),
        ("training.betas", 6),
        ("training.absent", 4),
        ("rewards.0.name", 9),
        ("rewards.1.name", 12),
        ("rewards.1.options.scale", 14),
        ("log.trackers", 16),
        ("nothing.here", None),
    ],
)
def test_the_line_of_a_setting(path: str, line: int | None) -> None:
    text = """[run]
seed = 1

[training]  # the trainers
# betas = [0.8, 0.9]
betas = [0.9, 0.95]

[[rewards]]
name = "a"

[[rewards]]
name = "b"
[rewards.options]
scale = 2

log.trackers = []
"""
    text = text.replace("\nlog.trackers", "\n[log]\ntrackers").replace("\n\n[log]\n", "\n[log]\n")
    assert line_of(text, path) == line


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        file_layer(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "none"), (True, "true"), ((0.1, 2), "0.1 2"), ("a b", "'a b'"), ("", "''"), (1e-6, "1e-06"), ("x" * 99, "x" * 80 + "…")],
)
def test_a_value_as_it_is_typed(value: object, words: str) -> None:
    assert as_typed(value) == words
