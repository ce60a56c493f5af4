"""Settings of runs beside each other: which ones differ, and which runs differ by nothing but their seed."""

from __future__ import annotations

from typing import Any

from rlcore_plugin_tools import settings_compared
from rlcore_plugin_tools.settings_compared import differing_settings, flat_settings, groups_by_seed

from rlcore.api.commands import RunConfig


def settings(**run: Any) -> dict[str, Any]:
    return flat_settings({"run": {"seed": 0, "run_dir": "a", **run}, "log": {"save_dir": f"elsewhere-{run.get('seed')}"}})


def test_every_leaf_has_a_path() -> None:
    config = {
        "run": {"seed": 3},
        "training": {"options": {"threads": 2, "betas": [0.9, 0.95]}, "none": {}},
        "rewards": [{"name": "boxed", "weight": 1.0}, {"name": "code"}],
    }
    assert flat_settings(config) == {
        "run.seed": 3,
        "training.options.threads": 2,
        "training.options.betas": [0.9, 0.95],
        "rewards[0].name": "boxed",
        "rewards[0].weight": 1.0,
        "rewards[1].name": "code",
    }


def test_a_setting_that_one_run_lacks_differs() -> None:
    assert differing_settings([{"a": 1, "b": 2}, {"a": 1}]) == ["b"]
    assert differing_settings([{"a": 1}, {"a": 1, "b": None}]) == ["b"]
    assert differing_settings([{"a": 1}]) == []
    assert differing_settings([]) == []


def test_runs_that_differ_by_their_seed_and_place_alone_are_a_group() -> None:
    runs = [settings(), settings(seed=1, run_dir="b"), settings(max_steps=3), settings(seed=2)]
    assert groups_by_seed(runs) == [[0, 1, 3], [2]]
    assert differing_settings(runs) == ["run.seed", "run.max_steps"]


def test_the_same_seed_twice_is_no_group() -> None:
    assert groups_by_seed([settings(seed=seed) for seed in (0, 0, 1, 1)]) == [[0, 2], [1, 3]]


def test_the_settings_that_say_where_a_run_happened_are_settings() -> None:
    for path in (settings_compared.SEED, *settings_compared._PLACES):
        section, name = path.split(".")
        assert name in RunConfig.model_fields[section].annotation.model_fields, path  # type: ignore[union-attr]
