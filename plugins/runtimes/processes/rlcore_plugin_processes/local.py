"""The runtime ``local``. One producer and one trainer alternate in the driver's process. If the run asks for several of them, for stale
data or for an environment, each gets its own process, and they work at the same time. Schedule, store and judge are in the driver's
process."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rlcore_plugin_workers.driver_loop import DriverLoop
from rlcore_plugin_workers.driver_runtime import DriverDeployment, DriverRuntime
from rlcore_plugin_workers.workers import Placement

from rlcore.api.runtime import Judge, OneProcess, Plan, Runtime, Texts, cuda_devices, fits_one_process, threads_of
from rlcore_plugin_processes.launcher import ProcessLauncher

__all__ = ["LocalDeployment", "LocalRuntime", "make_runtime"]


class LocalDeployment(DriverDeployment):
    """The deployment of one run in processes of this machine."""

    make_launcher = ProcessLauncher

    def __init__(self, plan: Plan, judge: Judge, texts: Texts, driver: DriverLoop, closing: ExitStack) -> None:
        super().__init__(plan, judge, texts, driver, closing)
        self._config = plan.config
        self._threads = threads_of(plan.config.training.num_trainers + plan.config.inference.num_inferencer)
        self._devices = _devices()

    def trainer_placement(self, rank: int) -> Placement:
        training = self._config.training
        return self._placement(training.environment, self._device(training.device, rank, 1))

    def producer_placement(self, number: int) -> Placement:
        inference, shards = self._config.inference, self._config.inference.producer_tensor_parallel_size
        first = number * shards
        if self._config.run.placement != "colocated" and self._config.training.device != "cpu":
            first += self._config.training.num_trainers
        return self._placement(inference.environment, self._device(inference.device, first, shards), calls=self.producer_calls)

    def _placement(self, environment: str | None, devices: str | None, calls: int = 1) -> Placement:
        folder = Path(environment) if environment is not None else None
        return Placement(calls=calls, threads=self._threads, devices=devices, environment=folder)

    def _device(self, typed: str, first: int, count: int) -> str | None:
        """Return the GPUs of a role; roles share them in rotation if there are too few. Return None if the role runs on CPU cores or names
        a GPU by its number."""
        if not self._devices or typed == "cpu" or ":" in typed:
            return None
        return ",".join(self._devices[place % len(self._devices)] for place in range(first, first + count))


def make_runtime(plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> Runtime:
    """Return a runtime of one process if the run needs no more; else one with a process for each producer and rank."""
    return (OneProcess if fits_one_process(plan) else LocalRuntime)(plan, closing, say)


class LocalRuntime(DriverRuntime):
    """A ``DriverRuntime`` whose workers are processes of this machine."""

    make_deployment = LocalDeployment


def _devices() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible, count = os.environ.get("CUDA_VISIBLE_DEVICES"), cuda_devices() or 0
    return [name.strip() for name in visible.split(",")][:count] if visible is not None else [str(number) for number in range(count)]
