"""A schedule that goes on from a written state, made of nothing but that state: the proof that a checkpoint says enough."""

from __future__ import annotations

from typing import Any

from rlcore.schedule import Coordinator, ScheduleSettings
from rlcore.schedule.ledger import EpisodeTally, Ledger
from rlcore.schedule.order import PromptLine

__all__ = ["restored"]


def restored(settings: ScheduleSettings, state: dict[str, Any]) -> Coordinator:
    """Prompts that had not ended are asked for again, first in line, by new leases."""
    coordinator = Coordinator(settings)
    coordinator.version = state["version"]
    coordinator.ledger = _ledger(settings.prompts, state["ledger"])
    coordinator._next_lease = state["next_lease"]
    coordinator._line = _line(settings, state)
    return coordinator


def _line(settings: ScheduleSettings, state: dict[str, Any]) -> PromptLine:
    line, places = PromptLine(settings), {}
    while line.cursor() != tuple(state["cursor"]):
        place = line.take()
        places[place.episode, place.position] = place
    for episode, position in state["open"]:
        line.put_back(places[episode, position])
    return line


def _ledger(prompts: int, state: dict[str, Any]) -> Ledger:
    ledger = Ledger(prompts)
    ledger.reissued = state["reissued"]
    for episode, issued, trained, filtered, failed in state["episodes"]:
        ledger.episodes[episode] = EpisodeTally(issued=issued, trained=trained, filtered=filtered, failed=dict(failed))
        ledger.trained += trained
        ledger.filtered += filtered
        ledger.failed += sum(failed.values())
    return ledger
