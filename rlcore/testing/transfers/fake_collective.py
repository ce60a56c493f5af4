"""A transfer that the workers of engines join, over TCP, in numpy and sockets alone, in the place of NCCL.

A producer's process exchanges words with the trainer, and sees no bytes: its engine's workers join a group and read them. A group is a set
of ranks that is fixed, as in a collective: each bucket goes to all of them, and the loss of one ends the group. The next one has a higher
epoch. A group is announced when its members have asked for weights, so that no engine that could generate waits for another one; a producer
that does not ask for a while (it evaluates) is left out, and gets the version in a group of its own.

Slow and simple on purpose: one thread sends, one bucket after the other.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

import numpy as np

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Bucket, RemoteSnapshot
from rlcore.contracts.weight_transfer import OnFailure, Receiver, WeightTransfer
from rlcore.testing.transfers.fake_group_rank import HELLO, WHOLE, exactly
from rlcore.testing.transfers.fake_publisher import FakePublisher, HeldVersion

__all__ = ["FakeCollective", "FakeCollectivePublisher", "FakeCollectiveReceiver"]

_TICK = 0.1
"""Seconds between two looks at states that change without a message."""
_GRACE = 2.0
"""Seconds that members which have asked for a version wait for one that has not, and that a rank has to identify itself."""


@dataclass(eq=False)
class _Joined:
    """A producer, as the publisher knows it: ``served``: the version of its engine, by its own word; ``ready``: the last round in which it
    asked for weights; ``heard``: when it said something, by the monotonic clock."""

    channel: Connection
    name: str
    pid: int
    ranks: int
    served: int = -1
    ready: int = 0
    heard: float = field(default_factory=time.monotonic)
    gone: bool = False

    def __str__(self) -> str:
        return f"producer {self.name} (process {self.pid})"

    def tell(self, *word: Any) -> None:
        with suppress(OSError, ValueError):  # it is gone, which its listener finds out
            self.channel.send(word)


class _LateError(Exception):
    """These members do not answer."""

    def __init__(self, members: Sequence[_Joined], doing: str) -> None:
        super().__init__(doing)
        self.members = members


class _Group:
    """The trainer's side of one epoch: a connection to each rank of each member."""

    def __init__(self, epoch: int, members: Sequence[_Joined], deadline: float) -> None:
        self.epoch, self.members = epoch, tuple(members)
        self.formed = self.broken = False
        self._deadline = deadline
        self._key = secrets.token_bytes(16)
        self._owners = [member for member in members for _ in range(member.ranks)]
        self._peers: dict[int, socket.socket] = {}
        self._server = socket.create_server(("127.0.0.1", 0))
        self._address = self._server.getsockname()  # it may break, which closes the server, before all members are told of it

    def info(self, member: _Joined) -> dict[str, Any]:
        """Return the argument of ``connect`` for that member's engine; its ranks are consecutive."""
        return {
            "address": self._address,
            "key": self._key,
            "first": self._owners.index(member),
            "size": len(self._owners),
            "deadline": self._deadline,
        }

    def form(self, broken: Callable[[], bool]) -> bool:
        """Wait until all ranks are here; False once ``broken``. _LateError if none comes for as long as the deadline."""
        until = time.monotonic() + self._deadline
        self._server.settimeout(_TICK)
        while len(self._peers) < len(self._owners):
            if broken():
                return False
            if time.monotonic() > until:
                absent = [owner for rank, owner in enumerate(self._owners) if rank not in self._peers]
                raise _LateError(list(dict.fromkeys(absent)), "did not join the group")
            try:
                peer = self._server.accept()[0]
            except TimeoutError:
                continue
            peer.settimeout(min(_GRACE, self._deadline / 4))  # the others stand behind it
            try:
                key, rank = HELLO.unpack(exactly(peer, HELLO.size))
            except OSError:  # it says nothing: its member is absent, and named in the end
                peer.close()
                continue
            peer.settimeout(self._deadline)
            if key == self._key:  # else it is of a group that is no more
                self._peers[rank] = peer
                until = time.monotonic() + self._deadline
        for peer in self._peers.values():
            peer.sendall(WHOLE)
        self.formed = True
        return True

    def broadcast(self, memory: np.ndarray) -> None:
        """Send one bucket to all ranks, and wait until each has taken it. _LateError for ranks that do not; OSError if one is gone."""
        until = time.monotonic() + self._deadline
        late = []
        for rank, peer in self._peers.items():
            try:
                peer.sendall(memory.data)
            except TimeoutError:
                late.append(self._owners[rank])
        for rank, peer in self._peers.items():
            peer.settimeout(max(until - time.monotonic(), 0.01))
            try:
                exactly(peer, 1)
            except TimeoutError:
                late.append(self._owners[rank])
            peer.settimeout(self._deadline)
        if late:
            raise _LateError(list(dict.fromkeys(late)), "took nothing")

    def close(self) -> None:
        """Close the group: each rank that waits in it learns that it broke. From any thread."""
        self.broken = True
        for end in (self._server, *list(self._peers.values())):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _hang_up(channel: Connection) -> None:
    """End it at once, for a thread that reads from it, too."""
    with suppress(OSError), socket.socket(fileno=os.dup(channel.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


class FakeCollectivePublisher(FakePublisher):
    """The trainer's end. A round is one version for the members that lack it; members that are the same as before keep their group."""

    def __init__(self, deadline: float, bucket_bytes: int, on_failure: OnFailure | None = None) -> None:
        self._members: list[_Joined] = []
        self._group: _Group | None = None
        self._epoch = self._round = 0
        self._sealed: tuple[HeldVersion, np.ndarray] | None = None
        self._key = secrets.token_bytes(16)
        self._channels: set[Connection] = set()
        self._listener = Listener(("127.0.0.1", 0), backlog=64)
        self._address = self._listener.address
        super().__init__(deadline, bucket_bytes, on_failure)
        threading.Thread(target=self._accept_forever, name="weights-members", daemon=True).start()

    def address(self) -> tuple[Any, bytes]:
        """Return the address of the trainer's end, and the key to it."""
        return self._address, self._key

    def left(self, name: str) -> None:
        """See Publisher."""
        with self._changed:
            for member in self._members:
                member.gone = member.gone or member.name == name
            self._changed.notify_all()

    # --- members -------------------------------------------------------------------------------------------------------------

    def _accept_forever(self) -> None:
        while not self._closed:
            try:
                channel = self._listener.accept()
            except OSError:  # closed
                continue
            with self._changed:
                self._channels.add(channel)
            threading.Thread(target=self._listen_to, args=(channel,), name="weights-member", daemon=True).start()

    def _listen_to(self, channel: Connection) -> None:
        """Ask for the key here, and not in the thread that accepts, so that a silent peer keeps no other out."""
        with suppress(OSError, EOFError, AuthenticationError):  # gone, or somebody who has no key
            deliver_challenge(channel, self._key)
            answer_challenge(channel, self._key)
            self._attend(_Joined(channel, *channel.recv()))
        with self._changed:
            self._channels.discard(channel)
        channel.close()

    def _attend(self, member: _Joined) -> None:
        """Read the messages of a member until it closes the connection."""
        with self._changed:
            self._members.append(member)
            if self._waiting is None and self._newest is not None and not self._closed:
                self._waiting = self._newest  # nobody publishes it again for a newcomer
            self._changed.notify_all()
        try:
            while True:
                kind, *number = member.channel.recv()
                with self._changed:
                    self._heard(member, kind, *number)
                    self._changed.notify_all()
        finally:
            with self._changed:
                member.gone = True
                self._members = [other for other in self._members if other is not member]
                self._changed.notify_all()

    def _heard(self, member: _Joined, kind: str, number: int = 0) -> None:
        member.heard = time.monotonic()
        if kind == "ready":
            member.ready = number
        elif kind == "serves":
            member.served = max(member.served, number)
        elif kind == "broke" and self._group is not None and self._group.epoch == number:
            self._group.close()  # the others wait in it, and the next round needs a new one

    def _end(self, member: _Joined, why: str) -> None:
        """Stop waiting for it: the runtime ends its process, and another one replaces it."""
        member.gone = True
        advice = "look whether it was stopped or overloaded, or raise --weights-deadline"
        self.on_drop(f"{member} {why} for {self._deadline:g} s, so it was ended; {advice}")
        self.on_end(member.name)

    # --- rounds --------------------------------------------------------------------------------------------------------------

    def _send(self, held: HeldVersion) -> None:
        layout = held.layout
        if self._sealed is None or self._sealed[0] is not held:
            self._sealed = held, layout.seal(held.flat, range(len(layout.offsets)))
        while True:
            with self._changed:
                targets = self._lacking(layout.version)
                if self._closed or not targets or self._superseded(held):
                    return
            self._round += 1
            asked = self._who_asks(targets, held)
            if not asked:
                continue
            if not (self._sent_to(asked, held) and self._are_served(asked, held)):
                self._drop_group()

    def _are_served(self, asked: list[_Joined], held: HeldVersion) -> bool:
        """Wait until each engine serves the bytes that it has, or a newer version is here; end a member that is silent. Return False if
        the group broke after all."""
        group, version = self._group, held.layout.version
        assert group is not None

        def late() -> list[_Joined]:
            return [member for member in asked if not member.gone and member.served < version]

        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or group.broken or self._superseded(held) or not late(), self._deadline):
                for member in late():
                    self._end(member, f"has taken version {version} and not said that it serves it")
            return not group.broken

    def _lacking(self, version: int) -> list[_Joined]:
        """Return the members that do not serve this version yet. Under ``_changed``."""
        return [member for member in self._members if not member.gone and member.served < version]

    def _superseded(self, held: HeldVersion) -> bool:
        """Return whether a newer version waits, which replaces this one. Under ``_changed``."""
        return self._waiting is not None and self._waiting is not held

    def _sent_to(self, targets: list[_Joined], held: HeldVersion) -> bool:
        """Send one round; return False if it broke off."""
        version = held.layout.version
        if self._group is None or self._group.broken or set(self._group.members) != set(targets):
            self._drop_group()
            self._epoch += 1
            self._group = _Group(self._epoch, targets, self._deadline)
        group, parts = self._group, self._parts(held)
        for member in targets:
            member.tell("go", self._round, self._remote(held, group, member, [bucket for bucket, _ in parts]))
        try:
            if not group.formed and not group.form(lambda: self._closed or any(member.gone for member in targets)):
                return False
            for _, memory in parts:
                group.broadcast(memory)
        except _LateError as error:
            with self._changed:
                for member in error.members:
                    self._end(member, f"{error} in the transfer of version {version}")
            return False
        except OSError:  # a rank is gone, and its producer with it, or soon
            return False
        return True

    def _who_asks(self, targets: list[_Joined], held: HeldVersion) -> list[_Joined]:
        """Tell them of the version, and wait until all have asked for it, or some for a while; [] if others lack it now, or a newer one
        is here: then all is to be looked at anew."""
        version, number, enough = held.layout.version, self._round, time.monotonic() + min(_GRACE, self._deadline)
        with self._changed:
            for member in targets:
                member.heard = time.monotonic()
        for member in targets:
            member.tell("news", number, version)
        while True:
            for member in targets:
                member.tell("ping")
            with self._changed:
                if self._closed or self._superseded(held) or self._lacking(version) != targets:
                    return []
                asked = [member for member in targets if member.ready == number]
                if len(asked) == len(targets) or (asked and time.monotonic() > enough):
                    return asked
                for member in targets:
                    if time.monotonic() - member.heard > self._deadline:
                        self._end(member, "has not answered")
                self._changed.wait(min(_TICK, self._deadline / 4))

    def _parts(self, held: HeldVersion) -> list[tuple[Bucket, np.ndarray]]:
        """Return the buckets, without tensors, and the bytes of each."""
        assert self._sealed is not None
        assert self._group is not None
        layout, checksums, parts = held.layout, self._sealed[1], []
        for index, places in enumerate(layout.buckets(self._bucket_bytes)):
            infos = [layout.manifest.tensors[place] for place in places]
            said = [(info.name, info.dtype, info.shape, int(checksums[place])) for place, info in zip(places, infos, strict=True)]
            flat = [held.flat[layout.offsets[place] :][: info.nbytes] for place, info in zip(places, infos, strict=True)]
            bucket = Bucket(version=layout.version, index=index, info={"tensors": said}, epoch=self._group.epoch)
            parts.append((bucket, np.concatenate(flat)))
        return parts

    def _remote(self, held: HeldVersion, group: _Group, member: _Joined, parts: Sequence[Bucket]) -> RemoteSnapshot:
        manifest = held.layout.manifest
        return RemoteSnapshot(
            version=held.layout.version,
            probe=held.layout.probe,
            kind=manifest.kind,
            extra=dict(manifest.extra),
            infos=manifest.tensors,
            epoch=group.epoch,
            info=group.info(member),
            parts=tuple(parts),
        )

    def _drop_group(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None

    def _interrupt(self) -> None:
        group = self._group
        if group is not None:
            group.close()

    def _free(self) -> None:
        self._drop_group()
        self._sealed = None
        with self._changed:
            channels = list(self._channels)
        for channel in channels:
            _hang_up(channel)
        with suppress(OSError):
            socket.create_connection(self._address).close()  # wakes the thread that accepts
        self._listener.close()


class FakeCollectiveReceiver(Receiver):
    """A producer's end, which sees no bytes. It reports that its engine is free when the producer asks for weights, and hands out the
    answer."""

    def __init__(self, name: str, address: tuple[Any, bytes], on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        try:
            self._channel = Client(address[0], authkey=address[1])
        except (OSError, EOFError) as error:
            raise WeightsError(f"producer {name} cannot reach the trainer at {address[0]} for weights: {error}") from error
        self._lock = threading.Lock()
        self._news: tuple[int, int] | None = None
        self._go: RemoteSnapshot | None = None
        self._closed = False

    def introduce(self, engine: Mapping[str, Any]) -> None:
        """See Receiver. Report the name, and the number of ranks of the engine."""
        self._tell(self.name, os.getpid(), int(engine["ranks"]))
        threading.Thread(target=self._listen, name=f"weights-{self.name}", daemon=True).start()

    def newer_than(self, version: int) -> RemoteSnapshot | None:
        """See Receiver. Ask for the version that was announced; it comes when all others have asked for it too."""
        with self._lock:
            go, self._go = self._go, None
            if go is not None and go.version > version:
                return go
            news, self._news = self._news, None
        if news is not None:
            self._tell("ready", news[0]) if news[1] > version else self._tell("serves", version)
        return None

    def release(self, version: int) -> None:
        """See Receiver."""
        self._tell("serves", version)

    def on_group_broken(self, epoch: int) -> None:
        """See Receiver."""
        self._tell("broke", epoch)

    def close(self) -> None:
        """See Receiver."""
        self._closed = True
        _hang_up(self._channel)

    def _tell(self, *word: Any) -> None:
        with self._lock, suppress(OSError):  # the trainer is gone, which others say
            self._channel.send(word)

    def _listen(self) -> None:
        try:
            while not self._closed:
                kind, *said = self._channel.recv()
                if kind == "ping":
                    self._tell("pong")
                    continue
                with self._lock:
                    if kind == "news":
                        self._news, self._go = (said[0], said[1]), None
                    elif kind == "go":
                        self._go = said[1]
                self.on_news()
        except (OSError, EOFError):
            pass
        self._channel.close()


class FakeCollective(WeightTransfer):
    """The transfer ``fake_collective``; engines say ``{"ranks": count}`` of themselves, and their workers join as ``FakeGroupRank``."""

    def publisher(
        self, *, deadline: float, bucket_bytes: int, device: str = "cpu", on_failure: OnFailure | None = None
    ) -> FakeCollectivePublisher:
        """See WeightTransfer."""
        return FakeCollectivePublisher(deadline, bucket_bytes, on_failure)

    def receiver(self, *, name: str, address: Any, deadline: float, on_news: Callable[[], None]) -> FakeCollectiveReceiver:
        """See WeightTransfer."""
        return FakeCollectiveReceiver(name, address, on_news)
