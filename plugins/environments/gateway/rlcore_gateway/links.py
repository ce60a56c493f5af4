"""The gateway processes of one producer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rlcore.api import RlcoreError
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.link import GatewayLink, LinkedEpisode
from rlcore_gateway.link_messages import GatewaySetup
from rlcore_gateway.players import EpisodeDraws

__all__ = ["GatewayLinks", "shares"]


def shares(workers: int, count: int) -> list[int]:
    """Return how many of the workers each of several gateways has."""
    return [(workers + place) // count for place in range(count)]


class GatewayLinks:
    """Owns one or several gateway processes, and gives each episode to the one with the most room.

    Each process has its own share of ``setup.workers``, and restarts on its own. What is sampled does not depend on the choice, because the
    random stream of a call depends only on its rollout and on what was said. One thread calls the methods.

    :param count: of the processes, at most ``setup.workers``.
    :param restarts: how many times in a row each process may be started anew without having ended an episode.
    :param silence: seconds without a sign of life after which a process counts as hanging.
    """

    def __init__(
        self, name: str, setup: GatewaySetup, say: Callable[[str], None], *, count: int = 1, restarts: int = 3, silence: float = 30.0
    ) -> None:
        self._shares = shares(setup.workers, count)
        names = [name] if count == 1 else [f"{name}-g{number}" for number in range(1, count + 1)]
        self.links = [
            GatewayLink(own, replace(setup, workers=share), say, restarts=restarts, silence=silence)
            for own, share in zip(names, self._shares, strict=True)
        ]
        self._open: list[list[LinkedEpisode]] = [[] for _ in self.links]

    def start(self) -> None:
        """Start the processes, without waiting for them."""
        for link in self.links:
            link.start()

    def open_episode(
        self, row: Mapping[str, Any], limits: EpisodeLimits, wake: Callable[[], None], draws: EpisodeDraws | None = None
    ) -> LinkedEpisode:
        """Begin an episode. ``wake`` is called if it has news; ``draws`` is for frozen players. Raises RunError if the links have ended."""
        self._open = [[episode for episode in episodes if not episode.over] for episodes in self._open]
        place = min(range(len(self.links)), key=lambda place: len(self._open[place]) / self._shares[place])
        episode = self.links[place].open_episode(row, limits, wake, draws)
        self._open[place].append(episode)
        return episode

    def fail(self, error: RlcoreError) -> None:
        """Let every episode raise an error, also those to come."""
        for link in self.links:
            link.fail(error)

    def close(self) -> None:
        """End all processes, at the same time, and wait until they have ended."""
        for link in self.links:
            link.leave()
        for link in self.links:
            link.close()
