"""The ledger: each prompt ends once, and episodes add up to the data set."""

from __future__ import annotations

import json

import pytest

from rlcore.schedule.ledger import Ledger


def small() -> Ledger:
    ledger = Ledger(3)
    for episode in (0, 0, 0, 1):
        ledger.issue(episode)
    ledger.train(0)
    ledger.filter(0)
    ledger.fail(0, "timeout")
    ledger.reissued += 1
    return ledger


def test_every_prompt_that_was_issued_is_open_until_it_has_ended() -> None:
    ledger = small()
    assert (ledger.trained, ledger.filtered, ledger.failed, ledger.reissued) == (1, 1, 1, 1)
    assert {number: (episode.issued, episode.ended, episode.open) for number, episode in ledger.episodes.items()} == {
        0: (3, 3, 0),
        1: (1, 0, 1),
    }


@pytest.mark.parametrize("end", [Ledger.train, Ledger.filter, lambda ledger, episode: ledger.fail(episode, "x")])
@pytest.mark.parametrize("episode", [0, 2])
def test_a_prompt_cannot_end_that_is_not_open(end: object, episode: int) -> None:
    with pytest.raises(ValueError, match=f"episode {episode} has no open prompt"):
        end(small(), episode)  # type: ignore[operator]


def test_no_more_prompts_than_the_data_set_holds() -> None:
    with pytest.raises(ValueError, match="episode 0 has 3 prompts"):
        small().issue(0)


def test_failures_are_counted_by_episode_and_reason() -> None:
    ledger = small()
    ledger.fail(1, "timeout")
    ledger.issue(1)
    ledger.fail(1, "no accuracy")
    assert {number: episode.failed for number, episode in ledger.episodes.items()} == {
        0: {"timeout": 1},
        1: {"timeout": 1, "no accuracy": 1},
    }
    assert ledger.failed == 3


def test_a_state_has_a_row_an_episode_and_is_json() -> None:
    state = json.loads(json.dumps(small().state()))
    assert state == {"reissued": 1, "episodes": [[0, 3, 1, 1, {"timeout": 1}], [1, 1, 0, 0, {}]]}
