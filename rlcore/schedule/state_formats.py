"""The two formats of a schedule's state.

Format 3 has each source with its sampler. Format 2 is that of a run with one source in the order of its episodes, where a place is its
episode and its position. Such a run still writes format 2, which says the same in fewer numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.contracts.errors import ConfigError
from rlcore.schedule.prompt_line import check_same
from rlcore.schedule.prompt_order import episode_order
from rlcore.schedule.schedule_records import ScheduleSettings

__all__ = ["FORMATS", "as_format_2", "read_state"]

FORMATS = (2, 3)
"""The formats that are read. With format 1, checkpoints had no other files next to the state."""


def as_format_2(state: Mapping[str, Any], settings: ScheduleSettings) -> dict[str, Any]:
    """Return a state of format 3 in format 2."""
    assert settings.prompts is not None
    (source,) = state["sources"]
    own = {"prompts": settings.prompts, "shuffle": source["sampler"] == "shuffled"}
    return {
        "format": 2,
        "settings": {**state["settings"], **own},
        "version": state["version"],
        "next_lease": state["next_lease"],
        "cursor": list(divmod(state["drawn"], settings.prompts)),
        "open": [list(divmod(number, settings.prompts)) for number, *_ in state["open"]],
        "ledger": source["ledger"],
        "changes": state["changes"],
    }


def read_state(state: Mapping[str, Any], settings: ScheduleSettings) -> Mapping[str, Any]:
    """Return a state of either format in format 3.

    :raises ConfigError: it has another format, or a setting that fixes the order of the prompts has changed."""
    if (found := state.get("format")) not in FORMATS:
        raise ConfigError(
            f"the checkpoint's schedule has format {found}, and this version of rlcore reads {' and '.join(map(str, FORMATS))}: resume the "
            "run with the version that wrote it, or start a new one from the checkpoint's model"
        )
    for name, was in state["settings"].items():
        if name != "shuffle":
            check_same(name, was, getattr(settings, name))
    return state if found == 3 else _from_format_2(state, settings)


def _from_format_2(state: Mapping[str, Any], settings: ScheduleSettings) -> dict[str, Any]:
    prompts, shuffle = state["settings"]["prompts"], state["settings"]["shuffle"]
    drawn = state["cursor"][0] * prompts + state["cursor"][1]
    orders = {episode: episode_order(prompts, episode, settings.seed, shuffle) for episode, _ in state["open"]}
    source = {
        "name": "",
        "prompts": prompts,
        "drawn": drawn,
        "sampler": "shuffled" if shuffle else "sequential",
        "state": {"drawn": drawn},
        "ordinals": (0, ()),
        "ledger": state["ledger"],
    }
    places = [[episode * prompts + position, 0, episode, int(orders[episode][position])] for episode, position in state["open"]]
    return {**state, "drawn": drawn, "open": places, "unseen": [], "sources": [source]}
