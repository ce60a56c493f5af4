"""A reward's way to a worker: what arrives there must be what the driver resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlcore.contracts.errors import PluginError
from rlcore.contracts.specs import PluginKind
from rlcore.entry import make_plan
from rlcore.rewards import RewardEntry, RewardPool
from rlcore.rewards.reward_entry import reward_entries
from rlcore.testing import RunTester


@pytest.fixture
def shipped(tmp_path: Path) -> Iterator[RewardEntry]:
    """The reward of a plan, from a plugin that this process and its workers find."""
    tester = RunTester(tmp_path).with_fakes()
    with tester.plugins:
        (made,) = reward_entries(make_plan(tester.fake_run()))
        yield made


def test_a_worker_builds_the_reward_that_the_driver_resolved(shipped: RewardEntry, no_leak: None) -> None:
    assert shipped.attestation is not None
    assert (shipped.attestation.kind, shipped.attestation.name) == (PluginKind.REWARD, "fake")
    with RewardPool([shipped], workers=1) as pool:
        assert pool.traits[0].requires == ("gt_answer",)


def test_a_worker_that_finds_another_version_of_the_reward_refuses_it(shipped: RewardEntry, no_leak: None) -> None:
    assert shipped.attestation is not None
    other = replace(shipped, attestation=replace(shipped.attestation, version="0.9"))
    with pytest.raises(PluginError, match=r"reward 'fake' differs between processes: version is '0\.9' in the driver and "):
        RewardPool([other], workers=1)
