"""`make bench-schedule`: events a second of the pure coordinator, one process, no runtime. The last line is one JSON object."""

from __future__ import annotations

import json
import time

from rlcore.schedule import Coordinator, Delivery, ScheduleSettings

PROMPTS, BATCH, CHUNK = 20_000, 32, 16


def events_per_second(staleness: int) -> float:
    """Leases, deliveries, batches and updates of one episode, counted one each."""
    coordinator = Coordinator(
        ScheduleSettings(
            prompts=PROMPTS, train_batch_size=BATCH, n_sampled=8, buffer_limit=(staleness + 1) * BATCH, max_staleness=staleness
        )
    )
    events = 0
    start = time.perf_counter()
    while not coordinator.finished:
        leases = coordinator.lease("worker", CHUNK)
        coordinator.deliver([Delivery(lease_id=lease.lease_id, version=lease.version, accuracy=0.5) for lease in leases])
        events += 2 * len(leases)
        if coordinator.next_batch() is not None:
            coordinator.updated()
            events += 2
    return events / (time.perf_counter() - start)


if __name__ == "__main__":
    print(json.dumps({f"events_per_second_staleness_{staleness}": round(events_per_second(staleness)) for staleness in (0, 2, 8, 64)}))
