"""The program of a reward worker: a fresh interpreter that builds the rewards, then scores the tasks that it receives until it must stop.

It protects the pool from actions of rewards (printing, reading stdin, raising anything, returning invalid values), but not from hanging;
the pool kills a hanging worker.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rlcore.contracts.reward_interface import AsyncReward, Reward
from rlcore.contracts.types import Score
from rlcore.rewards.reward_entry import RewardRecipe, Traits
from rlcore.rewards.worker_protocol import Call, Done, FrameReader, LoopStatus, Ready, Task, WorkerSetup, encode, end_fork
from rlcore.rewards.worker_results import accident, broken, checked, first_complaint

__all__ = ["main", "run_task"]

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, panel: int, parent: int) -> None:
    """Serve the socket ``descriptor`` until the other side closes it. Never returns.

    :param panel: the descriptor of a asynchronous worker's panel, or -1.
    :param parent: the process that owns the pool."""
    _die_with(parent)
    me = os.getpid()
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    messages = _receive(channel)
    setup: WorkerSetup = next(messages)
    rewards: list[Reward] = []
    traits: list[Traits] = []
    for recipe in setup.recipes:
        try:
            reward, trait = _built(recipe, asynchronous=setup.asynchronous)
        except BaseException as error:  # the parent reports to the user whatever a plugin raises
            end_fork(me)
            channel.sendall(encode(broken(recipe.name, error)))
            os._exit(1)
        end_fork(me)
        rewards.append(reward)
        traits.append(trait)
    wear = _WorkerUsage(setup)
    if setup.asynchronous:
        from rlcore.rewards.async_worker import AsyncWorker  # asyncio, which other rewards need not wait for

        os.set_inheritable(panel, False)
        AsyncWorker(channel, rewards[0], setup.recipes[0], LoopStatus(panel), wear.out).run()
    else:
        channel.sendall(encode(Ready(traits=tuple(traits))))
        _serve(channel, messages, rewards, wear)
    for reward in rewards:
        if setup.asynchronous or not isinstance(reward, AsyncReward):
            reward.close()
    os._exit(0)  # threads that a reward left behind must not keep the process alive


def _built(recipe: RewardRecipe, *, asynchronous: bool) -> tuple[Reward, Traits]:
    """Build and open the reward. The process that hosts an asynchronous reward opens it; the others build it only to learn its traits."""
    reward = recipe.build()
    if isinstance(reward, AsyncReward) and not asynchronous:
        return reward, recipe.traits(reward)
    reward.open()
    return reward, recipe.traits(reward, notice="" if asynchronous else reward.notice())


def _serve(channel: socket.socket, messages: Iterator[Any], rewards: Sequence[Reward], wear: _WorkerUsage) -> None:
    count, me = 0, os.getpid()
    for job in messages:
        if job is None:
            return
        for task_id, payload in job:
            count += 1
            done = run_task(task_id, payload, rewards)
            end_fork(me)
            retire = wear.out(count)
            channel.sendall(encode(replace(done, retire=retire)))
            if retire:
                return


def run_task(task_id: int, payload: bytes, rewards: Sequence[Reward]) -> Done:
    """Run one pickled task. An exception of the reward becomes outcome ``error``, or ``infra`` if it reports a failure of the machine."""
    started = time.perf_counter()
    count = 1
    try:
        task: Task = pickle.loads(payload)
        count, reward = len(task.items), rewards[task.reward]
        scores: tuple[Score, ...] = ()
        complaint: str | None = None
        if task.call is Call.CHECK:
            complaint = first_complaint(reward, task.items)
        else:
            verdicts = [reward.score(task.items[0])] if task.call is Call.SCORE else list(reward.score_group(task.items))
            if len(verdicts) != count:
                raise TypeError(f"score_group returned {len(verdicts)} scores for {count} rollouts")
            scores = tuple(checked(verdict, item) for verdict, item in zip(verdicts, task.items, strict=True))
        return Done(task_id=task_id, scores=scores, complaint=complaint, seconds=time.perf_counter() - started)
    except BaseException as error:  # including SystemExit and a library's own timeout classes
        return accident(task_id, count, error, time.perf_counter() - started)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm that a reward left active would kill the next one
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _receive(channel: socket.socket) -> Iterator[Any]:
    reader = FrameReader()
    while data := channel.recv(1 << 16):
        yield from reader.feed(data)


def _die_with(parent: int) -> None:
    """Make the kernel kill this process with the pool's thread (Linux). On other systems the closed socket ends it between two items."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(0)


class _WorkerUsage:
    """Decides whether the worker has served its number of calls, or has grown too much since its creation."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._most = setup.limits.items
        try:
            self._statm: int | None = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._statm = None
        self._ceiling = self._resident() + setup.limits.growth

    def out(self, count: int) -> bool:
        """Return whether the worker must be replaced after ``count`` calls."""
        return count >= self._most or self._resident() > self._ceiling

    def _resident(self) -> int:
        """Return the bytes of memory held now, or the peak if the system does not report them."""
        if self._statm is None:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return int(os.pread(self._statm, 128, 0).split()[1]) * resource.getpagesize()
