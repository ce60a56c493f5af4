"""Episodes of programs: what trains is what the engine sampled."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from episode_player import GUESSING, EpisodePlayer, descendants
from rlcore_plugin_agents.agent_options import ProgramOptions


def test_a_program_in_a_python_without_rlcore_trains_one_segment_an_episode_token_for_token(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    (tmp_path / "game.py").write_text(GUESSING)
    options = ProgramOptions(command=f"python -u {tmp_path / 'game.py'}", python=tmp_path / "other")
    with EpisodePlayer(tmp_path, "program", options, workers=4) as player:
        episodes = player.play(*({"number": number} for number in range(8)), copies=2)
        assert len(episodes) == 16
        log = {(one.token_ids.tobytes(), one.logprobs.tobytes()) for one in player.engine.log}
    assert not descendants()
    for rollout, score in episodes:
        (segment,) = rollout.segments
        assert len(rollout.turn_lengths) == 7
        ends = np.cumsum(rollout.turn_lengths)
        trained = segment.token_ids[segment.policy_mask], segment.logprobs[segment.policy_mask]
        for end, length in zip(ends, rollout.turn_lengths, strict=True):
            assert tuple(part[end - length : end].tobytes() for part in trained) in log
        assert [message.policy for message in rollout.turns] == [True, False] * 6 + [True]
        assert rollout.turn_rewards == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
        assert rollout.extra["path"] == str(tmp_path / "other")
        assert rollout.extra["outcome"] == "ok"
        assert score.value == 7.0


def test_a_program_that_waits_for_the_policy_at_its_deadline_is_answered_and_may_still_give_a_reward(tmp_path: Path) -> None:
    late = GUESSING.replace(
        "        answer = asked(said, messages)",
        "        try: answer = asked(said, messages)\n        except urllib.error.HTTPError as error: calls['status'] = error.code; break",
    )
    late = late.replace('"turn_rewards": calls, "extra": {', '"turn_rewards": {}, "extra": {"status": calls["status"],')
    (tmp_path / "game.py").write_text(late)
    options = ProgramOptions(command=f"{sys.executable} -u {tmp_path / 'game.py'}")
    with EpisodePlayer(tmp_path, "program", options, deadline=1.0, on_timeout="grade", cancel_seconds=20.0) as player:
        player.begin([{"turns": 2}])
        player.step_until(lambda: len(player.engine.log) == 1)
        while player.agent._gateways.links[
            0
        ]._episodes:  # the engine makes no progress meanwhile, so the program waits for its second answer
            time.sleep(0.05)
        ((rollout, score),) = player.step_until(lambda: player.producer.idle)
    assert (rollout.extra["outcome"], rollout.extra["status"], score.value) == ("timeout", 410, 2.0)
