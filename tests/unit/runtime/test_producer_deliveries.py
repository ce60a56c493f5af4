"""Deliveries of a producer: one under way at a time, what is made meanwhile together in the next, none lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.producer_stage import SECONDS, Stage, Told, snapshot, until


def test_what_is_made_during_a_delivery_is_delivered_together_with_the_answer(tmp_path: Path) -> None:
    stage = Stage(tmp_path, in_flight=4)
    stage.endpoints.open = []
    stage.receiver.hand(snapshot(0))
    stage.grant(0)
    stage.endpoints.until(lambda: stage.endpoints.brought == [[0]])  # at once: no delivery was under way
    stage.grant(1)
    stage.grant(2, 3)
    until(lambda: len(stage.loop._made) == 3)
    assert stage.endpoints.brought == [[0]]
    stage.endpoints.open.pop()()
    stage.endpoints.until(lambda: stage.endpoints.brought == [[0], [1, 2, 3]])
    assert [group.prompt_index for group in stage.endpoints.groups] == [0, 1, 2, 3]
    stage.endpoints.open.pop()()
    stage.grant(4)
    stage.endpoints.until(lambda: stage.endpoints.brought == [[0], [1, 2, 3], [4]])
    stage.stop()


def test_what_waits_for_a_delivery_is_not_lost_when_it_stops(tmp_path: Path) -> None:
    stage = Stage(tmp_path, in_flight=4)
    stage.endpoints.open = []
    stage.receiver.hand(snapshot(0))
    stage.grant(0)
    stage.endpoints.until(lambda: stage.endpoints.brought == [[0]])
    stage.grant(1)
    until(lambda: len(stage.loop._made) == 1)
    stage.stop()
    assert stage.endpoints.brought == [[0], [1]]


def test_a_store_that_is_gone_ends_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    def gone(*told: Any) -> None:
        told[-1](None, ConnectionError("gone"))

    stage.endpoints.store = Told(deliver=gone)
    stage.receiver.hand(snapshot(0))
    stage.grant(0)
    with pytest.raises(ConnectionError):
        stage.ended.result(SECONDS)


def test_room_for_several_groups_is_one_question(tmp_path: Path) -> None:
    stage = Stage(tmp_path, in_flight=5)
    stage.receiver.hand(snapshot(0))
    stage.endpoints.until(lambda: bool(stage.endpoints.asked))
    assert [asked[:2] for asked in stage.endpoints.asked] == [(5, 0)]
    stage.grant(0, 1)  # what it was not given it asks for again, at once
    stage.endpoints.until(lambda: bool(stage.endpoints.asked))
    assert [k >= 3 for k, _, _ in stage.endpoints.asked] == [True]
    stage.stop()
