"""``rlcore eval --environment``: how episodes end, which of them count, and what they cost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from rlcore_plugin_tools.eval.costs import AnswerCost, CostMeter, cost_of, outcomes_of

from rlcore.testing import RunTester
from tests.eval_rows import rows_of, tasks_of, without_seconds

PLAY = """
import asyncio
from rlcore.api import InfrastructureError

async def play(model, row):
    do = row["do"]
    for turn in range(2):
        await model.chat(row["messages"], max_tokens=2)
    if do == "crashes":
        raise ValueError("a defect")
    if do == "no machine":
        raise InfrastructureError("no machine")
    if do == "hangs":
        await asyncio.sleep(600)
    if do == "spends":
        await model.chat(row["messages"], max_tokens=2)
    return 0.5 if do == "wins half" else float(do == "wins")

play.episodes_per_process = 8
"""
DOES = ("wins", "loses", "crashes", "no machine", "spends")
OPTIONS = {"workers": 1, "max_calls": 2, "error_budget": 1.0}


@pytest.fixture
def played(tester: RunTester) -> tuple[RunTester, tuple[str, ...]]:
    """Two episodes of each kind, in two tasks."""
    tester.write("play.py", PLAY)
    for task, kinds in {"good": DOES[:3], "bad": DOES[2:]}.items():
        tester.write_jsonl(f"{task}.jsonl", [{"messages": [{"role": "user", "content": "a"}], "do": do} for do in kinds])
    sampling = {"environment": "./play.py:play", "max_new_tokens": 8, "max_context_tokens": 64, "options": OPTIONS}
    tester.fake_run(sampling=sampling)
    return tester, (
        "eval",
        "model",
        "run.toml",
        "-rt",
        "environment",
        "--exhausted",
        "none",
        "-d",
        "good.jsonl",
        "bad.jsonl",
        "--eval-samples",
        "2",
        "--out",
        "rows.jsonl",
    )


def test_masked_episodes_count_neither_for_nor_against_and_have_a_cost(played: tuple[RunTester, tuple[str, ...]]) -> None:
    tester, words = played
    told = tester.run(*words, "--json").assert_ok().json
    good, bad = told["tasks"]["good"], told["tasks"]["bad"]
    assert good["episodes"] == {"ok": 4, "crashed": 2}
    assert bad["episodes"] == {"exhausted": 2, "crashed": 2, "environment": 2}
    assert (good["failed"], good["figures"]["eval/good"], good["figures"]["eval/good/reward"]) == (2, 0.5, 0.5)
    assert bad["failed"] == 6, "no episode of the task has a reward"
    assert not {"eval/bad", "eval/bad/reward"} & bad["figures"].keys(), "a masked episode is no reward of 0"
    assert (good["cost"]["calls"], bad["cost"]["calls"]) == (12, 12)
    rows = [row for row in rows_of(tester.folder / "rows.jsonl") if row["task"] == "bad"]
    assert [row["masked"] for row in rows] == [True] * 6
    assert {row["cost"]["calls"] for row in rows} == {2}, "the refused third call asked the engine for nothing"
    assert bad["cost"]["sampled_tokens"] == sum(row["cost"]["sampled_tokens"] for row in rows) > 0
    assert bad["cost"]["prompt_tokens"] >= 12 * 3
    assert bad["cost"]["answer_seconds"]["max"] >= bad["cost"]["answer_seconds"]["p50"] > 0


def test_an_environment_that_never_ends_is_too_late(played: tuple[RunTester, tuple[str, ...]]) -> None:
    tester, words = played
    tester.write_jsonl("good.jsonl", [{"messages": [{"role": "user", "content": "a"}], "do": "hangs"}])
    done = tester.run(*words[: words.index("-d")], "-d", "good.jsonl", "--deadline", "5", "--out", "rows.jsonl")
    assert done.exit_code == 1, "nothing could be judged"
    told = json.loads((tester.folder / "rows.jsonl.eval.json").read_text())
    assert told["tasks"]["good"]["episodes"] == {"timeout": 1}
    assert told["tasks"]["good"]["failed"] == 1


def test_the_tables_show_ends_and_cost(played: tuple[RunTester, tuple[str, ...]]) -> None:
    tester, words = played
    lines = tester.run(*words).assert_ok().lines
    (heading,) = [line for line in lines if line.startswith("task  ") and "calls" in line]
    assert heading.split() == ["task", "calls", "prompt", "tokens", "sampled", "tokens", "seconds:", "mean", "p50", "max", "episodes"]
    (row,) = [line for line in lines[lines.index(heading) :] if line.startswith("good ")]
    assert row.split()[1] == "12"
    assert row.rstrip().endswith("4 ok, 2 crashed")


def test_the_threshold_of_accuracy_is_named_beside_partial_rewards(played: tuple[RunTester, tuple[str, ...]]) -> None:
    tester, words = played
    assert "--solved" not in tester.run(*words[:-2]).assert_ok().stdout
    tester.write_jsonl("half.jsonl", [{"messages": [{"role": "user", "content": "a"}], "do": "wins half"}])
    for more, accuracy, said in (((), 0.0, "from reward 1 on (--solved)"), (("--solved", "0.5"), 1.0, "from reward 0.5 on (--solved)")):
        done = tester.run(*words[: words.index("-d")], "-d", "half.jsonl", *more).assert_ok()
        assert said in done.stdout
        (row,) = [line.split() for line in done.lines if line.startswith("half  ") and "[" in line]
        assert row[:4] == ["half", "1", "0.500", f"{accuracy:.3f}"]


def test_episodes_of_several_engines_cost_the_same(played: tuple[RunTester, tuple[str, ...]]) -> None:
    """Their draws depend only on seed, task, prompt and sample."""
    tester, words = played
    one = tester.run(*words, "--json").assert_ok().json
    first = timeless(rows_of(tester.folder / "rows.jsonl"))
    two = tester.run(*words, "-i", "2", "--out", "two.jsonl", "--json").assert_ok().json
    assert timeless(rows_of(tester.folder / "two.jsonl")) == first
    for task, found in tasks_of(one).items():
        assert {**found, "figures": None} == {**tasks_of(two)[task], "figures": None}


def timeless(rows: list[dict[str, object]]) -> list[object]:
    """Rows without measured times, also those of the gateway."""
    text = [json.dumps(row) for row in without_seconds(rows)]
    return [json.loads(one, object_hook=lambda found: {k: v for k, v in found.items() if not k.startswith("gateway_ms")}) for one in text]


class Engine:
    """Answers each request with two tokens when it is polled."""

    def __init__(self) -> None:
        self.waiting: list[str] = []

    def submit(self, requests: list[object]) -> None:
        self.waiting += [request.request_id for request in requests]

    def poll(self, timeout: float) -> list[object]:
        done, self.waiting = self.waiting, []
        return [Named(request_id=name, token_ids=[1, 2]) for name in done]


class Named:
    """An object with these attributes."""

    def __init__(self, **values: object) -> None:
        self.__dict__ |= values


class Talk:
    """A conversation of two steps."""

    def converse(self, transcript):
        yield 1
        yield 2
        return "said"


def test_the_meter_by_hand() -> None:
    now = [10.0]
    meter, engine, talk = CostMeter(lambda: now[0]), Engine(), Talk()
    meter.watch(engine, [talk])
    steps = talk.converse(Named(noise=(0, 7, 3, 1)))
    assert next(steps) == 1
    for turn, length in enumerate([3, 6]):
        engine.submit([Named(request_id=f"r{turn}", token_ids=[0] * length, noise=(0, 7, 3, 1 + (turn << 32)))])
        now[0] += 2.0
        assert [one.request_id for one in engine.poll(0.0)] == [f"r{turn}"]
    assert next(steps) == 2
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == "said"
    assert meter.take((0, 7, 3), 0) == AnswerCost(), "another sample"
    assert meter.take((0, 7, 3), 1) == AnswerCost(calls=2, prompt_tokens=9, sampled_tokens=4, seconds=4.0)
    assert meter.take((0, 7, 3), 1) == AnswerCost(), "it is forgotten"


def test_sums_and_ends_by_hand() -> None:
    rows = [
        {"outcome": "ok", "extra": {"episode_ok": 1.0, "episode_lost": 0.0, "episode_length": 3.0}, "cost": AnswerCost(calls=1).as_json()},
        {"outcome": "infra", "extra": {"episode_lost": 1.0}, "cost": AnswerCost(calls=2, prompt_tokens=5, seconds=1.0).as_json()},
        {"outcome": "ok", "cost": AnswerCost(sampled_tokens=3, seconds=2.0).as_json()},
    ]
    seconds = {"mean": 1.5, "p50": 1.5, "max": 2.0}
    assert cost_of(rows) == {"calls": 3, "prompt_tokens": 5, "sampled_tokens": 3, "answer_seconds": seconds}
    assert cost_of(rows[:1])["answer_seconds"] is None
    assert outcomes_of(rows) == {"outcomes": {"infra": 1, "ok": 2}, "episodes": {"ok": 1, "lost": 1}}


class _OtherModel(BaseHTTPRequestHandler):
    """A server that says neither token ids nor log probabilities, as those of model providers."""

    asked: ClassVar[list[tuple[str, str]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.headers["authorization"], body["model"]))
        said = "yes" if "win" in body["messages"][-1]["content"] else "no"
        answer = json.dumps({"id": "1", "choices": [{"message": {"role": "assistant", "content": said}}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *words: object) -> None:
        """Print nothing."""


@pytest.fixture
def other_server(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """The words that evaluate a model at another address, which is the only player."""
    tester.write(
        "play.py",
        """
async def play(model, row):
    answer = await model.chat(row["messages"])
    return None if row["mute"] else float(answer["content"] == "yes")
""",
    )
    texts = {"win": False, "lose": False, "win quietly": True}
    tester.write_jsonl("rows.jsonl", [{"messages": [{"role": "user", "content": text}], "mute": mute} for text, mute in texts.items()])
    monkeypatch.setenv("OTHER_KEY", "secret")
    _OtherModel.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _OtherModel) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        player = {"base_url": f"http://127.0.0.1:{server.server_port}/v1", "model": "large", "key_variable": "OTHER_KEY"}
        options = {"workers": 1, "error_budget": 1.0, "players": {"large": player}}
        sampling = {"environment": "./play.py:play", "max_new_tokens": 8, "max_context_tokens": 64, "options": options}
        tester.fake_run(sampling=sampling)
        yield "eval", "model", "run.toml", "-d", "rows.jsonl"
        server.shutdown()


def test_a_model_of_another_server_is_evaluated_as_the_only_player(tester: RunTester, other_server: tuple[str, ...]) -> None:
    told = tester.run(*other_server, "-rt", "environment", "--json").assert_ok().json["tasks"]["rows"]
    assert (told["figures"]["eval/rows"], told["completions"], told["failed"]) == (0.5, 3, 1)
    assert _OtherModel.asked == [("Bearer secret", "large")] * 3
    assert told["figures"]["eval/rows/conversation/calls_large"] == 1


@pytest.mark.parametrize("rewards", [("-rt", "boxed"), ("-rt", "environment", "--solved", "0.5")])
def test_without_a_policy_only_the_environment_judges(tester: RunTester, other_server: tuple[str, ...], rewards: tuple[str, ...]) -> None:
    tester.run(*other_server, *rewards).assert_refused("sampling.options.players: none is the policy")


def test_a_run_that_trains_needs_a_policy(tester: RunTester, other_server: tuple[str, ...]) -> None:
    tester.run("train", "run.toml", "-rt", "environment").assert_refused("no player is the policy, so nothing would train")
