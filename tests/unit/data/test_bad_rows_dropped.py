"""Bad rows that are left out and counted, the bound of rows, sources without end, and numbers with many digits."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlcore.api.data import RowSource
from rlcore.config.run_config import DataSection, DataSource, RunConfig
from rlcore.contracts.errors import DataError
from rlcore.contracts.specs import RewardSpec
from rlcore.data import DataSet, EndlessDataError, check_end, load_eval, load_prompts
from rlcore.data.json_texts import number_text, whole_number
from rlcore.data.left_out import LeftOut, by_reason, left_out_sentences
from rlcore.registry.plugin_registry import Registry

EXACT = RewardSpec(name="exact", target="m:Exact", summary="", requires=("gt_answer",), gold="answer")
GOOD = [{"messages": {"role": "user", "content": f"{number} + 1"}, "gt_answer": str(number + 1)} for number in range(4)]
BAD: list[Any] = [{**GOOD[0], "gt_answer": "notfound"}, {**GOOD[1], "gt_answer": "N/A"}, {"gt_answer": "1"}, {**GOOD[2], "is_valid": "No"}]


def written(folder: Path, *rows: object) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def loaded(path: str, registry: Registry | None = None, **data: Any) -> DataSet:
    config = RunConfig(data=DataSection.model_validate({"dataset": path, "format": "none", **data}))
    return load_prompts(config, [EXACT], registry or Registry.discover([]))


class Forever(RowSource):
    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        return ((number, GOOD[number % 4]) for number in itertools.count(1))


def forever(monkeypatch: pytest.MonkeyPatch) -> tuple[Registry, DataSource]:
    monkeypatch.setattr("rlcore.data.prompts._MOST_ROWS", 5000)
    registry = Registry.discover([])
    return registry, DataSource(path="anything", source=registry.add("data", Forever))


def test_bad_rows_are_refused_unless_they_may_be_dropped(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD[0], BAD[0])
    with pytest.raises(DataError, match=r'rows.jsonl:2: "gt_answer" is "notfound".*\(--bad-rows drop leaves such rows out\)$'):
        loaded(path)


def test_bad_rows_are_left_out_with_their_places(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD[0], BAD[0], "{", GOOD[1], *BAD[1:], GOOD[2])
    data = loaded(path, bad_rows="drop")
    assert [prompt.source for prompt in data.prompts] == [f"{path}:{row}" for row in (1, 4, 8)]
    assert [prompt.prompt_id for prompt in data.prompts] == ["rows:1", "rows:4", "rows:8"]
    assert [row.row for row in data.left_out] == [2, 3, 5, 6, 7]
    assert {row.file for row in data.left_out} == {path}


def test_the_rest_has_the_identity_of_its_content(tmp_path: Path) -> None:
    ids = [{**row, "id": str(at)} for at, row in enumerate(GOOD)]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    clean = loaded(written(tmp_path / "a", *ids))
    mixed = loaded(written(tmp_path / "b", ids[0], BAD[0], *ids[1:], BAD[1]), bad_rows="drop")
    assert mixed.fingerprint == clean.fingerprint


def test_a_file_of_bad_rows_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, *BAD)
    with pytest.raises(DataError, match=r'rows.jsonl:1: "gt_answer" is "notfound".* \(4 in all\), and --bad-rows drop leaves none$'):
        loaded(path, bad_rows="drop")
    with pytest.raises(DataError, match="--bad-rows drop leaves none"):
        load_eval(path, [EXACT], Registry.discover([]), DataSection(bad_rows="drop", format="none"))


def test_held_out_rows_are_left_out_in_the_same_way(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD[0], BAD[0])
    data = load_eval(path, [EXACT], Registry.discover([]), DataSection(bad_rows="drop", format="none"))
    assert (len(data), len(data.left_out)) == (1, 1)


def test_more_bad_rows_than_a_refusal_counts_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.data.dataset._MOST_BAD", 3)
    path = written(tmp_path, GOOD[0], *[BAD[0]] * 7, GOOD[1])
    data = loaded(path, bad_rows="drop")
    assert (len(data), len(data.left_out)) == (2, 7)
    with pytest.raises(DataError, match="at least 3 in all"):
        loaded(written(tmp_path, *[BAD[0]] * 7), bad_rows="drop")


def test_reasons_are_counted_by_kind() -> None:
    said = ["not JSON at column 17 (expecting value); each line must be one", "not JSON at column 4 (extra data)", "answer 'x' is not y"]
    rows = [LeftOut("a", at, reason) for at, reason in enumerate([*said, "answer 'a\\'b' is not y", said[0]])]
    counts = by_reason(rows)
    assert counts == {"not JSON at column …": 3, "answer '…' is not y": 2}
    assert left_out_sentences({"train": counts, "eval/x": {}}, {"train": 8}) == [
        "train: 5 rows are bad and are left out, 8 remain (--bad-rows drop): 3 × not JSON at column …; 2 × answer '…' is not y"
    ]
    many = by_reason([LeftOut("a", at, "r" * (at + 1)) for at in range(30)])
    assert (len(many), sum(many.values())) == (21, 30)


def test_rows_that_no_reward_can_score_leave_the_data_set(tmp_path: Path) -> None:
    path = written(tmp_path, *GOOD)
    data = loaded(path).without({f"{path}:2": "no", "elsewhere:1": "no"})
    assert [row.place for row in data.left_out] == [f"{path}:2"]
    assert [prompt.index for prompt in data.prompts] == [0, 1, 2]


# --- the bound -----------------------------------------------------------------------------------------------------------


def test_max_rows_bounds_each_data_set(tmp_path: Path) -> None:
    path = written(tmp_path, BAD[0], *GOOD)
    assert len(loaded(path, bad_rows="drop", max_rows=3)) == 2
    data = DataSection(bad_rows="drop", max_rows=2, format="none")
    assert len(load_eval(path, [EXACT], Registry.discover([]), data)) == 1


def test_a_source_without_end_is_refused_or_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, source = forever(monkeypatch)
    config = {"dataset": [source.model_dump()], "format": "none"}
    with pytest.raises(EndlessDataError, match=r"^anything: it has more than 5000 rows, perhaps without end; say .* --max-rows 100000$"):
        load_prompts(RunConfig.model_validate({"data": config}), [EXACT], registry)
    with pytest.raises(EndlessDataError):
        check_end(source, registry, None, 60.0)
    assert check_end(source, registry, 100, 60.0)
    assert not check_end(source, registry, None, -1.0)
    assert len(load_prompts(RunConfig.model_validate({"data": {**config, "max_rows": 7}}), [EXACT], registry)) == 7


def test_a_large_file_is_not_taken_for_endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.data.prompts._MOST_ROWS", 2)
    assert len(loaded(written(tmp_path, *GOOD))) == 4


# --- numbers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_a_number_with_many_digits_is_a_number(tmp_path: Path, name: str) -> None:
    digits = "-" + "7" * 6000
    row = json.dumps(GOOD[0])[:-1] + f', "large": [{digits}, 3], "small": 5}}'
    (tmp_path / name).write_text(f"[{row}]" if name.endswith(".json") else row, encoding="utf-8")
    data = loaded(str(tmp_path / name))
    large, three = data.prompts[0].columns["large"]
    assert (large % 10**6, three, data.prompts[0].columns["small"]) == (-777777 % 10**6, 3, 5)
    assert isinstance(large, int)
    assert number_text(large) == digits
    assert pickle.loads(pickle.dumps(large)) == large
    assert data.fingerprint != loaded(written(tmp_path, row.replace(digits, digits[:-1] + "8"))).fingerprint
    assert data.fingerprint != loaded(written(tmp_path, row.replace(digits, f'"{digits}"'))).fingerprint


def test_a_gold_answer_with_many_digits_is_refused_as_any_number_is(tmp_path: Path) -> None:
    row = json.dumps(GOOD[0]).replace('"1"', "1" * 5000)
    with pytest.raises(DataError, match=r'"gt_answer" must be text, not a number .1111'):
        loaded(written(tmp_path, row))
    assert (
        loaded(written(tmp_path, row.replace("gt_answer", "n")), columns={"gt_answer": "n"}).prompts[0].columns["gt_answer"] == "1" * 5000
    )


def test_a_number_beyond_the_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="a number has 50001 digits, and 50000 are the limit"):
        whole_number("1" * 50_001)
