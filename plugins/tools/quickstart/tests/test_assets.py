"""The folder is whole or absent, used again where it is ours, refused where it is not."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_quickstart import assets
from rlcore_plugin_quickstart.assets import MARKER, default_folder, prepare
from rlcore_plugin_quickstart.recipe import TASKS, QuickstartTask, run_toml
from rlcore_plugin_quickstart.task import Split

from rlcore.api import UsageError
from rlcore.api.settings import file_layer
from rlcore.testing import Registry, load_eval

TOOLS = TASKS["tools"]


def quick_base(base: Path, split: Split[Any], seed: int, task: QuickstartTask, report: assets.Report) -> None:
    base.mkdir()
    (base / "config.json").write_text(f"model of seed {seed}", encoding="utf-8")


@pytest.fixture(autouse=True)
def _no_warm_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assets, "_write_base", quick_base)
    monkeypatch.chdir(tmp_path)


def made(folder: str = "qs", seed: int = 0) -> Path:
    return prepare(Path(folder), seed, lambda line: None).folder


def refused(folder: str = "qs", seed: int = 0) -> str:
    before = {path: path.read_bytes() if path.is_file() else None for path in Path().rglob("*")}
    with pytest.raises(UsageError) as caught:
        made(folder, seed)
    assert before == {path: path.read_bytes() if path.is_file() else None for path in Path().rglob("*")}
    return str(caught.value)


def test_what_is_written() -> None:
    folder = made("deep/qs")
    assert sorted(path.name for path in folder.iterdir()) == ["base", "heldout.jsonl", MARKER, "run.toml", "train.jsonl"]
    assert [path.name for path in folder.parent.iterdir()] == ["qs"]
    assert len(load_eval(folder / "train.jsonl", [], Registry.discover())) == 2048
    assert len(load_eval(folder / "heldout.jsonl", [], Registry.discover())) == 200
    values = tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))
    assert values["data"]["dataset"] == "train.jsonl", "seen from the folder"
    assert file_layer(folder / "run.toml").data["data"]["dataset"] == "deep/qs/train.jsonl"
    assert values["eval"]["eval_dataset"] == {"sort": "heldout.jsonl"}


def test_it_is_used_again_also_with_an_edited_configuration_and_runs_in_it() -> None:
    folder = made()
    (folder / "run.toml").write_text("[run]\nseed = 0\n", encoding="utf-8")
    (folder / "runs").mkdir()
    lines: list[str] = []
    assert prepare(folder, 0, lines.append).reused
    assert lines == ["qs: made earlier with seed 0; reused unchanged"]


def test_an_empty_folder_is_filled() -> None:
    Path("qs").mkdir()
    assert made() == Path("qs")


def test_other_content_is_refused_and_left_alone() -> None:
    Path("qs").mkdir()
    Path("qs/thesis.tex").write_text("x", encoding="utf-8")
    assert refused() == "qs: contains something other than a quickstart; name another folder (rlcore quickstart DIR), or remove this one"


def test_a_file_in_the_way_is_refused() -> None:
    Path("qs").write_text("x", encoding="utf-8")
    assert refused().startswith("qs: a file is in the way")
    assert refused("qs/inside").startswith("qs/inside: cannot be written")


def test_another_seed_or_version_or_a_changed_file_is_refused() -> None:
    folder = made()
    assert refused(seed=1).startswith("qs: contains the quickstart of seed 0, not of seed 1;")
    data = (folder / "train.jsonl").read_text(encoding="utf-8")
    (folder / "train.jsonl").write_text(data.replace("1", "2", 1), encoding="utf-8")
    assert refused().startswith("qs/train.jsonl: changed since the quickstart wrote it;")
    (folder / "train.jsonl").unlink()
    assert refused().startswith("qs/train.jsonl: changed")
    marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    (folder / MARKER).write_text(json.dumps(marker | {"recipe": 0}), encoding="utf-8")
    assert refused().startswith("qs: made by another version of the quickstart (0")
    (folder / MARKER).write_text("[]", encoding="utf-8")
    assert refused().startswith("qs: contains something other")


@pytest.mark.parametrize("accident", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_nothing(accident: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(base: Path, split: Split[Any], seed: int, task: QuickstartTask, report: assets.Report) -> None:
        quick_base(base, split, seed, task, report)
        raise accident

    monkeypatch.setattr(assets, "_write_base", interrupted)
    with pytest.raises(accident):
        made()
    assert list(Path().iterdir()) == []


def test_each_seed_and_task_has_a_folder_of_its_own() -> None:
    assert [str(default_folder(seed)) for seed in (0, 3)] == ["quickstart", "quickstart-3"]
    assert [str(default_folder(seed, TOOLS)) for seed in (0, 3)] == ["quickstart-tools", "quickstart-tools-3"]


def test_the_task_with_a_calculator_has_its_program_which_may_be_changed() -> None:
    folder = prepare(Path("qs"), 0, lambda line: None, TOOLS).folder
    program = folder / "calculator.py"
    assert tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))["sampling"]["environment"] == "calculator.py:play"
    assert "async def play" in program.read_text(encoding="utf-8")
    program.write_text("changed", encoding="utf-8")
    assert prepare(folder, None, lambda line: None, None).reused
    assert program.read_text(encoding="utf-8") == "changed"
    assert refused().startswith("qs: contains the quickstart of task tools, not of task sort;")
    program.unlink()
    with pytest.raises(UsageError, match=r"qs/calculator\.py: missing;"):
        prepare(folder, 0, lambda line: None, TOOLS)


def test_the_task_with_repositories_has_its_environment_and_as_many_held_out_as_it_says() -> None:
    folder = prepare(Path("qs"), 0, lambda line: None, TASKS["repair"]).folder
    assert tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))["sampling"]["environment"] == "repair.py:Repair"
    assert "class Repair" in (folder / "repair.py").read_text(encoding="utf-8")
    assert len(load_eval(folder / "heldout.jsonl", [], Registry.discover())) == TASKS["repair"].n_heldout == 96


def test_a_folder_of_another_version_of_its_task_is_refused() -> None:
    folder = prepare(Path("qs"), 0, lambda line: None, TASKS["repair"]).folder
    assert prepare(folder, 0, lambda line: None, TASKS["repair"]).reused
    marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    (folder / MARKER).write_text(json.dumps(marker | {"recipe": 1}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"qs: made by another version of the quickstart \(1, this is 2\);"):
        prepare(folder, 0, lambda line: None, TASKS["repair"])


def test_a_folder_of_an_earlier_version_has_the_task_sort() -> None:
    folder = made()
    marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    del marker["task"]
    (folder / MARKER).write_text(json.dumps(marker), encoding="utf-8")
    assert prepare(folder, 0, lambda line: None, TASKS["sort"]).reused


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=20))
def test_the_configuration_survives_any_folder_name(name: str) -> None:
    text = run_toml(Path(name), 7)
    assert tomllib.loads(run_toml(Path(name), 7, aside=True))["model"]["model"] == (Path(name).absolute() / "base").as_posix()
    commands = [line.partition("rlcore")[2] for line in text.splitlines() if line.startswith("#") and "rlcore" in line]
    assert [shlex.split(command)[-1] for command in commands] == [(Path(name) / "run.toml").as_posix()] * 2
    assert tomllib.loads(text)["run"]["seed"] == 7
