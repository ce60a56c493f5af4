"""Generates completions of the held-out prompts: with one engine in this process, or with several in their own processes, which may run in
another environment. Nothing is judged here."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore_plugin_processes.launcher import ProcessLauncher
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.workers import Placement, Worker

from rlcore.api import DataError, Prompt, Rollout, RunError, Score
from rlcore.api.commands import Plan
from rlcore.api.runtime import (
    GroupJob,
    ProducedGroup,
    Producer,
    Texts,
    TimeAccount,
    cuda_devices,
    fingerprints,
    make_conversation,
    make_engine,
    read_texts,
    threads_of,
)
from rlcore_plugin_tools.eval.costs import AnswerCost, CostMeter
from rlcore_plugin_tools.eval.eval_plan import plugins_of

__all__ = ["Generated", "Generation", "generation_of"]

_STEP_SECONDS = 0.5
"""Seconds that one call of an engine may last, so that interruptions and verdicts do not wait longer."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A job whose answers are generated, and the cost of each."""

    produced: ProducedGroup
    costs: tuple[AnswerCost, ...]


class NullJudge:
    """A replacement for a producer's judge: a group comes back at once, without scores."""

    def __init__(self) -> None:
        self._made: list[int] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        """Take a group."""
        self._made.append(key)

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        """Give it back."""
        made, self._made = self._made, []
        return [(key, ()) for key in made]


class Generation(ABC):
    """Generates the completions of jobs. It has all jobs from the beginning and uses the producers of a run."""

    @abstractmethod
    def accept(self, jobs: Sequence[GroupJob]) -> None:
        """Start with these jobs; called once."""

    @abstractmethod
    def step(self) -> list[Generated]:
        """Continue for about half a second; return the completed jobs, without scores."""


def generation_of(plan: Plan, texts: Texts, closing: ExitStack) -> Generation:
    """Return a generation in this process for one producer without an environment, otherwise in processes. ``closing`` gets everything that
    must be ended."""
    inference = plan.config.inference
    if inference.environment is None and inference.num_inferencer == 1:
        return InProcessGeneration(plan, texts, closing)
    return MultiProcessGeneration(plan, fingerprints({}, texts.tokenizer), closing)


class InProcessGeneration(Generation):
    """One engine in this process."""

    def __init__(self, plan: Plan, texts: Texts, closing: ExitStack, number: int = 0) -> None:
        engine = make_engine(plan, texts.tokenizer, closing, number)
        name = f"producer-{number}"
        conversation = make_conversation(plan, texts.tokenizer, name, closing, lambda line: print(line, file=sys.stderr))
        self._meter = CostMeter()
        self._meter.watch(engine, conversation)
        self._producer = Producer(name, engine, texts.tokenizer, NullJudge(), TimeAccount(), conversation)
        closing.callback(self._producer.close)

    def accept(self, jobs: Sequence[GroupJob]) -> None:
        self._producer.accept(jobs)

    def step(self) -> list[Generated]:
        made = [] if self._producer.idle else self._producer.step(_STEP_SECONDS)
        return [Generated(one, tuple(self._meter.take(one.job.noise, rollout.index) for rollout in one.rollouts)) for one in made]


class ProducerProcess:
    """The object in a producer's process: ``prepare`` is called once, then it is used like ``Generation``."""

    def __init__(self, plan_bundle: PlanBundle, number: int) -> None:
        self._plan_bundle, self._number = plan_bundle, number
        self._closing = ExitStack()

    def prepare(self) -> None:
        """Read the tokenizer and the model. DataError if the tokenizer differs from the driver's."""
        plan = self._plan_bundle.open(f"producer-{self._number}")
        texts = read_texts(plan, {})
        if fingerprints({}, texts.tokenizer) != self._plan_bundle.fingerprints:
            raise DataError(
                "the producers' environment reads the tokenizer differently from this one (other versions of its packages); make the "
                "environment again, or evaluate without --inference-environment"
            )
        self._here = InProcessGeneration(plan, texts, self._closing, self._number)

    def accept(self, jobs: Sequence[GroupJob]) -> None:
        """See Generation."""
        self._here.accept(jobs)

    def step(self) -> list[Generated]:
        """See Generation."""
        return self._here.step()

    def close(self) -> None:
        """End the engine."""
        self._closing.close()


class MultiProcessGeneration(Generation):
    """Engines in processes of this machine, which always end with this process.

    RunError if one does not return for ``producer_deadline`` seconds (``producer_load_deadline`` while it loads its model).
    """

    def __init__(self, plan: Plan, fingerprints: Mapping[str, str], closing: ExitStack) -> None:
        inference, schedule = plan.config.inference, plan.config.schedule
        self._deadline = schedule.producer_deadline
        plan_bundle = PlanBundle.of(plan, fingerprints, plugins_of(plan))
        launcher = ProcessLauncher()
        closing.callback(launcher.close)
        self._workers: list[Worker] = [
            launcher.start(ProducerProcess, plan_bundle, number, name=f"producer-{number}", placement=_placement(plan, number))
            for number in range(inference.num_inferencer)
        ]
        self._asked: dict[Future[Any], tuple[Worker, float]] = {}
        self._left: dict[Worker, int] = {}
        loads = [(worker, worker.call("prepare")) for worker in self._workers]
        closing.callback(self._close)
        for worker, loaded in loads:
            _answered(worker, loaded, schedule.producer_load_deadline, "loaded its model", "--producer-load-deadline")

    def accept(self, jobs: Sequence[GroupJob]) -> None:
        count = len(self._workers)
        shares = [jobs[number::count] for number in range(count)]
        self._left = {worker: len(share) for worker, share in zip(self._workers, shares, strict=True) if share}
        for (worker, _), share in zip(self._left.items(), shares, strict=False):
            self._ask(worker, "accept", list(share))

    def step(self) -> list[Generated]:
        if not self._asked:
            return []
        done, _ = wait(self._asked, timeout=_STEP_SECONDS, return_when=FIRST_COMPLETED)
        made: list[Generated] = []
        for call in done:
            worker, _ = self._asked.pop(call)
            answer: list[Generated] = call.result() or []
            made += answer
            self._left[worker] -= len(answer)
            if self._left[worker]:
                self._ask(worker, "step")
        for worker, since in self._asked.values():
            if time.monotonic() - since > self._deadline:
                raise _silent(worker, self._deadline, "returned from its engine", "--producer-deadline")
        return made

    def _ask(self, worker: Worker, method: str, *arguments: Any) -> None:
        self._asked[worker.call(method, *arguments)] = worker, time.monotonic()

    def _close(self) -> None:
        """Close idle engines in order, so that they free resources outside their process. Other processes are killed."""
        if not self._asked:
            wait([worker.call("close") for worker in self._workers], timeout=_STEP_SECONDS * 20)


def _placement(plan: Plan, number: int) -> Placement:
    """Return a producer's threads, environment and GPUs. It gets the next GPUs in order, unless it computes on the CPU or names its GPU."""
    inference, shards = plan.config.inference, plan.config.inference.producer_tensor_parallel_size
    visible, count = os.environ.get("CUDA_VISIBLE_DEVICES"), cuda_devices() or 0
    names = [name.strip() for name in visible.split(",")][:count] if visible is not None else [str(place) for place in range(count)]
    own = [names[place % count] for place in range(number * shards, (number + 1) * shards)] if names else []
    placed = bool(own) and inference.device != "cpu" and ":" not in inference.device
    return Placement(
        threads=threads_of(inference.num_inferencer),
        devices=",".join(own) if placed else None,
        environment=Path(inference.environment) if inference.environment is not None else None,
    )


def _answered(worker: Worker, call: Future[Any], seconds: float, doing: str, flag: str) -> None:
    done, _ = wait([call], timeout=seconds)
    if not done:
        raise _silent(worker, seconds, doing, flag)
    call.result()


def _silent(worker: Worker, seconds: float, doing: str, flag: str) -> RunError:
    return RunError(f"{worker.name} has not {doing} for {seconds:g} s; if it may need that long, raise {flag}")
