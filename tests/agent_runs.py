"""Runs of fakes whose rollouts are episodes of a slow agent, with logs of the engine, the agent and what was delivered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunTester
from tests.integration.ray.faults import Outcome, processes_of, until

__all__ = ["AGENT", "agent_run", "answers", "complete", "completions", "delivered"]

AGENT = '''
import json, os, random, sys, time, urllib.request
from pathlib import Path
from rlcore.api.environments import EpisodeResult

LOG = Path(FOLDER) / f"answers-{os.getpid()}.jsonl"


def asked(model, messages):
    """One call, without retries: a second answer, or none, is an error."""
    body = json.dumps({"model": model.name, "messages": messages, "max_tokens": 6, "return_token_ids": True}).encode()
    headers = {"Authorization": f"Bearer {model.api_key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{model.base_url}/chat/completions", body, headers)) as answer:
        found = json.load(answer)
    with LOG.open("a") as log:
        log.write(json.dumps({"call": found["id"], "token_ids": found["choices"][0]["token_ids"]}) + "\\n")
    return found["id"], found["choices"][0]["message"]["content"] or ""


def play(model, row):
    """Ask, think, ask again. A letter of the row in an answer is a reward for that answer."""
    messages, rewards = list(row["messages"]), {}
    for _ in range(TURNS):
        call, said = asked(model, messages)
        rewards[call] = said.count(row["gt_answer"]) / 6 / TURNS
        messages += [{"role": "assistant", "content": said}, *row["messages"]]
        time.sleep(random.uniform(0, THINKS))
    return EpisodeResult(reward=sum(rewards.values()), turn_rewards=rewards, extra={"turns_played": TURNS})


play.episodes_per_process = EPISODES
'''
"""An agent that asks by HTTP, notes each answer, and thinks between its calls."""

ENGINE = """
import json, os, time
from pathlib import Path
from pydantic import Field
from rlcore.api import InferenceBackendSpec, hookimpl
from rlcore.testing import FakeInference, FakeInferenceOptions

rlcore_api = "2.0"


class Options(FakeInferenceOptions):
    steps_per_poll: int = 1
    seconds: float = Field(default=0.02, description="Of one poll with work.")
    folder: str = Field(default="", description="Of the logs.")


class Logged(FakeInference):
    def poll(self, timeout):
        if self._running or self._waiting:
            time.sleep(self.options.seconds)
        done = super().poll(0.0)
        with (Path(self.options.folder) / f"engine-{os.getpid()}.jsonl").open("a") as log:
            for one in done:
                names = ("token_ids", "logprobs", "versions")
                arrays = {name: getattr(one, name).tolist() for name in names}
                log.write(json.dumps({"finish": one.finish.value, "served": self._version, **arrays}) + "\\n")
        return done


@hookimpl
def rlcore_register_inference_backends():
    return [
        InferenceBackendSpec(
            name="logged",
            target="rlcore_plugin_logged:Logged",
            config="rlcore_plugin_logged:Options",
            tokenizer="rlcore.testing.tokens:load_fake_tokenizer",
            summary="The fake, slowed down, which notes what it answers.",
        )
    ]
"""
"""An engine that takes its time, so that updates arrive in the middle of answers, and notes each of them."""

OBSERVER = """
import json
from pathlib import Path
from rlcore.api import hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_groups_scored(groups, version):
    with (Path(FOLDER) / "delivered.jsonl").open("a") as log:
        for group in groups:
            for one in group.rollouts:
                sampled = [
                    {name: getattr(part, name)[part.policy_mask].tolist() for name in ("token_ids", "logprobs", "versions")}
                    for part in one.segments
                ]
                joined = {name: [value for part in sampled for value in part[name]] for name in sampled[0]}
                log.write(json.dumps({"prompt": [group.episode, group.prompt_id], "lengths": one.turn_lengths, **joined}) + "\\n")
"""
"""Notes the sampled tokens of each rollout that is delivered."""


def agent_run(tester: RunTester, *, turns: int = 2, thinks: float = 0.05, episodes: int = 16, **sections: Mapping[str, Any]) -> str:
    """Install the agent, the engine and the observer, and write a run of them; return its path."""
    folder = tester.folder
    tester.with_fakes()
    tester.plugins.install("logged", ENGINE)
    tester.plugins.install("delivered", OBSERVER.replace("FOLDER", repr(str(folder))))
    words = {"FOLDER": repr(str(folder)), "TURNS": str(turns), "THINKS": str(thinks), "EPISODES": str(episodes)}
    source = AGENT
    for word, value in words.items():
        source = source.replace(word, value)
    tester.write("agent.py", source)
    options = {"workers": 2, "cancel_seconds": 1.0, "deadline": 600.0}
    defaults: dict[str, dict[str, Any]] = {
        "run": {"num_episodes": 8, "max_steps": 16, "runtime": "local"},
        "sampling": {
            "environment": "./agent.py:play",
            "num_generations": 4,
            "max_new_tokens": 8 * turns,
            "max_context_tokens": 200,
            "options": options,
        },
        "inference": {"name": "logged", "options": {"folder": str(folder)}},
        "schedule": {"max_staleness": 2, "reward_workers": 1},
        "log": {"rollout_interval": 1},
    }
    merged = {name: {**defaults.get(name, {}), **sections.get(name, {})} for name in defaults | dict(sections)}
    path = tester.folder / Path(tester.fake_run(**merged)).name
    text = path.read_text(encoding="utf-8")
    assert text.count('{ name = "fake" }') == 1
    path.write_text(text.replace('{ name = "fake" }', '{ name = "environment" }'), encoding="utf-8")
    return str(path)


def _lines(folder: Path, pattern: str) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob(pattern)):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def completions(folder: Path, wanted: Callable[[dict[str, Any]], bool] = lambda one: True) -> list[dict[str, Any]]:
    """What the engines answered."""
    return [one for one in _lines(folder, "engine-*.jsonl") if wanted(one)]


def answers(folder: Path) -> list[dict[str, Any]]:
    """What the agents saw."""
    return list(_lines(folder, "answers-*.jsonl"))


def delivered(folder: Path) -> list[dict[str, Any]]:
    """The rollouts that were delivered, with their sampled tokens."""
    return list(_lines(folder, "delivered.jsonl"))


def complete(outcome: Outcome, folder: Path, *, steps: int, prompts: int, copies: int = 4, staleness: float = 2) -> None:
    """The run is whole: each prompt was in one update with its whole group, no data was too old, each step has all metrics, and nothing
    of the run is left."""
    assert outcome.exit_code == 0, outcome
    assert outcome.summary["ledger"] == {"trained": prompts, "filtered": 0, "failed": 0}, outcome
    record = RunRecord(outcome.folder or folder)
    assert list(record.rollout_steps()) == list(range(1, steps + 1))
    rows = [row for step in record.rollout_steps() for row in record.rollouts(step)]
    counts = Counter((row["episode"], row["prompt_id"]) for row in rows)
    assert len(counts) == prompts, counts
    assert set(counts.values()) == {copies}, counts
    assert {row["outcome"] for row in rows} <= {"ok", "wrong"}, Counter(row["reason"] for row in rows)
    metrics = [row for row in outcome.rows("metrics.jsonl") if "staleness/max" in row]
    assert [row["step"] for row in metrics] == list(range(1, steps + 1))
    assert max(row["staleness/max"] for row in metrics) <= staleness
    ours = {"turns/mean", "reward/mean", "conversation/calls", "conversation/turns_played", "conversation/episode_ok", "seconds"}
    for row in metrics:
        assert row.keys() >= ours, ours - row.keys()
        assert row["turns/mean"] == row["conversation/turns_played"]
        assert row["conversation/episode_ok"] == 1
    until(lambda: not processes_of(folder), lambda: f"these to end: {processes_of(folder)}", 30.0)
