"""The crew on Ray: a coordinator, producers and trainer ranks as actors, a store and a judge on every node that generates.

The driver's thread owns nothing of the work: it sends orders, and sleeps in its inbox until somebody answers, dies, or presses Ctrl-C.
While the ranks train, everything else that it wants to know is asked for, so that nothing waits for it between two updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rlcore.api import Group, RunError
from rlcore.api.runtime import (
    Crew,
    FilterWatch,
    Interrupt,
    Order,
    Plan,
    ScheduleService,
    Shipment,
    Status,
    TaskReport,
    Texts,
    Timing,
    Update,
    WorkerLostError,
    check_reach,
    make_evaluator,
    make_watch,
    schedule_settings,
)
from rlcore_plugin_ray.driver_inbox import DriverInbox
from rlcore_plugin_ray.evaluating import Evaluations
from rlcore_plugin_ray.gathering import Gathered
from rlcore_plugin_ray.node_placement import Places, place, roles
from rlcore_plugin_ray.node_services import NodeServices
from rlcore_plugin_ray.producer_team import Patience, ProducerTeam
from rlcore_plugin_ray.remote import gist, is_death
from rlcore_plugin_ray.session import Session
from rlcore_plugin_ray.trainer_ranks import Ranks

__all__ = ["RayCrew"]

_CLOSE_SECONDS = 5.0
_LAST_SECONDS = 5.0


class RayCrew(Crew):
    """See ``Crew``. What must be loaded is loaded by all actors at the same time. ``address``: what ``Session`` takes."""

    loop_role = "driver"

    def __init__(
        self,
        plan: Plan,
        texts: Texts,
        fingerprints: Mapping[str, str],
        *,
        address: str | None,
        closing: ExitStack,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._say = say
        self._texts = texts
        self.tokenizer, self.dropped = self._texts.tokenizer, self._texts.dropped
        self.fingerprints = fingerprints
        schedule = schedule_settings(plan, len(self._texts.training))
        self.horizon, self.prompts = schedule.horizon, schedule.prompts
        shipment = Shipment.of(plan, self.fingerprints)
        self._inbox = DriverInbox()
        self._version = 0
        self._order: Order | None = None
        self._trained: Order | None = None
        self._preloaded: set[int] = set()
        self._groups: list[Any] = []
        self._pending: Any = None
        self._closed = False
        self._keep_scored = plan.registry.observers(say).want_groups
        self._session = closing.enter_context(Session(address, plan.config.run, say))
        places = self._place()
        home = self._session.nodes()[0].node_id
        self._schedule = self._session.service(ScheduleService, schedule, make_watch(plan), node=home, called="coordinator")
        self._inbox.watch(self._schedule.lifetime.remote(), self._schedule_ended)
        self._services = NodeServices(self._session, self._schedule, shipment, keep_scored=self._keep_scored)
        closing.callback(self._close_judges)
        self._start(places, shipment, closing)
        self._evaluations = Evaluations(make_evaluator(plan, self._texts), self._team, self._inbox)
        self._gathered = Gathered(self._inbox, self._schedule, self._services, self._team, self._ranks)
        self._team.on_loss = self._ranks.producer_left

    def _place(self) -> Places:
        nodes = self._session.nodes()
        trainers, producers = roles(self._plan.config)
        places = place(nodes, trainers=trainers, producers=producers, colocated=self._plan.config.run.placement == "colocated")
        used = (places.trainers[0], *places.producers)
        check_reach(self._plan, hosts=len({node.address for node in nodes if node.node_id in used}))
        return places

    def _start(self, places: Places, shipment: Shipment, closing: ExitStack) -> None:
        """Make every actor, have the rows checked while the models load, and give the producers the address of the weights."""
        group = self._session.reserve(places.bundles)
        judge = self._services.on(places.producers[0]).judge
        for notice in self._inbox.wait([judge.check.remote()])[0]:
            self._say(notice)
        self._ranks = Ranks(self._session, self._inbox, shipment, places, group)
        self._team = ProducerTeam(
            self._session,
            self._inbox,
            self._services,
            self._schedule,
            shipment,
            places,
            patience=Patience(
                restarts=self._plan.config.schedule.producer_restarts,
                engine_seconds=self._plan.config.schedule.producer_deadline,
                load_seconds=self._plan.config.schedule.producer_load_deadline,
                weights_seconds=self._plan.config.weights.deadline,
            ),
            say=self._say,
        )
        self._team.create(group)
        closing.callback(self._close)
        loading = self._ranks.prepare(len(self._texts.training), self._plan.config.run.master_port)
        engines = self._team.prepare()
        address = self._inbox.wait(loading, self._ranks.failed)[0]
        for note in self._inbox.wait(engines, self._team.failed)[0]:  # all have the same engine
            self._say(note)
        self._inbox.wait(self._team.connect(address), self._team.failed)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def begin(self, folder: Path, interrupt: Interrupt) -> None:
        interrupt.wakes.append(lambda: self._inbox.post(lambda: self._schedule.interrupt.remote()))
        self._listen_for_notes()
        profiles = folder.resolve() if self._plan.config.run.enable_profiling else None
        self._team.run(profiles)
        self._ranks.start(self._texts.probe_ids(), profiles)
        self._team.wait_until_serving(0, self._plan.config.weights.deadline)

    def next_batch(self) -> bool:
        while True:
            self._order = self._next_order()
            if self._order is None:
                return False
            if self._fetch(self._order):
                return True

    def _next_order(self) -> Order | None:
        if self._pending is None:
            self._pending = self._schedule.next_batch.remote()
        pending, self._pending = self._pending, None
        order: Order | None = self._answer(pending)
        return order

    def _answer(self, ref: Any) -> Any:
        """Of the coordinator."""
        return self._inbox.wait([ref], lambda _, error: self._schedule_failed(error))[0]

    def _fetch(self, order: Order) -> bool:
        """Have the stores put the groups where the ranks can read them; False where some are gone, and the order is void."""
        wanted = {
            node: tuple(lease_id for lease_id in lease_ids if lease_id not in self._preloaded) for node, lease_ids in order.stores.items()
        }
        reads = self._read(wanted)
        absent = self._absent({node: ids for node, ids in wanted.items() if ids}, {node: missing for node, (missing, _) in reads.items()})
        if not absent:
            self._groups = [groups for _, groups in reads.values()]
            return True
        self._say(f"warning: {len(absent)} groups were lost with the store of their node; their prompts are generated again")
        self._answer(self._schedule.groups_lost.remote(absent))
        return False

    def _read(self, wanted: Mapping[str, Sequence[int]]) -> dict[str, tuple[Any, Any]]:
        """References to (what is missing, the groups) of every store that is there and has any of them."""
        stores = {services.node: services.store for services in self._services.all()}
        return {
            node: tuple(stores[node].read.options(num_returns=2).remote(lease_ids))
            for node, lease_ids in wanted.items()
            if lease_ids and node in stores
        }

    def _absent(self, wanted: Mapping[str, Sequence[int]], asked: Mapping[str, Any]) -> list[int]:
        """The leases whose groups no store has: all of a store that died."""
        answers: dict[str, Sequence[int]] = {node: lease_ids for node, lease_ids in wanted.items() if node not in asked}

        def arrived(node: str, value: Any, error: BaseException | None) -> None:
            if error is not None and not is_death(error):
                raise error
            answers[node] = wanted[node] if error is not None else value

        for node, ref in asked.items():
            self._inbox.watch(ref, partial(arrived, node))
        self._inbox.until(lambda: len(answers) == len(wanted))
        return [lease_id for lease_ids in answers.values() for lease_id in lease_ids]

    def train(self, *, log_rollouts: bool) -> Update:
        order = self._order
        assert order is not None, "next_batch comes first"
        if self._plan.config.run.placement == "colocated":
            self._inbox.survivors([actor.sleep.remote() for actor in self._team.actors])
        refs = self._ranks.train(order, log_rollouts, self._groups)
        self._while_they_train()
        trained, *others = self._ranks.trained(refs)
        self._version = order.order.version + 1
        self._pending = self._schedule.next_batch.remote(self._version)
        self._order, self._groups, self._trained = None, [], order
        self._gathered.trained([trained, *others])
        for note in trained.notes:
            self._say(f"warning: {note}")
        return Update(
            version=self._version,
            figures={**trained.figures, **self._gathered.figures()},
            rollouts=trained.rollouts,
            times=self._gathered.times,
        )

    def _while_they_train(self) -> None:
        """What could wait until the ranks had their batch: new leases, what was trained before, and all that the driver wants to know."""
        self._preloaded = set()
        self._inbox.watch(self._schedule.training.remote(), self._preload)
        if self._trained is not None:
            for store in self._services.all():
                store.store.forget.remote(self._trained.stores.get(store.node, ()))
        self._gathered.ask()

    def _preload(self, upcoming: Any, error: BaseException | None) -> None:
        """Bring the groups of the next batch to the ranks while they train on this one."""
        if error is None and (reads := self._read(upcoming)):
            self._ranks.preload([groups for _, groups in reads.values()], self._are_preloaded)

    def _are_preloaded(self, leases: set[int]) -> None:
        self._preloaded = leases

    def evaluate(self, step: int) -> None:
        self._evaluations.start(step)

    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        return self._evaluations.take(wait=wait)

    # --- what the run wants to know ----------------------------------------------------------------------------------

    def take_scored(self) -> Sequence[Group]:
        if not self._keep_scored:
            return ()
        scored = self._inbox.survivors([store.store.take_scored.remote() for store in self._services.all()])
        return [group for of_store in scored for group in of_store]

    def take_failures(self) -> list[dict[str, Any]]:
        return self._gathered.take_failures()

    def take_reward_faults(self, *, last: bool = False) -> list[dict[str, Any]]:
        known = self._gathered.take_reward_faults()
        if last:
            answers = self._session.finish([services.judge.take_faults.remote() for services in self._services.all()], _LAST_SECONDS)
            known += [fault for of_node in answers for fault in of_node]
        return known

    def remarks(self) -> list[str]:
        restarts: Mapping[str, int] = self._answer(self._schedule.restarts.remote())
        services = [f"the {what} of a node was started anew {times} time{'s' * (times > 1)}" for what, times in restarts.items()]
        return [*self._team.remarks(), *services]

    def save(self, folder: Path) -> None:
        self._ranks.save(folder)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._answer(self._schedule.state.remote(self._version))
        return state

    def status(self) -> Status:
        status: Status = self._answer(self._schedule.status.remote())
        return status

    def watch(self) -> FilterWatch:
        watch: FilterWatch = self._answer(self._schedule.watch.remote())
        return watch

    def start_clock(self) -> None:
        self._gathered.start()

    def timing(self) -> Timing:
        return self._gathered.stop()

    def stop(self) -> None:
        self._schedule.stop.remote()
        self._team.stop()
        self._gathered.finish()

    # --- ends --------------------------------------------------------------------------------------------------------

    def _schedule_ended(self, value: Any, error: BaseException | None) -> None:
        if error is not None and not self._closed:
            raise self._schedule_failed(error)

    def _schedule_failed(self, error: BaseException) -> BaseException:
        if not is_death(error):
            return error
        return WorkerLostError(f"the coordinator died, and the run cannot go on without it ({gist(error)})")

    def _listen_for_notes(self) -> None:
        def told(notes: Any, error: BaseException | None) -> None:
            if isinstance(error, RunError):
                raise error
            if error is None:  # else the coordinator died, which is said elsewhere
                for note in notes:
                    self._say(note)
                self._listen_for_notes()

        self._inbox.watch(self._schedule.next_notes.remote(), told)

    def _close(self) -> None:
        """Producers and ranks end their engines; who does not within a few seconds is killed with the session."""
        self._closed = True
        self._session.finish([*self._team.stop(), *self._ranks.close()], _CLOSE_SECONDS)

    def _close_judges(self) -> None:
        """They end their workers."""
        self._closed = True
        self._session.finish([services.judge.close.remote() for services in self._services.all()], _CLOSE_SECONDS)
