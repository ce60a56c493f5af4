"""What a run writes is whole or not there, and JSON that any reader takes."""

from __future__ import annotations

import gzip
import json
import os
import stat
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import rlcore
from rlcore.contracts.errors import ConfigError, RunError
from rlcore.contracts.specs import PluginKind
from rlcore.registry.plugin_registry import Attestation
from rlcore.runlog import RunFolder, build_manifest
from rlcore.runlog.folder import append_json_line, write_json, write_text


def folder(tmp_path: Path, **moved: Path | None) -> RunFolder:
    places = {"save_dir": None, "eval_save_dir": None, "rollout_save_dir": None, **moved}
    return RunFolder.create(tmp_path / "runs", "project", **places)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    write_text(tmp_path / "a.txt", "old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="cannot be written"):
        write_text(tmp_path / "a.txt", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_figures_that_are_not_numbers_become_null(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": float("nan"), "y": [float("inf")], "p": Path("q")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": None, "y": [None], "p": "q"}


def strict(text: str) -> object:
    """What a parser reads that knows no NaN and no Infinity, as most do."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


ODD = {"loss": float("nan"), "list": [float("inf"), {"deep": -float("inf")}], "fine": 1.5}
PLAIN = {"loss": None, "list": [None, {"deep": None}], "fine": 1.5}


def test_every_line_of_every_log_is_strict_json(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.log("metrics", ODD)
    made.log("failures", ODD)
    made.log("reward_errors", ODD)
    made.write_rollouts(1, [ODD], 1e9)
    made.write_evaluation("task", 1, [ODD], 1e9)
    made.write_document("summary", ODD)
    made.write_document("manifest", ODD)
    names = ("metrics.jsonl", "failures.jsonl", "reward_errors.jsonl", "eval/task/step-1.jsonl", "summary.json")
    assert [strict((made.root / name).read_text()) for name in (*names, "manifest.json")] == [PLAIN] * 6
    assert strict(gzip.decompress((made.root / "rollouts/step-1.jsonl.gz").read_bytes()).decode()) == PLAIN
    made.log_times({"producer-0": {"compute": float("nan")}}, 1)
    assert strict((made.root / "times.jsonl").read_text()) == {"step": 1, "workers": {"producer-0": {"compute": None}}}


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    assert folder(tmp_path).root != folder(tmp_path).root


def test_a_folder_that_is_there_already_is_never_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 6)
    monkeypatch.setattr("rlcore.runlog.folder._beginning", lambda project: "now")
    first = folder(tmp_path)
    with pytest.raises(ConfigError, match=rf"{first.root}: the folder cannot be created \(File exists\)"):
        folder(tmp_path)


def test_a_folder_that_cannot_be_made_leaves_none_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"file/.*: the folder cannot be created \(Not a directory\); choose others with --run-dir, -p, -sd"
    ):
        folder(tmp_path, rollout_save_dir=tmp_path / "file")
    assert list((tmp_path / "runs" / "project").iterdir()) == []


def test_folders_that_are_moved_to_one_place_are_removed_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    same = tmp_path / "same"
    with pytest.raises(ConfigError, match=r"file/.*: the folder cannot be created \(Not a directory\)"):
        folder(tmp_path, save_dir=same, eval_save_dir=same, rollout_save_dir=tmp_path / "file")
    assert [*same.iterdir(), *(tmp_path / "runs" / "project").iterdir()] == []


def test_the_manifest_says_what_the_run_was_made_of() -> None:
    made = build_manifest(seed=7, data={"train": "abc"}, attestations=[], origins={"run.seed": "flag"}, planned_steps=3)
    assert (made["seed"], made["data"], made["plugins"], made["origins"]) == (7, {"train": "abc"}, [], {"run.seed": "flag"})
    assert (made["rlcore"], made["packages"]["numpy"]) == (rlcore.__version__, version("numpy"))
    assert "pytest" not in made["packages"], "of an extra of rlcore, not of the run"
    assert made["command"] == sys.argv


def test_the_manifest_holds_the_packages_of_the_plugins_and_what_these_require(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {
        "acme-plugin": "1.0\nRequires-Dist: Acme_Engine[fast]>=2; python_version > '3'\nRequires-Dist: acme-extra; extra == 'engine'",
        "acme-engine": "2.5\nRequires-Dist: acme-deep\nRequires-Dist: acme-tests; extra == 'dev'\nRequires-Dist: acme-plugin",
        "acme-extra": "3",
        "acme-deep": "4\nRequires-Dist: acme-absent",
        "acme-tests": "5",
        "acme-other": "6",
    }
    for name, rest in packages.items():
        folder = tmp_path / f"{name.replace('-', '_')}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {rest}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins = [
        Attestation(kind=PluginKind.LOSS, name="own", distribution=distribution, version="", spec_sha256="")
        for distribution in ("acme-plugin", "rlcore", str(tmp_path / "my.py"))
    ]
    found = build_manifest(seed=0, data={}, attestations=plugins, origins={}, planned_steps=3)["packages"]
    acme = {name: version for name, version in found.items() if name.startswith("acme")}
    assert acme == {"acme-deep": "4", "acme-engine": "2.5", "acme-extra": "3", "acme-plugin": "1.0"}
    assert found["rlcore"] == rlcore.__version__


def test_a_file_is_readable_and_its_folder_made(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write_json(tmp_path / "a" / "b" / "c.json", {"z": 1, "a": "é"})
    assert (tmp_path / "a" / "b" / "c.json").read_text(encoding="utf-8") == '{\n  "a": "é",\n  "z": 1\n}\n'


def test_moved_parts_go_to_a_sub_folder_named_like_the_run(tmp_path: Path) -> None:
    made = folder(tmp_path, save_dir=tmp_path / "saved", eval_save_dir=tmp_path / "held", rollout_save_dir=tmp_path / "rolled")
    assert made.checkpoints == tmp_path / "saved" / made.root.name
    assert made.rollouts == tmp_path / "rolled" / made.root.name
    assert made.evaluations == tmp_path / "held" / made.root.name
    assert folder(tmp_path).evaluations.name == "eval"


def test_logs_and_tables_land_where_the_architecture_says(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.log("metrics", {"step": 1, "loss": 0.5})
    made.log("metrics", {"step": 2, "loss": 0.25})
    made.write_rollouts(2, [{"text": "é"}], 1e9)
    made.write_evaluation("task", 2, [{"prompt": "x"}], 1e9)
    assert [json.loads(line)["step"] for line in (made.root / "metrics.jsonl").read_text().splitlines()] == [1, 2]
    assert json.loads(gzip.decompress((made.root / "rollouts" / "step-2.jsonl.gz").read_bytes())) == {"text": "é"}
    assert (made.root / "eval" / "task" / "step-2.jsonl").exists()


def test_times_are_a_row_a_step_and_one_of_the_whole_run(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.log_times({"producer-0": {"compute": 1 / 3}}, 1)
    made.log_times({"producer-0": {"compute": 2.0}})
    assert [json.loads(line) for line in (made.root / "times.jsonl").read_text().splitlines()] == [
        {"step": 1, "workers": {"producer-0": {"compute": 0.333333}}},
        {"total": True, "workers": {"producer-0": {"compute": 2.0}}},
    ]


def test_lines_are_appended_whole(tmp_path: Path) -> None:
    append_json_line(tmp_path / "log", {"a": 1})
    append_json_line(tmp_path / "log", {"a": 2})
    assert (tmp_path / "log").read_text() == '{"a": 1}\n{"a": 2}\n'


def modes(made: RunFolder) -> set[int]:
    return {stat.S_IMODE(place.stat().st_mode) for place in made.places}


def private_folder(tmp_path: Path, private: bool) -> RunFolder:
    moved = {"save_dir": tmp_path / "a" / "saved", "eval_save_dir": tmp_path / "held", "rollout_save_dir": None}
    return RunFolder.create(tmp_path / "runs", "project", **moved, private=private)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o007])
def test_a_private_run_is_its_owners_alone_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        made, shared = private_folder(tmp_path, True), private_folder(tmp_path, False)
    finally:
        os.umask(before)
    assert modes(made) == {0o700}
    assert modes(shared) == {0o777 & ~mask}
    assert stat.S_IMODE((tmp_path / "a" / "saved").stat().st_mode) == 0o777 & ~mask, "others may have runs there"


def test_a_run_can_be_made_private_later(tmp_path: Path) -> None:
    made = private_folder(tmp_path, False)
    made.evaluations.rmdir()
    made.restore_places(private=True)
    assert modes(made) == {0o700}
