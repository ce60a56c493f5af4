"""A reward's way to a worker: what arrives there must be what the driver resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlcore.contracts.errors import PluginError
from rlcore.contracts.specs import PluginKind
from rlcore.entry import make_plan
from rlcore.rewards.pool import RewardPool
from rlcore.rewards.reward_entry import RewardEntry, reward_entries
from rlcore.testing import RunTester

WALLED = """
from pydantic import BaseModel, ConfigDict
from rlcore.api import Reward, RewardSpec, hookimpl
from rlcore.api.sandbox import SandboxOptions
rlcore_api = "2.0"

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    sandbox: SandboxOptions = SandboxOptions(backend="fake")

class Walled(Reward):
    requires = ("gt_answer",)
    def __init__(self, options): self.options = options
    def score(self, item): raise AssertionError

@hookimpl
def rlcore_register_rewards():
    module = "rlcore_plugin_walled"
    return [RewardSpec(name="walled", target=f"{module}:Walled", config=f"{module}:Options", summary="s", requires=("gt_answer",))]
"""


@pytest.fixture
def shipped(tmp_path: Path) -> Iterator[RewardEntry]:
    """The reward of a plan, which runs programs in the sandbox ``fake``, from plugins that this process and its workers find."""
    tester = RunTester(tmp_path).with_fakes()
    tester.plugins.install("walled", WALLED)
    with tester.plugins:
        (made,) = reward_entries(make_plan(tester.fake_run(), reward="walled"))
        yield made


def test_a_worker_builds_the_reward_that_the_driver_resolved(shipped: RewardEntry, no_leak: None) -> None:
    assert shipped.attestation is not None
    assert (shipped.attestation.kind, shipped.attestation.name) == (PluginKind.REWARD, "walled")
    assert [sandbox.attestation.name for sandbox in shipped.sandboxes] == ["fake"]
    with RewardPool([shipped], workers=1) as pool:
        assert pool.traits[0].requires == ("gt_answer",)


def test_a_worker_that_finds_another_version_of_the_reward_refuses_it(shipped: RewardEntry, no_leak: None) -> None:
    assert shipped.attestation is not None
    other = replace(shipped, attestation=replace(shipped.attestation, version="0.9"))
    with pytest.raises(PluginError, match=r"reward 'walled' differs between processes: version is '0\.9' in the driver and '1\.0' here"):
        RewardPool([other], workers=1)


def test_a_worker_that_finds_another_version_of_a_sandbox_refuses_the_reward(shipped: RewardEntry, no_leak: None) -> None:
    (sandbox,) = shipped.sandboxes
    other = replace(shipped, sandboxes=(replace(sandbox, attestation=replace(sandbox.attestation, version="0.9")),))
    with pytest.raises(PluginError, match=r"sandbox 'fake' differs between processes: version is '0\.9' in the driver and '1\.0' here"):
        RewardPool([other], workers=1)
