"""The program of a reward worker: a fresh interpreter that builds the rewards, then judges what it is sent until it is told to stop.

It protects the pool from what rewards do (print, read stdin, raise anything, return nonsense), not from hanging: the pool kills it.
"""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import resource
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.interfaces import Reward
from rlcore.rewards.entry import FunctionReward
from rlcore.rewards.protocol import Broken, Call, Done, FrameReader, Ready, Setup, Task, encode
from rlcore.types import Outcome, Score

__all__ = ["checked", "main", "run_task"]

_PR_SET_PDEATHSIG = 1
_REASON_LENGTH = 500


def main(descriptor: int) -> None:
    """Serve the socket ``descriptor`` until the other side closes it. Never returns."""
    _die_with_parent()
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    messages = _receive(channel)
    setup: Setup = next(messages)
    rewards: list[Reward] = []
    for recipe in setup.recipes:
        try:
            rewards.append(recipe.build())
        except BaseException as error:  # whatever a plugin raises is the user's to read, in the parent
            channel.sendall(encode(Broken(name=recipe.name, reason=_describe(error))))
            os._exit(1)
    channel.sendall(encode(Ready(traits=tuple(r.traits(built) for r, built in zip(setup.recipes, rewards, strict=True)))))
    _serve(channel, messages, rewards, setup)
    for reward in rewards:
        reward.close()
    os._exit(0)  # threads that a reward left behind must not keep the process


def _serve(channel: socket.socket, messages: Any, rewards: Sequence[Reward], setup: Setup) -> None:
    count, ceiling = 0, _resident() + setup.max_growth
    for job in messages:
        if job is None:
            return
        for task_id, payload in job:
            count += 1
            done = run_task(task_id, payload, rewards)
            retire = count >= setup.max_items or _resident() > ceiling
            channel.sendall(encode(done if not retire else _retiring(done)))
            if retire:
                return


def run_task(task_id: int, payload: bytes, rewards: Sequence[Reward]) -> Done:
    """Run one pickled task; whatever the reward raises becomes outcome ``error``."""
    started = time.perf_counter()
    scores: tuple[Score, ...] = ()
    complaint: str | None = None
    count = 1
    try:
        task: Task = pickle.loads(payload)
        count, reward = len(task.items), rewards[task.reward]
        if task.call is Call.CHECK:
            complaint = reward.check(task.items[0].columns)
        else:
            verdicts = [reward.score(task.items[0])] if task.call is Call.SCORE else list(reward.score_group(task.items))
            if len(verdicts) != count:
                raise TypeError(f"score_group returned {len(verdicts)} scores for {count} rollouts")
            scores = tuple(checked(verdict, loose=isinstance(reward, FunctionReward)) for verdict in verdicts)
    except BaseException as error:  # SystemExit and a library's own timeout classes included
        complaint = _describe(error)
        scores = (Score.failed(Outcome.ERROR, complaint),) * count
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm that a reward left armed would kill the next one
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return Done(task_id=task_id, scores=scores, complaint=complaint, seconds=time.perf_counter() - started)


def checked(verdict: Any, *, loose: bool = False) -> Score:
    """The verdict as a plain ``Score``; TypeError or ValueError, saying which rule, where it breaks one."""
    if not isinstance(verdict, Score):
        kinds = "a Score or a number" if loose else "a Score"
        raise TypeError(f"the reward returned {type(verdict).__name__}; it must return {kinds}")
    outcome = Outcome(verdict.outcome)
    accuracy = None if verdict.accuracy is None else _finite("accuracy", verdict.accuracy)
    if accuracy is not None and not 0.0 <= accuracy <= 1.0:
        raise ValueError(f"accuracy is {accuracy}; it must be between 0 and 1")
    if not isinstance(verdict.parts, Mapping):
        raise TypeError(f"parts is a {type(verdict.parts).__name__}; it must be a mapping of names to numbers")
    return Score(
        value=_finite("value", verdict.value),
        accuracy=accuracy,
        format_ok=None if verdict.format_ok is None else bool(verdict.format_ok),
        parts={str(name): _finite(f"part {name}", part) for name, part in verdict.parts.items()},
        outcome=outcome,
        reason=str(verdict.reason)[:_REASON_LENGTH],
        parsed=None if verdict.parsed is None else str(verdict.parsed)[:_REASON_LENGTH],
        in_statistics=bool(verdict.in_statistics) and outcome.judged,
        in_loss=bool(verdict.in_loss) and outcome.judged,
    )


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {type(value).__name__}; it must be a number") from error
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; it must be finite")
    return number


def _describe(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except Exception:  # an exception whose own text raises
        text = type(error).__name__
    return " ".join(text.split())[:_REASON_LENGTH]


def _retiring(done: Done) -> Done:
    return Done(task_id=done.task_id, scores=done.scores, complaint=done.complaint, seconds=done.seconds, retire=True)


def _receive(channel: socket.socket) -> Any:
    reader = FrameReader()
    while data := channel.recv(1 << 16):
        yield from reader.feed(data)


def _die_with_parent() -> None:
    """On Linux the kernel kills this process with the pool's thread; elsewhere the closed socket ends it between two items."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _resident() -> int:
    """Bytes of memory held now (where the system says so, else the peak)."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
