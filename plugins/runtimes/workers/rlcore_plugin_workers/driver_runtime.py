"""A runtime with schedule, store and judge in the driver's process, and workers in processes of this machine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from rlcore.api.runtime import Judge, Plan, Texts, fingerprints, load_data, make_coordinator, make_filter_monitor, open_judge, read_texts
from rlcore_plugin_workers.deployment import Deployment, Endpoints
from rlcore_plugin_workers.driver_loop import DriverLoop, ServiceWorker
from rlcore_plugin_workers.node_services import AsyncJudge, GroupStore
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.schedule_service import ScheduleService
from rlcore_plugin_workers.worker_runtime import WorkerRuntime
from rlcore_plugin_workers.workers import Launcher, Placement, Worker

__all__ = ["DriverDeployment", "DriverRuntime"]


class DriverDeployment(Deployment):
    """Services in the driver's event loop."""

    one_host = True
    address = "127.0.0.1"
    producer_calls = 8
    """The calls that a producer runs at the same time: one runs its loop, one guards it, the others wait for evaluations, reports and
    sleep."""

    def __init__(self, plan: Plan, judge: Judge, texts: Texts, driver: DriverLoop, closing: ExitStack) -> None:
        scoring = AsyncJudge(judge)
        closing.callback(scoring.end)
        schedule = ScheduleService(make_coordinator(plan, texts), make_filter_monitor(plan))
        store = GroupStore("store", schedule.deliver, keep_scored=True)
        self.schedule = ServiceWorker(driver, schedule, "the coordinator")
        self._store, self._judge = ServiceWorker(driver, store, "the store"), ServiceWorker(driver, scoring, "the judge")
        self.launcher = self.make_launcher()
        closing.callback(self.launcher.close)

    @staticmethod
    @abstractmethod
    def make_launcher() -> Launcher:
        """Return the launcher of the workers."""

    def trainer_placement(self, rank: int) -> Placement:
        return Placement()

    def producer_placement(self, number: int) -> Placement:
        return Placement(calls=self.producer_calls)

    def endpoints(self, placement: Placement) -> Endpoints:
        return Endpoints(schedule=self.schedule, store=self._store, judge=self._judge)

    def stores(self) -> Mapping[str, Worker]:
        return {"store": self._store}

    def judges(self) -> Sequence[Worker]:
        return (self._judge,)


class DriverRuntime(WorkerRuntime):
    """A ``WorkerRuntime`` that makes its own services. The constructor does the cheap checks first, and starts the reward workers before
    torch and threads.

    ``make_deployment`` makes the deployment from the plan, the judge, the texts, the driver and ``closing``.
    """

    make_deployment: type[DriverDeployment]

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        """Build everything. Push each object that must be closed on ``closing`` as soon as it exists. ``say`` receives messages about slow
        operations."""
        data = load_data(plan, say)
        judge = open_judge(plan, data, closing, say)
        texts = read_texts(plan, data, say=say)
        driver = DriverLoop(say)
        closing.callback(driver.close)
        deployment = self.make_deployment(plan, judge, texts, driver, closing)
        super().__init__(plan, texts, PlanBundle.of(plan, fingerprints(data, texts.tokenizer)), deployment, driver, closing)
