"""A weight transfer that reaches less far than the roles are placed is refused once the places are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlcore.config.run_config import RunConfig
from rlcore.contracts.errors import ConfigError
from rlcore.contracts.specs import WeightTransferSpec
from rlcore.registry.plugin_registry import Registry
from rlcore.runtime.factories import check_reach


def plan(transport: str, *others: WeightTransferSpec) -> Any:
    registry = Registry([])
    registry.add("transfer", WeightTransferSpec(name="near", target="a.b:C", summary="", reach="host"))
    for spec in others:
        registry.add("transfer", spec)
    return SimpleNamespace(registry=registry, config=RunConfig.model_validate({"weights": {"transport": transport}}))


FAR = WeightTransferSpec(name="far", target="a.b:C", summary="", reach="cluster")


def test_on_several_hosts_a_transfer_of_one_host_is_refused_and_one_that_reaches_is_named() -> None:
    said = "^weights.transport near reaches one host, and producers and trainers are on 3 hosts; type --transport far$"
    with pytest.raises(ConfigError, match=said):
        check_reach(plan("near", FAR), 3)
    with pytest.raises(ConfigError, match=r"; install one that reaches several$"):
        check_reach(plan("near"), 2)


@pytest.mark.parametrize(("transport", "hosts"), [("near", 1), ("far", 1), ("far", 3)])
def test_what_reaches_as_far_as_the_roles_are_placed_is_taken(transport: str, hosts: int) -> None:
    check_reach(plan(transport, FAR), hosts)
