"""The trainer's side of one group of engines. vLLM's trainer engine calls the four methods of its client, and each call is a command to
every member."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from rlcore_plugin_serving.checkpoint import HEAD
from rlcore_plugin_serving.joined_transfer import END, FINISH, INIT, START, UPDATE
from rlcore_plugin_workers.background import HostVersion

from rlcore.api import TensorInfo, WeightsError

__all__ = ["BrokenGroupError", "EngineGroup", "GroupMember", "Sender", "TrainerEngine", "disconnect"]

TICK = 0.05
"""Seconds between two checks of state that changes without a notification."""


class BrokenGroupError(Exception):
    """The group broke; another group must send the version."""


class TrainerEngine(Protocol):
    """The methods of vLLM's ``TrainerWeightTransferEngine`` that this module calls (distributed/weight_transfer/base.py of 0.32)."""

    def send_weights(self) -> None:
        """Run one update from its start to its end, through the client."""
        ...

    def shutdown(self) -> None:
        """Free its resources."""
        ...


class Sender(Protocol):
    """Creates vLLM's trainer engine for a group. ``backend``: vLLM's name of the transfer."""

    backend: str

    def open(self, client: EngineGroup, *, ranks: int, largest: int) -> TrainerEngine:
        """Create the engine, and meet the members through ``client`` meanwhile. ``ranks``: of all members; ``largest``: bytes of the
        largest tensor."""
        ...

    def tensors(self, held: HostVersion) -> Iterator[tuple[str, Any]]:
        """Yield name and tensor, on the device that they are sent from."""
        ...


class GroupMember(Protocol):
    """An engine as the group knows it. ``head_of``: the tensor that the head of its model repeats, "" if the head has its own."""

    ranks: int
    head_of: str


class EngineGroup:
    """A fixed set of members, valid until one is lost.

    It is also the client that vLLM's trainer engine calls (``VLLMWeightSyncClient``), and the source that it reads: metadata and tensors of
    the version that is being sent.
    """

    def __init__(self, epoch: int, members: Sequence[GroupMember], sender: Sender) -> None:
        self.epoch, self.members, self.key = epoch, tuple(members), secrets.token_hex(16)
        self.broken = False
        self.heard = time.monotonic()
        """The time of its last progress."""
        self.waits_for: set[int] = set(range(len(members)))
        """Places of members that have not completed the current command."""
        self.held: HostVersion | None = None
        self._sender = sender
        self._links: dict[int, Connection] = {}
        self._joined = threading.Condition()
        self._engine: TrainerEngine | None = None

    # --- members -------------------------------------------------------------------------------------------------------

    def attach(self, place: int, link: Connection) -> None:
        """Add the connection of a member's engine."""
        with self._joined:
            if self.broken:
                link.close()
                return
            self._links[place] = link
            self.waits_for.discard(place)
            self.heard = time.monotonic()
            self._joined.notify_all()

    def update(self, held: HostVersion) -> None:
        """Send a version, and return when every member serves it.

        Raises BrokenGroupError if a member is lost, and WeightsError if the members' weights differ.
        """
        with self._joined:
            while len(self._links) < len(self.members):
                if self.broken:
                    raise BrokenGroupError
                self._joined.wait(TICK)
        self.held = held
        if self._engine is None:
            largest = max((info.nbytes for info in held.layout.manifest.tensors), default=0)
            self._engine = self._sender.open(self, ranks=sum(member.ranks for member in self.members), largest=largest)
        self._engine.send_weights()
        if len(self.members) > 1:
            self._compare(held.layout.version, self._order("compute_weight_checksums"))
        self._order(END, answered=False)

    def close(self) -> None:
        """Close all connections: a thread that waits in the group learns that it broke. Any thread may call this."""
        with self._joined:
            self.broken = True
            links = list(self._links.values())
            self._joined.notify_all()
        for link in links:
            disconnect(link)
        if self._engine is not None and not self.waits_for:
            with suppress(Exception):  # a communicator that lost a member may fail to end
                self._engine.shutdown()

    # --- methods for vLLM's trainer engine ---------------------------------------------------------------------------------

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Initialise the transfer; each member's ranks follow those of the previous member."""
        words, first = [], init_info.get("rank_offset", 0)
        for member in self.members:
            own = {"rank_offset": first} if "rank_offset" in init_info else {}
            words.append({"init_info": {**init_info, **own, "backend": self._sender.backend}})
            first += member.ranks
        self._order(INIT, words)

    def start_weight_update(self) -> None:
        """See ``VLLMWeightSyncClient``."""
        self._order(START)

    def update_weights(self, update_info: Any) -> None:
        """See ``VLLMWeightSyncClient``."""
        self._order(UPDATE, [{"update_info": update_info}] * len(self.members))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """See ``VLLMWeightSyncClient``. rlcore counts versions itself."""
        self._order(FINISH)

    def infos(self) -> list[TensorInfo]:
        """Return the infos of the tensors that ``tensors`` yields.

        A tied head is sent too, because an engine may keep its own copy of it in another form.
        """
        assert self.held is not None
        infos = list(self.held.layout.manifest.tensors)
        names = {info.name for info in infos}
        repeats = next((member.head_of for member in self.members), "")
        if repeats in names and HEAD not in names:
            place = next(place for place, info in enumerate(infos) if info.name == repeats)
            infos.insert(place + 1, replace(infos[place], name=HEAD))
        return infos

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Yield the tensors of the version that is being sent, in that order; each request for one counts as progress."""
        assert self.held is not None
        names = [info.name for info in self.infos()]
        for name, tensor in self._sender.tensors(self.held):
            if self.broken:
                raise BrokenGroupError
            self.heard = time.monotonic()
            yield name, tensor
            place = names.index(name) + 1
            if names[place : place + 1] == [HEAD] and name == self.members[0].head_of:
                yield HEAD, tensor

    # --- small parts ---------------------------------------------------------------------------------------------------

    def _order(self, method: str, words: Sequence[Mapping[str, Any]] = (), *, answered: bool = True) -> list[Any]:
        """Send a command to every member and return their answers, in member order."""
        places = {link: place for place, link in self._links.items()}
        answers: dict[int, Any] = {}
        try:
            for place, link in self._links.items():
                link.send((method, words[place] if words else {}))
            self.waits_for = set(places.values()) if answered else set()
            while self.waits_for:
                if self.broken:
                    raise BrokenGroupError
                for link in wait([link for link, place in places.items() if place in self.waits_for], TICK):
                    kind, said = link.recv()  # type: ignore[union-attr]
                    if kind == "failed":
                        raise BrokenGroupError(said)
                    answers[places[link]] = said  # type: ignore[index]
                    self.waits_for.discard(places[link])  # type: ignore[index]
                    self.heard = time.monotonic()
        except (OSError, EOFError, ValueError) as error:
            raise BrokenGroupError(str(error)) from error
        return [answers.get(place) for place in range(len(self.members))]

    def _compare(self, version: int, answers: Sequence[Any]) -> None:
        """Raise WeightsError, which names the tensor, if engines with the same split do not hold the same bytes after an update."""
        first: dict[int, dict[str, str]] = {}
        for member, workers in zip(self.members, answers, strict=True):
            digests = {name: digest for worker in workers for name, digest in worker.items()}
            meant = first.setdefault(member.ranks, digests)
            if differ := sorted(name for name in digests.keys() | meant.keys() if digests.get(name) != meant.get(name)):
                raise WeightsError(
                    f"version {version}: the engines do not hold the same weights: tensor {differ[0]!r} differs ({len(differ)} such)"
                )


def disconnect(channel: Connection) -> None:
    """Close the channel at once, also for a thread that reads from it."""
    with suppress(OSError), socket.socket(fileno=os.dup(channel.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
