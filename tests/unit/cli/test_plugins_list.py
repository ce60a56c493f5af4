"""``rlcore plugins``: what it prints; the command line around it is tested elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlcore.cli.typed_command import run_command
from rlcore.testing.plugin_folder import PluginFolder

ACME = """
from rlcore.api import AlgorithmSpec, LossSpec, RewardSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_rewards():
    return [RewardSpec(name="acme", target="rlcore_plugin_acme.parts:Judge", summary="Judges like Acme", aliases=("coyote",))]

@hookimpl
def rlcore_register_losses():
    return [LossSpec(name="acme", target="rlcore_plugin_acme.parts:Loss", summary="A loss")]

@hookimpl
def rlcore_register_algorithms():
    return [AlgorithmSpec(name="acme", summary="Acme's recipe", estimator="group_mean", loss="clipped")]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginFolder]:
    monkeypatch.setenv("RLCORE_PLUGINS", "acme,broken")
    with PluginFolder(tmp_path / "site") as folder:
        folder.install("acme", ACME, files={"parts.py": "class Judge: ...\n\n\nclass Loss: ...\n"})
        yield folder


def test_plugins_lists_offers_failures_and_switches(
    folder: PluginFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.install("broken", "import [")
    folder.install("asleep")
    monkeypatch.setenv("RLCORE_PLUGINS", "acme,broken,acmee")
    assert run_command("plugins", []) == 0
    lines = capsys.readouterr().out.splitlines()
    acme = [line for line in lines if line.startswith("rlcore-plugin-acme ")]
    assert acme == [f"rlcore-plugin-acme 1.0 2.0 {kind}: acme" for kind in ("reward", "loss", "algo")]
    (broken,) = [line for line in lines if line.startswith("rlcore-plugin-broken ")]
    assert broken.startswith("rlcore-plugin-broken 1.0 - failed: importing rlcore_plugin_broken raised SyntaxError: ")
    assert "rlcore-plugin-asleep 1.0 - switched off by RLCORE_PLUGINS" in lines
    assert "names 'acmee', which is not the name of an installed plugin, did you mean 'acme'" in lines[-1]


def test_the_error_of_a_misfitting_hook_names_its_arguments(folder: PluginFolder, capsys: pytest.CaptureFixture[str]) -> None:
    hook = "from rlcore.api import hookimpl\nrlcore_api = '2.0'\n\n@hookimpl\ndef rlcore_run_finished(run):\n    pass\n"
    folder.install("acme", hook)
    assert run_command("plugins", []) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("rlcore-plugin-acme ")]
    assert line.endswith("; rlcore_run_finished takes summary")


def test_a_line_in_a_pipe_is_neither_padded_nor_wrapped(folder: PluginFolder, capsys: pytest.CaptureFixture[str]) -> None:
    names = ", ".join(f'RewardSpec(name="reward_{number}", target="a:b", summary="")' for number in range(40))
    one = "from rlcore.api import RewardSpec, hookimpl\nrlcore_api = '2.0'\n\n@hookimpl\ndef rlcore_register_rewards():\n"
    folder.install("acme", f"{one}    return [{names}]\n")
    assert run_command("plugins", []) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert any(line.endswith("reward_38, reward_39") and "reward_0, reward_1" in line for line in lines)


def test_plugins_in_json(folder: PluginFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("plugins", ["--json"]) == 0
    rows = {row["distribution"]: row for row in json.loads(capsys.readouterr().out)["plugins"]}
    acme = rows["rlcore-plugin-acme"]
    assert (acme["status"], acme["version"], acme["api"]) == ("ok", "1.0", "2.0")
    assert {"kind": "algo", "name": "acme"} in acme["offers"]
    assert rows["rlcore"]["offers"]
