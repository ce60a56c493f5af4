"""A judge compares the plugins that it finds with the driver's before it makes a reward."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from rlcore_plugin_ray.judge_actor import JudgeActor
from rlcore_plugin_workers.plan_bundle import PlanBundle

from rlcore.api import PluginError
from rlcore.testing import RunTester, make_plan


def test_a_judge_whose_plugin_is_another_than_the_driver_s_refuses_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = RunTester(tmp_path).with_fakes()
    monkeypatch.chdir(tmp_path)
    with tester.plugins:
        plan_bundle = PlanBundle.of(make_plan(tester.fake_run()), {})
        *others, last = plan_bundle.attestations
        other = replace(plan_bundle, attestations=(*others, replace(last, version="0.9")))
        said = rf"^the judge refuses to start: .* {last.name!r} differs between processes: version is .0.9. in the driver and .* on every"
        with pytest.raises(PluginError, match=said):
            asyncio.run(JudgeActor(other).check())
