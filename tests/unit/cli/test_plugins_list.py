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
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines["rlcore-plugin-acme"] == "1.0 2.0 reward: acme; loss: acme; algo: acme"
    assert lines["rlcore-plugin-broken"].startswith("1.0 failed: importing rlcore_plugin_broken raised SyntaxError: ")
    assert lines["rlcore-plugin-asleep"] == "1.0 switched off by RLCORE_PLUGINS"
    assert "names 'acmee', which is not the name of an installed plugin, did you mean 'acme'" in lines["RLCORE_PLUGINS"]


def test_the_table_fits_160_columns_in_a_pipe(folder: PluginFolder, capsys: pytest.CaptureFixture[str]) -> None:
    names = ", ".join(f'RewardSpec(name="reward_{number}", target="a:b", summary="")' for number in range(40))
    one = "from rlcore.api import RewardSpec, hookimpl\nrlcore_api = '2.0'\n\n@hookimpl\ndef rlcore_register_rewards():\n"
    folder.install("acme", f"{one}    return [{names}]\n")
    assert run_command("plugins", []) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 160
    assert all("reward_" not in line or not line.rstrip().endswith("rewar") for line in lines)
    assert any("reward_39" in line for line in lines)


def test_plugins_in_json(folder: PluginFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("plugins", ["--json"]) == 0
    rows = {row["distribution"]: row for row in json.loads(capsys.readouterr().out)["plugins"]}
    acme = rows["rlcore-plugin-acme"]
    assert (acme["status"], acme["version"], acme["api"]) == ("ok", "1.0", "2.0")
    assert {"kind": "algo", "name": "acme"} in acme["offers"]
    assert rows["rlcore"]["offers"]
