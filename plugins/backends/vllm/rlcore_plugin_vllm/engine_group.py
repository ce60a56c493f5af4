"""The trainer's side of one group of engines: vLLM's trainer engine asks for the four methods of its client, and each of them is an order
to every member."""

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
"""Seconds between two looks at what changes without a word."""


class BrokenGroupError(Exception):
    """The group broke; the version is to be sent by another one."""


class TrainerEngine(Protocol):
    """What is used of vLLM's ``TrainerWeightTransferEngine`` (distributed/weight_transfer/base.py of 0.32)."""

    def send_weights(self) -> None:
        """Drive one update from its start to its end, by the client."""
        ...

    def shutdown(self) -> None:
        """Free what it holds."""
        ...


class Sender(Protocol):
    """Makes vLLM's trainer engine for a group. ``backend``: the name of the transfer among vLLM's."""

    backend: str

    def open(self, client: EngineGroup, *, ranks: int, largest: int) -> TrainerEngine:
        """``ranks``: of all members; ``largest``: bytes of the largest tensor. Meets the members by ``client`` meanwhile."""
        ...

    def tensors(self, held: HostVersion) -> Iterator[tuple[str, Any]]:
        """Name and tensor, on the device that they are sent from."""
        ...


class GroupMember(Protocol):
    """An engine as the group knows it. ``head_of``: the tensor that the head of its model repeats, "" if the head is one of its own."""

    ranks: int
    head_of: str


class EngineGroup:
    """Fixed members, for as long as none is lost. It is also the client that vLLM's trainer engine calls
    (``VLLMWeightSyncClient``) and the source that it reads: metadata and tensors of the version under way."""

    def __init__(self, epoch: int, members: Sequence[GroupMember], sender: Sender) -> None:
        self.epoch, self.members, self.key = epoch, tuple(members), secrets.token_hex(16)
        self.broken = False
        self.heard = time.monotonic()
        """When it last got on."""
        self.waits_for: set[int] = set(range(len(members)))
        """Places of members that have not done what was asked."""
        self.held: HostVersion | None = None
        self._sender = sender
        self._links: dict[int, Connection] = {}
        self._joined = threading.Condition()
        self._engine: TrainerEngine | None = None

    # --- members -------------------------------------------------------------------------------------------------------

    def attach(self, place: int, link: Connection) -> None:
        """A member's engine is here."""
        with self._joined:
            if self.broken:
                link.close()
                return
            self._links[place] = link
            self.waits_for.discard(place)
            self.heard = time.monotonic()
            self._joined.notify_all()

    def update(self, held: HostVersion) -> None:
        """Send a version, and return when every member serves it. BrokenGroupError if one is lost; WeightsError if their weights differ."""
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
        """Hang up: whoever waits in it learns that it broke. From any thread."""
        with self._joined:
            self.broken = True
            links = list(self._links.values())
            self._joined.notify_all()
        for link in links:
            disconnect(link)
        if self._engine is not None and not self.waits_for:
            with suppress(Exception):  # a communicator that lost a member may fail to end
                self._engine.shutdown()

    # --- what vLLM's trainer engine calls ----------------------------------------------------------------------------------

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Each member's ranks follow those of the member before."""
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
        """What ``tensors`` yields. A head that the model ties is sent, too: an engine may keep a copy of it in a form of its own."""
        assert self.held is not None
        infos = list(self.held.layout.manifest.tensors)
        names = {info.name for info in infos}
        repeats = next((member.head_of for member in self.members), "")
        if repeats in names and HEAD not in names:
            place = next(place for place, info in enumerate(infos) if info.name == repeats)
            infos.insert(place + 1, replace(infos[place], name=HEAD))
        return infos

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Of the version under way, in that order; each that is asked for is a sign of life."""
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
        """What every member answers, in their order."""
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
        """Engines that are split alike hold the same bytes after an update: WeightsError, naming the tensor, if they do not."""
        first: dict[int, dict[str, str]] = {}
        for member, workers in zip(self.members, answers, strict=True):
            digests = {name: digest for worker in workers for name, digest in worker.items()}
            meant = first.setdefault(member.ranks, digests)
            if differ := sorted(name for name in digests.keys() | meant.keys() if digests.get(name) != meant.get(name)):
                raise WeightsError(
                    f"version {version}: the engines do not hold the same weights: tensor {differ[0]!r} differs ({len(differ)} such)"
                )


def disconnect(channel: Connection) -> None:
    """End it at once, for a thread that reads from it, too."""
    with suppress(OSError), socket.socket(fileno=os.dup(channel.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
