"""The board that announces weights, and how it is asked: out of reach is not gone, and gone is no answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError
from rlcore_plugin_ray import weights_rendezvous
from rlcore_plugin_ray.weights_rendezvous import RendezvousClient, WeightsRendezvous

from rlcore.api import WeightsError


class Line:
    """A remote board whose answers a test gives; a clock that moves while its owner sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any, each: float = 0.0) -> None:
        self._answers, self._each, self.now = list(answers), each, 100.0
        monkeypatch.setattr(weights_rendezvous.ray, "get", self._get)
        monkeypatch.setattr(weights_rendezvous.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(weights_rendezvous.time, "sleep", self._pass)

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def _get(self, ref: Any, timeout: float | None = None) -> Any:
        self.now += self._each
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, deadline: float) -> RendezvousClient:
        remote = SimpleNamespace(after=SimpleNamespace(remote=lambda *arguments: arguments))
        return RendezvousClient(remote, "producer p", deadline)


def away() -> ActorUnavailableError:
    return ActorUnavailableError("the connection was lost", None)


def test_a_board_that_was_out_of_reach_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch, away(), away(), (3, "word"))
    assert line.ask(deadline=10.0).parked("after", "token", 2) == (3, "word")


def test_a_board_that_stays_out_of_reach_is_an_error_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch, away())
    with pytest.raises(WeightsError, match=r"producer p cannot reach the board that announces weights \(after\)"):
        line.ask(deadline=10.0).parked("after", "token", 2)
    assert 110.0 <= line.now <= 112.0


def test_a_later_outage_has_the_whole_deadline_again(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch, *[away()] * 5, (3, "word"), each=60.0)  # it was in reach for a minute before each
    assert line.ask(deadline=10.0).parked("after", "token", 2) == (3, "word")


def test_a_board_that_ended_has_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Line(monkeypatch, away(), ActorDiedError()).ask(deadline=10.0).parked("after", "token", 2) is None


def test_who_comes_back_from_a_broken_transfer_says_why_until_it_leaves() -> None:
    async def story() -> None:
        board = WeightsRendezvous()
        await board.join("t0", "p0")
        await board.join("t1", "p1")
        parked = [asyncio.create_task(board.after("t0", -1, "no GPU")), asyncio.create_task(board.after("t1", -1))]
        assert await board.busy(["t0", "t1"], 5.0) == []
        assert await board.reasons() == {"p0": "no GPU"}
        await board.leave("t0")
        assert await board.reasons() == {}
        await board.leave("t1")
        assert await asyncio.gather(*parked) == [None, None]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("ends", "gathered", "begins"),
    [
        (lambda board: board.here("t1", 3, 60.0), {}, True),
        (lambda board: board.leave("t1"), None, False),
        (lambda board: asyncio.sleep(0), {"t1": "p1"}, False),
    ],
    ids=["all are here", "one leaves", "one does not come"],
)
def test_nobody_joins_a_group_before_it_is_whole(ends: Any, gathered: Any, begins: bool) -> None:
    async def story() -> None:
        board = WeightsRendezvous()
        await board.join("t0", "p0")
        await board.join("t1", "p1")
        first = asyncio.create_task(board.here("t0", 3, 60.0))
        decides = asyncio.create_task(board.gathered(3, ["t0", "t1"], 0.2))
        await asyncio.sleep(0.05)
        assert not first.done()
        await asyncio.gather(asyncio.create_task(ends(board)), decides, first)
        assert (decides.result(), first.result()) == (gathered, begins)

    asyncio.run(story())


def test_who_closes_after_a_transfer_began_still_takes_part() -> None:
    async def story() -> None:
        board = WeightsRendezvous()
        await board.join("t0", "p0")
        here = asyncio.create_task(board.here("t0", 0, 60.0))
        assert await board.gathered(0, ["t0"], 60.0) == {}
        await board.leave("t0")
        assert await here

    asyncio.run(story())


def test_who_waited_in_vain_for_a_trainer_is_missing_in_its_transfer() -> None:
    async def story() -> None:
        board = WeightsRendezvous()
        await board.join("t0", "p0")
        assert not await board.here("t0", 0, 0.01)
        assert await board.gathered(0, ["t0"], 0.01) == {"t0": "p0"}

    asyncio.run(story())
