"""`make bench-coordinator`: groups a second through the schedule's actor, with eight client processes; and events of the pure object.

Each client is a process that leases and delivers in batches, as a producer and its store do; the driver takes and finishes the batches.
No group is made: it is the schedule alone. Then the same by the code of a run (`benchmarks/delivering.py`). The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks.schedule import events_per_second

CLIENTS, CHUNK, BATCH, STALENESS = 8, 128, 512, 4
NEWEST = 2**30
"""A client here serves whatever version is the newest."""


def produce(schedule: Any, name: str, chunk: int) -> int:
    """Lease and deliver until nothing is left; the groups that this client delivered."""
    import ray

    from rlcore.schedule import Delivery, GroupSummary

    ray.get(schedule.join.remote(name))
    delivered = 0
    while leases := ray.get(schedule.lease.remote(name, chunk, NEWEST)):
        arrivals = [
            GroupSummary(delivery=Delivery(lease_id=lease.lease_id, version=lease.version, accuracy=0.5), prompt_id="p", tokens=100)
            for lease in leases
        ]
        ray.get(schedule.deliver.remote(name, name, arrivals))
        delivered += len(leases)
    return delivered


def settings_of(groups: int) -> Any:
    """``ScheduleSettings`` of an episode of so many groups."""
    from rlcore.schedule import ScheduleSettings

    return ScheduleSettings(
        prompts=groups, train_batch_size=BATCH, n_sampled=8, buffer_limit=(STALENESS + 1) * BATCH, max_staleness=STALENESS
    )


def make_schedule(groups: int, **options: Any) -> Any:
    """The actor, which counts what it is asked."""
    import ray
    from rlcore_plugin_workers.schedule_service import DeliveryBatch, DeliveryResult, ScheduleService

    from rlcore.runtime.filter_monitor import FilterMonitor
    from rlcore.schedule import Coordinator, DeliveryStatus, GroupSummary

    class CountedService(ScheduleService):
        asked: dict[str, int]

        def _count(self, what: str) -> None:
            self.asked[what] = self.asked.get(what, 0) + 1

        async def deliver(self, store: str, worker: str, arrivals: list[GroupSummary]) -> list[DeliveryStatus]:  # type: ignore[override]
            self._count("deliver")
            return await super().deliver(store, worker, arrivals)

        async def deliver_batches(self, delivery_batches: list[DeliveryBatch]) -> list[DeliveryResult]:  # type: ignore[override]
            self._count("deliver")
            return await super().deliver_batches(delivery_batches)

        async def lease(self, worker: str, k: int, serving: int) -> Any:
            self._count("lease")
            return await super().lease(worker, k, serving)

        async def members(self) -> int:
            return len(self._workers)

        async def counts(self) -> dict[str, int]:
            return self.asked

    CountedService.asked = {}
    watch = FilterMonitor(bounds=None, by="accuracy", batch_size=BATCH, limit=None)
    actor = ray.remote(CountedService).options(num_cpus=0, max_concurrency=1000, **options)
    return actor.remote(Coordinator(settings_of(groups)), watch)


def seconds_of(schedule: Any, groups: int, clients: int, start_client: Callable[[str], Any]) -> float:
    """From the first lease to the last update. ``start_client`` has one of this name deliver; a reference to how many groups it did."""
    import ray

    warm = [start_client(f"client-{number}") for number in range(clients)]
    while ray.get(schedule.members.remote()) < clients:  # nothing is leased before the first batch is asked for
        time.sleep(0.1)
    start = time.perf_counter()
    trained = None
    while (order := ray.get(schedule.next_batch.remote(trained))) is not None:
        ray.get(schedule.training.remote())
        trained = order.order.version + 1
    seconds = time.perf_counter() - start
    assert sum(ray.get(warm)) == groups
    return seconds


def groups_per_second(groups: int, clients: int, chunk: int) -> float:
    """Through the actor, ``chunk`` groups a call."""
    import ray

    schedule = make_schedule(groups)
    client = ray.remote(produce).options(num_cpus=0)
    return groups / seconds_of(schedule, groups, clients, lambda name: client.remote(schedule, name, chunk))


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=60_000)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--chunk", type=int, default=CHUNK, help="groups a call of a client that delivers by itself")
    parser.add_argument("--loops", type=int, default=0, help="groups of the second figure, by loops of producers (default: a tenth)")
    args = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    from benchmarks.delivering import by_loops

    pure = events_per_second(STALENESS)
    ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        figure = groups_per_second(args.groups, args.clients, args.chunk)
        loops = by_loops(args.loops or args.groups // 10, args.clients)
    finally:
        ray.shutdown()
    figures = {"groups_per_second": round(figure), "events_per_second_pure": round(pure)}
    print(json.dumps({**figures, "clients": args.clients, "chunk": args.chunk, **loops}))


if __name__ == "__main__":
    main()
