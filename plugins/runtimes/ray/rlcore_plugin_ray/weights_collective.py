"""Weights by broadcast (gloo, nccl): the trainer announces a version and its receivers, then sends it in pieces to all of them.

Each set of receivers has its own group, under a new name. If one of them dies during a transfer, the others and the trainer drop the group.
They begin again without it, as soon as the run has reported its death. In some 40 % of trials a survivor did not learn that its gloo group
was broken (the cause is not known); it then returns at its deadline. A receiver that comes late gets the newest version in its own group.
With nccl there is no such recovery: torch ends every process of a group in which one has died, at its deadline (never tried here).
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import ray
import torch
from rlcore_plugin_workers.background import BackgroundPublisher, BackgroundReceiver, HostVersion

from rlcore.api import WeightsError
from rlcore.api.weights import HostLayout, OnFailure, WeightTransfer
from rlcore_plugin_ray.weights_group import WeightsGroup
from rlcore_plugin_ray.weights_rendezvous import RendezvousAddress, RendezvousClient, make_rendezvous

__all__ = ["CollectivePublisher", "CollectiveReceiver", "CollectiveTransfer"]

_PIECE = 16 << 20
_HOUR = 3600.0
_COMING_BACK = 5.0
"""The seconds in which receivers should return from a broken group, before the remaining ones are named."""


@dataclass(frozen=True, slots=True)
class _Announcement:
    """An announcement: the group, the rank of each token in it, and all of a version except its bytes."""

    version: int
    group: str
    ranks: dict[str, int]
    layout: bytes
    checksums: np.ndarray


def _broadcast(flat: np.ndarray, start: int, group: WeightsGroup) -> int:
    """Send or receive one piece of ``flat``; return its end."""
    piece = flat[start : start + _PIECE]
    if group.device == "cpu":
        group.broadcast(torch.from_numpy(piece))
    else:
        staged = torch.from_numpy(piece).to(group.device)
        group.broadcast(staged)
        torch.from_numpy(piece).copy_(staged)
    return start + len(piece)


class CollectivePublisher(BackgroundPublisher):
    """A publisher by broadcast; see the module. Call ``left`` for every death."""

    def __init__(self, deadline: float, bucket_bytes: int, on_failure: OnFailure | None = None, *, device: str = "cpu") -> None:
        self._changed = threading.Condition()
        self._device = device
        self._board = make_rendezvous()
        self._ask = RendezvousClient(self._board, "the trainer", deadline)
        self._sealed: tuple[HostVersion, np.ndarray] | None = None
        self._group: tuple[frozenset[str], WeightsGroup] | None = None
        self._number = -1
        self._sent: dict[str, int] = {}
        super().__init__(deadline, bucket_bytes, on_failure)
        self._watcher = threading.Thread(target=self._watch_forever, name="weights-newcomers", daemon=True)
        self._watcher.start()

    def address(self) -> RendezvousAddress:
        """Return the address of the board, which every node can reach."""
        return RendezvousAddress(self._board, f"the trainer (process {os.getpid()} on {os.uname().nodename})")

    def left(self, name: str) -> None:
        """See Publisher: the transfer in progress continues without it."""
        self._board.gone.remote(name)

    def _watch_forever(self) -> None:
        """Have the newest version sent again when a new receiver joins."""
        known: dict[str, str] | None = {}
        try:
            while known is not None:
                self._send_again()
                self._ask.parked("others", list(known), _HOUR)
                known = self._ask.parked("members")  # None: close() ended the board, or it died and the next transfer reports it
        except WeightsError as error:
            self._fail(str(error))

    def _send_again(self) -> None:
        """Request another transfer of the newest version, unless a newer one is waiting, which will include the new receivers."""
        with self._changed:
            if self._waiting is None and not self._closed and self._newest is not None and self._newest.layout.version == self._published:
                self._waiting = self._newest
                self._changed.notify_all()

    def _send(self, held: HostVersion) -> None:
        layout = held.layout
        if self._sealed is None or self._sealed[0] is not held:
            self._sealed = (held, layout.seal(held.memory.flat, range(len(layout.offsets))))
        while not self._closed:
            members: dict[str, str] = self._ask.now("members")
            targets = sorted(token for token in members if self._sent.get(token, -1) < layout.version)
            if not targets:
                return
            if self._sent_to(targets, held, self._sealed[1]):
                self._sent = {token: version for token, version in self._sent.items() if token in members}
                self._sent |= dict.fromkeys(targets, layout.version)

    def _sent_to(self, targets: list[str], held: HostVersion, checksums: np.ndarray) -> bool:
        """Try to send the version to all targets once. Return False if the group broke and the set of receivers has changed. Raise
        WeightsError at the deadline."""
        version = held.layout.version
        known = self._group is not None and self._group[0] == frozenset(targets)
        if not known:
            self._drop_group()
            self._group = (frozenset(targets), WeightsGroup.host(self._device, self._deadline))
        assert self._group is not None
        group = self._group[1]
        ranks = {token: rank for rank, token in enumerate(targets, 1)}
        self._number += 1
        self._ask.now("post", self._number, _Announcement(version, group.name, ranks, held.layout.to_bytes(), checksums))
        missing = self._ask.now("gathered", self._number, targets, self._deadline, waits=self._deadline)
        if missing:
            raise self._stall_error(version, sorted(missing.values()))
        broke, reached, began = "a receiver left before the transfer began", 0, time.monotonic()
        if missing is not None:
            flat = held.memory.flat[: held.layout.size]
            broke, reached, began = self._broadcast_all(group, None if known else len(targets) + 1, flat)
        if broke:
            self._broken(version, targets, reached, began + self._deadline, broke)
        return not broke and not self._closed

    def _broadcast_all(self, group: WeightsGroup, joins: int | None, flat: np.ndarray) -> tuple[str, int, float]:
        """Return the error of a broken group ("" for none), the number of bytes sent, and the start time of the last piece. ``joins``: the
        number of members of a group that must be made first."""
        reached, began = 0, time.monotonic()
        try:
            if joins is not None:
                group.join(0, joins)
            while reached < len(flat) and not self._closed:
                began = time.monotonic()
                reached = _broadcast(flat, reached, group)
        except RuntimeError as error:
            return str(error), reached, began  # not the exception: its traceback would keep the group's connections open
        return "", reached, began

    def _broken(self, version: int, targets: list[str], reached: int, until: float, why: str) -> None:
        """Drop the group and wait until the run has reported which receiver is gone. Raise WeightsError if it reports none by ``until``."""
        self._drop_group()
        if self._closed:
            return
        seconds = max(_COMING_BACK, until - time.monotonic())
        busy = self._ask.now("busy", targets, _COMING_BACK, waits=_COMING_BACK)
        members = list(self._ask.now("members"))
        if set(targets) <= set(members) and not self._ask.now("others", members, seconds, waits=seconds):
            raise self._stall_error(version, busy, f"after {reached / 1e6:.1f} MB: {why}")

    def _stall_error(self, version: int, names: list[str], why: str = "") -> WeightsError:
        who = f"producer {', '.join(names)}" if names else "its producers"
        said = "".join(f"; {name} reports: {reason}" for name, reason in self._ask.now("reasons").items())
        return WeightsError(
            f"the trainer waited {self._deadline:g} s for {who} in the transfer of version {version}{' ' * bool(why)}{why}{said}; check "
            "whether it is stopped or overloaded, or raise --weights-deadline"
        )

    def _drop_group(self) -> None:
        if self._group is not None:
            self._group[1].leave()
            self._group = None

    def _interrupt(self) -> None:
        ray.kill(self._board)

    def _free(self) -> None:
        self._drop_group()
        self._sealed = None


class CollectiveReceiver(BackgroundReceiver):
    """A receiver by broadcast; see the module."""

    def __init__(self, name: str, address: RendezvousAddress, deadline: float, on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        self._deadline = deadline
        self._trainer = address.trainer
        self._token = uuid.uuid4().hex
        self._number = -1
        self._group: WeightsGroup | None = None
        self._broke = ""
        self._flats: dict[int, np.ndarray] = {}
        self._spare = np.zeros(0, np.uint8)
        self._ask = RendezvousClient(address.board, f"producer {name}", deadline)
        self._ask.now("join", self._token, name)
        self._start()

    def _fetch(self) -> bool:
        word = self._next_announcement()
        if word is None:
            return False
        rank = word.ranks.get(self._token)
        if rank is None:
            return True
        if not self._ask.now("here", self._token, self._number, self._deadline, waits=self._deadline):
            return True  # a receiver left before all were ready: the trainer begins again without it
        layout = HostLayout.from_bytes(word.layout)
        with self._lock:
            flat = self._spare if len(self._spare) >= layout.size else np.zeros(layout.size, np.uint8)
            self._spare = np.zeros(0, np.uint8)
        self._broke = self._receive(word, rank, flat[: layout.size])
        if self._broke:
            self._drop_group()
            return True
        snapshot = layout.verified(flat, word.checksums)
        with self._lock:
            self._flats[word.version] = flat
        self._arrived(snapshot)
        return True

    def _next_announcement(self) -> _Announcement | None:
        """Wait for the next announcement without a limit; after a broken transfer, only as long as the trainer needs to begin another
        one."""
        patience = 3 * self._deadline if self._broke else None
        try:
            told = self._ask.parked("after", self._token, self._number, self._broke, timeout=patience)
        except ray.exceptions.GetTimeoutError:
            told = None
        if told is None:
            if self._broke and not self._closed:
                raise WeightsError(f"{self._trainer} is gone, or has stalled, in the middle of {self._broke}")
            return None  # Closed, or dead between transfers: other code knows why.
        self._number, word = told
        assert isinstance(word, _Announcement)
        return word

    def _receive(self, word: _Announcement, rank: int, flat: np.ndarray) -> str:
        """Receive a version and return the error of a broken group, "" for none."""
        reached = 0
        try:
            if self._group is None or self._group.name != word.group:
                self._drop_group()
                self._group = WeightsGroup(word.group)
                self._group.join(rank, len(word.ranks) + 1)
            while reached < len(flat):
                reached = _broadcast(flat, reached, self._group)
        except RuntimeError as error:
            return f"version {word.version}, at {reached / 1e6:.1f} of {len(flat) / 1e6:.1f} MB ({str(error) or type(error).__name__})"
        return ""

    def _drop_group(self) -> None:
        if self._group is not None:
            self._group.leave()
            self._group = None

    def _drop_version(self, version: int) -> None:
        # The memory is used again, so a view that the owner keeps against the contract would change.
        self._spare = self._flats.pop(version, self._spare)

    def _interrupt(self) -> None:
        self._ask.board.leave.remote(self._token)

    def _finished(self) -> None:
        self._drop_group()


class CollectiveTransfer(WeightTransfer):
    """The transfer ``collective``, in which the set of receivers is part of every transfer.

    A new receiver joins by itself, and a closed one leaves. Call ``publisher.left(name)`` as soon as a producer has died. Make a new
    receiver, under the same name or another one, when the producer is restarted. Until ``left`` is called, a transfer waits for the dead
    producer, at most until the deadline.
    """

    def publisher(
        self, *, deadline: float, bucket_bytes: int, device: str = "cpu", on_failure: OnFailure | None = None
    ) -> CollectivePublisher:
        """See WeightTransfer. ``device``: the device of the collectives, ``cpu`` (gloo) or ``cuda`` (nccl)."""
        return CollectivePublisher(deadline, bucket_bytes, on_failure, device=device)

    def receiver(self, *, name: str, address: RendezvousAddress, deadline: float, on_news: Callable[[], None]) -> CollectiveReceiver:
        """See WeightTransfer."""
        return CollectiveReceiver(name, address, deadline, on_news)
