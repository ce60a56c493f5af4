"""The crew whose schedule, store and judge are in the driver's process, and whose workers are processes of this machine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from rlcore.api.runtime import Judge, Plan, fingerprints, load_data, make_coordinator, make_watch, open_judge, read_texts
from rlcore_plugin_workers.driver_loop import DriverLoop, ServiceWorker
from rlcore_plugin_workers.node_services import AsyncJudge, GroupStore
from rlcore_plugin_workers.schedule_service import ScheduleService
from rlcore_plugin_workers.shipment import Shipment
from rlcore_plugin_workers.site import Links, Site
from rlcore_plugin_workers.worker_crew import WorkerCrew
from rlcore_plugin_workers.workers import Launcher, Seat, Worker

__all__ = ["DriverCrew", "DriverSite"]


class DriverSite(Site):
    """Services in the driver's loop; ``prompts``: how many there are to train on."""

    one_host = True
    address = "127.0.0.1"
    producer_calls = 8
    """Of a producer: one runs its loop, one guards it, the others wait for evaluations, reports and sleep."""

    def __init__(self, plan: Plan, judge: Judge, prompts: int, driver: DriverLoop, closing: ExitStack) -> None:
        scoring = AsyncJudge(judge)
        closing.callback(scoring.end)
        schedule = ScheduleService(make_coordinator(plan, prompts), make_watch(plan))
        store = GroupStore("store", schedule.deliver, keep_scored=True)
        self.schedule = ServiceWorker(driver, schedule, "the coordinator")
        self._store, self._judge = ServiceWorker(driver, store, "the store"), ServiceWorker(driver, scoring, "the judge")
        self.launcher = self.make_launcher()
        closing.callback(self.launcher.close)

    @staticmethod
    @abstractmethod
    def make_launcher() -> Launcher:
        """Return what starts the workers."""

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
    the plan, the judge, the number of prompts, the driver and ``closing``."""

    make_site: type[DriverSite]

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        """Build everything; what must be closed is pushed on ``closing`` as soon as it exists. ``say`` receives what takes long."""
        data = load_data(plan, say)
        judge = open_judge(plan, data, closing, say)
        texts = read_texts(plan, data)
        driver = DriverLoop(say)
        closing.callback(driver.close)
        site = self.make_site(plan, judge, len(texts.training), driver, closing)
        super().__init__(plan, texts, Shipment.of(plan, fingerprints(data, texts.tokenizer)), site, driver, closing)
