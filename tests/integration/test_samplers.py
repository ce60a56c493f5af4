"""Runs whose prompts a sampler draws: a curriculum, resumes, refusals, and errors that name the sampler."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester

GROUP = 16
MINE = '''
from rlcore.api import Draw, Sampler

class Always(Sampler):
    """One prompt, again and again."""
    def __init__(self, context):
        self.names = list(context.ids)

    def next(self):
        return 1

class PastTheEnd(Always):
    def next(self):
        return len(self.names)

class Forgets(Always):
    def next(self):
        pass

class Collects(Always):
    def state(self):
        return {"names": set(self.names)}

class Gathers(Always):
    seen = ()
    def observe(self, result):
        self.seen = {result.item}

    def state(self):
        return {"seen": self.seen}

class TakesNothing(Always):
    def __init__(self):
        pass

class Chokes(Always):
    def observe(self, result):
        raise KeyError("no such thing")
'''


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("mine.py", MINE)
    return made


def mixed(tester: RunTester, **sections: Any) -> str:
    """Two rows that can be learned, and six that nothing solves."""
    rows = [{"messages": {"role": "user", "content": letter}, "gt_answer": letter if letter in "ab" else "zzz"} for letter in "abcdefab"]
    rows = [{**row, "id": f"row{number}"} for number, row in enumerate(rows[:6])]
    data = tester.write_jsonl("mixed.jsonl", rows)
    return tester.fake_run(
        **{
            "run": {"num_episodes": 100, "max_steps": 20},
            "data": {"dataset": str(data)},
            "training": {"learning_rate": 0.5, "train_batch_size": 2},
            "sampling": {"num_generations": GROUP, "max_new_tokens": 1},
            "log": {"save_interval": 10, "keep_checkpoints": 9},
            **sections,
        }
    )


def groups(folder: Path) -> list[list[dict[str, Any]]]:
    """The rows of each update."""
    return [
        [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        for path in sorted((folder / "rollouts").glob("step-*.jsonl.gz"), key=lambda path: int(path.name.split("-")[1].split(".")[0]))
    ]


def trained(tester: RunTester, config: str, *words: str) -> Path:
    done = tester.run("train", config, *words, "--json").assert_ok()
    folder: Path = tester.folder / done.json["run"]
    return folder


def figures(folder: Path) -> list[tuple[Any, ...]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [tuple(row.get(name) for name in ("step", "reward/mean", "loss", "accuracy")) for row in rows]


def test_a_curriculum_leaves_what_nothing_solves_and_a_resumed_run_goes_on_with_the_same_draws(tester: RunTester) -> None:
    plain = groups(trained(tester, mixed(tester)))
    folder = trained(tester, mixed(tester), "--sampler", "success_rate", "--explore", "0.02")
    lean = groups(folder)

    def learnable(updates: Sequence[Sequence[dict[str, Any]]]) -> float:
        rows = [row for update in updates for row in update]
        return sum(row["prompt_index"] < 2 for row in rows) / len(rows)

    assert learnable(plain[6:]) < 0.4
    assert learnable(lean[6:]) > 0.6
    expected = figures(folder)
    tester.run("resume", str(folder), "--step", "10", "--max-steps", "20").assert_ok()
    assert figures(folder) == expected
    assert groups(folder) == lean
    said = "a resumed run keeps its data.sampler, which is success_rate"
    tester.run("resume", str(folder), "--max-steps", "22", "--sampler", "replay").assert_refused(said)
    tester.run("resume", str(folder), "--max-steps", "22", "--explore", "0.5").assert_ok()


def test_a_prompt_that_is_drawn_again_in_an_episode_samples_other_completions(tester: RunTester) -> None:
    (update, *_) = groups(trained(tester, mixed(tester), "--sampler", "./mine.py:Always", "--max-steps", "1"))
    first, second = update[:GROUP], update[GROUP:]
    assert {row["prompt_id"] for row in update} == {"row1"}
    assert {row["episode"] for row in update} == {0}
    assert ([row.get("ordinal") for row in first], {row["ordinal"] for row in second}) == ([None] * GROUP, {1})
    assert [row["text"] for row in first] != [row["text"] for row in second]


def test_sequential_is_the_order_without_shuffle_and_shuffled_is_the_default(tester: RunTester) -> None:
    config = mixed(tester)
    for words, same in ((("--sampler", "sequential"), ("--no-shuffle",)), (("--sampler", "shuffled"), ())):
        ours, theirs = (trained(tester, config, "--max-steps", "5", *some) for some in (words, same))
        assert groups(ours) == groups(theirs)
        states = [json.loads((folder / "checkpoints" / "step-5" / "state.json").read_text())["coordinator"] for folder in (ours, theirs)]
        assert states[0] == states[1]
        assert states[0]["format"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sampler", "sucess_rate"), ["there is no sampler 'sucess_rate', did you mean 'success_rate'"]),
        (("--sampler", "none"), ["there is no sampler 'none'"]),
        (("--sampler", "success_rate", "--target", "2"), ["--target 2", "a finite number above 0 and below 1"]),
        (("--sampler", "easy_to_hard"), ["needs a number in the column difficulty of each row, and that of row0 is None"]),
    ],
)
def test_names_options_and_data_are_checked(tester: RunTester, words: Sequence[str], said: Sequence[str]) -> None:
    tester.run("train", mixed(tester), *words).assert_refused(*said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("PastTheEnd", "failed while drawing: ValueError: it drew item 6, and the items are 0 to 5"),
        ("Forgets", "drawing: TypeError: next() returned None, and must return a whole number or Draw(item, level)"),
        (
            "Collects",
            "giving its state: TypeError: state() must return a mapping with texts as keys, of texts, numbers, True, False, None, ",
        ),
        ("Gathers", "lists and mappings of these: Object of type set is not JSON serializable; nothing was saved yet"),
        ("Chokes", "failed while seeing the results of an update: KeyError: 'no such thing'"),
    ],
)
@pytest.mark.parametrize("runtime", ["in_process", "local"])
def test_an_error_of_a_sampler_ends_the_run_with_its_name(tester: RunTester, name: str, said: str, runtime: str) -> None:
    done = tester.run("train", mixed(tester), "--sampler", f"./mine.py:{name}", "--runtime", runtime)
    assert done.exit_code == 1
    assert f"sampler {name.lower()!r} of " in done.stderr
    assert said in done.stderr
    assert "mine.py" in done.stderr


@pytest.mark.parametrize(("name", "updates"), [("Collects", 0), ("Gathers", 1)])
@pytest.mark.parametrize("runtime", ["in_process", "local"])
def test_a_state_that_cannot_be_saved_ends_the_run_before_updates_are_lost(
    tester: RunTester, name: str, updates: int, runtime: str
) -> None:
    done = tester.run("train", mixed(tester), "--sampler", f"./mine.py:{name}", "--runtime", runtime)
    assert done.exit_code == 1
    assert len(list(tester.folder.glob("runs/**/rollouts/step-*"))) <= updates, str(done)


def test_a_sampler_that_does_not_take_its_context_is_told_its_call(tester: RunTester) -> None:
    said = "TakesNothing.__init__() takes 1 positional argument but 2 were given; it is called as TakesNothing(SamplerContext)"
    tester.run("train", mixed(tester), "--sampler", "./mine.py:TakesNothing").assert_refused(said)


def test_the_plan_says_that_above_staleness_0_the_draws_depend_on_timing(tester: RunTester) -> None:
    words = ("--dry-run", "--max-staleness", "1")
    remark = "draws by results; above max_staleness 0 these arrive as timing decides, so two runs may draw differently"
    assert remark in tester.run("train", mixed(tester), "--sampler", "success_rate", *words).assert_ok().stdout
    assert remark not in tester.run("train", mixed(tester), *words).assert_ok().stdout
    assert remark not in tester.run("train", mixed(tester), "--sampler", "success_rate", "--dry-run").assert_ok().stdout


def test_with_producers_beside_the_trainer_it_draws_as_many_prompts(tester: RunTester) -> None:
    beside = {"name": "fake", "num_inferencer": 2}
    lasts = {"runtime": "local", "num_episodes": 5, "max_steps": 20}
    config = mixed(tester, schedule={"max_staleness": 2}, inference=beside, run=lasts)
    done = tester.run("train", config, "--sampler", "replay", "--age", "1", "--json").assert_ok()
    assert done.json["ledger"] == {"trained": 30, "filtered": 0, "failed": 0}


def test_they_are_listed_and_shown(tester: RunTester) -> None:
    listed = tester.run("plugins").assert_ok().stdout
    assert all(name in listed for name in ("shuffled", "sequential", "weighted", "success_rate", "easy_to_hard", "replay", "rising_level"))
    shown = json.loads(tester.run("show", "sampler", "replay", "--json").assert_ok().stdout)
    assert shown["toml"].startswith('[data]\nsampler = "replay"')
