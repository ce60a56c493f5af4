"""Part of `make bench-coordinator`: groups a second by the code that delivers in a run on Ray.

Eight processes each run a `ProducerLoop` whose engine answers at once and without a token, a group a step; one store and the schedule are
the actors of a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread
from typing import Any

from rlcore_plugin_workers.flight import FlightControl
from rlcore_plugin_workers.producer_loop import CommandQueue, ProducerLoop

from benchmarks.coordinator import NEWEST, make_schedule, seconds_of
from rlcore.contracts.lease import Lease
from rlcore.contracts.types import Message, Prompt, Score
from rlcore.roles.producer import GroupJob, ProducedGroup
from rlcore.runtime.factories import AnnealedSampling, JobMaker, SourceJobs
from rlcore.schedule import TimeAccount
from rlcore.testing import make_rollout

__all__ = ["by_loops"]

IN_FLIGHT = 64


class InstantProducer:
    """A producer whose every job is done by the time it is asked for: one a step, as if verdicts came one by one."""

    serves, torn, asleep, booking, version, requests = True, False, False, None, NEWEST, 0

    def __init__(self, name: str) -> None:
        self.name = name
        self.made = 0
        self._jobs: list[GroupJob] = []
        self._rollouts = tuple(make_rollout([1, 2, 3], (), index=index) for index in range(8))
        self._scores = tuple(Score(value=1.0, accuracy=0.5) for _ in self._rollouts)

    @property
    def busy(self) -> int:
        return len(self._jobs)

    @property
    def idle(self) -> bool:
        return not self._jobs

    def accept(self, jobs: Sequence[GroupJob]) -> None:
        self._jobs += jobs

    def step(self, timeout: float) -> list[ProducedGroup]:
        self.made += 1
        return [ProducedGroup(job=self._jobs.pop(0), rollouts=self._rollouts, scores=self._scores)]


class Episode(Sequence[Prompt]):
    """As many prompts as are asked for, all the same."""

    _prompt = Prompt(prompt_id="p0", index=0, messages=(Message(role="user", content="say it"),))

    def __len__(self) -> int:
        return NEWEST

    def __getitem__(self, index: Any) -> Any:
        return self._prompt


class EndingLoop(ProducerLoop):
    """Ends with the leases."""

    def _take_leases(self, leases: Sequence[Lease]) -> None:
        super()._take_leases(leases)
        if not leases:
            self.stop()


class NoWeights:
    """Of a receiver: no version is newer."""

    who = "nobody"

    def newer_than(self, version: int) -> None:
        return None


def produce(schedule: Any, store: Any, name: str) -> int:
    """Run a loop until nothing is left; the groups that it made."""
    import ray
    from rlcore_plugin_ray.ray_worker import RayService, RayStore
    from rlcore_plugin_workers.deployment import Endpoints

    from rlcore.contracts.types import Sampling

    endpoints = Endpoints(schedule=RayService(schedule, "schedule"), store=RayStore(store, "store"), judge=RayService(schedule, "no judge"))
    sampling = AnnealedSampling(sampling=Sampling(max_new_tokens=4), end=None, updates=1)
    producer: Any = InstantProducer(name)
    prompts: Any = Episode()
    receiver: Any = NoWeights()
    flight = FlightControl(slots=1, least=IN_FLIGHT, most=IN_FLIGHT)
    jobs = JobMaker([SourceJobs(prompts=prompts, sampling=sampling)], 0)
    loop = EndingLoop(producer, jobs, endpoints, receiver, CommandQueue(), flight, TimeAccount())
    ray.get(schedule.join.remote(name))
    thread = Thread(target=loop.run)
    thread.start()
    thread.join()
    return int(producer.made)


def by_loops(groups: int, clients: int) -> dict[str, float]:
    """Groups a second, and how many each call brought the schedule or took from it, on average."""
    import ray
    from rlcore_plugin_ray.node_services import RemoteSchedule
    from rlcore_plugin_workers.delivery_batcher import DeliveryBatcher
    from rlcore_plugin_workers.node_services import GroupStore

    schedule = make_schedule(groups, name="schedule")
    told = RemoteSchedule("schedule", ray.get_runtime_context().namespace)
    store = ray.remote(GroupStore).options(num_cpus=0, max_concurrency=10_000)
    held = store.remote("store", DeliveryBatcher(told.deliver_batches).deliver)
    client = ray.remote(produce).options(num_cpus=0)
    seconds = seconds_of(schedule, groups, clients, lambda name: client.remote(schedule, held, name))
    counts = ray.get(schedule.counts.remote())
    return {
        "loops_groups_per_second": round(groups / seconds),
        "loops_groups_a_delivery": round(groups / counts["deliver"], 1),
        "loops_groups_a_lease": round(groups / counts["lease"], 1),
    }
