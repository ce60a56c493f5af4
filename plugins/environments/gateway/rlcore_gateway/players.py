"""The players of an episode: the policy, under one or several names, and models that do not train.

All keys are the gateway's: they end with the episode, and no program sees the address or the key of another model.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import urlsplit

import httpx2

from rlcore.api import RunError, Sampling
from rlcore_gateway.gateway import Gateway
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.relay import RelayApp, RelayedPlayer
from rlcore_gateway.worker_lines import EpisodeEnd

__all__ = ["EPISODES", "EpisodeDraws", "EpisodePlayers", "PlayerSetup", "Players"]

EPISODES = "/rlcore/episodes"
"""Where a frozen engine is told that an episode begins (POST) or ends (DELETE)."""
_CLOSED_KEYS = 65_536
_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerSetup:
    """A player of every episode.

    ``base_url``: the address of its model, "" for the policy. ``model``: the name of the model there. ``api_key``: "" for none.
    ``frozen``: whether a ``FrozenEngine`` serves it.
    """

    name: str
    base_url: str = ""
    model: str = ""
    api_key: str = field(default="", repr=False)
    frozen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeDraws:
    """How a frozen engine draws the tokens of an episode: the sampling of the run, and the random stream, see ``Request.noise``."""

    sampling: Sampling
    noise: tuple[int, int, int, int]


class EpisodePlayers:
    """The players of one episode, whose key is ``key``, and how those did that are not the policy."""

    def __init__(self, key: str, setups: Sequence[PlayerSetup]) -> None:
        self.key, self._setups = key, setups
        self.others: dict[str, RelayedPlayer] = {}
        self.lost = ""
        """The frozen player whose engine has ended, "" for none."""

    @property
    def calls_without_policy(self) -> int:
        """The calls that were answered, if no player is the policy, as in an evaluation of another model; else 0."""
        return 0 if any(not player.base_url for player in self._setups) else sum(player.answered for player in self.others.values())

    def judged(self, end: EpisodeEnd) -> EpisodeEnd:
        """Return the end of the episode, with rewards only for players that train. If a player did not answer, the environment failed."""
        why = {name: reason for name, player in self.others.items() for reason in player.unanswered.values()}
        if self.lost:
            return EpisodeEnd(outcome="lost", reason=f"player {self.lost}: {why.get(self.lost, 'its engine has ended')}")
        if why and end.outcome != "timeout":
            return replace(end, outcome="environment", reason=f"player {min(why)}: {why[min(why)]}")
        names = [player.name for player in self._setups]
        if unknown := end.player_rewards.keys() - names:
            those = f"the players of the run are {', '.join(names)}" if names else "the run has no [sampling.options.players]"
            return replace(end, outcome="environment", reason=f"the environment rewards the player {min(unknown)!r}, but {those}")
        trained = {player.name for player in self._setups if not player.base_url}
        calls = {f"calls_{name}": player.answered for name, player in self.others.items()}
        rewards = {name: reward for name, reward in end.player_rewards.items() if name in trained}
        return replace(end, player_rewards=rewards, extra={**end.extra, **calls})


class Players:
    """Gives keys to the players of each episode of a gateway. Used in its event loop.

    :param lost: called with the key of an episode if the engine of a frozen player has ended.
    """

    def __init__(self, gateway: Gateway, players: Sequence[PlayerSetup], lost: Callable[[str], None]) -> None:
        self._gateway, self._players, self._lost = gateway, players, lost
        self._open: dict[str, EpisodePlayers] = {}
        self._others: dict[str, RelayedPlayer] = {}
        self._frozen: dict[RelayedPlayer, tuple[PlayerSetup, str]] = {}
        self._clients: dict[bool, httpx2.AsyncClient] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwanted: set[asyncio.Task[None]] = set()
        if players:
            gateway.app.add_middleware(RelayApp, players=self._others)

    def new(self, key: str) -> EpisodePlayers:
        """Return the players of an episode of the gateway. They have no keys yet."""
        return self._open.setdefault(key, EpisodePlayers(key, self._players))

    async def open(
        self, players: EpisodePlayers, base_url: str, limits: EpisodeLimits, draws: EpisodeDraws | None
    ) -> dict[str, dict[str, dict[str, str]] | str]:
        """Give every player a key, and return the fields of the line to the program. This waits for frozen engines that are not ready.

        The program's own key is that of the first player that is the policy, else of the first player.

        :param base_url: of the gateway.
        """
        keys: dict[str, str] = {}
        for player in self._players:
            if not player.base_url:
                keys[player.name] = self._gateway.add_player(players.key, player.name)
                continue
            keys[player.name] = own = secrets.token_urlsafe(24)
            try:
                other = await self._other(players, player, limits, draws)
            except httpx2.HTTPError:
                players.lost = player.name
                break
            players.others[player.name] = self._others[own] = other
        while len(self._others) > _CLOSED_KEYS:
            del self._others[next(iter(self._others))]
        models = {player.name: player.model or self._gateway.settings.model for player in self._players}
        told = {name: {"base_url": base_url, "key": key, "model": models[name]} for name, key in keys.items()}
        first = next((player.name for player in sorted(self._players, key=lambda one: bool(one.base_url)) if player.name in keys), "")
        return {"players": told, "key": keys[first], "model": models[first]} if first else {}

    def close(self, key: str) -> None:
        """End the keys of the players that are not the policy."""
        for other in self._open.pop(key).others.values():
            other.close()
            if (found := self._frozen.pop(other, None)) is not None:
                _keep(self._tasks, self._forget(*found))

    async def stop(self) -> None:
        """Close the connections to other servers. Close the episodes first."""
        for task in list(self._unwanted):  # a frozen engine ends the episodes of a process that has ended
            task.cancel()
        await asyncio.gather(*self._unwanted, return_exceptions=True)
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        for client in self._clients.values():
            await client.aclose()

    async def _other(
        self, players: EpisodePlayers, player: PlayerSetup, limits: EpisodeLimits, draws: EpisodeDraws | None
    ) -> RelayedPlayer:
        client = self._client(urlsplit(player.base_url).hostname in _LOCAL)
        if not player.frozen:
            return RelayedPlayer(client, player.base_url, player.api_key)

        def failed() -> None:
            players.lost = player.name
            self._lost(players.key)

        beginning = asyncio.create_task(self._begun(player, limits, draws))
        try:
            theirs = await asyncio.shield(beginning)
        except asyncio.CancelledError:  # the engine may begin it nevertheless
            _keep(self._unwanted, self._end(player, beginning))
            raise
        other = RelayedPlayer(client, player.base_url, theirs, failed)
        self._frozen[other] = player, theirs
        return other

    async def _begun(self, player: PlayerSetup, limits: EpisodeLimits, draws: EpisodeDraws | None) -> str:
        """Tell a frozen engine that an episode begins, and return its key there. Raises HTTPError if the engine ends meanwhile."""
        assert draws is not None
        sampling = draws.sampling
        told = {
            "context": limits.context,
            "answer": limits.answer or limits.tokens,
            "stop": limits.stop,
            "sampling": {name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k")},
            "noise": draws.noise,
            "process": os.getpid(),
        }
        root, headers = player.base_url.removesuffix("/v1"), {"authorization": f"Bearer {player.api_key}"}
        answer = await self._client(True).post(root + EPISODES, json=told, headers=headers)
        if answer.status_code != 200:
            raise RunError(f"the engine of player {player.name} refused an episode: {answer.text[:300]}")
        key: str = answer.json()["key"]
        return key

    async def _end(self, player: PlayerSetup, beginning: asyncio.Task[str]) -> None:
        with suppress(httpx2.HTTPError, RunError):
            await self._forget(player, await beginning)

    async def _forget(self, player: PlayerSetup, key: str) -> None:
        try:
            await self._client(True).delete(
                player.base_url.removesuffix("/v1") + EPISODES, headers={"authorization": f"Bearer {key}"}, timeout=5.0
            )
        except httpx2.HTTPError:
            return  # the engine has ended, and its episodes with it

    def _client(self, local: bool) -> httpx2.AsyncClient:
        """Return a client, which keeps no cookies, because it serves all episodes. A proxy is never asked for this machine."""
        if local not in self._clients:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
            cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
            self._clients[local] = httpx2.AsyncClient(timeout=None, limits=limits, trust_env=not local, cookies=cookies)
        return self._clients[local]


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[None, None, None]) -> None:
    """Start a task, and keep it until it is done."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
