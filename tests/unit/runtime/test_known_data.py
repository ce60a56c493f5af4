"""Large data sets are tokenized in batches; what was found out about one is not computed again while everything it depends on is equal."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from rlcore.config import Plan, plan_run
from rlcore.contracts.errors import DataError
from rlcore.registry.plugin_registry import Registry
from rlcore.rewards.judge import Judge
from rlcore.runtime import known_data, loading
from rlcore.runtime.factories import open_judge
from rlcore.runtime.progress import Progress
from rlcore.testing import ChatTokenizer
from tests.unit.data.test_tokenizer import made, saved

ROWS = [{"messages": {"role": "user", "content": "sort " + "1 2 "[: 1 + number % 4]}, "gt_answer": str(number)} for number in range(7)]


class Bench:
    """A folder with a tokenizer and rows, and what reading them computed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.tokenized: list[int] = []
        self.checked: list[int] = []
        self.told: list[tuple[str, int, int]] = []
        (folder / "config.json").write_text('{"model_type": "qwen2"}')
        save_file({"w": np.zeros(1, np.float32)}, folder / "model.safetensors")
        saved(folder / "model", made())
        self.write(ROWS)
        lengths, check = ChatTokenizer.lengths, Judge.check

        def counted_lengths(tokenizer: ChatTokenizer, prompts: Any) -> list[int]:
            self.tokenized.append(len(prompts))
            return lengths(tokenizer, prompts)

        def counted_check(judge: Judge, prompts: Any, *more: Any) -> None:
            self.checked.append(len(prompts))
            check(judge, prompts, *more)

        monkeypatch.setattr(ChatTokenizer, "lengths", counted_lengths)
        monkeypatch.setattr(Judge, "check", counted_check)
        monkeypatch.setattr(known_data, "MANY_ROWS", 5)
        monkeypatch.setattr(loading, "MANY_ROWS", 5)
        monkeypatch.setattr(loading, "_AT_ONCE", 3)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def write(self, rows: list[dict[str, Any]]) -> None:
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def plan(self, **flags: Any) -> Plan:
        given = {
            "model.model": str(self.folder),
            "model.tokenizer_path": str(self.folder / "model"),
            "data.dataset": [str(self.folder / "rows.jsonl")],
            "data.system_prompt": "",
        }
        rewards = flags.pop("rewards", [{"name": "boxed"}])
        return plan_run([], {**given, "rewards": rewards, **flags}, Registry.discover())

    def read(self, **flags: Any) -> loading.Texts:
        self.tokenized.clear()
        plan, say = self.plan(**flags), _Told(self.told)
        return loading.read_texts(plan, loading.load_data(plan), say=say)

    def judge(self, **flags: Any) -> None:
        self.checked.clear()
        plan = self.plan(**flags)
        with ExitStack() as closing:
            open_judge(plan, loading.load_data(plan), closing, _Told(self.told))


class _Told(Progress):
    def __init__(self, told: list[tuple[str, int, int]]) -> None:
        self._told = told

    def working(self, work: str, done: int, total: int) -> None:
        self._told.append((work, done, total))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_prompts_are_tokenized_in_batches_and_not_again(bench: Bench) -> None:
    bench.read()
    assert bench.tokenized == [3, 3]  # and one alone
    assert bench.told == [("counting the tokens of prompts", done, 7) for done in (0, 3, 6, 7)]
    bench.read()
    assert bench.tokenized == []


@pytest.mark.parametrize("change", ["row", "template", "system_prompt"])
def test_a_change_of_what_is_rendered_tokenizes_again(bench: Bench, change: str) -> None:
    bench.read()
    flags = {}
    if change == "row":
        bench.write([*ROWS[:-1], {**ROWS[-1], "messages": {"role": "user", "content": "sort 3"}}])
    elif change == "template":
        saved(bench.folder / "model", made(template=made().chat_template + " "))
    else:
        flags = {"data.system_prompt": "sort 1"}
    bench.read(**flags)
    assert bench.tokenized


def test_a_known_length_still_refuses_a_long_prompt(bench: Bench) -> None:
    bench.read()
    with pytest.raises(DataError, match=r"rows.jsonl:4: the prompt is 8 tokens long, 7 are allowed"):
        bench.read(**{"data.max_prompt_tokens": 7})
    kept = bench.read(**{"data.max_prompt_tokens": 7, "data.overlong": "drop"})
    assert bench.tokenized == []
    assert kept.dropped == {"train": 1}


def test_damaged_lengths_are_computed_again(bench: Bench) -> None:
    bench.read()
    (file,) = (bench.folder / "cache" / "rlcore" / "data").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    bench.read()
    assert bench.tokenized


def test_a_cache_that_cannot_be_written_costs_only_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert len(bench.read().sources[0]) == 7
    bench.judge()


def test_gold_answers_are_checked_once(bench: Bench) -> None:
    bench.judge()
    assert bench.checked == [7]
    assert bench.told == [("checking gold answers", 0, 7), ("checking gold answers", 7, 7)]
    bench.judge()
    assert bench.checked == []


def test_other_options_or_other_code_check_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.judge()
    bench.judge(rewards=[{"name": "boxed", "options": {"correct_score": 2.0}}])
    assert bench.checked
    monkeypatch.setattr(known_data, "_files", lambda module: [[module, 1, 1]])  # its author has edited it
    bench.judge()
    assert bench.checked


def test_stamps_leave_out_environments_hidden_folders_and_links_to_nowhere(tmp_path: Path) -> None:
    for name in ("a.py", "b.txt", "venv/pyvenv.cfg", "venv/c.py", ".git/d.py", "__pycache__/e.py", "in/f.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".#a.py").symlink_to("nowhere")
    assert [Path(str(name)).name for name, *_ in known_data._stamps(str(tmp_path))] == ["a.py", "f.py"]


@pytest.mark.parametrize(
    ("origin", "folder"),
    [
        ('{"url": "file:///a%20b", "dir_info": {"editable": true}}', "/a b"),
        ('{"url": "file:///a", "dir_info": {}}', ""),
        ("{", ""),
        ("[]", ""),
        ('{"dir_info": {"editable": true}}', ""),
        (None, ""),
    ],
)
def test_an_editable_distribution_is_watched(tmp_path: Path, origin: str | None, folder: str) -> None:
    place = tmp_path / "acme-1.0.dist-info"
    place.mkdir()
    if origin is not None:
        (place / "direct_url.json").write_text(origin)
    assert known_data._editable(PathDistribution(place)) == folder


def test_rows_that_were_refused_are_refused_again(bench: Bench) -> None:
    bench.write([*ROWS[:-1], {**ROWS[-1], "gt_answer": "\\frac{1}{"}])
    for _ in range(2):
        with pytest.raises(DataError, match=r"rows.jsonl:7: reward boxed cannot score"):
            bench.judge()


def test_a_reward_that_does_not_declare_its_check_is_asked_each_time(bench: Bench) -> None:
    (bench.folder / "mine.py").write_text(
        "from rlcore.api import Reward, Score\n"
        "class Mine(Reward):\n"
        "    requires = ('gt_answer',)\n"
        "    def check(self, columns): return None\n"
        "    def score(self, item): return Score(value=1.0)\n"
    )
    sys.path.insert(0, str(bench.folder))
    try:
        for _ in range(2):
            bench.judge(rewards=[{"name": f"{bench.folder / 'mine.py'}:Mine"}])
            assert bench.checked == [7]
    finally:
        sys.path.remove(str(bench.folder))


def test_a_small_data_set_leaves_nothing(bench: Bench) -> None:
    bench.write(ROWS[:3])
    bench.read()
    bench.judge()
    assert not (bench.folder / "cache").exists()
    assert bench.told == []
