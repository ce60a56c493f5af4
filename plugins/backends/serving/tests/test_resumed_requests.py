"""Requests that go on after an abort of ours."""

from __future__ import annotations

from rlcore_plugin_serving.partial_completions import NewTokens
from rlcore_plugin_serving.resumed_requests import ResumedRequests
from rlcore_plugin_serving.serving_engine import EngineRequest

from rlcore.api import Sampling


def an_ask(name: str, *, most: int = 8) -> EngineRequest:
    return EngineRequest(name=name, token_ids=(3, 4), sampling=Sampling(max_new_tokens=most), seed=1, max_tokens=most, stop_token_ids=(0,))


def books(*asks: EngineRequest) -> ResumedRequests:
    made = ResumedRequests()
    made.add(asks or [an_ask("r")])
    return made


def aborted(name: str, *tokens: int, versions: int = 0) -> NewTokens:
    return NewTokens(name, tokens, [-1.0] * len(tokens), [1] * versions, "abort")


def test_a_request_that_we_interrupt_goes_on_after_its_tokens():
    asks = books()
    assert asks.hand_on([NewTokens("r", [5, 6], [-1.0, -1.0])]) == [NewTokens("r", [5, 6], [-1.0, -1.0])]
    assert asks.interrupt() == ["r"]
    (part,) = asks.hand_on([aborted("r", 7, versions=3)])
    assert (part.tokens, part.versions, part.finish) == ((7,), [1, 1, 1], "")
    (ask,) = asks.resume()
    assert (ask.token_ids, ask.max_tokens, ask.drawn, ask.seed) == ((3, 4, 5, 6, 7), 5, 3, 1)
    assert asks.resume() == []


def test_a_second_interruption_goes_on_after_all_tokens():
    asks = books()
    for token in (5, 6):
        asks.interrupt()
        asks.hand_on([aborted("r", token, versions=1)])
        (ask,) = asks.resume()
    assert (ask.token_ids, ask.max_tokens, ask.drawn) == ((3, 4, 5, 6), 6, 2)


def test_an_abort_that_we_did_not_ask_for_ends_the_request():
    asks = books()
    assert asks.hand_on([aborted("r", 5)])[0].finish == "abort"
    assert len(asks) == 0
    assert asks.hand_on([aborted("r")]) == []


def test_an_answer_that_ended_by_itself_while_it_was_interrupted_is_over():
    asks = books(an_ask("r"), an_ask("s"))
    asks.interrupt()
    assert [part.finish for part in asks.hand_on([NewTokens("r", [5, 0], [-1.0, -1.0], [1, 1], "stop"), aborted("s")])] == ["stop", ""]
    assert [ask.name for ask in asks.resume()] == ["s"]


def test_an_answer_that_is_whole_where_it_was_interrupted_is_over():
    asks = books(an_ask("full", most=2), an_ask("stopped"))
    asks.interrupt()
    parts = asks.hand_on([aborted("full", 5, 6), aborted("stopped", 5, 0)])
    assert [part.finish for part in parts] == ["length", "stop"]
    assert asks.resume() == []


def test_a_request_that_waits_can_be_dropped_and_one_that_runs_is_the_engines():
    asks = books(an_ask("waits"), an_ask("runs"))
    assert asks.interrupt(["waits", "unknown"]) == ["waits"]
    asks.hand_on([aborted("waits", 5, versions=1)])
    assert asks.drop(["waits", "runs", "unknown"]) == [NewTokens("waits", finish="abort")]
    assert "runs" in asks
    assert "waits" not in asks
    assert asks.resume() == []


def test_only_tokens_whose_version_is_known_are_gone_on_after_if_the_others_are_taken_back():
    asks = books()
    asks.interrupt()
    asks.hand_on([aborted("r", 5, 6, versions=2)])
    asks.resume()
    asks.hand_on([NewTokens("r", [7, 8], [-1.0, -1.0])])
    asks.interrupt()
    assert asks.hand_on([NewTokens("r", finish="abort", withdrawn=True)]) == [NewTokens("r", withdrawn=True)]
    assert asks.resume()[0].token_ids == (3, 4, 5, 6)


def test_an_interruption_is_over_once_the_request_goes_on():
    asks = books()
    asks.interrupt()
    asks.hand_on([aborted("r", 5, versions=1)])
    asks.resume()
    assert asks.hand_on([aborted("r", 6, versions=1)])[0].finish == "abort"
