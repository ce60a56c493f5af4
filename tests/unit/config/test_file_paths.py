"""Paths in a TOML file are seen from its folder; flags, Python and names are not moved; a run.toml means the same anywhere."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from rlcore.config import RunConfig, TypedFlag, plan_run
from rlcore.config.file_paths import seen_from
from rlcore.config.layers import file_layer, get_path
from rlcore.config.run_config import PathKind
from rlcore.config.setting_table import alternatives, core_settings, without_bounds
from rlcore.registry.plugin_registry import Registry

TEXT = """
[run]
run_dir = "out"
[model]
model = "{model}"
[data]
dataset = ["rows.jsonl", {{path = "../more.jsonl"}}, "hf:org/rows"]
[[rewards]]
name = "./judge.py:said"
[eval]
eval_dataset = {{held = "rows.jsonl"}}
[log]
save_dir = "kept"
"""
JUDGE = "def said(item):\n    return 1.0\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; the configuration lies in its folder ``task``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task" / "base").mkdir(parents=True)
    (tmp_path / "task" / "judge.py").write_text(JUDGE)
    row = '{"messages": {"role": "user", "content": "a"}, "gt_answer": "a"}\n'
    for name in ("task/rows.jsonl", "more.jsonl"):
        (tmp_path / name).write_text(row)
    return tmp_path


def written(model: str = "org/model") -> Path:
    path = Path("task/run.toml")
    path.write_text(TEXT.format(model=model), encoding="utf-8")
    return path


def planned(*files: Path, flags: dict[str, Any] | None = None, **overrides: Any) -> RunConfig:
    overrides = {"name": "grpo", **overrides}
    return plan_run(
        files, flags or {}, Registry.discover(), overrides={"algorithm.name": overrides.pop("name"), **overrides}, require=False
    ).config


def test_a_path_in_a_file_is_seen_from_its_folder(here: Path) -> None:
    found = planned(written())
    assert (found.run.run_dir, found.log.save_dir, found.rewards[0].name) == ("task/out", "task/kept", "task/judge.py:said")
    assert [source.path for source in found.data.sources] == ["task/rows.jsonl", "task/../more.jsonl", "hf:org/rows"]
    assert found.eval.eval_dataset == {"held": "task/rows.jsonl"}


@pytest.mark.parametrize(
    ("written_as", "meant"),
    [
        ("org/model", "org/model"),
        ("base", "task/base"),
        ("./org/model", "task/org/model"),
        ("../org/model", "task/../org/model"),
        ("/abs/model", "/abs/model"),
        ("~/model", str(Path.home() / "model")),
    ],
)
def test_a_model_is_a_path_if_it_looks_like_one_or_is_there(written_as: str, meant: str, here: Path) -> None:
    layer = file_layer(written(written_as))
    assert get_path(layer.data, "model.model") == meant
    assert Path(meant) == Path(get_path(file_layer(written(written_as).absolute()).data, "model.model").replace(f"{here}/", ""))


def test_a_name_that_is_a_folder_beside_the_file_is_that_folder(here: Path) -> None:
    (here / "task" / "org" / "model").mkdir(parents=True)
    assert get_path(file_layer(written()).data, "model.model") == "task/org/model"


def test_what_is_not_beside_the_file_is_taken_as_it_was_written(here: Path) -> None:
    (here / "task" / "rows.jsonl").unlink()
    assert planned(written()).eval.eval_dataset == {"held": "rows.jsonl"}


def test_flags_and_python_are_seen_from_the_working_directory(here: Path) -> None:
    typed = {"run.run_dir": TypedFlag("--run-dir", ("mine",)), "log.save_dir": TypedFlag("-sd", ("./mine",))}
    found = planned(written(), flags=typed, rollout_save_dir="yours")
    assert (found.run.run_dir, found.log.save_dir, found.log.rollout_save_dir) == ("mine", "./mine", "yours")


def test_a_file_in_the_working_directory_keeps_its_paths_as_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written().resolve()
    monkeypatch.chdir(path.parent)
    for file in (path, Path("run.toml")):
        assert planned(file).rewards[0].name == "./judge.py:said"
        assert planned(file).run.run_dir == "out"


def test_a_run_toml_means_the_same_from_anywhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.config.plan._check_model", lambda *_: ([], []))
    plan = plan_run([written("base")], {"run.ray_dir": TypedFlag("--ray-dir", ("ray",))}, Registry.discover(), require=False)
    elsewhere = here / "runs" / "one"
    elsewhere.mkdir(parents=True)
    (elsewhere / "run.toml").write_text(plan.to_toml(), encoding="utf-8")
    absolute = {
        "run.run_dir": here / "task/out",
        "run.ray_dir": here / "ray",
        "model.model": here / "task/base",
        "data.dataset.1.path": here / "task/../more.jsonl",
        "eval.eval_dataset.held": here / "task/rows.jsonl",
    }
    for folder in (here, elsewhere, Path("/")):
        monkeypatch.chdir(folder)
        again = plan_run([elsewhere / "run.toml"], {}, Registry.discover(), require=False).config
        assert {path: get_path(again, path) for path in absolute} == {path: str(value) for path, value in absolute.items()}
        assert again.rewards[0].name == f"{here}/task/judge.py:said"
        assert again.data.sources[2].path == "hf:org/rows"


def test_the_default_of_run_dir_stays_where_the_command_is_typed(here: Path) -> None:
    assert "run_dir" not in tomllib.loads(plan_run([], {}, Registry.discover(), require=False).to_toml())["run"]


def test_every_setting_that_names_a_folder_a_file_or_a_path_says_so_in_its_type() -> None:
    for path, setting in core_settings().items():
        shapes = [shape for part in alternatives(setting.type) for shape in (part, *get_args(without_bounds(part)))]
        kinds = {item for shape in shapes for item in getattr(shape, "__metadata__", ()) if isinstance(item, PathKind)}
        words = {"folder", "file", "files", "path"} & set(setting.help.replace(",", "").replace(":", "").split())
        named = path.endswith(("_dir", "_path", "dataset"))
        if (words or named) and path not in ("run.project", "rewards"):
            assert kinds, f"{path}: {setting.help}"


@pytest.mark.parametrize("text", ["", "\0", "x" * 5000, ":", "boxed", "pkg.mod:Name"])
def test_a_text_that_is_no_path_is_left_alone(text: str) -> None:
    for kind in (PathKind.PERHAPS, PathKind.CODE):
        assert seen_from("/folder", text, kind) == text


def test_none_means_none_wherever_a_setting_may_be_none(here: Path) -> None:
    Path("a.toml").write_text('[data]\nsystem_prompt = "none"\n[[rewards]]\nname = "boxed"\n[rewards.budget]\ntimeout = "none"\n')
    layer = file_layer(Path("a.toml"))
    assert (layer.data["data"], layer.data["rewards"][0]["budget"]) == ({"system_prompt": None}, {"timeout": None})
