"""Who comes late gets the newest weights, and never older ones than were sent before; nobody joins a group that its trainer has given up.
On stubs of board and group."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_ray import weights_collective
from rlcore_plugin_ray.weights_collective import CollectivePublisher, CollectiveReceiver, _Announcement
from rlcore_plugin_ray.weights_rendezvous import RendezvousAddress
from rlcore_plugin_workers.background import HostVersion

from rlcore.api import Snapshot
from rlcore.api.weights import HostLayout
from rlcore.testing import FakePolicy, FakeTokenizer, publish
from rlcore.testing.weights import HostSource

SECONDS = 20.0


class Board:
    """Of the board, what the publisher asks; ``sent``: (version, receivers) of every transfer."""

    def __init__(self) -> None:
        self.members: dict[str, str] = {}
        self.sent: list[tuple[int, tuple[str, ...]]] = []
        self.news = threading.Condition()
        self.ended = threading.Event()

    def now(self, method: str, *arguments: Any, waits: float = 0.0) -> Any:
        if method == "post":
            with self.news:
                self.sent.append((arguments[1].version, tuple(arguments[1].ranks)))
                self.news.notify_all()
        return {"members": dict(self.members), "gathered": {}}.get(method)

    def parked(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        self.ended.wait()

    def until_sent(self, count: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.sent) >= count, SECONDS)


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Board:
    made = Board()
    monkeypatch.setattr(weights_collective, "make_rendezvous", lambda: None)
    monkeypatch.setattr(weights_collective, "RendezvousClient", lambda *arguments: made)
    group = SimpleNamespace(name="group", join=lambda rank, size: None, leave=lambda: None)
    monkeypatch.setattr(weights_collective.WeightsGroup, "host", lambda device, deadline: group)
    monkeypatch.setattr(weights_collective, "_broadcast", lambda flat, start, group: len(flat))
    monkeypatch.setattr(CollectivePublisher, "_interrupt", lambda publisher: made.ended.set())
    return made


def snapshot(version: int) -> Snapshot:
    return Snapshot.of(version, dict(FakePolicy.random(len(FakeTokenizer()), seed=version).tensors()))


def sent_to_a_as_b_comes(board: Board) -> CollectivePublisher:
    """Version 5 is sent to a, and b is here since."""
    publisher = CollectivePublisher(5.0, 1 << 20)
    board.members["a"] = "a"
    publish(publisher, snapshot(5))
    board.until_sent(1)
    board.members["b"] = "b"
    return publisher


def test_a_newcomer_gets_the_newest_again(board: Board) -> None:
    publisher = sent_to_a_as_b_comes(board)
    publisher._send_again()
    board.until_sent(2)
    publisher.close()
    assert board.sent == [(5, ("a",)), (5, ("b",))]


def test_who_comes_while_a_version_is_on_its_way_is_not_sent_the_one_before(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    send = CollectivePublisher._send

    def send_as_somebody_comes(publisher: CollectivePublisher, one: HostVersion) -> None:
        if one.layout.version == 6:
            publisher._send_again()  # between the moment that it is taken and its transfer
        send(publisher, one)

    monkeypatch.setattr(CollectivePublisher, "_send", send_as_somebody_comes)
    publisher = sent_to_a_as_b_comes(board)
    publish(publisher, snapshot(6))
    board.until_sent(2)
    board.members["c"] = "c"
    publisher._send_again()
    board.until_sent(3)
    publisher.close()
    assert board.sent == [(5, ("a",)), (6, ("a", "b")), (6, ("c",))]


@pytest.mark.parametrize("begins", [True, False], ids=["begins", "does not begin"])
def test_a_receiver_joins_the_group_of_a_transfer_that_begins(monkeypatch: pytest.MonkeyPatch, begins: bool) -> None:
    """The other group is gone already: to connect to its store would take the whole deadline."""
    sent = HostLayout(version=0, manifest=HostSource(dict(snapshot(0).tensors)).manifest(), probe=None)
    words: list[Any] = []
    joined: list[str] = []

    def now(method: str, *arguments: Any, waits: float = 0.0) -> Any:
        if method == "join":
            words.append((0, _Announcement(0, "the group", {arguments[0]: 1}, sent.to_bytes(), np.zeros(0, np.uint32))))
        return begins

    asked = SimpleNamespace(now=now, parked=lambda *arguments, timeout=None: words.pop() if words else None)
    group = SimpleNamespace(join=lambda rank, size: joined.append("the group"), leave=lambda: None, name="the group")
    monkeypatch.setattr(weights_collective, "RendezvousClient", lambda *arguments: asked)
    monkeypatch.setattr(weights_collective, "WeightsGroup", lambda name: group)
    monkeypatch.setattr(weights_collective, "_broadcast", lambda flat, start, group: len(flat))
    monkeypatch.setattr(CollectiveReceiver, "_interrupt", lambda receiver: None)
    CollectiveReceiver("p0", RendezvousAddress(None, "the trainer"), 60.0, lambda: None).close()
    assert joined == ["the group"] * begins
