"""``rlcore show config``: every value, its origin, and TOML that means the same."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rlcore.testing import RunTester


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_fakes()


def test_it_needs_neither_model_nor_data(tester: RunTester) -> None:
    outcome = tester.run("show", "config").assert_ok()
    assert "training.train_batch_size" in outcome.stdout
    assert not outcome.written


def test_it_names_the_origin_of_each_value(tester: RunTester) -> None:
    run = tester.fake_run()
    found = tester.run("show", "config", run, "-e", "2", "--loss", "clipped", "--clip_eps_high", "0.3", "--json").assert_ok().json
    origins = {path: (origin["layer"], origin["detail"]) for path, origin in found["origins"].items()}
    assert origins["training.train_batch_size"] == ("file", run)
    assert origins["run.num_episodes"] == ("flag", "-e")
    assert origins["sampling.top_p"] == ("core", "default")
    assert origins["algorithm.options.clip_eps_high"] == ("flag", "--clip_eps_high")
    assert origins["algorithm.options.clip_eps_low"] == ("core", "default of the plugin")
    assert origins["algorithm.estimator"][0] == "auto"
    assert found["config"]["algorithm"]["options"] == {"clip_eps_low": 0.2, "clip_eps_high": 0.3, "dual_clip": None}


def test_the_table_fits_160_columns(tester: RunTester) -> None:
    tester.fake_run()
    lines = tester.run("show", "config", "run.toml", "--loss", "clipped").assert_ok().stdout.partition("To paste")[0].splitlines()
    assert max(map(len, lines)) <= 160
    assert any(line.startswith("        ") for line in lines), "no origin was long enough to continue below itself"


def test_its_toml_resolves_to_the_same(tester: RunTester) -> None:
    first = tester.run("show", "config", tester.fake_run(), "-lr", "3e-5", "--filter-range", "none", "--toml").assert_ok().stdout
    assert tomllib.loads(first)["training"]["learning_rate"] == 3e-5
    tester.write("again.toml", first)
    assert tester.run("show", "config", "again.toml", "--toml").assert_ok().stdout == first
