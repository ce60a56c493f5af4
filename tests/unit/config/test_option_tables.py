"""Tables in the wrong place, under a nearly right name, or without what a plugin needs: one sentence that says what to write."""

from __future__ import annotations

import json
import math
import re
import tomllib
from pathlib import Path

import pytest

from rlcore.cli.plan_view import plan_json
from rlcore.config import Plan, plan_run
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.registry.plugin_registry import Registry

TRACKER = """
from pydantic import BaseModel, ConfigDict
from rlcore.api import Tracker

class Lines(Tracker):
    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        path: str
        every: int = 1
        below: float | None = 1.0
        loud: bool = False

    def __init__(self, options): ...
    def open(self, run): ...
    def log(self, record): ...
"""
ONE = '[log]\ntrackers = ["./tr.py:Lines"]\n'
TWO = '[log]\ntrackers = ["./tr.py:Lines", "./other.py:Lines"]\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("tr.py", "other.py"):
        (tmp_path / name).write_text(TRACKER, encoding="utf-8")
    return tmp_path


def plan(folder: Path, text: str) -> Plan:
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return plan_run([Path("run.toml")], {}, Registry.discover(), require=False)


def test_the_table_of_an_unpackaged_tracker_is_called_after_its_class(here: Path) -> None:
    found = plan(here, ONE + '[log.options.lines]\npath = "x"\n')
    assert found.config.log.options == {"lines": {"path": "x", "every": 1, "below": 1.0, "loud": False}}


@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
def test_an_option_that_is_not_finite_is_what_run_toml_json_and_trackers_say(here: Path, number: str) -> None:
    table = f'[log.options.lines]\npath = "x"\nbelow = {number}\n'
    found = plan(here, ONE + table)
    for told in (tomllib.loads(found.to_toml()), found.config.plain()):
        below = told["log"]["options"]["lines"]["below"]
        assert below == float(number) or math.isnan(below) is math.isnan(float(number)) is True
    text = json.dumps(plan_json(found), allow_nan=False)
    assert json.loads(text)["config"]["log"]["options"]["lines"]["below"] == number


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ONE, "log.options.lines has no path, which tracker ./tr.py:Lines of "),
        (ONE, " needs: a text; write path = … in [log.options.lines]"),
        (
            ONE + '[log.options.Lines]\npath = "x"',
            "[log.options.Lines]: the options of the tracker ./tr.py:Lines belong in [log.options.lines]",
        ),
        (ONE + '[log.options."./tr.py:Lines"]\npath = "x"', "of the tracker ./tr.py:Lines belong in [log.options.lines]; use that table"),
        (
            ONE + '[log.options.lines]\npath = "x"\nbelow = true',
            "run.toml, line 5: log.options.lines.below = true (tracker ./tr.py:Lines of ",
        ),
        (ONE + '[log.options.lines]\npath = "x"\nbelow = true', ") must be a finite number, or none"),
        (ONE + '[log.options.lines]\npath = "x"\nevery = false', ") must be a whole number"),
        (ONE + '[log.options.line]\npath = "x"', "does not have, did you mean 'lines'; its trackers are: lines; write one of these"),
        (ONE + '[log.options.gauge]\npath = "x"', "does not have; its trackers are: lines; type --trackers gauge"),
        (
            TWO + '[log.options.lines]\npath = "x"',
            "run.toml, line 2: the trackers ./tr.py:Lines and ./other.py:Lines would both have their options in [log.options.lines]; keep",
        ),
        ("[log]\noptions = 3", "run.toml, line 2: log.options = 3 (core) must be a table of tables, written [log.options.NAME]"),
        (ONE + '[log.options]\npath = "x"', 'log.options.path = "x" (core) must be a table, written [log.options.path]'),
        ("[training]\noptions = 3", "training.options = 3 (core) must be a table, written [training.options]"),
        (
            '[data]\ndataset = [{path = "a.jsonl", repaet = 2}]',
            "run.toml, line 2: data.dataset.0.repaet is not a setting of [data.dataset.0]",
        ),
        ('[data]\ndataset = [{path = "a.jsonl", repaet = 2}]', "did you mean 'repeat'"),
        (
            '[data]\ndataset = ["b.jsonl", {pth = "a.jsonl"}]',
            "data.dataset.1.pth is not a setting of [data.dataset.1] (core), did you mean 'path'",
        ),
        ("[data]\ndataset = [{ratio = 2}]", "data.dataset.0 has no path, which core needs: a text that is not empty; write path = …"),
        ('[data]\ndataset = [{path = "a", ratio = "x"}]', 'data.dataset.0.ratio = "x" (core) must be a finite number above 0'),
        ("[data]\ndataset = [3]", "data.dataset.0 = 3 (core) must be a text that is not empty, or a table with path"),
        ("[data]\ndataset = 3", "data.dataset = 3 (core) must be a text, or a list, each item a text that is not empty, or a table with"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(here: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        plan(here, text)


def test_a_wrong_options_model_of_a_file_is_named_by_the_file(here: Path) -> None:
    (here / "tr.py").write_text(TRACKER.replace("Options(BaseModel)", "Options"), encoding="utf-8")
    with pytest.raises(PluginError, match=r": its options model './tr.py:Lines.Options' is not a pydantic BaseModel$"):
        plan(here, ONE)
