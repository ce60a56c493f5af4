"""A command that does a part of what a run does reads a part of the settings: the others are neither checked nor missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.config import plan_run
from rlcore.config.plan import preview_settings
from rlcore.contracts.errors import ConfigError
from rlcore.registry.plugin_registry import Registry

FILE = """
[run]
seed = 5
runtime = "nobody"
[training]
num_trainers = 7
tensor_parallel_size = 2
[log]
trackers = ["nobody"]
"""


def only_the_seed(path: str) -> bool:
    return path == "run.seed"


def test_what_is_not_read_is_not_checked(tmp_path: Path) -> None:
    (file := tmp_path / "run.toml").write_text(FILE)
    registry = Registry.discover()
    with pytest.raises(ConfigError):
        plan_run([file], {"training.name": "torch", "run.runtime": "auto", "log.trackers": ()}, registry, require=False)
    plan = plan_run([file], {}, registry, require=False, reads=only_the_seed)
    assert plan.config.run.seed == 5
    assert plan.config.training.num_trainers == 1
    assert plan.config.log.trackers == ()
    assert "run.runtime" in preview_settings([file], {}, registry, {}, only_the_seed).parts


def test_a_section_that_does_not_exist_is_refused_all_the_same(tmp_path: Path) -> None:
    (file := tmp_path / "run.toml").write_text("[traning]\nnum_trainers = 1\n")
    with pytest.raises(ConfigError, match="traning"):
        plan_run([file], {}, Registry.discover(), require=False, reads=only_the_seed)


def test_what_is_missing_says_which_setting_names_it() -> None:
    flags = {"training.name": "colossalai", "log.trackers": ("wandb",), "model.model": "./nowhere"}
    missing = plan_run([], flags, Registry.discover([]), require=False).missing  # nothing is installed
    assert {item.path for item in missing} >= {"log.trackers.0", "model.model"}
