"""A stranger's conversation: it keeps the rules, is chosen by name or flag, takes options, and a policy learns two turns by it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.api import Prompt
from rlcore.api.conversations import Conversation, Message
from rlcore.testing import ConversationSuite, PluginFolder, RunTester, write_fake_model
from tests.stranger_site import link_stranger, stranger_site

HINTS = {"higher": "h", "lower": "l", "unreadable": "u", "guess_tokens": 1}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stranger_site(tmp_path_factory)


class TestGuessAgain(ConversationSuite):
    scripts = (("7",), ("4", "7"), ("9", "8", "7"), ("no", "7"), ("1", "2", "3", "4"))

    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path: Path, site: Path) -> Iterator[None]:
        with PluginFolder(tmp_path / "plugins") as plugins:
            link_stranger(site, plugins)
            registry = plugins.discover()
            options = registry.options_model("conversation", "acme_guess")
            assert options is not None
            self._made = lambda: registry.load("conversation", "acme_guess")(options(guesses=3))
            yield

    def make(self) -> Conversation:
        made: Conversation = self._made()
        return made

    def prompt(self) -> Prompt:
        return Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="guess"),), columns={"gt_answer": "7"})


def a_game(folder: Path, site: Path, **sections: Any) -> tuple[RunTester, str]:
    """A tester, and a run in which a number of three is to be guessed; only a guess after a hint can be right every time."""
    tester = RunTester(folder, in_process=True).with_fakes()
    link_stranger(site, tester.plugins)
    write_fake_model(folder / "game", "0123456789hlu")
    rows = [{"messages": {"role": "user", "content": "0"}, "gt_answer": number} for number in ("1", "4", "7") * 4]
    data = str(tester.write_jsonl("numbers.jsonl", rows))
    held_out = str(tester.write_jsonl("held_out.jsonl", rows[:3]))
    config: dict[str, Any] = {
        "model": {"model": str(folder / "game")},
        "data": {"dataset": data},
        "eval": {"eval_dataset": {"guess": held_out}, "eval_temperature": 0.0, "eval_interval": 0},
        "sampling": {"num_generations": 16, "max_new_tokens": 8, "conversation": "acme_guess", "options": HINTS},
        "training": {"name": "fake", "train_batch_size": 12, "learning_rate": 0.1},
    }
    for section, values in sections.items():
        config[section] = {**config.get(section, {}), **values}
    return tester, tester.fake_run(**config)


@pytest.mark.full
def test_a_policy_learns_to_guess_again_after_a_hint(tmp_path: Path, site: Path) -> None:
    """One turn can be right for one number of three, two turns without the hint for two; the hint makes it all three."""
    tester, path = a_game(tmp_path, site, run={"num_episodes": 60, "max_steps": 60})
    summary = tester.run("train", path, "--json").assert_ok().json
    assert summary["accuracy_before"] <= 0.34, summary
    assert summary["accuracy_after"] == 1.0, summary
    metrics = [json.loads(line) for line in (tester.folder / summary["run"] / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in metrics if "reward/mean" in row]
    first, last = (sum(row["reward/mean"] for row in rows) / 5 for rows in (steps[:5], steps[-5:]))
    assert first < 0.3
    assert last > 0.9
    assert steps[0]["turns/mean"] > steps[-1]["turns/mean"] > 1  # the first guess is right for one number of three


def test_what_was_said_is_logged_and_the_run_can_be_run_again(tmp_path: Path, site: Path) -> None:
    tester, path = a_game(tmp_path, site, run={"max_steps": 2}, eval={"eval_dataset": {}})
    folder = tester.folder / tester.run("train", path, "--json").assert_ok().json["run"]
    rows = list(RunRecord(folder).rollouts(1))
    longer = [row for row in rows if "turns" in row]
    assert longer
    for row in longer:
        guess, hint, second = row["turns"]
        assert (guess["role"], guess["policy"], hint["role"], hint["policy"], second["policy"]) == ("assistant", True, "user", False, True)
        assert hint["content"] in "hlu"
        assert row["text"] == second["content"]
        assert row["length"] == 2  # one token a guess: the hint is none of the policy's
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert metrics[0]["response_length/max"] == 2
    assert metrics[0]["tokens"] == sum(row["length"] for row in rows)
    manifest = json.loads((folder / "manifest.json").read_text())
    plugins = {(one["kind"], one["name"]): one["distribution"] for one in manifest["plugins"]}
    assert plugins["conversation", "acme_guess"] == "acme-rlcore"
    written = tomllib.loads((folder / "run.toml").read_text())["sampling"]
    assert (written["conversation"], written["options"]) == ("acme_guess", {"guesses": 2, **HINTS})
    again = tester.folder / tester.run("train", str(folder / "run.toml"), "--json").assert_ok().json["run"]
    one, two = ([json.loads(line)["reward/mean"] for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (folder, again))
    assert one == two


def test_it_is_chosen_and_set_by_flags(tmp_path: Path, site: Path) -> None:
    tester, path = a_game(tmp_path, site, sampling={"conversation": "single_turn", "options": {}})
    words = ["--conversation", "acme_guess", "--guesses", "3", "--sampling.options.higher", "h"]
    planned = tester.run("train", path, *words, "--dry-run", "--json").assert_ok().json
    sampling, origins = planned["config"]["sampling"], planned["origins"]
    assert sampling["conversation"] == "acme_guess"
    assert (sampling["options"]["guesses"], sampling["options"]["higher"]) == (3, "h")
    assert (origins["sampling.options.guesses"]["layer"], origins["sampling.options.lower"]["layer"]) == ("flag", "core")


def test_what_it_cannot_do_is_refused(tmp_path: Path, site: Path) -> None:
    for options, words in (
        ({"guesses": 0}, ("guesses = 0", "at least 1", "conversation acme_guess of acme-rlcore")),
        ({"gueses": 2}, ("gueses", "is not an option of conversation acme_guess", "did you mean 'guesses'")),
    ):
        tester, path = a_game(tmp_path / next(iter(options)), site, sampling={"options": options})
        tester.run("train", path).assert_refused(*words)
    tester.run("train", path, "--conversation", "acme_gess").assert_refused("there is no conversation 'acme_gess'", "acme_guess")


def test_show_prints_what_to_paste(tmp_path: Path, site: Path) -> None:
    tester, _ = a_game(tmp_path, site)
    shown = json.loads(tester.run("show", "conversation", "acme_guess", "--json").assert_ok().stdout)
    pasted = tomllib.loads(shown["toml"])["sampling"]
    assert (pasted["conversation"], pasted["options"]["guesses"]) == ("acme_guess", 2)
    listed = tester.run("plugins").assert_ok().stdout
    assert "acme_guess" in listed
    assert "single_turn" in listed
