"""A run folder is put back to a checkpoint: nothing of later steps stays, nothing of earlier ones goes, however it was left."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.runlog import RunFolder
from rlcore.runlog.checkpoint import Checkpoint, checkpoint_steps
from rlcore.runlog.rewind import rewind, sizes_of_logs


def run_folder(root: Path) -> RunFolder:
    folder = RunFolder.at(root / "run", save_dir=None, eval_save_dir=None, rollout_save_dir=None)
    for place in (folder.root, folder.checkpoints, folder.evaluations, folder.rollouts):
        place.mkdir(parents=True)
    return folder


def test_what_was_written_after_the_checkpoint_goes_and_the_rest_stays(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    sizes = {}
    for step in (1, 2, 3):
        folder.log("metrics", {"step": step, "reward/mean": 0.5})
        folder.log_times({"driver": {"other": 1.0}}, step)
        folder.write_rollouts(step, [{"step": step}], 1e9)
        folder.write_evaluation("task", step, [{"step": step}], 1e9)
        folder.log("failures", {"step": step, "prompt_id": step})
        sizes[step] = sizes_of_logs(folder.root)
        Checkpoint(folder.checkpoints, step, lambda place: None, {}).finish()
    folder.log("metrics", {"step": 2, "eval/task": 0.25})  # an evaluation is written when it is complete
    folder.log("reward_errors", {"reward": "late"})
    folder.log_times({"driver": {"other": 9.0}})
    folder.write_document("summary", {"steps": 3})
    with (folder.root / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "rew')  # killed in the middle of a write
    (folder.checkpoints / ".step-4.partial" / "model").mkdir(parents=True)
    (folder.checkpoints / ".step-4.partial" / ".state.json.partial").write_text("half")
    (folder.rollouts / ".step-4.jsonl.gz.partial").write_text("half")
    removed = rewind(folder, 2, sizes[2])
    for _ in range(2):  # the second time there is nothing to do
        metrics = [json.loads(line) for line in (folder.root / "metrics.jsonl").read_text().splitlines()]
        assert [(row["step"], "eval/task" in row) for row in metrics] == [(1, False), (2, False), (2, True)]
        assert [json.loads(line)["step"] for line in (folder.root / "times.jsonl").read_text().splitlines()] == [1, 2]
        assert [json.loads(line)["prompt_id"] for line in (folder.root / "failures.jsonl").read_text().splitlines()] == [1, 2]
        assert (folder.root / "reward_errors.jsonl").read_text() == ""
        assert sorted(path.name for path in folder.rollouts.iterdir()) == ["step-1.jsonl.gz", "step-2.jsonl.gz"]
        assert sorted(path.name for path in (folder.evaluations / "task").iterdir()) == ["step-1.jsonl", "step-2.jsonl"]
        assert sorted(path.name for path in folder.checkpoints.iterdir()) == ["latest", "step-1", "step-2"]
        assert (folder.checkpoints / "latest").read_text() == "step-2\n"
        assert not (folder.root / "summary.json").exists()
        rewind(folder, 2, sizes[2])
    assert removed == [3]
    assert checkpoint_steps(folder.checkpoints) == [1, 2]


@settings(max_examples=80, deadline=None)
@given(steps=st.lists(st.integers(0, 9), max_size=12), cut=st.integers(0, 400), step=st.integers(0, 9))
def test_a_log_that_was_cut_anywhere_keeps_its_whole_lines_of_earlier_steps(steps: list[int], cut: int, step: int) -> None:
    with TemporaryDirectory() as place:
        folder = run_folder(Path(place))
        for number in steps:
            folder.log("metrics", {"step": number, "reward/mean": 0.125})
        log = folder.root / "metrics.jsonl"
        text = log.read_bytes()[:cut] if log.exists() else b""
        log.write_bytes(text)
        rewind(folder, step, {})
        expected = [number for number in steps[: text.count(b"\n")] if number <= step]
        assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == expected
        assert log.read_bytes()[-1:] in (b"", b"\n")
