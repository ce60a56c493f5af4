"""What `rlcore` says of the sandbox of this machine, and what it refuses before a run starts."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from rlcore_plugin_sandbox import rlcore_register_sandboxes
from rlcore_plugin_sandbox.options import LocalSandboxOptions

from rlcore.api.sandbox import SandboxOptions
from rlcore.testing import RunTester


def test_its_options_are_set_where_every_sandbox_has_them(tmp_path) -> None:
    shown = json.loads(RunTester(tmp_path, in_process=True).run("show", "sandbox", "local", "--json").assert_ok().stdout)
    assert [option["path"] for option in shown["options"]] == [
        f"rewards.options.sandbox.{name}"
        for name in (
            "level",
            "readable",
            "backend_options.packages",
            "backend_options.session_folders",
            "backend_options.session_terminals",
        )
    ]
    assert shown["toml"] == (
        '[rewards.options.sandbox]\nbackend = "local"\nlevel = "auto"\nreadable = []\n\n'
        '[rewards.options.sandbox.backend_options]\npackages = ["numpy"]\nsession_folders = []\nsession_terminals = 0\n'
    )


def test_its_options_say_what_those_of_every_sandbox_say() -> None:
    (spec,) = rlcore_register_sandboxes()
    for name in ("level", "readable"):
        own = LocalSandboxOptions.model_fields[name]
        shared = SandboxOptions.model_fields[name]
        assert (own.default, own.description) == (shared.default, shared.description)
        assert LocalSandboxOptions.model_fields["level"].annotation.__args__ == ("auto", *spec.levels)


@pytest.mark.parametrize(
    ("sandbox", "words"),
    [
        (
            {"level": "remote"},
            'sandbox.level = "remote" is not a level of sandbox local of rlcore-plugin-sandbox; it gives namespaces, landlock',
        ),
        ({"backend_options": {"level": "none"}}, "sandbox.backend_options holds level, which is set as sandbox.level"),
        ({"backend_options": {"colour": 1}}, "rewards.0.options.sandbox.backend_options.colour is not a setting"),
    ],
)
def test_what_it_cannot_give_is_refused_before_a_run(tmp_path, sandbox: dict[str, Any], words: str) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    run = tester.fake_run()
    config = tomllib.loads((tmp_path / "run.toml").read_text())
    tester.write_toml("run.toml", {**config, "rewards": [{"name": "code", "options": {"sandbox": sandbox}}]})
    tester.run("train", run).assert_refused("run.toml, line", words)


@pytest.mark.parametrize("folder", ["app", "/", "/app/", "/app/x", "/..", "/usr", "/tmp", "/dev", "/jail", "//app"])
def test_a_folder_of_sessions_is_a_new_one_at_the_top(folder: str) -> None:
    with pytest.raises(ValueError, match="must be a folder directly below /"):
        LocalSandboxOptions(session_folders=(folder,))
