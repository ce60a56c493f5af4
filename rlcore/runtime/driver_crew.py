"""The crew whose schedule, store and judge are in the driver's process. As it is, it is the runtime ``in_process``: one producer and one
trainer take turns there, too. A runtime whose workers are processes of this machine is made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rlcore.config import Plan
from rlcore.config.transfer_choice import in_one_process
from rlcore.contracts.specs import PluginKind, RuntimeSpec
from rlcore.rewards.judge import Judge
from rlcore.runtime.in_process import InProcessLauncher, ServiceThread, ServiceWorker
from rlcore.runtime.interrupt import Interrupt
from rlcore.runtime.loading import fingerprints, load_data, read_texts
from rlcore.runtime.node_services import AsyncJudge, GroupStore
from rlcore.runtime.parts import make_coordinator, make_watch, open_judge
from rlcore.runtime.pulse import EngineGuard
from rlcore.runtime.schedule_service import ScheduleService
from rlcore.runtime.shipment import PlanAtHand, Shipment
from rlcore.runtime.site import Links, Site
from rlcore.runtime.worker_crew import WorkerCrew
from rlcore.runtime.workers import Launcher, Seat, Worker

__all__ = ["DriverCrew", "DriverSite"]


class DriverSite(Site):
    """Services in a thread of this process; ``prompts``: how many there are to train on. ``make_launcher`` makes what starts workers if the
    run does not fit one process."""

    one_host = True
    address = "127.0.0.1"
    producer_calls = 8
    """Of a producer: one runs its loop, one guards it, the others wait for evaluations, reports and sleep."""
    make_launcher: Callable[[], Launcher] = InProcessLauncher

    def __init__(self, plan: Plan, judge: Judge, prompts: int, closing: ExitStack) -> None:
        runtime = plan.registry.spec(PluginKind.RUNTIME, plan.config.run.runtime)
        transfer = plan.registry.spec(PluginKind.TRANSFER, plan.config.weights.transport)
        self.one_process = in_one_process(plan.config, runtime if isinstance(runtime, RuntimeSpec) else None, transfer)
        self.in_turns = self.one_process and plan.config.schedule.max_staleness == 0
        services = ServiceThread()
        closing.callback(services.close)
        scoring = AsyncJudge(judge)
        closing.callback(scoring.end)
        schedule = ScheduleService(make_coordinator(plan, prompts), make_watch(plan))
        store = GroupStore("store", schedule.deliver, keep_scored=True)
        self.schedule = ServiceWorker(services, schedule, "the coordinator")
        self._store, self._judge = ServiceWorker(services, store, "the store"), ServiceWorker(services, scoring, "the judge")
        self.launcher = InProcessLauncher() if self.one_process else type(self).make_launcher()
        closing.callback(self.launcher.close)

    def trainer_seat(self, rank: int) -> Seat:
        return Seat()

    def producer_seat(self, number: int) -> Seat:
        return Seat(calls=self.producer_calls)

    def links(self, seat: Seat) -> Links:
        return Links(schedule=self.schedule, store=self._store, judge=self._judge)

    def stores(self) -> Mapping[str, Worker]:
        return {"store": self._store}

    def judges(self) -> Sequence[Worker]:
        return (self._judge,)


class DriverCrew(WorkerCrew):
    """What can be refused cheaply comes first, and the reward workers start before torch and threads. ``make_site`` makes its site from
    the plan, the judge, the number of prompts and ``closing``."""

    make_site: type[DriverSite] = DriverSite

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        """Build everything; what must be closed is pushed on ``closing`` as soon as it exists. ``say`` receives what takes long."""
        self._guard = EngineGuard(f"inference backend {plan.config.inference.name}", plan.config.schedule.producer_deadline, say)
        closing.callback(self._guard.stop)  # called last: closing an engine that hangs may hang too
        data = load_data(plan, say)
        judge = open_judge(plan, data, closing, say)
        texts = read_texts(plan, data)
        found = fingerprints(data, texts.tokenizer)
        site = self.make_site(plan, judge, len(texts.training), closing)
        if site.one_process:
            self.loop_role = "trainer"
            at_hand = PlanAtHand(plan=plan, texts=texts, fingerprints=found, pulse=self._guard.pulse)
            super().__init__(plan, texts, at_hand, site, closing, say)
        else:
            super().__init__(plan, texts, Shipment.of(plan, found), site, closing, say)

    def begin(self, folder: Path, interrupt: Interrupt) -> None:
        """See Crew."""
        if self._site.one_process:
            self._guard.start(interrupt)
        super().begin(folder, interrupt)
