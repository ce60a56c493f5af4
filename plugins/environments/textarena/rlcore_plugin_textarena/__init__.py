"""Games of textarena. This module only declares the environment, whose packages ``rlcore env build textarena`` installs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.api import DataError, EnvironmentSpec, hookimpl

if TYPE_CHECKING:
    from rlcore.api import Prompt

rlcore_api = "2.0"


@hookimpl
def rlcore_register_environments() -> list[EnvironmentSpec]:
    """Return the environment."""
    return [
        EnvironmentSpec(
            name="textarena",
            target="rlcore_plugin_textarena.game:TextArena",
            config="rlcore_plugin_textarena.options:TextArenaOptions",
            environment="textarena",
            deterministic=True,
            summary="A game of textarena, with one player or several; rows: -d 'env:textarena:TicTacToe-v0?count=100&seed=1'",
        )
    ]


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Return what cannot work about a run with textarena."""
    if config.sampling.environment.lower() != "textarena":
        return []
    given, those = config.sampling.environment_options.get("players") or (), config.sampling.options.get("players") or {}
    known = f"the run has {', '.join(those)}" if those else "the run has none"
    found = [
        f"sampling.environment_options.players: there is no player {name!r}, {known}; name each in [sampling.options.players.NAME]"
        for name in given
        if name not in those
    ]
    if config.sampling.options.get("episodes_per_process", 0) > 1:
        found.append(
            "sampling.options.episodes_per_process: games of textarena draw from the generator of their process, which plays one; leave it "
            "out, and raise workers"
        )
    return found


@hookimpl
def rlcore_note_data(config: Any, data: Mapping[str, Sequence[Prompt]]) -> list[str]:
    """Return no note. Raise DataError if the run has not as many players as the game of a row."""
    from rlcore_plugin_textarena.options import wrong_count

    if config.sampling.environment.lower() != "textarena":
        return []
    names = tuple(config.sampling.environment_options.get("players") or config.sampling.options.get("players") or ())
    for name, prompts in data.items():
        for prompt in prompts:
            if problem := wrong_count(prompt.columns, names):
                raise DataError(f"{name}: {problem}")
    return []
