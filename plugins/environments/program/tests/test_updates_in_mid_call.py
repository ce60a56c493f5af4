"""Updates of the weights that arrive while agents wait for an answer, in whole runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from episode_player import descendants

from rlcore.testing import RunTester
from tests.agent_runs import agent_run, answers, completions, delivered

Tokens = tuple[tuple[int, float, int], ...]
"""Id, log probability and version of each token."""


def tokens(one: dict[str, Any]) -> Tokens:
    return tuple(zip(one["token_ids"], one["logprobs"], one["versions"], strict=True))


def turns_of(rollout: dict[str, Any]) -> Iterator[Tokens]:
    for start, end in pairwise([0, *accumulate(rollout["lengths"])]):
        yield tokens(rollout)[start:end]


def is_of(answer: Tokens, whole: Set[Tokens], aborted: Set[Tokens]) -> bool:
    """Whether the engine made this answer at once, or went on from beginnings that were aborted."""
    begun = (place for place in range(1, len(answer)) if answer[:place] in aborted)
    return answer in whole or any(is_of(answer[place:], whole, aborted) for place in begun)


@pytest.mark.full
@pytest.mark.parametrize("in_flight", ["finish", "resume", "abort", "abort and continue"])
def test_an_update_in_mid_call_gives_the_agent_one_answer_and_each_token_its_version(tmp_path: Path, in_flight: str) -> None:
    tester, continues = RunTester(tmp_path), in_flight.endswith("continue")
    options = {"folder": str(tmp_path), "in_flight": in_flight.split()[0], "continues": continues}
    config = agent_run(tester, inference={"name": "logged", "options": options, "inference_batch_size": 6})
    done = tester.run("train", config, "--json").assert_ok()
    assert not descendants()
    assert done.json["ledger"] == {"trained": 48, "filtered": 0, "failed": 0}
    rows = [json.loads(line) for line in (tmp_path / done.json["run"] / "metrics.jsonl").read_text().splitlines()]
    assert 0 < max(row["staleness/max"] for row in rows if "staleness/max" in row) <= 2
    whole = completions(tmp_path, lambda one: one["finish"] != "aborted")
    aborted = completions(tmp_path, lambda one: one["finish"] == "aborted")
    happened = {
        "finish": any(one["served"] > max(one["versions"]) for one in whole),
        "resume": any(len(set(one["versions"])) > 1 for one in whole),
        "abort": any(one["token_ids"] for one in aborted),
    }
    assert happened[in_flight.split()[0]], "no update arrived in the middle of a call"
    seen, rollouts = answers(tmp_path), delivered(tmp_path)
    trained = [turn for rollout in rollouts for turn in turns_of(rollout)]
    assert len(rollouts) == 48 * 4
    assert len({one["call"] for one in seen}) == len(seen) == len(trained)
    assert sorted(tuple(token for token, _, _ in turn) for turn in trained) == sorted(tuple(one["token_ids"]) for one in seen)
    made, begun = {tokens(one) for one in whole}, {tokens(one) for one in aborted} if continues else set()
    assert all(is_of(turn, made, begun) for turn in trained)
    assert not continues or not all(turn in made for turn in trained)
