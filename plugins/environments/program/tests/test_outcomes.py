"""Each outcome of an episode, planted in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from episode_player import EpisodePlayer, descendants
from rlcore_gateway import link as link_module

from rlcore.api import Outcome, PluginError, Score
from rlcore.api.runtime import RewardBudgetError

PLAY = '''
import asyncio, os, signal, subprocess, time
from pathlib import Path
from rlcore.api.environments import EpisodeResult

async def play(model, row):
    """Plays as the row says."""
    do, messages = row["do"], row["messages"]
    if do == "dies first":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "silent":
        return 1.0
    answer = await model.chat(messages, max_tokens=3)
    flag = Path(row["folder"]) / f"{do}"
    if do == "killed" or (do == "killed once" and not flag.exists()):
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    if do == "hangs":
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        (Path(row["folder"]) / "hanging").touch()
        time.sleep(600)
    if do == "waits":
        (Path(row["folder"]) / "waiting").touch()
        try:
            await asyncio.sleep(600)
        finally:
            (Path(row["folder"]) / "told").touch()
    if do == "crashes":
        raise ValueError("the agent has a defect")
    if do == "no number":
        return float("nan")
    if do == "foreign call":
        return EpisodeResult(reward=1.0, calls=("another",))
    if do == "foreign reward":
        return EpisodeResult(reward=1.0, turn_rewards={"another": 1.0})
    if do == "talks on":
        while True:
            messages = [*messages, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "more"}]
            answer = await model.chat(messages, max_tokens=3)
    return EpisodeResult(reward=2.0, turn_rewards={answer["id"]: 2.0}, extra={"number": 5})
'''

GAME = '''
from rlcore.api.environments import TurnEnvironment

class Game(TurnEnvironment):
    """Two turns, unless its grader fails."""

    def reset(self, row):
        self.row, self.turns = row, 0
        if row["do"] == "no reset":
            raise KeyError("board")
        return "guess"

    def step(self, answer):
        self.turns += 1
        if self.row["do"] == "grader":
            return "?", self.board, False
        return "again", 0.5, self.turns == self.row["turns"]
'''


def played(player: EpisodePlayer, folder: Path, *does: str) -> dict[str, tuple[dict[str, Any], Score]]:
    """Play one episode for each word at the same time."""
    episodes = player.play(*({"do": do, "folder": str(folder)} for do in does))
    return {do: (dict(rollout.extra), score) for do, (rollout, score) in zip(does, episodes, strict=True)}


def test_each_outcome_has_its_effect_and_nothing_is_left(tmp_path: Path) -> None:
    does = ("plays", "killed once", "killed", "dies first", "crashes", "no number", "foreign call", "foreign reward", "silent")
    with EpisodePlayer(tmp_path, PLAY, error_budget=1.0, max_calls=3) as player:
        found = played(player, tmp_path, *does, "talks on")
    assert not descendants()
    assert {do: extra["outcome"] for do, (extra, _) in found.items()} == {
        "plays": "ok",
        "killed once": "ok",
        "killed": "lost",
        "dies first": "lost",
        "crashes": "crashed",
        "no number": "environment",
        "foreign call": "environment",
        "foreign reward": "environment",
        "silent": "environment",
        "talks on": "exhausted",
    }
    assert {do: score.in_loss for do, (_, score) in found.items() if score.in_loss} == {
        "plays": True,
        "killed once": True,
        "talks on": True,
    }
    assert found["plays"][0]["number"] == 5
    assert found["plays"][0]["episode_ok"] == 1.0
    reasons = {do: score.reason for do, (_, score) in found.items()}
    assert "killed by signal 9 (Killed); the first attempt was lost, too" in reasons["killed"]
    assert reasons["crashes"] == "ValueError: the agent has a defect (game.py, line 31)"
    assert "the result of the episode is not valid" in reasons["no number"]
    assert "names the call 'another', which this episode did not answer" in reasons["foreign call"]
    assert "rewards the call 'another', which this episode did not make" in reasons["foreign reward"]
    assert "without an answer of the policy: the program never asked the policy" in reasons["silent"]


def test_an_episode_that_hangs_or_is_stopped_ends_at_its_deadline_and_the_next_one_plays(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, PLAY, deadline=2.0, workers=3, cancel_seconds=3.0) as player:
        found = played(player, tmp_path, "hangs", "stops", "waits", "plays")
    assert not descendants()
    for do in ("hangs", "stops", "waits"):
        extra, score = found[do]
        assert (extra["outcome"], score.outcome, score.in_loss) == ("timeout", Outcome.TIMEOUT, False)
        assert score.reason == "the episode had not ended after 2 s"
    assert found["plays"][0]["outcome"] == "ok"
    assert (tmp_path / "told").exists()


def test_the_options_grade_a_late_episode_and_give_a_crash_zero(tmp_path: Path) -> None:
    with EpisodePlayer(
        tmp_path,
        GAME.replace('return "again"', 'time.sleep(600 * (self.turns == 2)); return "again"').replace("from rl", "import time\nfrom rl", 1),
        deadline=2.0,
        on_timeout="grade",
        on_crash="zero",
    ) as player:
        ((late, score),) = player.play({"do": "plays", "turns": 3})
    assert late.extra["outcome"] == "timeout"
    assert score.outcome is not Outcome.TIMEOUT
    other = tmp_path / "other"
    other.mkdir()
    with EpisodePlayer(other, PLAY, on_crash="zero") as player:
        found = played(player, other, "crashes")
    assert found["crashes"][1] == Score(value=0.0, accuracy=0.0, outcome=Outcome.WRONG, reason=found["crashes"][1].reason)


def test_a_game_of_turns_is_graded_and_its_failures_are_its_own(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, GAME, error_budget=1.0, max_calls=3, max_call_tokens=4) as player:
        rows = [{"do": "plays", "turns": 2}, {"do": "plays", "turns": 99}, {"do": "grader"}, {"do": "no reset"}]
        (good, score), (long, long_score), (bad, bad_score), (none, none_score) = player.play(*rows)
    assert (good.extra["outcome"], score.value, good.turn_rewards) == ("ok", 1.0, (0.5, 0.5))
    assert (long.extra["outcome"], long_score.value, len(long.turn_lengths)) == ("exhausted", 1.5, 3)
    assert bad.extra["outcome"] == none.extra["outcome"] == "environment"
    assert bad_score.reason == "AttributeError: 'Game' object has no attribute 'board' (game.py, line 16)"
    assert none_score.reason == "KeyError: 'board' (game.py, line 10)"


def test_too_many_failures_of_the_environment_end_the_run(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, GAME, error_budget=0.5) as player:
        player.play({"do": "plays", "turns": 1}, *[{"do": "grader"}] * 4)
        words = r"of the last \d+ episodes of environment game failed .*error_budget = 0.5 .*AttributeError.*raise error_budget"
        with pytest.raises(RewardBudgetError, match=words):
            player.play(*[{"do": "grader"}] * 40)
    assert not descendants()


def test_an_environment_that_cannot_be_made_ends_the_run(tmp_path: Path) -> None:
    source = GAME + "\n    def __init__(self):\n        raise FileNotFoundError('no board on this machine')\n"
    with (
        EpisodePlayer(tmp_path, source, workers=1) as player,
        pytest.raises(PluginError, match=r"no board on this machine.*3 processes in a row"),
    ):
        player.play(*[{"do": "plays", "turns": 1}] * 3)
    assert not descendants()


def test_an_episode_that_is_cut_is_told_and_frees_its_process(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, PLAY, workers=1) as player:
        player.begin([{"do": "waits", "folder": str(tmp_path)}])
        player.step_until((tmp_path / "waiting").exists)
        player.producer.close()
        player.step_until((tmp_path / "told").exists)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_gateway_process_that_dies_or_hangs_is_replaced_and_its_episodes_begin_again(tmp_path: Path, number: int) -> None:
    with EpisodePlayer(tmp_path, PLAY, workers=2, gateway_silence=2.0) as player:
        player.begin([{"do": "hangs", "folder": str(tmp_path)}])
        player.step_until((tmp_path / "hanging").exists)
        before = descendants()
        (tmp_path / "hanging").unlink()
        (link,) = player.agent._gateways.links
        assert link.process is not None
        (gateway,) = psutil.Process(link.process.pid).children()
        os.kill(gateway.pid, number)
        player.step_until((tmp_path / "hanging").exists)
        assert not [process for process in before if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        assert "it is started anew, and its episodes begin again" in player.said[0]
    assert not descendants()


def test_nothing_is_left_of_a_gateway_process_that_is_stopped_together_with_its_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EpisodePlayer(tmp_path, PLAY, workers=1, gateway_silence=2.0) as player:
        player.begin([{"do": "hangs", "folder": str(tmp_path)}])
        player.step_until((tmp_path / "hanging").exists)
        (link,) = player.agent._gateways.links
        assert link.process is not None
        guard = psutil.Process(link.process.pid)
        family = [guard, *guard.children(recursive=True)]
        os.killpg(guard.pid, signal.SIGSTOP)
        with monkeypatch.context() as patience:
            patience.setattr(link_module, "_LEAVE_SECONDS", 1.0)
            player.step_until(lambda: player.said)
        _, alive = psutil.wait_procs(family, timeout=20)
        assert not alive
    assert len(family) == 4, "guard, gateway, worker, and its child"
    assert not descendants()


def test_the_time_in_which_the_whole_run_is_stopped_is_no_silence_of_a_gateway(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, PLAY, workers=1, gateway_silence=2.0) as player:
        player.begin([{"do": "waits", "folder": str(tmp_path)}])
        player.step_until((tmp_path / "waiting").exists)
        (link,) = player.agent._gateways.links
        ended, process = threading.Event(), link.process
        assert process is not None

        def pause() -> None:
            """Stop the gateway, and the thread that waits for it."""
            os.killpg(process.pid, signal.SIGSTOP)
            time.sleep(4.0)
            os.killpg(process.pid, signal.SIGCONT)
            ended.set()

        link.post(pause)
        player.step_until(ended.is_set)
        threading.Event().wait(3.0)
        assert link.process is process
        assert not player.said


def test_only_episodes_that_a_lost_gateway_had_begun_are_lost_with_it(tmp_path: Path) -> None:
    folder = {"folder": str(tmp_path)}
    with EpisodePlayer(tmp_path, PLAY, workers=1) as player:
        player.begin([{"do": "waits", **folder}, *[{"do": "plays", **folder}] * 9])
        for deaths in (1, 2):
            player.step_until((tmp_path / "waiting").exists)
            (tmp_path / "waiting").unlink()
            (link,) = player.agent._gateways.links
            assert link.process is not None
            (gateway,) = psutil.Process(link.process.pid).children()
            gateway.kill()
            found = player.step_until(lambda deaths=deaths: len(player.said) >= deaths)  # type: ignore[misc]
        found += player.step_until(lambda: player.producer.idle)
    assert "the gateway process of producer-0 was killed by signal 9 (Killed); it is started anew" in player.said[0]
    outcomes = {rollout.prompt_id: rollout.extra["outcome"] for rollout, _ in found}
    assert outcomes == {"p0": "lost", **{f"p{number}": "ok" for number in range(1, 10)}}


def test_nothing_is_left_of_a_producer_that_is_killed(tmp_path: Path) -> None:
    folder = Path(__file__).parent
    source = f"""
import sys
sys.path.insert(0, {str(folder)!r})
from pathlib import Path
from episode_player import EpisodePlayer, descendants
from test_outcomes import PLAY
folder = Path({str(tmp_path)!r})
player = EpisodePlayer(folder, PLAY)
player.begin([{{"do": "hangs", "folder": str(folder)}}])
player.step_until((folder / "hanging").exists)
print(*(child.pid for child in descendants()), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        pids = [int(word) for word in producer.stdout.readline().split()]
        assert len(pids) == 4  # guard, gateway, worker, its child
        left = [psutil.Process(pid) for pid in pids]
        producer.kill()
    _, alive = psutil.wait_procs(left, timeout=20)
    assert not alive


def test_a_used_up_budget_may_be_answered_so_that_the_game_goes_on(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, GAME, max_calls=2, max_call_tokens=4, on_budget="answer") as player:
        ((rollout, score),) = player.play({"do": "plays", "turns": 4})
    assert (rollout.extra["outcome"], score.value, rollout.turn_rewards) == (
        "ok",
        2.0,
        (0.5, 1.5),
    )  # of the last turn and of those after it
    assert (rollout.extra["canned_answers"], rollout.extra["calls"]) == (2, 2)
