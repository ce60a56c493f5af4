"""What a run writes stays below its bounds, however long the run, and the bounds leave the same files whoever interrupts it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.runlog import RunFolder
from rlcore.runlog import folder as module
from rlcore.runlog.rewind import rewind, sizes_of_logs

LINE = len(json.dumps({"text": ""})) + 1
"""Bytes of a row without text."""


@pytest.fixture(autouse=True, scope="module")
def sizes_as_given() -> Iterator[None]:
    """Nothing is compressed: the sizes of files follow from those of their texts."""
    with mock.patch.object(module.gzip, "compress", lambda data, *level, **given: data):
        yield


def run_folder(place: Path) -> RunFolder:
    made = RunFolder.at(place / "run", save_dir=None, eval_save_dir=None, rollout_save_dir=None)
    for path in (made.root, made.checkpoints, made.evaluations, made.rollouts):
        path.mkdir(parents=True)
    return made


def sized(size: int) -> list[dict[str, str]]:
    return [{"text": "x" * (size - LINE)}]


def there(folder: Path) -> dict[str, int]:
    """Files by their name below the folder, with their sizes."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_oldest_rollouts_make_room_and_those_of_the_first_step_stay(tmp_path: Path) -> None:
    made = run_folder(tmp_path)
    for step in (1, 20, 40, 60, 80):
        made.write_rollouts(step, sized(100), 350)
        assert sum(there(made.rollouts).values()) <= 350
    assert there(made.rollouts) == {f"step-{step}.jsonl.gz": 100 for step in (1, 60, 80)}
    made.write_rollouts(100, sized(340), 350)
    assert there(made.rollouts) == {"step-100.jsonl.gz": 340}
    made.write_rollouts(120, sized(999), 350)
    assert there(made.rollouts) == {"step-120.jsonl.gz": 999}, "one that is too large is there all the same, alone"
    made.write_rollouts(120, sized(340), 350)
    assert there(made.rollouts) == {"step-120.jsonl.gz": 340}, "it does not count twice"


def test_evaluations_of_all_tasks_share_their_room_and_the_first_ones_stay(tmp_path: Path) -> None:
    made = run_folder(tmp_path)
    for step in (0, 5, 10, 15):
        for task in ("a", "b"):
            made.write_evaluation(task, step, sized(100), 500)
            assert sum(there(made.evaluations).values()) <= 500
    assert set(there(made.evaluations)) == {"a/step-0.jsonl", "b/step-0.jsonl", "b/step-10.jsonl", "a/step-15.jsonl", "b/step-15.jsonl"}


def test_rollouts_and_evaluations_of_one_place_do_not_remove_each_other(tmp_path: Path) -> None:
    same = tmp_path / "same"
    made = RunFolder.at(tmp_path / "run", save_dir=None, eval_save_dir=same, rollout_save_dir=same)
    made.restore_places(private=False)
    made.write_evaluation("a", 0, sized(100), 150)
    for step in (1, 2, 3):
        made.write_rollouts(step, sized(100), 150)
    assert set(there(same)) == {"run/a/step-0.jsonl", "run/step-3.jsonl.gz"}


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(20, 120), min_size=1, max_size=14), most=st.integers(20, 400), data=st.data())
def test_a_run_that_goes_on_ends_with_the_files_of_one_that_nobody_interrupted(sizes: list[int], most: int, data: st.DataObject) -> None:
    with TemporaryDirectory() as first, TemporaryDirectory() as second, mock.patch.object(os, "fsync"):
        whole, parts = run_folder(Path(first)), run_folder(Path(second))
        for step, size in enumerate(sizes, start=1):
            whole.write_rollouts(step, sized(size), most)
        last = 0
        while last < len(sizes):
            begin = data.draw(st.integers(0, last), label="goes on after")
            end = data.draw(st.integers(last + 1, len(sizes)), label="killed after")
            rewind(parts, begin, {})
            for step in range(begin + 1, end + 1):
                parts.write_rollouts(step, sized(sizes[step - 1]), most)
            last = end
        assert there(parts.rollouts) == there(whole.rollouts)


@pytest.mark.parametrize("name", ["failures", "reward_errors"])
def test_a_log_of_accidents_ends_with_a_line_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(module, "_MOST_OF_ACCIDENTS", 1 << 20)
    made, path = run_folder(tmp_path), tmp_path / "run" / f"{name}.jsonl"
    sizes = {}
    for step in range(1, 41):
        made.log_capped(name, {"step": step, "reason": "x" * 50_000})
        sizes[step] = sizes_of_logs(made.root)
    before = path.read_bytes()
    *rows, last = map(json.loads, before.splitlines())
    assert [row["step"] for row in rows] == list(range(1, 22))
    assert last == {"step": 21, "left_out": f"{name}.jsonl ends here, at 1 MB"}
    for back in (40, 21, 20, 3):  # before and after its end
        rewind(made, back, sizes[back])
        for step in range(back + 1, 41):
            made.log_capped(name, {"step": step, "reason": "x" * 50_000})
        assert path.read_bytes() == before
