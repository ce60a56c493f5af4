"""Settings of the chat template in runs of real backends: what is typed reaches training and evaluation, and is part of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_transformers.engine import TransformersBackend

from rlcore.contracts.types import Request
from rlcore.testing import RunTester
from tests.letters_model import write_model

LOUD = "{% for m in messages %}<user>{{ m['content'] }}{% endfor %}{% if loud %}{{ 'b' * loud }}{% endif %}<user>"
LISTING = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}<user>{{ m['content'] }}{% endfor %}<user>"
B, USER = 4, 2


def mark_special(folder: Path, token: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": [token]})
    tokenizer.save_pretrained(folder)


class Bench:
    """A folder with a tiny model, a configuration, and the requests that the engine received."""

    def __init__(self, folder: Path, asked: list[Request]) -> None:
        self.asked = asked
        write_model(folder / "tiny")
        mark_special(folder / "tiny", "<user>")
        self.tester = RunTester(folder, in_process=True).with_fakes()
        self.tester.write("loud.jinja", LOUD)
        self.tester.write("listing.jinja", LISTING)
        self.config = self.tester.fake_run(
            run={"num_episodes": 20, "max_steps": 1},
            log={"save_interval": 1},
            sampling={"num_generations": 2, "max_new_tokens": 3},
            inference={"name": "transformers"},
            training={"name": "torch"},
            model={"model": "tiny"},
        )

    def run(self, *words: str) -> Any:
        self.asked.clear()
        return self.tester.run("train", self.config, *words)

    def endings(self, *, held_out: bool = False) -> set[tuple[int, ...]]:
        """The tokens after the letter of each prompt."""
        return {ids[2:] for ids in self.prompts(held_out=held_out)}

    def prompts(self, *, held_out: bool = False) -> set[tuple[int, ...]]:
        """The prompts of producers; the check of an engine before a run has requests without a group."""
        asked = [one for one in self.asked if one.group and (one.sampling.temperature != 1.0) == held_out]
        return {tuple(one.token_ids.tolist()) for one in asked}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    asked: list[Request] = []
    submit = TransformersBackend.submit
    monkeypatch.setattr(TransformersBackend, "submit", lambda self, requests: (asked.extend(requests), submit(self, requests))[1])
    return Bench(tmp_path, asked)


def test_variables_from_a_file_and_a_flag_reach_training_and_evaluation(bench: Bench) -> None:
    bench.tester.write("more.toml", '[data]\nchat_template = "loud.jinja"\n[data.template]\nloud = 2\n')
    held_out = ("-ed", '{"say": "train.jsonl"}', "-ei", "1")
    bench.run("more.toml", *held_out).assert_ok()
    assert bench.endings() == bench.endings(held_out=True) == {(B, B, USER)}
    bench.run("more.toml", "--data.template.loud", "3", *held_out).assert_ok()
    assert bench.endings() == bench.endings(held_out=True) == {(B, B, B, USER)}
    done = bench.run("more.toml", "--template", '{"loud": 1}', "--json").assert_ok()
    assert bench.endings() == {(B, USER)}
    text = (bench.tester.folder / done.json["run"] / "run.toml").read_text()
    assert "loud = 1" in text
    bench.asked.clear()
    bench.tester.run("eval", done.json["run"], "-d", "train.jsonl").assert_ok()
    assert bench.endings(held_out=True) == {(B, USER)}


def test_a_variable_that_the_template_does_not_read_is_refused(bench: Bench) -> None:
    bench.run("--chat-template", "loud.jinja", "--data.template.lood", "true").assert_refused("does not read lood", "did you mean 'loud'")
    bench.run("--data.template.enable_thinking", "false").assert_refused("does not read enable_thinking")


def test_a_resumed_run_keeps_its_template(bench: Bench) -> None:
    run = bench.run("--chat-template", "loud.jinja", "--data.template.loud", "2", "--json").assert_ok().json["run"]
    longer = ("--max-steps", "2")
    bench.tester.run("resume", run, *longer, "--data.template.loud", "1").assert_refused("a resumed run keeps its data.template")
    bench.tester.run("resume", run, *longer, "--control-tokens", "text").assert_refused("a resumed run keeps its data.control_tokens")
    bench.tester.write("loud.jinja", LOUD + " ")
    bench.tester.run("resume", run, *longer).assert_refused("tokenizer has changed since the run")
    bench.tester.write("loud.jinja", LOUD)
    bench.asked.clear()
    bench.tester.run("resume", run, *longer).assert_ok()
    assert bench.endings() == {(B, B, USER)}


def test_tools_of_rows_and_of_the_run_are_rendered(bench: Bench) -> None:
    rows = [{"messages": {"role": "user", "content": letter}, "gt_answer": letter} for letter in "abc"]
    schema = [{"function": {"name": "ff"}}]
    bench.tester.write("tools.json", '[{"function": {"name": "e"}}]')
    bench.tester.write_jsonl("train.jsonl", [rows[0], {**rows[1], "tools": schema}, rows[2]])
    bench.run("--chat-template", "listing.jinja", "--tools", "tools.json").assert_ok()
    assert sorted(bench.prompts()) == [(7, 2, 3, 2), (7, 2, 5, 2), (8, 8, 2, 4, 2)]
    bench.run().assert_refused("train.jsonl:2", "leaves out the tool 'ff'", "--chat-template")


def test_a_stop_string_that_is_a_special_token_ends_responses(bench: Bench) -> None:
    """``<user>`` is special, so no decoded text holds it."""
    bench.run("--stop", "x<user>").assert_refused("'x<user>' would never match", "--stop '<user>'")
    stops: list[frozenset[int]] = []
    inner = TransformersBackend.submit

    def submit(self: TransformersBackend, requests: Any) -> None:
        stops.append(frozenset(self._context.tokenizer.stop_ids))
        inner(self, requests)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransformersBackend, "submit", submit)
        bench.run("--stop", "<user>").assert_ok()
    assert set(stops) == {frozenset({1, USER})}


def test_an_end_of_turn_that_does_not_stop_is_told_with_the_flag(bench: Bench) -> None:
    bench.tester.write("pads.jinja", "{% for m in messages %}<user>{{ m['content'] }}<pad>{% endfor %}<user>")
    said = "ends a turn with <pad>, which is not a stop token of the model (<eos>)"
    done = bench.run("--chat-template", "pads.jinja").assert_ok()
    assert said in done.stdout + done.stderr
    assert "--stop '<pad>'" in done.stdout + done.stderr
    done = bench.run("--chat-template", "pads.jinja", "--stop", "<pad>").assert_ok()
    assert said not in done.stdout + done.stderr


def test_a_dry_run_says_which_file_is_missing(bench: Bench) -> None:
    done = bench.run("--chat-template", "none.jinja", "--tools", "none.json", "--dry-run").assert_ok()
    for words in ("the chat template none.jinja is not found here", "type --chat-template", "the file of tools none.json", "type --tools"):
        assert words in " ".join(done.stdout.split())
    bench.run("--tools", "none.json").assert_refused("the file of tools none.json is not found here")


def test_a_backend_with_a_tokenizer_of_its_own_refuses_a_template(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.write("loud.jinja", LOUD)
    tester.run("train", tester.fake_run(), "--chat-template", "loud.jinja").assert_refused(
        "--chat-template loud.jinja", "inference backend fake has a tokenizer of its own"
    )
