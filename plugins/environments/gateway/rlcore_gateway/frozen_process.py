"""The process of a frozen player: a model behind a gateway of its own, whose episodes are those of other gateways.

It reads one line from its standard input and writes one for each second: first the files of its model, then how many calls it answered.
It stops writing if a step of the engine does not return.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import psutil
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlcore.api import Completion, ConfigError, PluginError, Sampling, Tokenizer
from rlcore.api.commands import Registry
from rlcore_gateway.engine_thread import EngineThread
from rlcore_gateway.frozen_model import FrozenModel
from rlcore_gateway.gateway import Ask, Gateway, GatewaySettings
from rlcore_gateway.http_reply import json_response, keys_of_request
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.players import EPISODES
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.served_model import served_model
from rlcore_gateway.server import GatewayServer

__all__ = ["main"]

_BEAT_SECONDS = 1.0
_STEP_SECONDS = 600.0  # the default of schedule.producer_deadline: a step of a large model on a CPU takes long


def main(descriptor: str) -> None:
    """Serve at a listening socket until the process is killed or the engine fails."""
    lines = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no line
    given = json.loads(sys.stdin.readline())
    model, say = FrozenModel(**given["model"]), _writer(lines)
    try:
        with served_model(model.plan(Registry.discover()), lambda line: print(line, flush=True)) as (tokenizer, thread):
            listening = socket.socket(fileno=int(descriptor))
            print(asyncio.run(_serve(model, given["secret"], tokenizer, thread, listening, say)), file=sys.stderr, flush=True)
            os._exit(1)  # an engine that has failed may never close
    except (ConfigError, PluginError) as error:
        say({"refused": str(error)})


def _writer(descriptor: int) -> Callable[[Mapping[str, Any]], None]:
    def write(line: Mapping[str, Any]) -> None:
        os.write(descriptor, json.dumps(line).encode() + b"\n")

    return write


async def _serve(
    model: FrozenModel,
    secret: str,
    tokenizer: Tokenizer,
    thread: EngineThread,
    listening: socket.socket,
    say: Callable[[Mapping[str, Any]], None],
) -> str:
    """Serve until the engine fails, and return why."""
    served = _FrozenEpisodes(model, secret, tokenizer, thread)
    thread.start()
    await GatewayServer().start(served.gateway, listening=listening)
    say({"files": _files(Path(model.model))})
    while not thread.failure:
        if thread.age < _STEP_SECONDS:  # or else the engine hangs, and its producer ends this process
            say({"answered": served.answered})
        served.end_orphans()
        await asyncio.sleep(_BEAT_SECONDS)
    return thread.failure


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of the files of a model, by name; nothing for one from the hub."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in found if file.is_file()}


class _FrozenEpisodes:
    """A gateway whose episodes are opened and closed over HTTP. ``answered``: how many calls it has answered."""

    def __init__(self, model: FrozenModel, secret: str, tokenizer: Tokenizer, thread: EngineThread) -> None:
        settings = GatewaySettings(model=model.name, history=model.history, tool_parser=model.tool_parser)
        self.gateway = Gateway(tokenizer, self._generate, settings, say=lambda text: print(text, file=sys.stderr, flush=True))
        self.gateway.app.router.routes.append(Route(EPISODES, self._episodes, methods=["POST", "DELETE"]))
        self.answered = self._opened = 0
        self._model, self._secret, self._thread = model, secret, thread
        self._draws: dict[str, tuple[Sampling, tuple[int, int, int, int]]] = {}
        self._owners: dict[str, psutil.Process] = {}
        """Key of an open episode -> the gateway process that opened it."""

    async def _episodes(self, request: Request) -> Response:
        """Open an episode, with the secret of this engine, or close one, with its own key."""
        if request.method == "DELETE":
            for key in keys_of_request(request):
                self._close(key)
            return json_response({})
        if not any(secrets.compare_digest(key, self._secret) for key in keys_of_request(request)):
            raise Refusal("only the producer of this engine opens episodes", status=401, code="invalid_api_key")
        asked = await request.json()
        try:
            owner = psutil.Process(asked["process"])
        except psutil.NoSuchProcess:
            raise Refusal("the process that opens this episode has ended", status=410, code="episode_closed") from None
        self._opened += 1
        name = f"{self._model.name}-{self._opened}"
        most = EpisodeLimits(tokens=1 << 40, context=asked["context"], answer=asked["answer"], stop=tuple(asked["stop"]))
        self._draws[name] = self._sampling(asked["sampling"]), _stream(self._model.name, asked["noise"])
        key = self.gateway.open(name, most)
        self._owners[key] = owner
        return json_response({"key": key})

    def end_orphans(self) -> None:
        """Close the episodes of gateway processes that have ended: those that were killed have closed none."""
        ended = {owner for owner in set(self._owners.values()) if not owner.is_running()}
        for key in [key for key, owner in self._owners.items() if owner in ended]:
            self._close(key)

    def _close(self, key: str) -> None:
        self._owners.pop(key, None)
        try:
            ledger = self.gateway.close(key)
        except KeyError:
            return  # it is closed
        del self._draws[ledger.episode]

    def _sampling(self, of_the_run: Mapping[str, Any]) -> Sampling:
        own = {"temperature": self._model.temperature, "top_p": self._model.top_p}
        return Sampling(**{**of_the_run, **{name: value for name, value in own.items() if value is not None}})

    async def _generate(self, ask: Ask) -> Completion:
        sampling, stream = self._draws[ask.episode]
        completion = await self._thread.generate(ask, sampling, stream)
        self.answered += 1
        return completion


def _stream(player: str, noise: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Return the random stream of a player in an episode: it repeats with the seed, and is not that of the policy."""
    seed = blake2b(f"{noise[0]} {player}".encode(), digest_size=7).digest()
    return int.from_bytes(seed, "little"), noise[1], noise[2], noise[3]
