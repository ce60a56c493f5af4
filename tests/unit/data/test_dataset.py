"""In-memory data sets, fingerprints, several files, ratios, order, system prompts and lengths."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.config.run_config import DataSection, RunConfig
from rlcore.contracts.errors import DataError
from rlcore.contracts.specs import RewardSpec
from rlcore.contracts.types import Message, Prompt
from rlcore.data import DataSet, check_prompt_lengths, load_prompts, with_system_prompt
from rlcore.data.dataset import resized
from rlcore.registry.plugin_registry import Registry

REGISTRY = Registry.discover()
BOXED = RewardSpec(name="boxed", target="m:Boxed", summary="", requires=("gt_answer",))


def row(answer: str, **more: Any) -> dict[str, Any]:
    return {"messages": {"role": "user", "content": f"say {answer}"}, "gt_answer": answer, **more}


def file(path: Path, answers: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row(answer)) + "\n" for answer in answers), encoding="utf-8")
    return path


def load(dataset: object) -> DataSet:
    return load_prompts(RunConfig(data=DataSection.model_validate({"dataset": dataset})), [BOXED], REGISTRY)


def golds(data: DataSet) -> list[str]:
    return [prompt.columns["gt_answer"] for prompt in data.prompts]


def test_rows_in_memory_are_checked_like_files() -> None:
    assert [prompt.prompt_id for prompt in DataSet.of([row("1"), row("2")], [BOXED]).prompts] == ["rows:1", "rows:2"]
    with pytest.raises(DataError, match='rows:2: "gt_answer" is empty'):
        DataSet.of([row("1"), row("")], [BOXED])
    with pytest.raises(DataError, match="rows: the data is empty"):
        DataSet.of([], [BOXED])


def test_a_column_that_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(DataError, match="rows:1: a column holds a Python object"):
        DataSet.of([row("1", thing=object())])
    assert len(DataSet.of([row("1", thing=np.arange(3))])) == 1


@pytest.mark.parametrize("change", [{"gt_answer": "9"}, {"id": "x"}, {"level": 1}, {"messages": {"role": "user", "content": "?"}}])
def test_the_fingerprint_covers_every_part_of_a_row(change: dict[str, Any]) -> None:
    rows = [row("1"), row("2")]
    same = [dict(reversed(list(rows[0].items()))), rows[1]]
    assert DataSet.of(rows).fingerprint == DataSet.of(same).fingerprint
    assert DataSet.of(rows).fingerprint != DataSet.of([rows[0] | change, rows[1]]).fingerprint


def test_the_fingerprint_does_not_depend_on_where_the_file_lies(tmp_path: Path) -> None:
    a, b = file(tmp_path / "a" / "train.jsonl", "123"), file(tmp_path / "b" / "train.jsonl", "123")
    assert load(str(a)).fingerprint == load(str(b)).fingerprint


def test_several_files_follow_one_another_and_equal_stems_do_not_clash(tmp_path: Path) -> None:
    a, b = file(tmp_path / "a" / "train.jsonl", "12"), file(tmp_path / "b" / "train.jsonl", "3")
    data = load([str(a), str(b)])
    assert golds(data) == ["1", "2", "3"]
    assert data.prompts[2].prompt_id == f"{b}:1"
    with pytest.raises(DataError, match="no training data is named"):
        load([])


def test_a_ratio_says_how_often_the_rows_count(tmp_path: Path) -> None:
    a, b = file(tmp_path / "a.jsonl", "abcdefgh"), file(tmp_path / "b.jsonl", "12")
    data = load([{"path": str(a), "ratio": 0.5}, {"path": str(b), "ratio": 2.5}, str(file(tmp_path / "c.jsonl", "x"))])
    assert golds(data) == ["a", "c", "e", "g", "1", "2", "1", "2", "1", "x"]
    assert [prompt.prompt_id for prompt in data.prompts[4:]] == ["b:1", "b:2", "b:1#2", "b:2#2", "b:1#3", "c:1"]
    assert [prompt.index for prompt in data.prompts] == list(range(10))


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 60), st.floats(0.001, 8))
def test_a_ratio_treats_all_rows_alike(count: int, ratio: float) -> None:
    prompts = [Prompt(prompt_id=str(i), index=i, messages=(Message(role="user", content="x"),)) for i in range(count)]
    kept = resized(prompts, ratio)
    times = Counter(prompt.prompt_id.partition("#")[0] for prompt in kept)
    assert len({prompt.prompt_id for prompt in kept}) == len(kept) == max(1, round(count * ratio))
    assert max(times.values()) - min(times[prompt.prompt_id] for prompt in prompts) <= 1


def test_a_system_prompt_goes_in_front_once() -> None:
    user, system = Message(role="user", content="u"), Message(role="system", content="s")
    assert with_system_prompt([user], "s") == (system, user)
    assert with_system_prompt([system, user], "other") == (system, user)
    assert with_system_prompt([user], "") == with_system_prompt([user], None) == (user,)


def test_prompts_that_are_too_long_are_refused() -> None:
    data = DataSet.of([row("1"), row("22"), row("333")])
    check_prompt_lengths(data.prompts, [5, 6, 7], 7)
    with pytest.raises(DataError) as caught:
        check_prompt_lengths(data.prompts, [5, 6, 7], 5)
    assert str(caught.value) == (
        "rows:2: the prompt is 6 tokens long, 5 are allowed (and so are 1 more); remove long rows, raise -mpt/--max-prompt-tokens to 7, "
        "or type --overlong drop"
    )


def test_a_number_of_many_digits_has_its_own_fingerprint() -> None:
    prints = {DataSet.of([row("3", case={"n": [number]})]).fingerprint for number in (10**5000, 10**5000 + 1, -(10**5000), 1)}
    assert len(prints) == 4
