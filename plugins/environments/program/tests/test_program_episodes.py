"""Episodes of programs: what trains is what the engine sampled."""

from __future__ import annotations

import subprocess
import sys
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
