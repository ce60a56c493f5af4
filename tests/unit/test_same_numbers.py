"""``tools/same_numbers.py`` compares what two codes have in common, wherever their distributions lie and whatever they are called."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.quickstart_folder import quickstart_in
from tools import same_numbers
from tools.same_numbers import ROOT, NotComparedError, Side, base, declare, differences, projects_of, report, trained

ROW = {"step": 1, "loss": 0.5, "time/forward": 1.0, "tokens_per_second": 9.0}


def a_run(folder: Path, *rows: dict[str, Any], weight: float = 1.0) -> Path:
    """What a run leaves that is compared."""
    model = folder / "checkpoints" / "step-1" / "model"
    model.mkdir(parents=True)
    (folder / "checkpoints" / "latest").write_text("step-1\n")
    save_file({"w": np.array([weight], np.float32)}, model / "model.safetensors")
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@pytest.mark.parametrize(
    ("after", "weight", "said"),
    [
        (ROW, 1.0, []),
        ({**ROW, "time/forward": 2.0, "tokens_per_second": 7.0}, 1.0, []),
        ({**ROW, "new": 3.0}, 1.0, []),
        ({**ROW, "loss": 0.25}, 1.0, ["step 1: loss is 0.5 before, 0.25 after"]),
        ({"step": 1, "other_loss": 0.5}, 1.0, ["step 1: loss is 0.5 before, and missing after"]),
        (ROW, 2.0, ["tensor w differs"]),
    ],
)
def test_common_figures_and_weights_are_compared(after: dict[str, Any], weight: float, said: list[str], tmp_path: Path) -> None:
    assert list(differences(a_run(tmp_path / "before", ROW), a_run(tmp_path / "after", after, weight=weight))) == said


def test_a_step_that_is_missing_is_a_difference(tmp_path: Path) -> None:
    (said,) = differences(a_run(tmp_path / "before", ROW, {**ROW, "step": 2}), a_run(tmp_path / "after", ROW))
    assert said == "metrics.jsonl has 2 lines before, 1 after"


def test_runs_without_a_figure_are_not_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(a_run(tmp_path / "before"), a_run(tmp_path / "after"), {"commit": "abc"}) == 1
    assert "has no figures or no weights: nothing was compared" in capsys.readouterr().out


def test_new_figures_are_listed_and_are_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(a_run(tmp_path / "before", ROW), a_run(tmp_path / "after", {**ROW, "new": 3.0}), {"commit": "abc"}) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == ["only after: new"]
    told = json.loads(last)
    assert (told["commit"], told["new"], told["equal"], told["different"], told["figures_compared"]) == ("abc", ["new"], True, 0, 2)


def test_the_base_is_a_commit_with_a_reason() -> None:
    commit, reason = base(same_numbers.BASE)
    assert len(commit) == 40
    assert len(reason.split()) >= 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'has no commit; write commit = "..."'),
        ('commit = "abc"', 'has no reason; write reason = "..."'),
        ('commit = "abc"\nreason = " "', "has no reason"),
        ("commit = abc", "cannot be read: "),
    ],
)
def test_a_base_without_a_commit_or_a_reason_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(text)
    with pytest.raises(NotComparedError, match=said):
        base(tmp_path / "base.toml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--before-assets", "."], "argument --before-assets: . has no base; name a folder that rlcore quickstart made"),
        (["no-such-commit"], "commit no-such-commit cannot be checked out of "),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(words: list[str], said: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "same_numbers.py", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_checkout_s_own_files_say_what_it_registers(tmp_path: Path) -> None:
    for project in projects_of(ROOT).values():
        declare(project, tmp_path)
    declared = {found.name: found for found in distributions(path=[str(tmp_path)])}
    installed = {name: found for found in distributions() if (name := found.name).startswith("rlcore") and name in declared}
    assert set(installed) == set(declared), "make env installs every distribution"
    for name, found in installed.items():
        ours = {(entry.group, entry.name, entry.value) for entry in declared[name].entry_points}
        assert (declared[name].version, ours) == (found.version, {(entry.group, entry.name, entry.value) for entry in found.entry_points})


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quickstart_in(tmp_path_factory.mktemp("assets") / "demo", tmp_path_factory)


@pytest.mark.full
def test_a_checkout_with_other_distributions_is_compared_and_another_number_is_found(assets: Path, tmp_path: Path) -> None:
    """The other one has a distribution of another name, in another folder, which is not installed."""
    other = tmp_path / "other"
    for folder in ("rlcore", "plugins"):
        shutil.copytree(ROOT / folder, other / folder)
    shutil.copy(ROOT / "pyproject.toml", other)
    (other / "plugins" / "algos").rename(other / "plugins" / "families")
    project = other / "plugins" / "families" / "grpo" / "pyproject.toml"
    project.write_text(project.read_text().replace('name = "rlcore-plugin-grpo"', 'name = "rlcore-plugin-former"'))
    before, after = (Side(checkout, Path(sys.executable), tmp_path / f"site of {checkout.name}") for checkout in (other, ROOT))
    runs = [trained(side, assets, tmp_path / f"runs of {side.checkout.name}", 2) for side in (before, after)]
    assert list(differences(*runs)) == []
    used = {plugin["distribution"] for plugin in json.loads((runs[0] / "manifest.json").read_text())["plugins"]}
    assert "rlcore-plugin-former" in used
    default = other / "rlcore" / "config" / "run_config.py"
    changed = default.read_text().replace('setting(0.01, help="decoupled weight decay', 'setting(0.5, help="decoupled weight decay')
    assert changed != default.read_text()
    default.write_text(changed)
    assert "tensor" in "".join(differences(trained(before, assets, tmp_path / "runs changed", 2), runs[1]))
