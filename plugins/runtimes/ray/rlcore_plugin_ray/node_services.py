"""The services of every node with producers: a group store and a judge. Each is an actor that Ray restarts after its process dies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from rlcore_plugin_workers.delivery_batcher import DeliveryBatcher
from rlcore_plugin_workers.node_services import GroupStore
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.schedule_service import DeliveryBatch, DeliveryResult
from rlcore_plugin_workers.workers import Worker

from rlcore_plugin_ray.judge_actor import JudgeActor
from rlcore_plugin_ray.ray_worker import RayService, RayStore
from rlcore_plugin_ray.session import RaySession

__all__ = ["NodeServices", "RemoteSchedule", "Services"]


class RemoteSchedule:
    """The ``ScheduleService`` as the services of a node call it. It is found by name, because Ray cannot restart an actor that was given a
    handle."""

    def __init__(self, name: str, namespace: str) -> None:
        self._name = name
        self._namespace = namespace
        self._found: Any = None

    def _handle(self) -> Any:
        if self._found is None:
            self._found = ray.get_actor(self._name, self._namespace)
        return self._found

    async def deliver_batches(self, delivery_batches: Sequence[DeliveryBatch]) -> list[DeliveryResult]:
        """Deliver batches of deliveries, as ``ScheduleService.deliver_batches`` does."""
        results: list[DeliveryResult] = await self._handle().deliver_batches.remote(delivery_batches)
        return results

    def started(self, what: str) -> None:
        """Report to the schedule if this process replaces one that died."""
        if ray.get_runtime_context().was_current_actor_reconstructed:
            self._handle().restarted.remote(what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The store and the judge of one node."""

    store: Worker
    judge: Worker


class NodeServices:
    """The services of all nodes, made on first use."""

    def __init__(self, session: RaySession, plan_bundle: PlanBundle, *, keep_scored: bool) -> None:
        self._session = session
        self._plan_bundle = plan_bundle
        self._keep_scored = keep_scored
        self.by_node: dict[str, Services] = {}

    def on(self, node: str) -> Services:
        """Return the services of this node."""
        if node not in self.by_node:
            schedule = RemoteSchedule(self._session.unique("coordinator"), ray.get_runtime_context().namespace)
            store = self._session.service(
                GroupStore,
                node,
                DeliveryBatcher(schedule.deliver_batches).deliver,
                keep_scored=self._keep_scored,
                started=partial(schedule.started, "store of groups"),
                node=node,
                restarts=-1,
                called=f"store of {node}",
            )
            judge = self._session.service(
                JudgeActor,
                self._plan_bundle,
                started=partial(schedule.started, "judge"),
                node=node,
                restarts=-1,
                called=f"judge of {node}",
            )
            restart = self._session.restart
            self.by_node[node] = Services(
                store=RayStore(store, "the store of its node", restart), judge=RayService(judge, "the judge of its node", restart)
            )
        return self.by_node[node]

    def forget_dead(self) -> list[str]:
        """Forget the services of lost nodes. Return the names of these nodes, which are also the names of their stores."""
        alive = {node.node_id for node in self._session.nodes()}
        gone = [node for node in self.by_node if node not in alive]
        for node in gone:
            del self.by_node[node]
        return gone
