"""Runs whose learning rate follows a schedule, of the core and of strangers."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlcore.api import LearningRateSchedule
from rlcore.testing import LearningRateScheduleSuite, PluginFolder, RunTester
from tests.stranger_site import link_stranger, stranger_site

STEPS = 8
HALVES = '''
from rlcore.api import LearningRateSchedule

class Halves(LearningRateSchedule):
    """The peak, then half of it."""

    def share(self, step, steps):
        return 1.0 if step < steps / 2 else 0.5
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stranger_site(tmp_path_factory)


class TestStairs(LearningRateScheduleSuite):
    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path: Path, site: Path) -> Iterator[None]:
        with PluginFolder(tmp_path / "plugins") as plugins:
            link_stranger(site, plugins)
            registry = plugins.discover()
            options = registry.options_model("lr_schedule", "acme_stairs")
            assert options is not None
            self._make = lambda: registry.make("lr_schedule", "acme_stairs", options=options(stairs=3))
            yield

    def make(self) -> LearningRateSchedule:
        made: LearningRateSchedule = self._make()
        return made


@pytest.fixture
def tester(tmp_path: Path, site: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    link_stranger(site, made.plugins)
    made.write("mine.py", HALVES)
    return made


def a_run(tester: RunTester, **training: object) -> str:
    return tester.fake_run(
        run={"num_episodes": 50, "max_steps": STEPS},
        training={"name": "fake-pipeline", "learning_rate": 0.4, "min_lr_ratio": 0.5, **training},
        sampling={"max_new_tokens": 4, "num_generations": 4},
        log={"save_interval": 1, "keep_checkpoints": 20},
    )


def rates(folder: Path) -> list[float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["learning_rate"] for row in rows if "learning_rate" in row]


def test_a_run_follows_a_stranger_s_schedule_and_so_does_the_resumed_one(tester: RunTester) -> None:
    """Four stairs of shares 1, 1/2, 1/4, 1/8 over eight steps; the rate is 0.2 + 0.2 * share."""
    done = tester.run("train", a_run(tester), "--lr-schedule", "acme_stairs", "--stairs", "4", "--json").assert_ok()
    folder = tester.folder / done.json["run"]
    expected = [0.4, 0.4, 0.3, 0.3, 0.25, 0.25, 0.225, 0.225]
    assert rates(folder) == pytest.approx(expected)
    written = tomllib.loads((folder / "run.toml").read_text())["training"]
    assert (written["lr_schedule"], written["lr_schedule_options"]) == ("acme_stairs", {"stairs": 4})
    attested = {(row["kind"], row["name"]): row for row in json.loads((folder / "manifest.json").read_text())["plugins"]}
    assert attested["lr_schedule", "acme_stairs"]["distribution"] == "acme-rlcore"
    tester.run("resume", str(folder), "--step", "6", "--max-steps", "10").assert_ok()  # stairs of a run of ten steps
    longer = [*expected[:6], 0.25, 0.25, 0.225, 0.225]
    assert rates(folder) == pytest.approx(longer)
    told = tester.run("resume", str(folder), "--max-steps", "12", "--lr-schedule", "constant").assert_ok()
    assert "learning rate: 0.4 at the next optimizer step, 0.225 at the last one" in told.stdout + told.stderr
    assert rates(folder) == pytest.approx([*longer, 0.4, 0.4])


def test_a_class_of_a_file_is_followed(tester: RunTester) -> None:
    done = tester.run("train", a_run(tester), "--lr-schedule", "./mine.py:Halves", "--json").assert_ok()
    assert rates(tester.folder / done.json["run"]) == pytest.approx([0.4] * 4 + [0.3] * 4)


def test_the_warm_up_comes_before_it(tester: RunTester) -> None:
    done = tester.run("train", a_run(tester, warmup_steps=4), "--lr-schedule", "./mine.py:Halves", "--json").assert_ok()
    assert rates(tester.folder / done.json["run"]) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.3, 0.3])


def test_names_and_options_are_checked(tester: RunTester) -> None:
    tester.run("train", a_run(tester), "--lr-schedule", "wsdd").assert_refused("there is no learning-rate schedule 'wsdd', did you mean")
    tester.run("train", a_run(tester), "--lr-schedule", "none", "--dry-run").assert_refused("there is no learning-rate schedule 'none'")
    tester.run("train", a_run(tester), "--lr-schedule", "wsd", "--decay-share", "2").assert_refused("--decay-share 2", "from 0 to 1;")


def test_they_are_listed_and_shown(tester: RunTester) -> None:
    listed = tester.run("plugins").assert_ok().stdout
    assert all(name in listed for name in ("constant", "linear", "cosine", "wsd", "inverse_sqrt", "acme_stairs"))
    shown = json.loads(tester.run("show", "lr_schedule", "wsd", "--json").assert_ok().stdout)
    assert tomllib.loads(shown["toml"])["training"] == {"lr_schedule": "wsd", "lr_schedule_options": {"decay_share": 0.1}}
