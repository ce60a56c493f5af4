"""A process that Ray kills because its node runs out of memory: a death like any other, told in one sentence."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayError
from rlcore_plugin_ray.ray_worker import is_out_of_memory, raised
from rlcore_plugin_workers.workers import WorkerDiedError

KILLED = OutOfMemoryError(
    "1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 10.0.0.2, ID: 5a3f) was 15.20GB used / 16.00GB "
    "limit (0.95)\nOOM kill reason: Memory usage 16320875724B exceeded threshold\n" + "PID MEM(GB) COMMAND\n" * 100
)


def test_it_is_a_death_and_one_sentence_that_says_what_to_lower() -> None:
    died = raised(KILLED, "producer-0")
    assert isinstance(died, WorkerDiedError)
    assert str(died) == (
        "Ray killed its process because its node ran out of memory, 15.20GB used / 16.00GB; "
        "lower -tmbs, -imbs or --tokens-per-forward, or end other programs there"
    )


@pytest.mark.parametrize(("error", "expected"), [(KILLED, True), (OutOfMemoryError("full"), True), (ActorDiedError(), False)])
def test_other_deaths_are_not_blamed_on_memory(error: RayError, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
    assert ("ran out of memory" in str(raised(error, "producer-0"))) is expected
