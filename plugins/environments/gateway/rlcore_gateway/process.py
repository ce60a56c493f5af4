"""The gateway process: it serves the policy to the programs that play episodes, and ends with its producer."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import format_exception

from rlcore.api import Completion, RunError
from rlcore.api.sandbox import SandboxError, open_sandbox
from rlcore_gateway.api_dialect import CANNED_ID
from rlcore_gateway.call_times import TimedApp, figures, note_engine
from rlcore_gateway.channel import Channel
from rlcore_gateway.gateway import Ask, Gateway
from rlcore_gateway.ledger import EpisodeLedger
from rlcore_gateway.link_messages import (
    Alive,
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
from rlcore_gateway.players import Players
from rlcore_gateway.pool import WorkerPool
from rlcore_gateway.record import difference
from rlcore_gateway.server import GatewayServer
from rlcore_gateway.trained import LedgerResult
from rlcore_gateway.worker_lines import EpisodeEnd
from rlcore_gateway.worker_process import EpisodeWorker, PlainWorker, WorkerCommand
from rlcore_gateway.worker_session import BASE_URL, SessionWorker

__all__ = ["main"]

_ATTEMPTS = 2
_BEAT_SECONDS = 1.0


def main(descriptor: int) -> None:
    """Serve the producer at the other end of a socket until it closes it."""
    asyncio.run(_serve(socket.socket(fileno=descriptor)))


async def _serve(end: socket.socket) -> None:
    channel = await Channel.of(end)
    setup: GatewaySetup = pickle.loads(await channel.receive())
    process, server = _GatewayProcess(channel, setup), GatewayServer()
    beats = asyncio.create_task(_beat(channel))
    async with AsyncExitStack() as closing:
        closing.callback(channel.close)
        closing.callback(beats.cancel)
        try:
            await _begin(process, setup, server, closing)
        except RunError as error:
            channel.send(Failed(str(error)))
            process.failed = True
        with suppress(EOFError):
            while True:
                process.take(await channel.receive())


async def _begin(process: _GatewayProcess, setup: GatewaySetup, server: GatewayServer, closing: AsyncExitStack) -> None:
    """Serve, and let the process play. Raises RunError if there is no such sandbox."""
    if setup.sandbox is None:
        closing.push_async_callback(server.stop)
        process.begin((await server.start(process.gateway)).base_url, PlainWorker.start)
    else:
        try:
            sandbox = await asyncio.to_thread(open_sandbox, setup.sandbox)
        except SandboxError as error:
            raise RunError(f"the environment's processes have no sandbox: {error}") from error
        closing.push_async_callback(asyncio.to_thread, sandbox.close)
        closing.push_async_callback(server.stop)
        with TemporaryDirectory(prefix="rlcore-gateway-") as folder:  # removed at once, so that no death of this process leaves it
            path = Path(folder) / "gateway.sock"
            await server.start(process.gateway, unix_socket=path)
            reach = os.open(path, os.O_PATH | os.O_CLOEXEC)
        closing.callback(os.close, reach)
        process.begin(BASE_URL, partial(SessionWorker.start, sandbox=sandbox, reach=Path(f"/proc/self/fd/{reach}")))
    closing.push_async_callback(process.close)


async def _beat(channel: Channel) -> None:
    while True:
        channel.send(Alive())
        await asyncio.sleep(_BEAT_SECONDS)


class _GatewayProcess:
    """The gateway, its pool, and the episodes between them."""

    def __init__(self, channel: Channel, setup: GatewaySetup) -> None:
        self._channel, self._setup = channel, setup
        self.gateway = Gateway(setup.tokenizer, self._generate, setup.settings, say=self._say, called_tools=self._called_tools)
        self.gateway.app.add_middleware(TimedApp)
        self._players = Players(self.gateway, setup.players, self._lost)
        self.failed = False
        """It cannot play, and its producer knows why."""
        self._base_url = ""
        self._pool: WorkerPool
        self._keys: dict[str, tuple[str, str, list[float]]] = {}
        """Name of an episode in the gateway -> its key, its name at the producer, and the milliseconds that each call took here."""
        self._episodes: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, asyncio.Future[Answered]] = {}

    def begin(self, base_url: str, start: Callable[[WorkerCommand], Awaitable[EpisodeWorker]]) -> None:
        """Play from now on, in processes that ``start`` starts and that reach the gateway at ``base_url``."""
        setup, self._base_url = self._setup, base_url
        self._pool = WorkerPool(
            setup.command, workers=setup.workers, called=self._called, say=self._say, cancel_seconds=setup.cancel_seconds, start=start
        )

    def take(self, message: object) -> None:
        """Handle a message of the producer."""
        match message:
            case Opened() if not self.failed:
                task = self._episodes[message.episode] = asyncio.create_task(self._episode(message))
                task.add_done_callback(lambda _: self._episodes.pop(message.episode))
            case Answered():
                if (asked := self._asked.get(message.call)) is not None and not asked.done():
                    asked.set_result(message)
            case Cut():
                if message.episode in self._episodes:
                    self._episodes[message.episode].cancel()

    async def close(self) -> None:
        """End all episodes and processes."""
        for task in list(self._episodes.values()):
            task.cancel()
        await asyncio.gather(*self._episodes.values(), return_exceptions=True)
        await self._pool.close()
        await self._players.stop()

    def _called_tools(self, name: str) -> None:
        if name in self._keys:
            self._channel.send(CalledTools(self._keys[name][1]))

    def _say(self, text: str) -> None:
        self._channel.send(Said(text))

    def _called(self, name: str) -> bool:
        """Whether an episode has asked the gateway for anything. True for one that is closed already."""
        if name not in self._keys:
            return True
        ledger = self.gateway.ledger(self._keys[name][0])
        return bool(ledger.calls) or any(ledger.counts.values())

    async def _generate(self, ask: Ask) -> Completion:
        _, episode, times = self._keys[ask.episode]
        self._asked[ask.call] = asyncio.get_running_loop().create_future()
        self._channel.send(Asked(episode, ask))
        try:
            answered = await self._asked[ask.call]
            note_engine(answered.seconds, times)
            return answered.completion
        except asyncio.CancelledError:
            self._channel.send(Withdrawn(episode, ask.call))
            raise
        finally:
            del self._asked[ask.call]

    def _close_key(self, name: str) -> None:
        """Close the key of an episode, if it is open. Its calls are answered with 410, so that no program waits for one."""
        if (found := self._keys.pop(name, None)) is not None:
            self.gateway.close(found[0])
            self._players.close(found[0])

    def _lost(self, key: str) -> None:
        """Close the keys of an episode, because the engine of a frozen player has ended."""
        for name in [name for name, found in self._keys.items() if found[0] == key]:
            self._close_key(name)

    async def _episode(self, opened: Opened) -> None:
        try:
            self._channel.send(Ended(opened.episode, await self._played(opened)))
        except RunError as error:
            self._channel.send(Failed(str(error)))
        except Exception as error:  # a defect of this module must not leave its producer waiting
            self._channel.send(Failed(f"the gateway process failed:\n{''.join(format_exception(error))}", defect=True))

    async def _played(self, opened: Opened) -> EpisodeReport:
        """Play an episode. If its process or the engine of a player dies, play it once more, with other keys."""
        for attempt in range(1, _ATTEMPTS + 1):
            name = f"{opened.episode}.{opened.attempt}.{attempt}"  # other than before: no late answer may fit
            key = self.gateway.open(name, opened.limits)
            times: list[float] = []
            self._keys[name], ledger = (key, opened.episode, times), self.gateway.ledger(key)
            line = {"row": opened.row, "base_url": self._base_url, "key": key, "model": self.gateway.settings.model}
            end, players = EpisodeEnd(), self._players.new(key)
            try:
                line |= await self._players.open(players, self._base_url, opened.limits, opened.draws)
                if not players.lost:
                    begun, late = partial(self._channel.send, Begun(opened.episode)), partial(self._close_key, name)
                    end = await self._pool.play(name, line, self._setup.deadline, begun=begun, late=late)
            finally:
                self._close_key(name)
            end = players.judged(end)
            if end.outcome != "lost":
                return replace(_report(end, ledger, figures(times), players.calls_without_policy), milliseconds=tuple(times))
        return EpisodeReport(end=replace(end, reason=f"{end.reason}; the first attempt was lost, too"))


def _report(end: EpisodeEnd, ledger: EpisodeLedger, times: Mapping[str, float], others: int) -> EpisodeReport:
    """Judge how an episode ended by what its program says and by what the gateway saw.

    :param times: further figures of it.
    :param others: the calls that count although the policy did not answer them.
    """
    named = None if end.calls is None else [call for call in end.calls if not call.startswith(CANNED_ID)]
    try:
        result = ledger.trained(named)
        result = replace(result, counts={**result.counts, **times})
    except ValueError as error:
        return EpisodeReport(end=EpisodeEnd(outcome="environment", reason=str(error)))
    if end.sampled is not None:
        answers = [(call.sampled_ids.tolist(), call.delivered) for call in ledger.calls if call.completion is not None]
        # A client that hung up may have the answer, or not.
        if wrong := difference(end.sampled, [ids for ids, delivered in answers if delivered or ids in end.sampled]):
            return EpisodeReport(end=EpisodeEnd(outcome="environment", reason=f"the environment's record of the tokens is wrong: {wrong}"))
        end = replace(end, sampled=None)  # the producer has these tokens
    end = _without_canned(end, ledger, result)
    if unknown := end.turn_rewards.keys() - {call.id for call in ledger.calls}:
        reason = (
            f"the environment rewards the call {min(unknown)!r}, which this episode did not make; name calls by the ids of the responses"
        )
        return EpisodeReport(end=EpisodeEnd(outcome="environment", reason=reason))
    if unknown := end.branch_rewards.keys() - {branch.call for branch in result.branches}:
        call = min(unknown)
        rule = "it is not the last call of a branch" if call in result.calls else "it does not train: name all calls that train in `calls`"
        reason = f"the environment gives a branch reward to the call {call!r}, but {rule}"
        return EpisodeReport(end=EpisodeEnd(outcome="environment", reason=reason))
    if (end.outcome == "ok" and result.exhausted and end.reward is None) or (end.outcome == "crashed" and ledger.refused):
        end = replace(end, outcome="exhausted", reason=f"the budget of {result.exhausted} was used up")
    if end.outcome in ("ok", "exhausted") and not result.counts["calls"] + others:
        why = end.reason or "the program never asked the policy"
        end = replace(end, outcome="environment", reason=f"the episode ended without an answer of the policy: {why}")
    return EpisodeReport(end=end, result=result)


def _without_canned(end: EpisodeEnd, ledger: EpisodeLedger, result: LedgerResult) -> EpisodeEnd:
    """Move the rewards of answers that the policy did not give to the last answer before them that trains.

    An environment rewards them like all others. A reward of a branch that has no tokens of its own is left out.
    """
    last = {name: call for call in ledger.calls for name in call.canned}
    ends = {branch.call for branch in result.branches}
    turns, branches = (
        {name: value for name, value in rewards.items() if not name.startswith(CANNED_ID)}
        for rewards in (end.turn_rewards, end.branch_rewards)
    )
    for name, before in last.items():
        call = next((one.id for one in reversed(before.path()) if one.id in result.calls), "")
        if call and name in end.turn_rewards:
            turns[call] = turns.get(call, 0.0) + end.turn_rewards[name]
        if call in ends and call not in end.branch_rewards and name in end.branch_rewards:
            branches[call] = end.branch_rewards[name]
    return replace(end, turn_rewards=turns, branch_rewards=branches)
