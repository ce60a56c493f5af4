"""Opens the players of a producer: their keys, and the engines of frozen ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlcore_gateway.frozen_engine import FrozenEngine
from rlcore_gateway.frozen_model import FrozenModel
from rlcore_gateway.players import PlayerSetup

from rlcore.api import ConfigError, PluginError, RlcoreError
from rlcore.api.commands import Registry
from rlcore.api.conversations import ConversationContext
from rlcore_plugin_agents.agent_options import AgentOptions
from rlcore_plugin_agents.player_options import PlayerOptions

__all__ = ["PlayerEngines", "engine_problems", "frozen_notes"]

_ENGINE = ("model", "backend", "backend_options", "dtype", "device", "temperature", "top_p")

_NAMES = {
    "[inference.options]": "backend_options",
    "inference.options": "backend_options",
    "--inference-device": "device =",
    " (Python)": "",
}
"""Settings of the plan of a frozen player, and what the user writes."""


def _frozen(name: str, player: PlayerOptions, context: int, seed: int, history: Any, tool_parser: str) -> FrozenModel:
    own = {field: getattr(player, field) for field in _ENGINE}
    return FrozenModel(name=name, context=context, seed=seed, history=history, tool_parser=tool_parser, **own)


class PlayerEngines:
    """The players of one producer. ``setups``: for its gateways.

    :param failed: called with the error that must end the run.
    """

    def __init__(self, options: AgentOptions, context: ConversationContext, failed: Callable[[RlcoreError], None]) -> None:
        self.engines: list[FrozenEngine] = []
        restarts, silence = options.gateway_restarts, options.gateway_silence
        setups = []
        for name, player in options.players.items():
            if player.kind == "frozen":
                model = _frozen(name, player, context.max_context_tokens, context.seed, options.history, options.tool_parser)
                self.engines.append(FrozenEngine(model, context.say, failed, restarts=restarts, silence=silence))
                setups.append(self.engines[-1].player)
            else:
                setups.append(_setup(name, player))
        self.setups = tuple(setups)

    def start(self) -> None:
        """Start the engines, without waiting for them."""
        for engine in self.engines:
            engine.start()

    def close(self) -> None:
        """End the engines."""
        for engine in self.engines:
            engine.close()


def _setup(name: str, player: PlayerOptions) -> PlayerSetup:
    if player.kind == "policy":
        return PlayerSetup(name=name)
    key = os.environ.get(player.key_variable, "") if player.key_variable else ""
    if player.key_variable and not key:
        raise ConfigError(
            f"sampling.options.players.{name}.key_variable: the environment variable {player.key_variable} is not set in this producer; "
            "set it on every node"
        )
    return PlayerSetup(name=name, base_url=player.base_url.rstrip("/"), model=player.model, api_key=key)


def _frozen_players(config: Any) -> Iterator[tuple[str, PlayerOptions]]:
    for name, table in config.sampling.options["players"].items():
        player = PlayerOptions.model_validate(table)
        if player.kind == "frozen":
            yield name, player


def engine_problems(config: Any) -> Iterator[str]:
    """Yield what the engine of each frozen player cannot do. Loads no model."""
    registry: Registry | None = None
    for name, player in _frozen_players(config):
        registry = registry or Registry.discover()
        options = config.sampling.options
        model = _frozen(name, player, config.max_context_tokens, config.run.seed, options["history"], options["tool_parser"])
        try:
            model.plan(registry)
        except (ConfigError, PluginError) as error:
            yield _for_player(f"sampling.options.players.{name}", str(error))


def _for_player(table: str, said: str) -> str:
    """Return an error of the plan of a player's engine, with the names that its settings have in the player's table."""
    said = said.removeprefix("Python: ")
    if said.startswith("there is no inference backend"):
        return f"{table}.backend: {said}"
    for theirs, own in _NAMES.items():
        said = said.replace(theirs, own)
    return f"{table}.{said}" if said.startswith("backend_options") else f"{table}: {said}"


def frozen_notes(config: Any) -> Iterator[str]:
    """Yield what each frozen player costs."""
    producers = config.inference.num_inferencer
    where = f"each of the {producers} producers" if producers > 1 else "the producer"
    for name, player in _frozen_players(config):
        size = _size(Path(player.model))
        yield (
            f"player {name} is a second model in the memory of {where}: {player.model}{size}, with backend {player.backend} in "
            f"{player.dtype} on device {player.device}; it never trains"
        )


def _size(folder: Path) -> str:
    files = [file for pattern in ("*.safetensors", "*.bin") for file in folder.glob(pattern)] if folder.is_dir() else []
    return f" ({sum(file.stat().st_size for file in files) / 2**30:.2g} GiB of weights)" if files else ""
