"""The local runtime: every role on this machine. One producer and one trainer take turns in this process; several of them, stale data or an
environment make them processes of their own, which work at the same time. Schedule, store and judge are in this process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rlcore.config import Plan
from rlcore.config.transfer_choice import in_one_process
from rlcore.contracts.specs import PluginKind, RuntimeSpec
from rlcore.host.devices import cuda_devices
from rlcore.host.threads import threads_of
from rlcore.rewards import Judge
from rlcore.runtime.in_process import InProcessLauncher, ServiceThread, ServiceWorker
from rlcore.runtime.interrupt import Interrupt
from rlcore.runtime.launcher import ProcessLauncher
from rlcore.runtime.loading import fingerprints, load_data, read_texts
from rlcore.runtime.node_services import AsyncJudge, GroupStore
from rlcore.runtime.parts import make_judge, make_watch, schedule_settings
from rlcore.runtime.pulse import EngineGuard
from rlcore.runtime.schedule_service import ScheduleService
from rlcore.runtime.shipment import PlanAtHand, Shipment
from rlcore.runtime.site import Links, Site
from rlcore.runtime.worker_crew import WorkerCrew
from rlcore.runtime.workers import Seat, Worker

__all__ = ["LocalCrew", "LocalSite"]

_PRODUCER_CALLS = 8
"""Of a producer: one runs its loop, one guards it, the others wait for evaluations, reports and sleep."""


class LocalCrew(WorkerCrew):
    """What can be refused cheaply comes first, and the reward workers start before torch and threads."""

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        """Build everything; what must be closed is pushed on ``closing`` as soon as it exists. ``say`` receives what takes long."""
        self._guard = EngineGuard(f"inference backend {plan.config.inference.name}", plan.config.schedule.producer_deadline, say)
        closing.callback(self._guard.stop)  # called last: closing an engine that hangs may hang too
        data = load_data(plan, say)
        judge = make_judge(plan)
        closing.callback(judge.close)
        for notice in judge.notices:
            say(notice)
        for data_set in data.values():
            judge.check(data_set.prompts)
        texts = read_texts(plan, data)
        found = fingerprints(data, texts.tokenizer)
        site = LocalSite(plan, judge, len(texts.training), closing)
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


class LocalSite(Site):
    """Services in a thread of this process; ``prompts``: how many there are to train on."""

    one_host = True
    address = "127.0.0.1"

    def __init__(self, plan: Plan, judge: Judge, prompts: int, closing: ExitStack) -> None:
        self._config = plan.config
        runtime = plan.registry.spec(PluginKind.RUNTIME, plan.config.run.runtime)
        transfer = plan.registry.spec(PluginKind.TRANSFER, plan.config.weights.transport)
        self.one_process = in_one_process(plan.config, runtime if isinstance(runtime, RuntimeSpec) else None, transfer)
        self.in_turns = self.one_process and plan.config.schedule.max_staleness == 0
        services = ServiceThread()
        closing.callback(services.close)
        scoring = AsyncJudge(judge)
        closing.callback(scoring.end)
        schedule = ScheduleService(schedule_settings(plan, prompts), make_watch(plan))
        store = GroupStore("store", schedule.deliver, keep_scored=True)
        self.schedule = ServiceWorker(services, schedule, "the coordinator")
        self._store, self._judge = ServiceWorker(services, store, "the store"), ServiceWorker(services, scoring, "the judge")
        self.launcher = InProcessLauncher() if self.one_process else ProcessLauncher()
        closing.callback(self.launcher.close)
        self._threads = threads_of(plan.config.training.num_trainers + plan.config.inference.num_inferencer)
        self._devices = _devices()

    def trainer_seat(self, rank: int) -> Seat:
        training = self._config.training
        return self._seat(training.environment, self._device(training.device, rank, 1))

    def producer_seat(self, number: int) -> Seat:
        inference, shards = self._config.inference, self._config.inference.producer_tensor_parallel_size
        first = number * shards
        if self._config.run.placement != "colocated" and self._config.training.device != "cpu":
            first += self._config.training.num_trainers
        return self._seat(inference.environment, self._device(inference.device, first, shards), calls=_PRODUCER_CALLS)

    def _seat(self, environment: str | None, devices: str | None, calls: int = 1) -> Seat:
        folder = Path(environment) if environment is not None else None
        return Seat(calls=calls, threads=self._threads, devices=devices, environment=folder)

    def _device(self, typed: str, first: int, count: int) -> str | None:
        """The GPUs of a role, in turns if there are too few; None if it computes on cores, or names one by its number."""
        if not self._devices or typed == "cpu" or ":" in typed:
            return None
        return ",".join(self._devices[place % len(self._devices)] for place in range(first, first + count))

    def links(self, seat: Seat) -> Links:
        return Links(schedule=self.schedule, store=self._store, judge=self._judge)

    def stores(self) -> Mapping[str, Worker]:
        return {"store": self._store}

    def judges(self) -> Sequence[Worker]:
        return (self._judge,)


def _devices() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible, count = os.environ.get("CUDA_VISIBLE_DEVICES"), cuda_devices() or 0
    return [name.strip() for name in visible.split(",")][:count] if visible is not None else [str(number) for number in range(count)]
