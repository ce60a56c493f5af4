"""Observers: what they are given, and what becomes of one that raises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlcore.config import RunConfig
from rlcore.runtime.listeners import Listeners
from rlcore.testing.plugin_folder import PluginFolder

GOOD = """
from rlcore.api import hookimpl
rlcore_api = "2.0"
seen = []

@hookimpl
def rlcore_step_finished(step, metrics):
    seen.append((step, dict(metrics)))
"""
BAD = """
from rlcore.api import hookimpl
rlcore_api = "2.0"
calls = []

@hookimpl
def rlcore_run_started(run):
    calls.append("started")

@hookimpl
def rlcore_step_finished(step, metrics):
    calls.append("step")
    metrics["reward"] = 0.0
"""


def listeners(folder: PluginFolder, said: list[str] | None = None) -> Listeners:
    plan: Any = SimpleNamespace(config=RunConfig(), tracker_options=(), resume=None, registry=folder.discover())
    return Listeners(plan, folder.root, [].append if said is None else said.append)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[PluginFolder]:
    with PluginFolder(tmp_path / "site") as folder:
        yield folder


def test_one_that_raises_is_reported_once_and_switched_off_and_the_others_go_on(folder: PluginFolder) -> None:
    import importlib

    folder.install("bad", BAD)
    folder.install("good", GOOD)
    said: list[str] = []
    with listeners(folder, said) as told:
        told.step_finished(1, {"reward": 2.0})
        told.step_finished(2, {"reward": 3.0})
    assert importlib.import_module("rlcore_plugin_good").seen == [(1, {"reward": 2.0}), (2, {"reward": 3.0})]
    assert importlib.import_module("rlcore_plugin_bad").calls == ["started", "step"]
    assert list(told.switched_off) == ["rlcore-plugin-bad"]
    assert "rlcore_step_finished raised TypeError" in told.switched_off["rlcore-plugin-bad"]
    assert len(said) == 1
    assert "(__init__.py, line 13)" in said[0]


@pytest.mark.parametrize(("answer", "named"), [("'look'", "str"), ("[1]", "items that are not text"), ("3", "int")])
def test_a_warning_that_is_no_list_of_sentences_switches_its_observer_off(folder: PluginFolder, answer: str, named: str) -> None:
    folder.install("vague", GOOD.replace("rlcore_step_finished", "rlcore_note_step") + f"    return {answer}\n")
    said: list[str] = []
    with listeners(folder, said) as told:
        told.step_finished(1, {})
        told.step_finished(2, {})
    assert told.warnings == []
    assert told.switched_off == {"rlcore-plugin-vague": f"rlcore_note_step returned {named}, it must return a list of sentences"}
    assert len(said) == 1


def test_a_warning_is_shown_at_once_and_kept(folder: PluginFolder) -> None:
    folder.install(
        "wary", GOOD.replace("rlcore_step_finished", "rlcore_note_step") + "    return ['low'] if metrics['reward'] < 1 else []\n"
    )
    folder.install("silent", GOOD.replace("rlcore_step_finished", "rlcore_note_step"))
    said: list[str] = []
    with listeners(folder, said) as told:
        for step, reward in enumerate([2.0, 0.0, 3.0], 1):
            told.step_finished(step, {"reward": reward})
    assert (told.warnings, told.switched_off) == (["after update 2: low"], {})
    assert said == ["warning: after update 2: low"]


def test_what_a_plugin_says_steers_no_terminal(folder: PluginFolder) -> None:
    folder.install("hostile", GOOD.replace("rlcore_step_finished", "rlcore_note_step") + "    return ['\\x1b[2Ja\\ud800\\u202eb']\n")
    said: list[str] = []
    with listeners(folder, said) as told:
        told.step_finished(1, {})
    assert told.warnings == ["after update 1: \\x1b[2Ja\\ud800\\u202eb"]
    assert said == [f"warning: {told.warnings[0]}"]


def test_groups_need_not_travel_unless_somebody_observes_them(folder: PluginFolder) -> None:
    folder.install("good", GOOD)
    registry = folder.discover()
    assert (registry.observed("rlcore_step_finished"), registry.observed("rlcore_groups_scored")) == (True, False)


def test_what_a_hook_prints_goes_to_standard_error(folder: PluginFolder, capsys: pytest.CaptureFixture[str]) -> None:
    source = GOOD.replace("seen.append((step, dict(metrics)))", "print('step', step)")
    folder.install("loud", source)
    listeners(folder).step_finished(3, {})
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "step 3\n")
