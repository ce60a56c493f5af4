"""A game of textarena as an environment. This module runs in the environment that has textarena."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from typing import Any

import numpy as np
import textarena as ta
from textarena.envs.registration import ENV_REGISTRY

from rlcore.api import DataError, InfrastructureError
from rlcore.api.environments import Environment, EpisodeResult, Model
from rlcore_plugin_textarena.options import TextArenaOptions, wrong_count
from rlcore_plugin_textarena.row_names import RowName

__all__ = ["TextArena"]

_MOST_PLAYERS = 16
_YOUR_TURN = "[GAME] It is your turn."
"""For a player who moves again and of whom the game said nothing since; an empty message is none for some chat templates."""


class TextArena(Environment):
    """Plays the game of a row, with the columns ``game``, ``seed``, ``players`` (how many), ``rotation`` and ``options``. With rotation 1,
    the second player of the run is the first of the game.

    Each player has a chat of its own, which grows by what the game tells this player. A process plays one game at a time, because
    textarena draws from Python's global generator.
    """

    def __init__(self, options: TextArenaOptions) -> None:
        self._options = options

    @classmethod
    def rows(cls, name: str) -> Iterator[Mapping[str, Any]]:
        """See Environment. ``name`` is that of ``RowName``. Each row has a seed of its own; players move first in turn."""
        wanted = RowName.parsed(name)
        if wanted.game not in ENV_REGISTRY:
            near = get_close_matches(wanted.game, ENV_REGISTRY, 3)
            raise DataError(f"textarena {ta.__version__} has no game {wanted.game!r}; the nearest: {', '.join(near) or 'none'}")
        draw = random.Random(f"{wanted.game} {wanted.seed}")
        seeds = [draw.randrange(1 << 31) for _ in range(wanted.count)]
        players = wanted.players or _players_of(wanted, seeds[0])
        for place, seed in enumerate(seeds):
            game = _begun(wanted.game, wanted.options, players, seed)
            messages = [{"role": "user", "content": _told(game, *_observed(game))}]
            rotation = place % players
            yield {
                "messages": messages,
                "game": wanted.game,
                "seed": seed,
                "players": players,
                "rotation": rotation,
                "options": wanted.options,
            }

    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult:
        """See Environment. The reward is that of the game, by player if there are several."""
        if missing := [column for column in ("game", "seed", "players") if column not in row]:
            raise InfrastructureError(f"the row has no column {missing[0]!r}; make rows with -d env:textarena:GAME?count=100&seed=1")
        names = self._seats(model, row)
        try:
            game = _begun(row["game"], row.get("options") or {}, row["players"], row["seed"])
        except DataError as error:
            raise InfrastructureError(str(error)) from error
        system = [message for message in row["messages"] if message["role"] == "system"]
        chats: list[list[dict[str, Any]]] = [list(system) for _ in range(row["players"])]
        settings = {} if self._options.max_tokens is None else {"max_tokens": self._options.max_tokens}
        turns, over = 0, False
        while not over:
            player, observation = _observed(game)
            chat, seat = chats[player], model.players[names[player]] if names else model
            chat.append({"role": "user", "content": _told(game, player, observation)})
            said = (await seat.chat(chat, **settings))["content"] or ""
            chat.append({"role": "assistant", "content": said})
            turns += 1
            over = _stepped(game, said.rpartition("</think>")[2].strip())
        return _result(game, names, turns)

    def _seats(self, model: Model, row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the players in the order of the game's; none if the policy plays alone."""
        names, count = self._options.players or tuple(model.players), row["players"]
        if not names and count == 1:
            return ()
        if problem := wrong_count(row, names):
            raise InfrastructureError(problem)
        rotation = row.get("rotation", 0) % count
        return names[rotation:] + names[:rotation]


def _begun(game: str, options: Mapping[str, Any], players: int, seed: int) -> Any:
    """Return a game that has begun. DataError if textarena cannot make it here."""
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    try:
        made = ta.make(game, **options)
        made.reset(num_players=players, seed=seed)
    except (Exception, SystemExit) as error:  # whatever the code of a game raises
        raise DataError(f"textarena {ta.__version__} cannot play {game} with {players} players here: {_first_words(error)}") from error
    return made


def _players_of(wanted: RowName, seed: int) -> int:
    """Return the smallest number of players that the game accepts. DataError, with what one player alone raised, if it accepts none."""
    first: DataError | None = None
    for players in range(1, _MOST_PLAYERS + 1):
        try:
            _begun(wanted.game, wanted.options, players, seed)
        except DataError as error:
            if not isinstance(error.__cause__, AssertionError | ValueError):
                raise
            first = first or error
            continue
        return players
    assert first is not None
    raise first


def _first_words(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"its code needs a newer Python than {sys.version_info.major}.{sys.version_info.minor}: {error}"
    words = " ".join(str(error).replace("*", " ").split())
    return f"{type(error).__name__}: {words[:160]}" if words else type(error).__name__


def _observed(game: Any) -> tuple[int, Sequence[Any]]:
    """Return who moves, and what the game has told this player since its last move, without the wrappers that repeat what was said."""
    while isinstance(game, ta.Wrapper):
        game = game.env
    try:
        player, observation = game.get_observation()
    except (Exception, SystemExit) as error:  # whatever the code of a game raises
        raise InfrastructureError(f"{game.env_id}: the game failed: {_first_words(error)}") from error
    return player, observation


def _told(game: Any, player: int, observation: Sequence[Any]) -> str:
    """Return the text of a message to a player, as textarena writes it, without the player's own move."""
    names = {**game.state.role_mapping, ta.GAME_ID: "GAME"}
    own = (player, ta.ObservationType.PLAYER_ACTION)
    lines = [f"[{names.get(sender, f'Player {sender}')}] {text}" for sender, text, kind in observation if (sender, kind) != own]
    return "\n".join(lines) or _YOUR_TURN


def _stepped(game: Any, action: str) -> bool:
    """Make a move. Return whether the game is over."""
    try:
        return bool(game.step(action)[0])
    except (Exception, SystemExit) as error:  # whatever the code of a game raises
        raise InfrastructureError(f"{game.env_id}: the game failed at the move {action[:60]!r}: {_first_words(error)}") from error


def _result(game: Any, names: Sequence[str], turns: int) -> EpisodeResult:
    rewards, told = game.close()
    if not rewards or sorted(rewards) != list(range(len(names) or 1)) or not all(isinstance(one, Real) for one in rewards.values()):
        raise InfrastructureError(f"{game.env_id} ended with the rewards {rewards!r:.200}; there must be a number for each player")
    invalid = [player for player, info in told.items() if player != ta.GAME_ID and info.get("invalid_move")]
    extra = {"game_turns": turns, "invalid_end": float(bool(invalid))}
    if not names:
        return EpisodeResult(reward=float(rewards[0]), extra=extra)
    return EpisodeResult(player_rewards={names[player]: float(one) for player, one in rewards.items()}, extra=extra)
