"""One evaluation answers every request up to the version that made it, whichever came first."""

from __future__ import annotations

from rlcore.runtime.evaluating import EvaluationRequests


def test_an_evaluation_answers_its_own_request_alone_where_the_others_want_newer_weights() -> None:
    requests = EvaluationRequests()
    requests.ask(3)
    requests.ask(6)
    assert requests.first == 3
    requests.answered(5)
    assert requests.first == 6


def test_an_evaluation_answers_every_request_up_to_its_version() -> None:
    requests = EvaluationRequests()
    for version in (3, 6, 9):
        requests.ask(version)
    requests.answered(7)
    assert requests.first == 9
    requests.answered(9)
    assert not requests


def test_a_request_that_comes_after_its_evaluation_is_answered() -> None:
    requests = EvaluationRequests()
    requests.ask(9)
    requests.answered(12)
    requests.ask(12)
    assert not requests
    requests.ask(13)
    assert requests.first == 13
