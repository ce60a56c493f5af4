"""Rewards of branches and players go from the environment to the score."""

from __future__ import annotations

from pathlib import Path

from episode_player import EpisodePlayer
from rlcore_gateway.trained import LedgerBranch, LedgerResult
from rlcore_gateway.worker_lines import EpisodeEnd
from rlcore_plugin_agents.agent import _branches
from rlcore_plugin_agents.agent_options import EnvironmentRewardOptions
from rlcore_plugin_agents.environment_reward import EnvironmentReward

from rlcore.api import FinishReason, RewardInput, Rollout, Score
from rlcore.api.conversations import RolloutBranch

FORKS = """
from rlcore.api.environments import EpisodeResult

async def play(model, row):
    first = await model.chat(row["messages"], max_tokens=3)
    history = [*row["messages"], {"role": "assistant", "content": first["content"]}]
    ends = [await model.chat([*history, {"role": "user", "content": hint}], max_tokens=3) for hint in ("higher", "lower")]
    named = {"right": {ends[0]["id"]: 1.0}, "both": {ends[0]["id"]: 1.0, ends[1]["id"]: 2.0}, "first": {first["id"]: 1.0}}
    return EpisodeResult(reward=0.5, branch_rewards=named[row["do"]])
"""

CHATS = """
from rlcore.api.environments import EpisodeResult

async def play(model, row):
    ends, turns = {}, {}
    for who, reward in (("good", 1.0), ("bad", -1.0)):
        chat = [*row["messages"], {"role": "user", "content": who}]
        for turn in range(row["turns"]):
            answer = await model.chat(chat, max_tokens=3)
            turns[answer["id"]] = reward
            chat += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "more"}]
        ends[answer["id"]] = reward
    calls = tuple(call for place, call in enumerate(turns) if place != 4) if row["do"] == "names" else None
    return EpisodeResult(reward=0.0, turn_rewards=turns, branch_rewards=ends, calls=calls)
"""


def scored(rollout: Rollout) -> Score:
    item = RewardInput(messages=(), columns={}, text="", finish=FinishReason.STOP, turns=rollout.turns, extra=rollout.extra)
    return EnvironmentReward(EnvironmentRewardOptions()).score(item)


def test_the_branches_of_a_chat_have_its_rewards(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, FORKS, error_budget=1.0) as player:
        one, both, first = (rollout for rollout, _ in player.play({"do": "right"}, {"do": "both"}, {"do": "first"}))
    assert one.branches == (RolloutBranch(2),)  # the other branch has the one reward of its chat
    assert one.extra["branch_rewards"] == [1.0]
    assert both.branches == (RolloutBranch(1), RolloutBranch(1))
    assert sorted(both.extra["branch_rewards"]) == [1.0, 2.0]
    assert scored(both).branch_values == tuple(both.extra["branch_rewards"])
    assert first.extra["outcome"] == "environment"
    assert "but it is not the last call of a branch" in first.extra["reason"]


def result_with(*branches: LedgerBranch) -> LedgerResult:
    return LedgerResult(segments=(), branches=branches, messages=(), turn_lengths=(), calls=(), text="", counts={}, exhausted="")


def test_rewards_of_answers_beyond_the_budget_go_to_the_last_answer_of_their_chat_that_trains(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, CHATS, on_budget="answer", max_calls=5, error_budget=1.0) as player:
        for do, bad in (("plays", (-1.0, -2.0)), ("names", (-2.0,))):
            ((within, _),) = player.play({"do": do, "turns": 2})
            ((beyond, _),) = player.play({"do": do, "turns": 3})
            assert (within.extra["branch_rewards"], within.turn_rewards) == ([1.0, -1.0], (1.0, 1.0, -1.0, -1.0))
            assert (beyond.extra["branch_rewards"], beyond.turn_rewards) == ([1.0, -1.0], (1.0, 1.0, 1.0, *bad))


def test_a_canned_fork_has_no_tokens_to_reward(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, FORKS, on_budget="answer", max_calls=2, error_budget=1.0) as player:
        ((rollout, _),) = player.play({"do": "both"})
    assert (rollout.extra["outcome"], rollout.extra["branch_rewards"]) == ("ok", [1.0])


def test_a_player_is_one_part_unless_branches_have_rewards() -> None:
    result = result_with(LedgerBranch("a", "x", 0), LedgerBranch("b", "x", 1), LedgerBranch("c", "o", 2))
    parts, rewards = _branches(EpisodeEnd(player_rewards={"x": 1.0, "o": -1.0}), result)
    assert (parts, rewards) == ((RolloutBranch(2, "x"), RolloutBranch(1, "o")), [1.0, -1.0])
    parts, rewards = _branches(EpisodeEnd(player_rewards={"x": 1.0}, branch_rewards={"b": 3.0}), result)
    assert (parts, rewards) == ((RolloutBranch(1, "x"), RolloutBranch(1, "x"), RolloutBranch(1, "o")), [1.0, 3.0, None])


def test_a_chat_whose_history_is_rewritten_is_one_part_with_its_one_reward() -> None:
    """Two agents that each rewrite their history once; only their last calls are named."""
    agents = (LedgerBranch("a1", chat=0), LedgerBranch("a2", chat=0), LedgerBranch("b1", chat=1), LedgerBranch("b2", chat=1))
    parts, rewards = _branches(EpisodeEnd(reward=0.5, branch_rewards={"a2": 1.0, "b2": -1.0}), result_with(*agents))
    assert (parts, rewards) == ((RolloutBranch(2), RolloutBranch(2)), [1.0, -1.0])


def test_what_several_rewarded_branches_of_a_chat_share_has_the_mean_of_their_rewards() -> None:
    chat = (LedgerBranch("old", chat=0), LedgerBranch("one", chat=0), LedgerBranch("two", chat=0))
    parts, rewards = _branches(EpisodeEnd(branch_rewards={"one": 1.0, "two": -0.5}), result_with(*chat))
    assert (parts, rewards) == ((RolloutBranch(1),) * 3, [0.25, 1.0, -0.5])


def test_a_game_that_one_of_two_wins_is_half_solved() -> None:
    """So a filter of accuracies keeps it, although its rewards add up to 0."""
    item = RewardInput(messages=(), columns={}, text="", extra={"reward": 0.0, "branch_rewards": [1.0, -1.0]})
    assert EnvironmentReward(EnvironmentRewardOptions()).score(item).accuracy == 0.5
