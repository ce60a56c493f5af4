"""Tasks of verifiers, unmodified, in its environment: outcomes, rewards by name, what trains, and its trace against the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episode_player import descendants, words_of
from verifiers_player import NEEDS_VERIFIERS, TASKS, VerifiersPlayer, rows_of

from rlcore.api import Outcome
from rlcore.testing import RunTester

pytestmark = [*NEEDS_VERIFIERS, pytest.mark.timeout(1200)]
LONG = 300.0


@pytest.fixture(scope="module", params=["tokens", "chat"])
def player(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VerifiersPlayer]:
    """One with each client."""
    folder = tmp_path_factory.mktemp(request.param)
    with VerifiersPlayer(folder, tokens=request.param == "tokens", deadline=LONG, error_budget=1.0) as player:
        player.client = request.param  # type: ignore[attr-defined]
        yield player


def trained(episodes: Any) -> Counter[bytes]:
    """The answers that train."""
    found: Counter[bytes] = Counter()
    for rollout, _ in episodes:
        tokens = np.concatenate([segment.token_ids[segment.policy_mask] for segment in rollout.segments])
        found.update(part.tobytes() for part in np.split(tokens, np.cumsum(rollout.turn_lengths)[:-1]))
    return found


def hosts() -> list[int]:
    """The processes that play."""
    return [child.pid for child in descendants() if "rlcore_gateway.host" in words_of(child)]


def faulty(fault: str) -> Any:
    """The row with this fault."""
    return next(row for row in rows_of("faulty_tasks.py") if row["task"]["fault"] == fault)


def test_every_sampled_token_of_32_episodes_trains_once_and_the_trace_has_it(player: VerifiersPlayer) -> None:
    before = len(player.engine.log)
    episodes = player.play(*rows_of("guess_digit.py?count=8"), copies=4)
    assert len(hosts()) <= 1, "one process plays all episodes"
    assert [(rollout.extra["outcome"], rollout.extra["reason"]) for rollout, _ in episodes] == [("ok", "")] * 32
    assert trained(episodes) == Counter(one.token_ids.tobytes() for one in player.engine.log[before:])
    for rollout, score in episodes:
        assert score.value == pytest.approx(rollout.extra["reward_solved"])
        assert rollout.extra["turns"] == rollout.extra["guesses"] == len(rollout.turn_lengths) == rollout.extra["calls"]
        assert rollout.extra["accuracy"] in (0.0, 1.0)
    assert {rollout.extra["guesses"] for rollout, _ in episodes} > {3.0}
    if player.client == "chat":  # type: ignore[attr-defined]  # who renders again loses special tokens that a random policy writes
        assert {len(rollout.segments) for rollout, _ in episodes} == {1}


@pytest.mark.parametrize(
    ("fault", "outcome", "reason", "score"),
    [
        ("sound", "ok", "", Outcome.OK),
        ("unrewarded", "ok", "", Outcome.OK),
        ("setup", "environment", "agent: TaskError: task setup: OSError: the planted fault of setup", Outcome.INFRA),
        ("reward", "environment", "agent: TaskError: task FaultyTask scoring: ValueError: the planted fault of a reward", Outcome.INFRA),
        ("forged", "environment", "the environment's record of the tokens is wrong: at token ", Outcome.INFRA),
    ],
)
def test_a_fault_of_a_task_is_the_environments(player: VerifiersPlayer, fault: str, outcome: str, reason: str, score: Outcome) -> None:
    if fault == "forged" and player.client == "chat":  # type: ignore[attr-defined]
        fault, outcome, reason, score = "sound", "ok", "", Outcome.OK  # its trace has no tokens
    ((rollout, given),) = player.play(faulty(fault))
    assert (rollout.extra["outcome"], given.outcome) == (outcome, score)
    assert reason in rollout.extra["reason"]
    assert rollout.extra["reward"] == {"sound": 0.5}.get(fault)


def test_a_reward_that_calls_sys_exit_costs_its_own_episode(player: VerifiersPlayer) -> None:
    before = player.play(faulty("sound")) and hosts()
    episodes = player.play(faulty("sound"), faulty("sys.exit"), faulty("sound"), copies=2)
    assert [rollout.extra["outcome"] for rollout, _ in episodes] == ["ok"] * 2 + ["environment"] * 2 + ["ok"] * 2
    assert {score.outcome for _, score in episodes[2:4]} == {Outcome.INFRA}
    assert {score.reason.partition(" (")[0] for _, score in episodes[2:4]} == {"SystemExit: 3"}
    assert hosts() == before, "the same process plays on"


def test_a_taskset_that_calls_sys_exit_when_it_is_served_fails(player: VerifiersPlayer) -> None:
    (bad, score), (good, _) = player.play(rows_of("faulty_tasks.py?ends=toolsets")[0], faulty("sound"))
    assert (bad.extra["outcome"], good.extra["outcome"]) == ("environment", "ok")
    assert score.reason.startswith("SystemExit: 4")


def test_two_roles_that_are_the_policy_train_and_have_their_own_rewards(player: VerifiersPlayer) -> None:
    before = len(player.engine.log)
    episodes = player.play(*rows_of("two_players.py"))
    assert trained(episodes) == Counter(one.token_ids.tobytes() for one in player.engine.log[before:])
    for rollout, score in episodes:
        assert (rollout.extra["outcome"], score.value) == ("ok", 0.0)
        assert (rollout.extra["asker_reward_game"], rollout.extra["answerer_reward_game"]) == (1.0, -1.0)
        assert sorted(rollout.extra["branch_rewards"]) == [-1.0, 1.0]


def test_attempts_that_verifiers_compares_are_branches_with_their_own_rewards(tmp_path: Path) -> None:
    given = {"env": "best-of-n", "env_options": {"n": 3, "max_concurrent_agents": None}, "agent": {"max_turns": 1}}
    with VerifiersPlayer(tmp_path, given, tokens=True, deadline=LONG) as player:
        episodes = player.play(*rows_of("endless_tasks.py?select.skip=2&select.limit=3"))
    for rollout, score in episodes:
        assert (rollout.extra["outcome"], len(rollout.turn_lengths)) == ("ok", 3)
        rewards = [reward for reward in rollout.extra["branch_rewards"] if reward is not None]
        assert score.value == pytest.approx(rollout.extra["reward_length"])
        assert rollout.extra["pass_at_n"] == float(max(rewards) >= 1.0)
        assert len(rewards) == len(rollout.branches) > 1
    assert descendants() == []


def test_players_of_the_run_play_the_roles_of_their_names(tmp_path: Path) -> None:
    with VerifiersPlayer(tmp_path, players={"asker": {}, "answerer": {}}, deadline=LONG, error_budget=1.0) as player:
        episodes = player.play(*rows_of("two_players.py"))
        ((other, _),) = player.play(faulty("sound"), first=4)
    for rollout, _ in episodes:
        assert rollout.extra["outcome"] == "ok"
        assert (rollout.extra["reward_asker"], rollout.extra["reward_answerer"]) == (1.0, -1.0)
        assert {branch.player for branch in rollout.branches} == {"asker", "answerer"}
    assert "player 'answerer' is not a role of the environment, which are agent" in other.extra["reason"]
    with VerifiersPlayer(tmp_path / "tokens", tokens=True, players={"agent": {}}, deadline=LONG, error_budget=1.0) as player:
        ((refused, _),) = player.play(faulty("sound"))
    assert "client tokens does not reach the players of a run; leave out client" in refused.extra["reason"]


def test_budgets_of_the_run_and_limits_of_verifiers_end_a_chat_which_is_graded(tmp_path: Path) -> None:
    with VerifiersPlayer(tmp_path, {"agent": {"max_turns": 2}}, max_calls=1, deadline=LONG) as player:
        episodes = player.play(*rows_of("guess_digit.py?count=8"))
        assert {(rollout.extra["turns"], rollout.extra["calls"]) for rollout, _ in episodes} == {(1.0, 1)}
        assert all(score.value is not None for _, score in episodes)
    with VerifiersPlayer(tmp_path / "verifiers", {"agents": {"player": {"max_turns": 1}}}, deadline=LONG) as player:
        episodes = player.play(*rows_of("guess_digit.py?count=8"))
    assert {(rollout.extra["outcome"], rollout.extra["turns"]) for rollout, _ in episodes} == {("ok", 1.0)}
    assert all(score.value is not None for _, score in episodes)


def test_a_process_that_dies_is_replaced_and_leaves_nothing(tmp_path: Path) -> None:
    with VerifiersPlayer(tmp_path, deadline=LONG, error_budget=1.0) as player:
        ((ended, one),) = player.play(faulty("exit"))
        ((killed, two),) = player.play(faulty("killed"), first=1)
        ((sound, three),) = player.play(faulty("sound"), first=2)
    assert (ended.extra["outcome"], killed.extra["outcome"], sound.extra["outcome"]) == ("crashed", "lost", "ok")
    assert "exit code 3" in ended.extra["reason"]
    assert "killed by signal 9" in killed.extra["reason"]
    assert (one.in_loss, two.in_loss, three.value) == (False, False, 0.5)
    assert descendants() == []


def test_a_process_that_hangs_is_too_late_and_leaves_nothing(tmp_path: Path) -> None:
    with VerifiersPlayer(tmp_path, deadline=20.0, error_budget=1.0, workers=2, episodes_per_process=1) as player:
        episodes = player.play(faulty("stopped"), faulty("late"))
    assert [(rollout.extra["outcome"], score.outcome, score.in_loss) for rollout, score in episodes] == [
        ("timeout", Outcome.TIMEOUT, False)
    ] * 2
    assert descendants() == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing.py", "there is no file"),
        ("guess_digit.py?split=dev", "split is 'dev'; it must be train or test"),
        ("guess_digit.py?colour=red", "colour"),
        ("faulty_tasks.py?ends=load", "SystemExit: 4"),
        ("endless_tasks.py", "the taskset is infinite; choose tasks with select; an example: -d env:verifiers:NAME"),
    ],
)
def test_a_taskset_that_has_no_such_rows_is_refused_with_a_sentence(name: str, said: str) -> None:
    assert said in rows_of(name)
    assert "\n" not in rows_of(name)


def test_a_run_reads_rows_and_refuses_a_taskset_without_end(tmp_path: Path) -> None:
    tester = RunTester(tmp_path)
    run = tester.with_fakes().fake_run()
    done = tester.run("train", run, "-d", f"env:verifiers:{TASKS}/endless_tasks.py", "--environment", "verifiers", "-rt", "environment")
    done.assert_refused("the taskset is infinite; choose tasks with select; an example: -d env:verifiers:NAME")


def test_rows_are_those_that_verifiers_selects() -> None:
    rows = rows_of("endless_tasks.py?select.skip=2&select.limit=3")
    assert [row["messages"] for row in rows] == [[{"role": "user", "content": f"say {number}"}] for number in (2, 3, 4)]
    assert [row["task"]["idx"] for row in rows] == [2, 3, 4]
    assert rows[0]["taskset"] == {"id": "endless_tasks"}
    assert rows[0]["taskset_folder"] == str(TASKS)
