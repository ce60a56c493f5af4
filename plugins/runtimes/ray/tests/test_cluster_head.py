"""What a run says if the head of its cluster does not answer. `make chaos ARGS='--only ray-head'` kills real ones."""

from __future__ import annotations

import pytest
from rlcore_plugin_ray.cluster_head import ClusterHead

from rlcore.api.runtime import RuntimeLostError, WorkerLostError


def test_the_head_of_a_cluster_that_was_joined_ends_the_run() -> None:
    told: list[str] = []
    head = ClusterHead("10.0.0.3:6379", own=False, lost=lambda: told.append("lost"))
    with pytest.raises(
        RuntimeLostError, match=r"^the head of the Ray cluster at 10\.0\.0\.3:6379 does not answer; start a cluster, and type"
    ) as found:
        head.kill()
    assert not isinstance(found.value, WorkerLostError), "no restore brings somebody else's cluster back"
    assert told == ["lost"]


def test_a_cluster_of_the_run_s_own_can_be_started_again() -> None:
    with pytest.raises(WorkerLostError, match="that the run had started does not answer"):
        ClusterHead("", own=True, lost=lambda: None).kill()
