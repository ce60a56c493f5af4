"""What the plan says about episodes, processes and prompts in flight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester

GAME = """
async def play(model, row):
    return 1.0


async def many(model, row):
    return 1.0


many.episodes_per_process = 64
"""
OWN = "rlcore-plugin-agents: "


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("game.py", GAME)
    return made


def notes(tester: RunTester, options: dict[str, Any], environment: str = "./game.py:many", **sections: Any) -> list[str]:
    """Return the notes of this plugin in the plan of a run with 3 prompts of 8 episodes a batch."""
    sampling = {"environment": environment, "max_new_tokens": 8, "max_context_tokens": 64, "options": options}
    more = ("-rt", "environment") if environment != "none" else ()
    if environment == "none":
        sampling = {}
    written = tester.fake_run(sampling=sampling, **sections)
    planned = tester.run("train", written, *more, "--dry-run", "--json").assert_ok().json
    return [note.partition(OWN)[2] for note in planned["notes"] if OWN in note]


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        ({"workers": 2}, "./game.py:many", []),
        ({"workers": 24}, "./game.py:play", []),
        (
            {"workers": 23},
            "./game.py:play",
            ["up to 24 episodes in flight, and its processes play 23 at the same time (workers = 23"],
        ),
        ({"workers": 4, "episodes_per_process": 2}, "./game.py:many", ["play 8 at the same time (workers = 4, each plays 2)"]),
        ({"gateways": 2}, "./game.py:many", ["gateways = 2: each producer has as many gateway processes"]),
        ({"on_budget": "answer"}, "./game.py:many", ["on_budget = answer: a call beyond the budget gets a fixed answer"]),
        ({"players": {"white": {}}}, "./game.py:many", []),
        ({"players": {"white": {}, "black": {}}}, "./game.py:many", ["the players white, black are the policy: the calls of each train"]),
    ],
)
def test_the_plan_says_what_the_options_mean(tester: RunTester, options: dict[str, Any], environment: str, words: list[str]) -> None:
    said = notes(tester, options, environment)
    assert len(said) == len(words), said
    assert all(part in note for part, note in zip(words, said, strict=True)), said


@pytest.mark.parametrize(
    ("most", "staleness", "environment", "words"),
    [
        ("auto", 2, "./game.py:many", ""),
        (9, 2, "./game.py:many", ""),
        (3, 2, "none", ""),
        ("auto", 2, "none", ""),
        (2, 2, "./game.py:many", "inference.max_in_flight = 2 has no effect, because a producer always has inference_batch_size = 3"),
        (2, 0, "./game.py:many", "inference.max_in_flight = 2 has no effect"),
        (10, 2, "./game.py:many", "inference.max_in_flight = 10 means 9: (max_staleness + 1) x train_batch_size is the most"),
        (4, 2, "none", "inference.max_in_flight = 4 has little effect without an environment"),
    ],
)
def test_a_number_of_prompts_in_flight_without_effect(
    tester: RunTester, most: int | str, staleness: int, environment: str, words: str
) -> None:
    sections = {"inference": {"max_in_flight": most}, "schedule": {"max_staleness": staleness}, "run": {"runtime": "ray"}}
    said = [note for note in notes(tester, {}, environment, **sections) if "in_flight" in note]
    assert len(said) == bool(words), said
    assert not words or said[0].startswith(words)
