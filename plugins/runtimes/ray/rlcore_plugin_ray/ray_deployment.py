"""The deployment of a run on Ray: a bundle for each role, and a store and a judge on every node that generates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Thread

from rlcore_plugin_workers.deployment import Deployment, Endpoints
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.schedule_service import ScheduleService
from rlcore_plugin_workers.workers import Placement, Worker

from rlcore.api import ConfigError
from rlcore.api.runtime import FilterMonitor, Plan, Texts, check_reach, make_coordinator, make_filter_monitor
from rlcore_plugin_ray.node_placement import place, roles
from rlcore_plugin_ray.node_services import NodeServices
from rlcore_plugin_ray.ray_worker import RayService
from rlcore_plugin_ray.session import RayPlacement, RaySession

__all__ = ["RayDeployment"]

_PRODUCER_CALLS = 8
"""The calls that a producer runs at the same time: one runs its loop, one guards it, the others wait for evaluations, reports and sleep."""
_PLACEMENT_SECONDS = 5.0
"""How long Ray may look for another node for a producer whose node is gone."""
_CLOSE_SECONDS = 5.0


class ScheduleActor(ScheduleService):
    """The schedule in a process of its own. It opens the plan first, because a sampler may come from a file of the driver."""

    def __init__(self, plan_bundle: PlanBundle, coordinator: bytes, watch: FilterMonitor) -> None:
        super().__init__(plan_bundle.unpacked(coordinator, "the coordinator"), watch)


class RayDeployment(Deployment):
    """The deployment of one run. Raise ConfigError if the cluster lacks resources for the roles."""

    logs = "the logs of Ray's session folder"

    def __init__(
        self, plan: Plan, session: RaySession, plan_bundle: PlanBundle, texts: Texts, *, keep_scored: bool, closing: ExitStack
    ) -> None:
        self.launcher = self._session = session
        self.keep_scored = keep_scored
        nodes = session.nodes()
        trainers, producers = roles(plan.config)
        self._places = place(nodes, trainers=trainers, producers=producers, colocated=plan.config.run.placement == "colocated")
        used = (self._places.trainers[0], *self._places.producers)
        check_reach(plan, hosts=len({node.address for node in nodes if node.node_id in used}))
        self.address = next(node.address for node in nodes if node.node_id == self._places.trainers[0])
        training, inference = plan.config.training.environment, plan.config.inference.environment
        if (training or inference) and len({node.address for node in nodes}) > 1:
            path = "training.environment" if training else "inference.environment"
            raise ConfigError(f"{plan.cite(path)} is a folder of this host, but the cluster has several; leave it out, or use one host")
        self._environments = [Path(folder) if folder is not None else None for folder in (training, inference)]
        self.device = "cuda" if self._places.trainer_gpus else "cpu"
        made = plan_bundle.packed(make_coordinator(plan, texts))
        watch, home = make_filter_monitor(plan), nodes[0].node_id
        coordinator = session.service(ScheduleActor, plan_bundle, made, watch, node=home, called="coordinator")
        self.schedule = RayService(coordinator, "the coordinator")
        self._services = NodeServices(session, plan_bundle, keep_scored=keep_scored)
        closing.callback(self._close_judges)
        self._group = session.reserve(self._places.bundles)

    def prepare(self) -> Future[Sequence[str]]:
        """Return the notices of the first judge, which raises DataError for rows that no reward can judge."""
        return self._services.on(self._places.producers[0]).judge.call("check")

    def trainer_placement(self, rank: int) -> Placement:
        home = self._places.trainers[rank]
        return Placement(
            environment=self._environments[0],
            place=RayPlacement(node=home, group=self._group, bundle=rank, cpus=self._places.cpus, gpus=self._places.trainer_gpus),
        )

    def producer_placement(self, number: int) -> Placement:
        places = self._places
        bundle = places.producer_bundle(number)
        home = places.producers[number]
        return Placement(
            calls=_PRODUCER_CALLS,
            environment=self._environments[1],
            place=RayPlacement(node=home, group=self._group, bundle=bundle, cpus=places.cpus, gpus=places.producer_gpus),
        )

    def find_placement(self, placement: Placement) -> Future[Placement | None]:
        """Return the same placement; if its node is gone, one on a node that Ray chooses."""
        if self.stands(placement):
            return super().find_placement(placement)
        found: Future[Placement | None] = Future()
        Thread(target=self._seek, args=(placement, found), name="looks for room", daemon=True).start()
        return found

    def _seek(self, placement: Placement, found: Future[Placement | None]) -> None:
        """Look for a node, in a thread: Ray looks for as long as it is allowed to."""
        old: RayPlacement = placement.place
        try:
            group = self._session.reserve([(None, old.cpus, old.gpus)], seconds=_PLACEMENT_SECONDS)
            found.set_result(replace(placement, place=replace(old, node=self._session.home(group, 0), group=group, bundle=0)))
        except ConfigError:
            found.set_result(None)
        except Exception as error:  # the driver raises it
            found.set_exception(error)

    def stands(self, placement: Placement) -> bool:
        return placement.place.node in {node.node_id for node in self._session.nodes()}

    def services(self) -> Sequence[Worker]:
        return [self._session.head, self.schedule, *self.stores().values(), *self.judges()]

    def endpoints(self, placement: Placement) -> Endpoints:
        services = self._services.on(placement.place.node)
        return Endpoints(schedule=self.schedule, store=services.store, judge=services.judge)

    def stores(self) -> Mapping[str, Worker]:
        return {node: services.store for node, services in self._services.by_node.items()}

    def judges(self) -> Sequence[Worker]:
        return [services.judge for services in self._services.by_node.values()]

    def forget_lost(self) -> Sequence[str]:
        return self._services.forget_dead()

    def _close_judges(self) -> None:
        """Have the judges end their workers."""
        wait([judge.call("close") for judge in self.judges()], _CLOSE_SECONDS)
