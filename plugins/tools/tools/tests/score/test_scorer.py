"""Items through real workers: order, groups, rows that cannot be judged, accidents, bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from rlcore_plugin_tools.score.items import Item, TextVerdict
from rlcore_plugin_tools.score.scorer import Scorer

from rlcore.api import Outcome, RewardSpec
from rlcore.api.judging import RewardEntry


def entry(target: Any, name: str = "first", *, weight: float = 1.0, deadline: float = 30.0) -> RewardEntry:
    spec = RewardSpec(name=name, target="unpackaged:target", summary="")
    return RewardEntry(name=name, spec=spec, weight=weight, deadline=deadline, payload=cloudpickle.dumps(target))


def kind() -> type:
    """A reward made inside a function, so that it travels by value."""
    import os
    import time

    from rlcore.api import Reward, Score

    class Obedient(Reward):
        requires = ("gold",)

        def check(self, columns):
            match columns["gold"]:
                case "bad":
                    return "gold is bad"
                case "raises":
                    raise KeyError("of the check")
                case "hangs":
                    time.sleep(600)
                case "number":
                    return 5
            return None

        def score(self, item):
            word, _, rest = item.text.partition(" ")
            if word == "die":
                os._exit(7)
            if word == "sleep":
                time.sleep(float(rest))
            if word == "raise":
                raise KeyError("asked to")
            return Score(value=float(item.text == item.columns["gold"]), accuracy=float(item.text == item.columns["gold"]))

    return Obedient


def groups() -> type:
    """A reward of groups: each text is worth its place from the end."""
    from rlcore.api import Reward, Score

    class Ranked(Reward):
        group_level = True

        def score(self, item):
            raise AssertionError("a group is judged as a whole")

        def score_group(self, items):
            return [Score(value=float(len(items) - place)) for place, _ in enumerate(items)]

    return Ranked


def item(line: int, *texts: str, gold: str = "x", **more: Any) -> Item:
    return Item(line=line, source=f"f:{line}", columns={"gold": gold}, texts=texts, several=len(texts) > 1, **more)


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer([entry(kind()), entry(lambda item: len(item.text), "length", weight=0.5)], workers=2) as made:
        yield made


def outcomes(verdicts: list[TextVerdict]) -> list[tuple[int, str]]:
    return [(verdict.line, verdict.score.outcome.value) for verdict in verdicts]


def test_verdicts_come_in_the_order_of_the_rows(scorer: Scorer) -> None:
    texts = ["sleep 0.3" if line == 1 else "x" for line in range(1, 201)]
    verdicts = list(scorer.run(item(line, text) for line, text in enumerate(texts, start=1)))
    assert [verdict.line for verdict in verdicts] == list(range(1, 201))
    assert verdicts[0].seconds is not None
    assert verdicts[0].seconds >= 0.3
    assert verdicts[1].score.value == 1.5
    assert dict(verdicts[1].score.parts)["length"] == 0.5


def test_a_row_goes_to_the_reward_that_it_names(scorer: Scorer) -> None:
    (verdict,) = scorer.run([item(1, "xxxx", reward="length")])
    assert verdict.score.value == 2.0
    assert "first" not in verdict.score.parts


def test_a_row_that_cannot_be_judged_is_invalid_at_its_place(scorer: Scorer) -> None:
    rows = [item(1, "x"), Item(line=2, source="f:2", refused="f:2: nonsense"), item(3, "x", "y", gold="bad"), item(4, "bad", gold="bad")]
    verdicts = list(scorer.run([*rows, item(5, "x")]))
    assert outcomes(verdicts) == [(1, "ok"), (2, "invalid"), (3, "invalid"), (4, "invalid"), (5, "ok")]
    assert verdicts[1].score.reason == "f:2: nonsense"
    assert verdicts[2].score.reason == "f:3: reward first cannot score this row: gold is bad"
    assert verdicts[3].score.reason.startswith("f:4: ")


@pytest.mark.parametrize(
    ("gold", "outcome", "reason"),
    [("raises", "error", "of the check"), ("number", "error", "check returned int"), ("hangs", "timeout", "no verdict within 0.5 s")],
)
def test_an_accident_of_the_check_is_not_the_fault_of_the_row(gold: str, outcome: str, reason: str) -> None:
    with Scorer([entry(kind(), deadline=0.5)], workers=1) as scorer:
        verdicts = list(scorer.run([item(1, "x", gold=gold), item(2, "x")]))
    assert outcomes(verdicts) == [(1, outcome), (2, "ok")]
    assert reason in verdicts[0].score.reason


def test_checking_alone_scores_nothing_and_names_the_bad_rows(scorer: Scorer) -> None:
    found = list(scorer.run([item(1, "die"), item(2, "die", gold="bad")], scores=False))
    assert outcomes(found) == [(2, "invalid")]


def test_completions_of_one_row_keep_their_places(scorer: Scorer) -> None:
    verdicts = list(scorer.run([item(1, "y", "x", "sleep 0.1")]))
    assert [(verdict.place, verdict.score.accuracy) for verdict in verdicts] == [(0, 0.0), (1, 1.0), (2, 0.0)]


def test_accidents_are_outcomes_and_the_rest_goes_on(scorer: Scorer) -> None:
    verdicts = list(scorer.run([item(1, "raise"), item(2, "die"), item(3, "x")]))
    assert outcomes(verdicts) == [(1, "error"), (2, "infra"), (3, "ok")]
    assert "KeyError" in verdicts[0].trace
    assert verdicts[2].trace == ""


def test_a_hanging_text_costs_its_deadline_only() -> None:
    with Scorer([entry(kind(), deadline=0.5)], workers=1) as scorer:
        verdicts = list(scorer.run([item(1, "sleep 600"), item(2, "x")]))
    assert outcomes(verdicts) == [(1, "timeout"), (2, "ok")]
    assert verdicts[0].seconds == 0.5


def test_a_reward_of_groups_sees_the_group() -> None:
    with Scorer([entry(groups())], workers=1) as scorer:
        verdicts = list(scorer.run([item(1, "a", "b", "c"), item(2, "d")]))
    assert [verdict.score.value for verdict in verdicts] == [3.0, 2.0, 1.0, 1.0]


class Counted:
    """Rows without end for a scorer, and how many of them were read and judged; each is one task of the pool."""

    def __init__(self, scorer: Scorer, first: str = "x") -> None:
        self.read = self.judged = 0
        self.out: list[int] = []
        """How many rows were read and not judged, each time that the scorer had read and waited for the workers."""
        self._first, self._pool, self._poll = first, scorer.pool, scorer.pool.poll
        scorer.pool.poll = self.poll  # type: ignore[method-assign]

    def __iter__(self) -> Iterator[Item]:
        for line in itertools.count(1):
            self.read += 1
            yield item(line, self._first if line == 1 else "x")

    def poll(self, timeout: float) -> Any:
        self.out.append(self.read - self.judged)
        results = self._poll(timeout)
        self.judged += len(results)
        return results


def test_no_more_is_read_than_the_workers_need() -> None:
    with Scorer([entry(lambda item: 1.0)], workers=2) as scorer:
        rows = Counted(scorer)
        verdicts = scorer.run(rows)
        for _ in range(1000):
            next(verdicts)
    assert max(rows.out) == 2 * 128
    assert rows.judged >= 1000


def test_rows_that_wait_for_the_first_one_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The verdict of the first row is made only after every other row that may be read was judged."""
    monkeypatch.setattr("rlcore_plugin_tools.score.scorer._AHEAD", 300)
    go = tmp_path / "go"

    def patient(item: Any) -> float:
        import time

        while item.text == "first" and not go.exists():
            time.sleep(0.01)
        return 1.0

    with Scorer([entry(patient)], workers=2) as scorer:
        rows = Counted(scorer, "first")
        read = []

        def poll(timeout: float) -> Any:
            read.append(rows.read)
            if rows.judged == 299:
                go.touch()
            return rows.poll(timeout)

        scorer.pool.poll = poll  # type: ignore[method-assign]
        next(scorer.run(rows))
    assert (max(read), rows.judged) == (300, 300)


def test_after_an_interrupt_what_was_judged_is_there() -> None:
    """Ctrl-C comes once three rows are judged, while the first one is still under way."""
    with Scorer([entry(kind(), deadline=600.0)], workers=2) as scorer:
        real = scorer.pool.poll

        def poll(timeout: float) -> Any:
            if sum(case.done is not None for case in scorer._order) >= 3:
                raise KeyboardInterrupt
            return real(timeout)

        scorer.pool.poll = poll  # type: ignore[method-assign]
        before: list[TextVerdict] = []
        with pytest.raises(KeyboardInterrupt):
            before.extend(scorer.run([item(1, "sleep 600"), *(item(line, "x") for line in range(2, 20))]))
        late = list(scorer.finished())
    lines = [verdict.line for verdict in [*before, *late]]
    assert before == []
    assert len(lines) >= 3
    assert lines == sorted(set(lines) - {1})
    assert all(verdict.score.outcome is Outcome.OK for verdict in late)
