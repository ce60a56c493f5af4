"""The producer's end of a gateway process: starts it, gives it episodes and completions, and starts it anew if it dies or hangs.

One thread with an event loop does this. Any thread may call the methods of ``GatewayLink`` and ``LinkedEpisode``.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle

from rlcore.api import Completion, PluginError, RlcoreError, RunError
from rlcore_gateway import guard
from rlcore_gateway.channel import Channel
from rlcore_gateway.gateway import Ask
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.link_messages import (
    Answered,
    Asked,
    Begun,
    CalledTools,
    Cut,
    Ended,
    EpisodeReport,
    Failed,
    GatewaySetup,
    Opened,
    Said,
    Withdrawn,
)
from rlcore_gateway.players import EpisodeDraws
from rlcore_gateway.process_tree import MARK, kill_tree, new_mark
from rlcore_gateway.worker_lines import EpisodeEnd
from rlcore_gateway.worker_process import ending

__all__ = ["GatewayLink", "LinkedEpisode", "ProcessTail"]

_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from rlcore_gateway.process import main; main(int(sys.argv[2]))"
_ATTEMPTS = 2
_LEAVE_SECONDS = 15.0
_WAITS = 8
_TAIL = 4096


class LinkedEpisode:
    """An episode as its rollout sees it. ``report`` is how it ended, None before that; ``over``: it has ended, or nobody needs it;
    ``tools``: the last answer called tools, which it runs now. ``begun``: the present gateway process has begun to play it.
    ``losses``: how many gateway processes have died that had.
    """

    def __init__(
        self,
        link: GatewayLink,
        name: str,
        row: Mapping[str, Any],
        limits: EpisodeLimits,
        wake: Callable[[], None],
        draws: EpisodeDraws | None = None,
    ) -> None:
        self.name, self.row, self.limits, self.draws = name, row, limits, draws
        self.report: EpisodeReport | None = None
        self.failure: RlcoreError | None = None
        self.attempts, self.losses = 1, 0
        self.over = self.tools = self.begun = False
        self._link, self._wake = link, wake
        self._news: deque[Ask | str] = deque()
        self._open: dict[str, float] = {}
        """The calls that wait for an answer, and when they were asked; the link's thread alone uses it."""

    def take(self) -> list[Ask | str]:
        """Return what is new: an ``Ask``, or the id of a call that nobody waits for any more.

        :raises PluginError: the processes of the environment cannot work.
        :raises RunError: the gateway process cannot work.
        """
        if self.failure is not None:
            raise self.failure
        return [self._news.popleft() for _ in range(len(self._news))]

    def opened(self) -> Opened:
        """Return the message that begins it in a process."""
        return Opened(self.name, self.attempts, self.row, self.limits, self.draws)

    def answer(self, call: str, completion: Completion) -> None:
        """Hand over the completion of a call."""
        self._link.post(self._answered, call, completion)

    def close(self) -> None:
        """End the episode, if it has not ended."""
        self.over = True
        if self.report is None:
            self._link.post(self._link.drop, self)

    def _answered(self, call: str, completion: Completion) -> None:
        if (asked := self._open.pop(call, None)) is not None:
            self._link.send(Answered(call, completion, time.perf_counter() - asked))

    def asked(self, ask: Ask) -> None:
        """Note a call."""
        self.tools = False
        self._open[ask.call] = time.perf_counter()
        self._news.append(ask)
        self._wake()

    def called_tools(self) -> None:
        """Note that it runs tools."""
        self.tools = True
        self._wake()

    def withdrawn(self, call: str) -> None:
        """Note that nobody waits for a call."""
        if self._open.pop(call, None) is not None:
            self._news.append(call)
            self._wake()

    def lost(self) -> None:
        """Withdraw all calls, because the gateway process is gone. The next one begins the episode again."""
        self._withdraw()
        self.attempts, self.losses, self.begun = self.attempts + 1, self.losses + self.begun, False

    def _withdraw(self) -> None:
        for call in list(self._open):
            self.withdrawn(call)

    def ended(self, report: EpisodeReport) -> None:
        """Note how it ended."""
        self._withdraw()
        self.report, self.over = report, True
        self._wake()

    def failed(self, error: RlcoreError) -> None:
        """Note that the run must end."""
        self.failure = error
        self._wake()


class GatewayLink:
    """Owns a gateway process.

    :param name: of the producer.
    :param say: shows a warning to the user.
    :param restarts: how many times in a row the process may be started anew without having ended an episode.
    :param silence: seconds without a sign of life after which the process counts as hanging.
    :param start_seconds: the same for its first sign of life.
    """

    def __init__(
        self,
        name: str,
        setup: GatewaySetup,
        say: Callable[[str], None],
        *,
        restarts: int = 3,
        silence: float = 30.0,
        start_seconds: float = 180.0,
    ) -> None:
        self._name, self._setup, self._say = name, cloudpickle.dumps(setup), say
        self._restarts, self._silence, self._start_seconds = restarts, silence, start_seconds
        self._episodes: dict[str, LinkedEpisode] = {}
        self._count = self._deaths = self._heard = 0
        self._failure: RlcoreError | None = None
        self._channel: Channel | None = None
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="rlcore-gateway", daemon=True)
        self.process: subprocess.Popen[bytes] | None = None
        """The process that guards the gateway, None before the first one is started."""

    def start(self) -> None:
        """Start the process, without waiting for it."""
        self._thread.start()

    def open_episode(
        self, row: Mapping[str, Any], limits: EpisodeLimits, wake: Callable[[], None], draws: EpisodeDraws | None = None
    ) -> LinkedEpisode:
        """Begin an episode. ``wake`` is called if it has news; ``draws`` is for frozen players. Raises RunError if the link has ended."""
        if not self._thread.is_alive():
            raise self._failure or RunError("the link to the gateway process is closed")
        self._count += 1
        episode = LinkedEpisode(self, f"{self._name}-{self._count}", row, limits, wake, draws)
        self.post(self._add, episode)
        return episode

    def fail(self, error: RlcoreError) -> None:
        """Let every episode raise an error, also those to come."""
        self.post(self._fail, error)

    def leave(self) -> None:
        """Begin to end the process, without waiting for it."""
        self.post(self._leave)

    def close(self) -> None:
        """End the process and all processes below it, and wait until they have ended."""
        if self._thread.is_alive():
            self.leave()
            self._thread.join()

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the thread of the link. After ``close``, nothing happens."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def send(self, message: Any) -> None:
        """Send a message, if there is a process. Only in the thread of the link."""
        if self._channel is not None:
            self._channel.send(message)

    def drop(self, episode: LinkedEpisode) -> None:
        """Forget an episode. Only in the thread of the link."""
        if self._episodes.pop(episode.name, None) is not None:
            self.send(Cut(episode.name))

    def _add(self, episode: LinkedEpisode) -> None:
        if self._failure is not None:
            episode.failed(self._failure)
            return
        self._episodes[episode.name] = episode
        self.send(episode.opened())

    def _leave(self) -> None:
        self._closing = True
        if self._channel is not None:
            self._channel.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._supervise())
        except Exception as error:
            self._fail(RunError(f"the link to the gateway process failed: {type(error).__name__}: {error}"))
            raise
        finally:
            self._loop.close()

    async def _supervise(self) -> None:
        """Keep a process alive until the link is closed, or until it died too often."""
        while not self._closing:
            why = await self._one_process()
            if self._closing:
                return
            self._deaths += 1
            for episode in list(self._episodes.values()):
                episode.lost()
                if episode.losses >= _ATTEMPTS:
                    self._end(episode.name, EpisodeReport(end=EpisodeEnd(outcome="lost", reason=f"the gateway process {why}, twice")))
            if self._deaths > self._restarts:
                again = f"{self._deaths} times without the end of an episode"
                self._fail(RunError(f"the gateway process of {self._name} {why}; that was {again}"))
            else:
                self._say(f"the gateway process of {self._name} {why}; it is started anew, and its episodes begin again")
            while self._failure is not None and not self._closing:
                await asyncio.sleep(0.05)

    async def _one_process(self) -> str:
        """Start a process and serve it until it dies or hangs. Return, in words, what happened to it."""
        ours, theirs = socket.socketpair()
        reading, lifeline = os.pipe()
        boot = [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), str(theirs.fileno())]
        words = [str(reading), str(os.getpid()), str(theirs.fileno())]
        mark = new_mark()
        process = self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(guard.__file__)), *words, *boot],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[reading, theirs.fileno()],
            env={**os.environ, MARK: mark},
            start_new_session=True,
        )
        theirs.close()
        os.close(reading)
        tail, why = ProcessTail(process), ""
        self._channel = channel = await Channel.of(ours)
        try:
            if self._closing:  # since the process was started, when there was no channel to close
                return ""
            channel.send(self._setup)
            for episode in self._episodes.values():
                channel.send(episode.opened())
            why = await self._served(channel)
        finally:
            self._channel = None
            channel.close()
            if self._closing or not why:
                await _ended(process, _LEAVE_SECONDS)  # it ends its own processes, or has ended
            os.close(lifeline)
            if not await _ended(process, _LEAVE_SECONDS):
                await asyncio.to_thread(kill_tree, process.pid, mark)  # the guard is stopped, and ends nothing
                await _ended(process, _LEAVE_SECONDS)
        return why or tail.ending()

    async def _served(self, channel: Channel) -> str:
        """Handle messages until the process is gone (return "") or silent (return that in words).

        Silence is measured in short waits, each of which counts for as long as it should take. So the time in which the whole run is
        stopped does not count.
        """
        self._heard, serving = 0, asyncio.create_task(self._take_all(channel))
        heard, quiet, wait = 0, 0.0, self._silence / _WAITS
        while quiet < (patience := self._silence if heard else self._start_seconds):
            await asyncio.wait({serving}, timeout=wait)
            if serving.done():
                await serving
                return ""
            quiet = quiet + wait if self._heard == heard else 0.0
            heard = self._heard
        serving.cancel()
        return f"gave no sign of life for {patience:g} s"

    async def _take_all(self, channel: Channel) -> None:
        with suppress(EOFError):
            while True:
                message = await channel.receive()
                self._heard += 1
                self._take(message)

    def _take(self, message: object) -> None:
        match message:
            case Said():
                self._say(message.text)
            case Failed():
                self._fail(RunError(message.text) if message.defect else PluginError(message.text))
            case Ended():
                self._deaths = 0
                self._end(message.episode, message.report)
            case Asked() if message.episode in self._episodes:
                self._episodes[message.episode].asked(message.ask)
            case Begun() if message.episode in self._episodes:
                self._episodes[message.episode].begun = True
            case CalledTools() if message.episode in self._episodes:
                self._episodes[message.episode].called_tools()
            case Withdrawn() if message.episode in self._episodes:
                self._episodes[message.episode].withdrawn(message.call)

    def _end(self, name: str, report: EpisodeReport) -> None:
        if (episode := self._episodes.pop(name, None)) is not None:
            episode.ended(report)

    def _fail(self, error: RlcoreError) -> None:
        self._failure = self._failure or error
        for episode in list(self._episodes.values()):
            episode.failed(self._failure)


class ProcessTail:
    """The end of the standard error of a guarded process. A daemon thread reads it, for which an interpreter that ends does not wait."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._kept = process, b""
        self._thread = threading.Thread(target=self._read, name="rlcore-gateway-errors", daemon=True)
        self._thread.start()

    def ending(self) -> str:
        """Return in words how the process ended, with its last line if no signal killed it."""
        self._thread.join(1.0)
        status = self._process.returncode
        code = status - 256 if status > 128 else status  # the guard ends with that of its child
        return ending(code, self._kept.decode(errors="replace").splitlines() if code >= 0 else [])

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while data := os.read(stream.fileno(), 1 << 14):
                self._kept = (self._kept + data)[-_TAIL:]


async def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process, and return whether it has ended."""
    limit = asyncio.get_running_loop().time() + seconds
    while process.poll() is None and asyncio.get_running_loop().time() < limit:
        await asyncio.sleep(0.02)
    return process.poll() is not None
