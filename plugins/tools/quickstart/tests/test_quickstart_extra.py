"""``rlcore quickstart`` without its extra: one command brings everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.api.commands import EXTRAS, install_line
from rlcore.testing import RunTester

EXTRA = install_line("rlcore[quickstart]")


@pytest.fixture
def bare(tmp_path: Path) -> RunTester:
    """The core and this plugin alone."""
    return RunTester(tmp_path, in_process=True).with_only("rlcore-plugin-quickstart")


def test_one_command_stands_first_and_replaces_those_of_the_plugins(bare: RunTester) -> None:
    refused = bare.run("quickstart")
    refused.assert_refused(
        f"error: the quickstart needs packages that are not installed; type: {EXTRA} (algorithm grpo is not installed; ",
        "training backend torch is not installed",
    )
    assert refused.stderr.count("pip install") == 1


def test_what_the_extra_does_not_bring_comes_with_its_own_command(bare: RunTester) -> None:
    refused = bare.run("quickstart", "--algo", "dapo")
    refused.assert_refused(f"type: {EXTRA} (inference backend", "); algorithm dapo is not installed: " + install_line("rlcore-plugin-dapo"))


def test_a_dry_run_names_the_same_command(bare: RunTester) -> None:
    missing = bare.run("quickstart", "--dry-run", "--json").assert_ok().json["missing"]
    assert len(missing) == 4
    assert {item["command"] for item in missing} == {EXTRA}


def test_the_extra_is_not_named_if_only_something_else_is_missing(tmp_path: Path) -> None:
    brought = (f"rlcore-plugin-{name}" for name in EXTRAS["quickstart"] if name != "gateway")
    refused = RunTester(tmp_path, in_process=True).with_only(*brought).run("quickstart", "--trackers", "wandb")
    refused.assert_refused("error: tracker wandb is not installed: " + install_line("rlcore-plugin-trackers"))
    assert "[quickstart]" not in refused.stderr
