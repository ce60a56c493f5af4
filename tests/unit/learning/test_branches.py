"""A rollout with branches counts as several rollouts: each is compared with the branches of its player."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore.api import Group, RewardDetail, Rollout, RunError, Score, Segment
from rlcore.api.conversations import RolloutBranch
from rlcore.contracts.types import RolloutKind
from rlcore.learning import BatchSettings, assemble_batch, assemble_rewards, run_estimator
from rlcore.learning.advantages import GroupMean, GroupNorm
from rlcore.rewards.reward_mixer import mix
from rlcore.roles.update_figures import mean_by_rollout

SETTINGS = BatchSettings(max_new_tokens=64)


def segment(tokens: int) -> Segment:
    return Segment(
        context_ids=[1], token_ids=range(tokens), logprobs=[-0.5] * tokens, versions=[0] * tokens, policy_mask=np.ones(tokens, bool)
    )


def played(index: int, branches: Sequence[tuple[str, int]], kind: RolloutKind = RolloutKind.SAMPLED) -> Rollout:
    """An episode with a segment a branch: (player, tokens)."""
    segments = tuple(segment(tokens) for _, tokens in branches)
    return Rollout(
        prompt_id="p",
        index=index,
        segments=segments,
        text="",
        finish="stop",  # type: ignore[arg-type]
        kind=kind,
        branches=tuple(RolloutBranch(1, player) for player, _ in branches),
    )


def group(rollouts: Sequence[Rollout], scores: Sequence[Score]) -> Group:
    return Group(prompt_id="p", episode=0, prompt_index=0, rollouts=tuple(rollouts), scores=tuple(scores))


def test_each_player_has_a_baseline_of_its_own() -> None:
    games = [played(0, [("x", 2), ("o", 3)]), played(1, [("o", 1), ("x", 4)])]
    verdicts = [Score(value=0.0, branch_values=(1.0, -1.0)), Score(value=0.0, branch_values=(5.0, 3.0))]
    batch = assemble_rewards([group(games, verdicts)], SETTINGS, needs={RewardDetail.PROMPT_IDS})
    assert batch.rewards.tolist() == [1.0, 3.0, -1.0, 5.0]  # x of both games, then o of both
    assert batch.group.tolist() == [0, 0, 1, 1]
    assert batch.lengths.tolist() == [2, 4, 3, 1]
    assert batch.prompt_ids == ("p/x", "p/o")
    assert run_estimator("mean", GroupMean(), batch).tolist() == [-1.0] * 2 + [1.0] * 4 + [-3.0] * 3 + [3.0]
    trained = assemble_batch([group(games, verdicts)], None, SETTINGS)
    assert trained.group.tolist() == [0, 0, 0, 0]  # one group of one prompt, which no step and no rank divides
    assert [len(one.segments[0].token_ids) for one in trained.rollouts] == [2, 4, 3, 1]


def test_the_branches_of_a_rollout_share_its_place_among_the_advantages_of_a_report() -> None:
    games = [played(0, [("x", 2), ("o", 1)]), played(1, [("o", 1), ("x", 4)])]
    batch = assemble_batch([group(games, [Score(value=0.0)] * 2)], np.array([3.0, 1.0, -6.0, 2.0]), SETTINGS)  # x, x, o, o
    assert mean_by_rollout(batch).tolist() == pytest.approx([0.0, 1.2])


def test_a_reward_without_branches_gives_its_value_to_each() -> None:
    episodes = [played(0, [("", 2), ("", 3)]), played(1, [("", 1)])]
    batch = assemble_rewards([group(episodes, [Score(value=4.0), Score(value=1.0)])], SETTINGS)
    assert batch.rewards.tolist() == [4.0, 4.0, 1.0]
    both = mix([("env", 2.0, Score(value=1.0, branch_values=(1.0, 0.0))), ("format", 1.0, Score(value=0.5))])
    assert (both.value, both.branch_values) == (2.5, (2.5, 0.5))
    assert not mix([("env", 1.0, Score(value=1.0))]).branch_values


def test_a_failed_episode_leaves_the_baselines_of_all_players() -> None:
    games = [played(0, [("x", 2), ("o", 3)]), played(1, [("x", 1), ("o", 1)])]
    verdicts = [Score(value=0.0, branch_values=(1.0, -1.0)), Score.failed("infra", "lost")]  # type: ignore[arg-type]
    batch = assemble_rewards([group(games, verdicts)], SETTINGS)
    assert batch.in_statistics.tolist() == [True, False, True, False]
    assert not run_estimator("norm", GroupNorm(), batch).any()


def test_a_greedy_game_is_the_baseline_of_its_players() -> None:
    games = [played(0, [("x", 2), ("o", 3)]), played(1, [("o", 2), ("x", 2)], RolloutKind.GREEDY)]
    verdicts = [Score(value=0.0, branch_values=(1.0, -1.0)), Score(value=0.0, branch_values=(7.0, 8.0))]
    batch = assemble_rewards([group(games, verdicts)], SETTINGS, with_greedy=True)
    assert batch.greedy is not None
    assert batch.greedy.tolist() == [8.0, 7.0]


def test_the_greedy_baseline_of_several_branches_is_their_mean() -> None:
    episodes = [played(0, [("", 2)]), played(1, [("", 2), ("", 2)], RolloutKind.GREEDY)]
    for values in ((1.0, 0.0), (0.0, 1.0)):
        verdicts = [Score(value=0.0), Score(value=0.0, branch_values=values)]
        batch = assemble_rewards([group(episodes, verdicts)], SETTINGS, with_greedy=True)
        assert batch.greedy is not None
        assert batch.greedy.tolist() == [0.5]


def test_turns_and_token_rewards_go_with_their_branch() -> None:
    game = replace(played(0, [("o", 3), ("x", 2)]), turn_lengths=(1, 0, 2, 2))
    alone = replace(played(1, [("x", 1)]), turn_lengths=(1,))
    verdicts = [Score(value=0.0, token_rewards=(1.0, 2.0, 3.0, 4.0, 5.0)), Score(value=1.0, token_rewards=(6.0,))]
    batch = assemble_rewards([group([game, alone], verdicts)], SETTINGS, needs={RewardDetail.TURNS, RewardDetail.TOKEN_REWARDS})
    assert batch.token_rewards is not None
    assert batch.turn_lengths is not None
    assert batch.token_rewards.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert batch.turn_lengths.tolist() == [1, 0, 2, 2, 1]


def test_wrong_numbers_of_branches_are_named() -> None:
    with pytest.raises(ValueError, match=r"rollout 0 of prompt p has branches of \[1\] segments; .* the 2 segments of the rollout"):
        replace(played(0, [("x", 2), ("o", 3)]), branches=(RolloutBranch(1),))
    with pytest.raises(RunError, match=r"has 1 branch values, and the rollout has 2 branches"):
        assemble_rewards([group([played(0, [("x", 2), ("o", 3)])], [Score(value=0.0, branch_values=(1.0,))])], SETTINGS)
    assert (
        mix([("a", 1.0, Score(value=0.0, branch_values=(1.0,))), ("b", 1.0, Score(value=0.0, branch_values=(1.0, 2.0)))]).outcome == "error"
    )


@given(st.lists(st.lists(st.tuples(st.sampled_from("xo"), st.integers(1, 4), st.integers(-3, 3)), min_size=1, max_size=4), min_size=1))
def test_branches_have_the_advantages_of_rollouts(games: list[list[tuple[str, int, int]]]) -> None:
    """The same as with a group for each player, in which each branch is a rollout."""
    rollouts = [played(index, [(player, tokens) for player, tokens, _ in game]) for index, game in enumerate(games)]
    scores = [Score(value=0.0, branch_values=tuple(float(value) for *_, value in game)) for game in games]
    batch = assemble_rewards([group(rollouts, scores)], SETTINGS)
    found = run_estimator("norm", GroupNorm(), batch)
    players = dict.fromkeys(player for game in games for player, *_ in game)
    expected: list[float] = []
    for wanted in players:
        branches = [(tokens, value) for game in games for player, tokens, value in game if player == wanted]
        values = np.array([value for _, value in branches], float)
        std = values.std(ddof=1) if len(values) > 1 else 0.0
        expected += [(value - values.mean()) / (std + 1e-4) for tokens, value in branches for _ in range(tokens)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
