"""The coordinator's state as plain JSON values, and its strict reading back.

Leases do not survive: what was in flight, ready or in training when the state was written is asked for again, because payloads are gone
with the processes that held them. So the state is the cursor, the prompts that had not ended, and the ledger: small, whatever the size
of the data set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.contracts.errors import ConfigError, UsageError
from rlcore.schedule.ledger import Ledger
from rlcore.schedule.order import PromptPlace
from rlcore.schedule.schedule_records import ScheduleSettings

__all__ = ["Saved", "read_state", "write_state"]

_FORMAT = 1
_FIXED = ("prompts", "train_batch_size", "seed", "shuffle")


@dataclass(frozen=True, slots=True)
class Saved:
    """What a state says: ``cursor`` (episode, position) of the first prompt never asked for, ``open`` those asked for and not ended."""

    version: int
    next_lease: int
    cursor: tuple[int, int]
    open: tuple[tuple[int, int], ...]
    ledger: Ledger


def write_state(
    settings: ScheduleSettings,
    *,
    version: int,
    next_lease: int,
    cursor: tuple[int, int],
    open_places: Iterable[PromptPlace],
    ledger: Ledger,
) -> dict[str, Any]:
    """A dict of JSON values."""
    return {
        "format": _FORMAT,
        "settings": {name: getattr(settings, name) for name in _FIXED},
        "version": version,
        "next_lease": next_lease,
        "cursor": list(cursor),
        "open": [[place.episode, place.position] for place in sorted(open_places)],
        "ledger": ledger.state(),
    }


def read_state(settings: ScheduleSettings, state: Mapping[str, Any]) -> Saved:
    """Raises ConfigError where a setting that fixes the order of prompts changed, UsageError where the state is damaged."""
    try:
        if state["format"] != _FORMAT:
            raise ValueError(f"format {state['format']!r}, this version reads {_FORMAT}")
        before = {name: state["settings"][name] for name in _FIXED}
        saved = Saved(
            version=int(state["version"]),
            next_lease=int(state["next_lease"]),
            cursor=(int(state["cursor"][0]), int(state["cursor"][1])),
            open=tuple((int(episode), int(position)) for episode, position in state["open"]),
            ledger=Ledger.restore(int(before["prompts"]), state["ledger"]),
        )
        _check(saved, int(before["prompts"]))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"the schedule's state in the checkpoint is damaged ({type(error).__name__}: {error}): resume from an earlier checkpoint"
        ) from error
    for name, value in before.items():
        if getattr(settings, name) != value:
            raise ConfigError(
                f"cannot resume this checkpoint with {name} = {getattr(settings, name)!r}: it was written with {value!r}, "
                f"and this setting says which prompt comes when; set it back, or start a new run"
            )
    return saved


def _check(saved: Saved, prompts: int) -> None:
    """The cursor, the open prompts and the ledger must tell one story."""
    episode, position = saved.cursor
    if not (0 <= position < prompts and episode >= 0 and saved.version >= 0 and saved.next_lease >= 0):
        raise ValueError(f"version {saved.version}, next lease {saved.next_lease}, cursor {saved.cursor} of {prompts} prompts")
    if len(set(saved.open)) != len(saved.open) or any(not (0 <= p < prompts and (0, 0) <= (e, p) < saved.cursor) for e, p in saved.open):
        raise ValueError("an open prompt is named twice or was never asked for")
    open_by_episode = Counter(e for e, _ in saved.open)
    for number in range(episode + 1):
        tally = saved.ledger.episodes.get(number)
        issued, still_open = (tally.issued, tally.open) if tally else (0, 0)
        if issued != (prompts if number < episode else position) or still_open != open_by_episode[number]:
            raise ValueError(f"episode {number}: {issued} issued and {still_open} open do not agree with cursor and open prompts")
    if any(number > episode for number in saved.ledger.episodes):
        raise ValueError("the ledger knows an episode that has not begun")
