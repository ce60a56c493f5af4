"""A producer's loop in a thread, without Ray, and what it talks to, as tests want it to answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from rlcore_plugin_workers.flight import FlightControl
from rlcore_plugin_workers.producer_loop import CommandQueue, JudgeClient, ProducerLoop
from rlcore_plugin_workers.workers import Worker

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.lease import Lease
from rlcore.contracts.snapshots import Probe, Snapshot
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Group, Message, Prompt, Rollout, Sampling, Score
from rlcore.contracts.weight_transfer import Receiver
from rlcore.roles.producer import Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.runtime.factories import AnnealedSampling, JobMaker, SourceJobs
from rlcore.schedule import GroupSummary, TimeAccount
from rlcore.testing import FakeInference, FakeInferenceOptions, FakePolicy, FakeTokenizer, write_fake_model

PROMPTS = tuple(Prompt(prompt_id=f"q{index}", index=index, messages=(Message(role="user", content=f"say {index}"),)) for index in range(8))
SECONDS = 20.0


def snapshot(version: int, *, wrong_probe: bool = False) -> Snapshot:
    policy = FakePolicy.random(len(FakeTokenizer()), seed=version)
    ids = np.array([5, 6, 7], np.int32)
    logprobs = policy.logprobs(ids).astype(np.float32) + (1.0 if wrong_probe else 0.0)
    return Snapshot.of(version, dict(policy.tensors()), Probe(token_ids=ids, logprobs=logprobs, tolerance=1e-4))


class Handed(Receiver):
    """A receiver that a test fills."""

    def __init__(self, commands: CommandQueue) -> None:
        super().__init__("p", commands.wake)
        self.snapshot: Snapshot | None = None
        self.error: WeightsError | None = None
        self.released: list[int] = []
        self.broke: list[int] = []

    def hand(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.on_news()

    def newer_than(self, version: int) -> Snapshot | None:
        if self.error is not None:
            raise self.error
        return self.snapshot if self.snapshot is not None and self.snapshot.version > version else None

    def release(self, version: int) -> None:
        self.released.append(version)

    def on_group_broken(self, epoch: int) -> None:
        self.broke.append(epoch)

    def close(self) -> None: ...


class Told(Worker):
    """A worker that calls a function of the same name, with what answers the call as its last argument."""

    def __init__(self, **told: Callable[..., None]) -> None:
        self._told = told

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        answer: Future[Any] = Future()

        def then(value: Any, error: BaseException | None) -> None:
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(value)

        self._told[method](*arguments, then)
        return answer

    def kill(self) -> None: ...


class Endpoints:
    """A schedule and a store that remember; leases are given when the test says so."""

    def __init__(self) -> None:
        self.schedule, self.store = Told(lease=self.lease, serving=self.serving), Told(deliver=self.deliver)
        self.asked: list[tuple[int, int, Callable[[Any, BaseException | None], None]]] = []
        self.versions: list[int] = []
        self.groups: list[Group] = []
        self.brought: list[list[int]] = []
        self.open: list[Callable[[], None]] | None = None
        """The deliveries that are not yet answered; None: each is answered at once."""
        self.arrivals: list[GroupSummary] = []
        self.news = threading.Condition()

    def lease(self, worker: str, k: int, serving: int, then: Callable[[Any, BaseException | None], None]) -> None:
        with self.news:
            self.asked.append((k, serving, then))
            self.news.notify_all()

    def serving(self, worker: str, version: int, then: Any) -> None:
        with self.news:
            self.versions.append(version)
            self.news.notify_all()

    def deliver(self, worker: str, arrivals: Sequence[GroupSummary], groups: Sequence[Group], then: Any) -> None:
        with self.news:
            self.arrivals += arrivals
            self.groups += groups
            self.brought.append([arrival.delivery.lease_id for arrival in arrivals])
            if self.open is not None:
                self.open.append(lambda: then(len(groups), None))
            self.news.notify_all()
        if self.open is None:
            then(len(groups), None)

    def until(self, condition: Callable[[], bool]) -> None:
        with self.news:
            assert self.news.wait_for(condition, SECONDS)


class Stage:
    """A loop in a thread of its own, and everything around it."""

    def __init__(self, folder: Path, in_flight: int = 2, judge: Any = None, *, alternating: bool = False, most: int = 0) -> None:
        self.commands = CommandQueue()
        self.endpoints = Endpoints()
        self.receiver = Handed(self.commands)
        account = TimeAccount()
        context = InferenceContext(
            model=str(write_fake_model(folder / "model")), tokenizer=FakeTokenizer(), prompts_per_forward=8, max_tokens=64
        )
        engine = FakeInference(context, FakeInferenceOptions(in_flight=InFlight.RESUME, steps_per_poll=1))
        client = JudgeClient(Told(score=judge or self._score), self.commands, reads_tokens=False)
        sampling = AnnealedSampling(sampling=Sampling(max_new_tokens=6), end=None, updates=10)
        self.producer = Producer("p", engine, FakeTokenizer(), client, account, SingleTurn())
        jobs = JobMaker([SourceJobs(prompts=PROMPTS, sampling=sampling)], 0)
        endpoints: Any = self.endpoints
        flight = FlightControl(slots=8, least=in_flight, most=most or in_flight)
        self.loop = ProducerLoop(self.producer, jobs, endpoints, self.receiver, self.commands, flight, account, alternating=alternating)
        self.ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _score(self, prompt: Prompt, rollouts: Sequence[Rollout], counted: bool, then: Any) -> None:
        then(tuple(Score(value=1.0, accuracy=1.0) for _ in rollouts), None)

    def _run(self) -> None:
        try:
            self.loop.run()
            self.ended.set_result(None)
        except Exception as error:
            self.ended.set_exception(error)

    def grant(self, *lease_ids: int, version: int = 0) -> None:
        """Answer the oldest question for leases."""
        self.endpoints.until(lambda: bool(self.endpoints.asked))
        _, _, then = self.endpoints.asked.pop(0)
        then([Lease(lease_id=n, episode=0, prompt_index=n, n_sampled=2, version=version) for n in lease_ids], None)

    def stop(self) -> None:
        self.loop.stop()
        self.ended.result(SECONDS)


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.002)
