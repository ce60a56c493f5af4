"""The tasksets that verifiers brings for textarena, openenv and nemo_gym, unmodified, without a network."""

from __future__ import annotations

import json
import os
import string
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episode_player import EpisodePlayer, app_served
from rlcore_plugin_verifiers.options import VerifiersOptions
from verifiers_player import NEEDS_VERIFIERS, TASKS, read_rows

from rlcore.api import Rollout
from rlcore.testing import FakeTokenizer

pytestmark = [*NEEDS_VERIFIERS, pytest.mark.timeout(1200)]
LONG = 300.0
LADDER = ["aaaa", "baaa", "bbaa", "bbba", "bbbb", "cbbb", "ccbb", "cccb", "cccc"]
"""Words that differ in one letter from the next one: all that nltk and textarena ask of words is to be lines of a file."""
WORDS = ["bee", "see", "eel", "eye", "fee", "lee", "house", *LADDER]

COUNTER = "resources_servers.example_session_state_mgmt.app:StatefulCounterResourcesServer"
CALL = '{"name": "increment_counter", "arguments": {"count": 3}}'
TOOL = {
    "type": "function",
    "name": "increment_counter",
    "description": "",
    "strict": False,
    "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
}


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for NLTK_DATA with words and a tagger, for nltk cannot download its own."""
    folder, tagger = tmp_path / "nltk" / "corpora" / "words", tmp_path / "nltk" / "taggers" / "averaged_perceptron_tagger_eng"
    folder.mkdir(parents=True)
    tagger.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (folder / name).write_text("\n".join(WORDS))
    for name, content in (("weights", {}), ("tagdict", dict.fromkeys(WORDS, "NN")), ("classes", ["NN"])):
        (tagger / f"averaged_perceptron_tagger_eng.{name}.json").write_text(json.dumps(content))
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "nltk"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")


@contextmanager
def nemo_gym_served(folder: Path) -> Iterator[str]:
    """Serve a resources server of nemo-gym with the script of verifiers, in the environment of nemo-gym; yield its address."""
    (script,) = Path(os.environ["RLCORE_TEST_VERIFIERS"]).glob("lib/python3*/site-packages/verifiers/v1/tasksets/nemo_gym/server.py")
    python, port = str(Path(os.environ["RLCORE_TEST_NEMO"], "bin", "python")), folder / "nemo_gym.port"
    env = {**os.environ, "NEMO_GYM_RESOURCE_SERVER": COUNTER, "PYTHONPATH": "", "WANDB_MODE": "disabled"}
    with subprocess.Popen([python, str(script)], cwd=folder, env=env) as server:
        try:
            while not (port.is_file() and port.read_text()):
                assert server.poll() is None, f"the server ended with exit code {server.returncode}"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port.read_text()}"
        finally:
            server.kill()


def played_by(folder: Path, letters: str, **options: Any) -> EpisodePlayer:
    return EpisodePlayer(folder, "verifiers", VerifiersOptions(), tokens=letters, workers=1, deadline=LONG, **options)


def answers(rollout: Rollout, letters: str) -> list[str]:
    """The texts that train."""
    tokens = np.concatenate([segment.token_ids[segment.policy_mask] for segment in rollout.segments])
    return [FakeTokenizer(letters).decode(part.tolist()) for part in np.split(tokens, np.cumsum(rollout.turn_lengths)[:-1])]


def test_games_of_textarena(tmp_path: Path, words: None) -> None:
    games = {
        f"textarena?game={game}&select.limit={count}": (text, count, turns, rewards)
        for game, text, count, turns, rewards in (
            ("Hangman-v0", "[e]", 32, 3, {0.0, 1 / 5, 2 / 3}),  # the share of letters, after two moves that repeat the first
            ("Wordle-v0", "[house]", 2, 1, {1.0}),
            ("WordLadder-v0", "[zzzz]", 2, 2, {0.0}),
        )
    }
    with played_by(tmp_path, string.printable) as player:
        for first, (name, rows) in enumerate(read_rows(*games).items()):
            text, count, turns, rewards = games[name]
            player.answering(repeat(text))
            player.begin(rows, max_new_tokens=1000, first=100 * first)
            episodes = player.step_until(lambda: player.producer.idle, LONG)
            assert [rollout.extra["outcome"] for rollout, _ in episodes] == ["ok"] * count
            assert {len(rollout.turn_lengths) for rollout, _ in episodes} == {turns}
            assert {score.value for _, score in episodes} == rewards


def test_a_server_of_openenv(tmp_path: Path) -> None:
    with app_served(Path(os.environ["RLCORE_TEST_VERIFIERS"]), "parity_server:app", TASKS) as (address, _):
        resets = json.dumps([{"seed": seed} for seed in range(32)])
        (rows,) = read_rows(f"openenv?base_url={address}&resets={resets}").values()
        with played_by(tmp_path, string.digits, max_call_tokens=3) as player:
            player.begin(rows)
            episodes = player.step_until(lambda: player.producer.idle, LONG)
    for rollout, score in episodes:
        seed, said = int(rollout.prompt_id[1:]), answers(rollout, string.digits)
        assert (rollout.extra["outcome"], rollout.extra["reason"]) == ("ok", "")
        assert len(said) == 3 or not said[-1]
        assert score.value == sum(int(text) % 2 == seed % 2 for text in said if text)
    assert len({score.value for _, score in episodes}) > 1


@pytest.mark.nightly
@pytest.mark.skipif(not os.environ.get("RLCORE_TEST_NEMO"), reason="needs the environment of nemo-gym: RLCORE_TEST_NEMO")
def test_a_resources_server_of_nemo_gym(tmp_path: Path) -> None:
    params = {"input": [{"role": "user", "content": "count"}], "tools": [TOOL]}
    row = json.dumps({"responses_create_params": params, "initial_count": 2, "expected_count": 5})
    (tmp_path / "rows.jsonl").write_text("\n".join([row] * 32))
    with nemo_gym_served(tmp_path) as address:
        (rows,) = read_rows(f"nemo_gym?dataset={tmp_path}/rows.jsonl&task.resources_url={address}").values()
        with played_by(tmp_path, string.printable, tool_parser="json", episodes_per_process=1) as player:
            player.answering(chain([CALL, "done", CALL, CALL, "done"], *repeat([CALL, "done"], 30)))
            player.begin(rows, max_new_tokens=1000)
            episodes = sorted(player.step_until(lambda: player.producer.idle, LONG), key=lambda pair: int(pair[0].prompt_id[1:]))
    assert [rollout.extra["outcome"] for rollout, _ in episodes] == ["ok"] * 32
    assert [score.value for _, score in episodes] == [1.0, 0.0] + [1.0] * 30
    assert [rollout.extra["calls"] for rollout, _ in episodes] == [2, 3] + [2] * 30
