"""A stranger's command, installed: ``rlcore`` lists it and runs it on a run that was just trained, and has no line about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.api import CommandSpec
from rlcore.testing import RunTester, check_command
from tests.stranger_site import link_stranger, stranger_site

SPEC = CommandSpec(
    name="acme-report", summary="one figure of a run, from its first update to its last", target="acme_rlcore.command:ReportCommand"
)


@pytest.fixture
def trained(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunTester, str]:
    """A tester that sees the stranger's plugin, and the folder of a short run."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    link_stranger(stranger_site(tmp_path_factory), tester.plugins)
    done = tester.run("train", tester.fake_run(), "--json").assert_ok()
    return tester, str(done.json["run"])


def test_it_reports_a_run_conforms_and_is_refused_like_our_own(trained: tuple[RunTester, str]) -> None:
    tester, run = trained
    check_command(SPEC, tester, run)
    rows = [json.loads(line) for line in (tester.folder / run / "metrics.jsonl").read_text().splitlines()]
    said = tester.run("acme-report", run, "--json").assert_ok().json
    first, last = rows[0]["reward/mean"], rows[-1]["reward/mean"]
    assert said == {"figure": "reward/mean", "updates": 3, "first": first, "last": last}
    assert tester.run("acme-report", run).assert_ok().stdout == f"reward/mean: {first:.3f} -> {last:.3f} in 3 updates\n"
    tester.run("acme-report", "nowhere").assert_refused("nowhere is not a run folder")
    tester.run("acme-report", run, "--figure", "luck").assert_refused("--figure luck: no update of")
    shown = json.loads(tester.run("show", "command", "acme-report", "--json").assert_ok().stdout)
    assert (shown["owner"], shown["target"]) == ("acme-rlcore", SPEC.target)
    assert tester.run("--help").lines[-3].startswith("  acme-report")
    off = tester.run("acme-report", run, env={"RLCORE_DISABLE": "acme"})
    off.assert_refused("acme-report is not a command of rlcore", "switched off: acme-rlcore")
