"""``rlcore resume`` and ``rlcore train --resume auto``: one run, whatever ended it and however often the command is typed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import rlcore
from rlcore.api import UsageError
from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import Objective
from rlcore.runlog.best_checkpoint import BestCheckpoint
from rlcore.runlog.past_runs import past_runs
from rlcore.runlog.run_lock import locked, sign
from rlcore.runtime import training_run
from rlcore.testing import FakePolicy, FakeTraining, RunTester
from rlcore.testing.trackers.fake_tracker import FakeTracker

DEADLY = 6
"""The update in the middle of which a run of these tests dies."""


class Died(BaseException):
    """The process is gone: nothing handles it."""


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_fakes()


def config(tester: RunTester, **log: Any) -> str:
    return tester.fake_run(
        run={"num_episodes": 8, "max_steps": 6},
        log={"save_interval": 2, "rollout_interval": 1, "keep_best": False, **log},
        eval={"eval_dataset": {"heldout": "train.jsonl"}, "eval_interval": 3},
    )


def die(tester: RunTester, monkeypatch: pytest.MonkeyPatch, *argv: str, update: int = DEADLY) -> Path:
    """Run a command that dies in an update; returns the run's folder, from which the summary of the death is absent."""
    real = FakeTraining.update

    def dies(self: FakeTraining, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        if self.optimizer.steps == update - 1:
            until = time.monotonic() + 20
            while update == DEADLY and (newest(tester) / "checkpoints/latest").read_text() != "step-4\n" and time.monotonic() < until:
                time.sleep(0.01)  # the checkpoint of update 4 is hashed meanwhile
            raise Died
        return real(self, batch, objective)

    with monkeypatch.context() as patched:
        patched.setattr(FakeTraining, "update", dies)
        with pytest.raises(Died):
            tester.run(*argv)
    return newest(tester)


def newest(tester: RunTester) -> Path:
    return past_runs(tester.folder / "runs" / "rlcore")[0].root


def steps(run: Path) -> list[int]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["step"] for row in rows if "reward/mean" in row]


def policy(run: Path, step: int = 6) -> bytes:
    made = FakePolicy.load(run / "checkpoints" / f"step-{step}" / "model")
    return bytes(made.last.tobytes() + made.pair.tobytes())


def saved(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_a_scheduler_repeats_one_command_until_the_run_is_finished(
    tester: RunTester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RunTester(tmp_path / "whole", in_process=True).with_fakes()
    whole.run("train", config(whole)).assert_ok()
    command = ("train", config(tester, trackers=["fake"]), "--resume", "auto")
    run = die(tester, monkeypatch, *command)
    assert saved(run) == ["latest", "step-2", "step-4"]
    done = tester.run(*command, "--json").assert_ok()
    assert (newest(tester), done.json["run"], done.json["steps"]) == (run, str(run.relative_to(tester.folder)), 6)
    assert "resumes after update 4, from" in done.stderr
    assert steps(run) == [1, 2, 3, 4, 5, 6]
    assert policy(run) == policy(newest(whole))
    assert saved(run) == ["latest", "step-2", "step-4", "step-6"]
    tracked = FakeTracker.made[-1].run
    assert tracked is not None
    assert (tracked.folder.name, tracked.step) == (run.name, 4)
    (again,) = json.loads((run / "manifest.json").read_text())["resumes"]
    assert again["step"] == 4
    told = tester.run(*command, "--json").assert_ok()
    assert told.json == done.json
    assert not told.written
    assert "is finished, after 6 updates" in told.stderr
    other = tester.run(*command, "--seed", "1").assert_ok()
    assert f"the newest, {run.name}, differs in --seed 1; a new one begins" in other.stdout
    assert len(list(run.parent.iterdir())) == 2


def test_what_only_surrounds_a_run_does_not_make_it_another_one(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config(tester)
    run = die(tester, monkeypatch, "train", file)
    more = ("--save-interval", "3", "--reward-workers", "2", "--weights-deadline", "9", "--run-dir", str(run.parents[1]))
    tester.run("train", file, *more, "--resume", "auto").assert_ok()
    assert newest(tester) == run
    assert steps(run) == [1, 2, 3, 4, 5, 6]


def test_a_run_that_died_before_its_first_checkpoint_is_begun_anew_or_refused(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config(tester)
    run = die(tester, monkeypatch, "train", file, update=2)
    tester.run("resume", str(run)).assert_refused("ended before its first checkpoint")
    assert "this one starts from the beginning" in tester.run("train", file, "--resume", "auto").assert_ok().stdout
    assert newest(tester) != run
    tester.run("train", file, "--resume", str(run)).assert_refused("its only value is auto", f"type rlcore resume {run}")


def test_resume_refuses_what_a_run_must_keep_and_says_what_it_would_do(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    run = die(tester, monkeypatch, "train", config(tester))
    for flag, value, path in (("-g", "16", "sampling.num_generations"), ("--seed", "3", "run.seed"), ("-d", "x.jsonl", "data.dataset")):
        shutil.copy(tester.folder / "train.jsonl", tester.folder / "x.jsonl")
        tester.run("resume", str(run), flag, value).assert_refused(
            flag,
            f"a resumed run keeps its {path}",
            f"begin a new run: rlcore train {run}/run.toml -m {run}/checkpoints/step-4/model {flag} {value}",
        )
    tester.run("resume", str(run), "--step", "3").assert_refused("has no checkpoint of step 3: there are steps 2, 4")
    tester.run("resume", str(run), "--max-steps", "3").assert_refused("--max-steps 3 is less than the 4 updates that", "--step N")
    tester.run("resume", str(run), "-e", "1").assert_refused("-e 1 is less than the 2 episodes that the run has begun")
    tester.run("resume", str(run), "--run-dir", "zz").assert_refused("--run-dir zz", f"stays in its folder, {run}")
    for folder in (".", "", "runs"):  # the first holds a run.toml of a user's
        tester.run("resume", folder).assert_refused("holds no run", f"there are runs in runs/{run.parent.name}")
    tester.run("resume", "nowhere").assert_refused("nowhere is not a folder")
    tester.run("resume", "nowhere", "--project", 5000 * "a").assert_refused("nowhere is not a folder")  # longer than a path may be
    tester.run("resume", str(run / "checkpoints/step-4")).assert_refused(
        f"is a checkpoint; type the folder of its run: rlcore resume {run}"
    )
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(run):
            sign(run)
            holding.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert holding.wait(20)
    try:
        tester.run("resume", str(run)).assert_refused(f"{run} is being written by process")
        tester.run("train", "run.toml", "--resume", "auto").assert_refused("is being written by process")
        for command in (("resume", str(run)), ("train", "run.toml", "--resume", "auto")):
            dry = tester.run(*command, "--dry-run").assert_ok()
            assert re.search(r"process \d+ on \S+ is writing the run, or died while it did; the run cannot be resumed", dry.stdout)
            assert not dry.written
    finally:
        done.set()
        holder.join()
    dry = tester.run("resume", str(run.parent), "--step", "2", "--max-steps", "8", "-i", "2", "--dry-run", "--json").assert_ok()
    assert not dry.written
    assert dry.json["resume"] == {"run": str(run), "checkpoint": str(run / "checkpoints/step-2"), "step": 2}
    notes = "\n".join(dry.json["notes"])
    assert "checkpoints of later updates are removed, because those updates are repeated: 4" in notes
    assert re.search("settings that differ from those of the run so far: .*--max-steps 8.* -i 2", notes)
    assert "the optimizer's state continues; from update 3 on, the learning rate follows the schedule" in notes


def test_a_refused_change_comes_with_the_command_of_a_new_run(tester: RunTester) -> None:
    tester.run("train", config(tester, keep_checkpoints=9)).assert_ok()
    run = newest(tester)
    shutil.copy(tester.folder / "train.jsonl", tester.folder / "other data.jsonl")
    changes = ("-d", "other data.jsonl", "-lr", "0.5", "--no-keep-best", "--max-steps", "7")
    for step in ("4", "6"):
        refused = tester.run("resume", str(run), *changes, *(("--step", step) if step == "4" else ()))
        refused.assert_refused("a resumed run keeps its data.dataset")
        words = shlex.split(refused.stderr.rpartition("begin a new run: ")[2])
        assert words[:2] == ["rlcore", "train"]
        assert words[3:5] == ["-m", str(run / f"checkpoints/step-{step}/model")]
        assert words[5:] == [*changes]
    assert "training            7 updates" in tester.run(*words[1:]).assert_ok().stdout
    assert newest(tester) != run
    other = tester.run("resume", str(run), "-m", "model", "--max-steps", "7", "--seed", "1")
    other.assert_refused(f"begin a new run: rlcore train {run}/run.toml -m model --max-steps 7 --seed 1")


@pytest.mark.parametrize(("change", "told"), [(("-lr", "0.5"), True), (("--warmup-steps", "8"), True), (("--max-grad-norm", "2"), False)])
def test_the_next_learning_rate_is_told(tester: RunTester, monkeypatch: pytest.MonkeyPatch, change: tuple[str, ...], told: bool) -> None:
    run = die(tester, monkeypatch, "train", config(tester))
    done = tester.run("resume", str(run), *change).assert_ok()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rates = {row["step"]: row["learning_rate"] for row in rows if "learning_rate" in row}
    said = f"learning rate: {rates[5]:.4g} at the next optimizer step, {rates[4]:.4g} at the last one; 6 optimizer steps in all, "
    said += "4 of them done"
    assert (said in done.stdout) == told
    assert ("the optimizer's state continues" in done.stdout) == told


def test_a_finished_run_is_trained_on_if_it_is_told_how_far(tester: RunTester) -> None:
    done = tester.run("train", config(tester)).assert_ok()
    run = newest(tester)
    tester.run("resume", str(run)).assert_refused("is finished, after 6 updates; to train further, raise --max-steps")
    tester.run("resume", str(run), "--max-steps", "5").assert_refused("is finished, after 6 updates")
    (line,) = (line for line in done.lines if line.startswith("  rlcore resume "))
    words = line.partition("    #")[0].split()[1:]
    assert words[2:] == ["--max-steps", "12"]
    tester.run(*words).assert_ok()
    assert steps(run) == list(range(1, 13))
    (again,) = json.loads((run / "manifest.json").read_text())["resumes"]
    assert again["settings"] == {"run.max_steps": ["6", "12"]}
    assert "is finished, after 12 updates" in tester.run("train", "run.toml", "--resume", "auto").assert_ok().stdout  # as it began
    whole = tester.run("train", config(tester), "-e", "1", "--max-steps", "100", "-p", "short").assert_ok()
    assert "training            2 updates" in whole.stdout  # all prompts of its one episode
    project = str(tester.folder / "runs/short")
    tester.run("resume", project).assert_refused("is finished, after 2 updates; to train further, raise -e")
    assert "training            4 updates" in tester.run("resume", project, "-e", "2").assert_ok().stdout
    assert set(saved(run)) - {"step-6"} == {"latest", "step-8", "step-10", "step-12"}  # the best one may be that of step 6


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    run = die(tester, monkeypatch, "train", config(tester))
    weights = next((run / "checkpoints/step-4/model").glob("*.npz"))
    data = bytearray(weights.read_bytes())
    data[-40] ^= 1
    weights.write_bytes(data)
    log = run / "metrics.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if not line.startswith('{"step": 2,')))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "data": {**manifest["data"], "eval/heldout": "other"}}))
    (run / "eval/heldout/.step-3.jsonl.partial").write_text("half")
    tester.run("resume", str(run), "--step", "4").assert_refused(f"step-4/model/{weights.name} has changed since it was saved")
    tester.run("train", config(tester), "-m", str(weights.parent)).assert_refused(f"{weights.name} has changed since it was saved")
    done = tester.run("resume", str(run)).assert_ok()
    assert "warning: the checkpoint of step 4 cannot be used" in done.stdout
    assert "resumes after update 2" in done.stdout
    assert "metrics.jsonl lacks the updates 2, and" in done.stdout
    assert "the held-out data differ from those at the start of the run" in done.stdout
    assert steps(run) == [1, 3, 4, 5, 6]
    assert not list(run.rglob("*.partial"))


def test_other_data_and_other_plugins_are_told(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    run = die(tester, monkeypatch, "train", config(tester))
    manifest = json.loads((run / "manifest.json").read_text())
    for version in ("1.3", "7.1"):
        items = [{**item, "version": version} if item["distribution"] == "rlcore-plugin-fakes" else item for item in manifest["plugins"]]
        (run / "manifest.json").write_text(json.dumps({**manifest, "plugins": items}))
        ended = tester.run("resume", str(run), "--dry-run", *(["--any-version"] if version == "7.1" else [])).assert_ok()
        assert (
            f"warning: plugins of other versions than at the start of the run: rlcore-plugin-fakes 1.0, which was {version}" in ended.stdout
        )
    tester.run("resume", str(run)).assert_refused("another major version", "--any-version")
    for damaged in ([], {**manifest, "origins": None}, {name: value for name, value in manifest.items() if name != "data"}):
        (run / "manifest.json").write_text(json.dumps(damaged))
        for command in (("resume", str(run)), ("train", "run.toml", "--resume", "auto")):
            tester.run(*command).assert_refused(f"{run.name}/manifest.json cannot be read (", "restore or remove it")
    (run / "manifest.json").write_text(json.dumps(manifest))
    tester.fake_data(letters="abcdee")
    changed = tester.run("resume", str(run))
    assert (changed.exit_code, saved(run)) == (2, ["latest", "step-2", "step-4"])
    assert f"has changed since the run {run} began: restore it" in changed.stderr


def test_old_checkpoints_go_and_the_best_one_stays(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies = {0: 0.0, 1: 0.9, 2: 0.5, 3: 0.5, 4: 0.2, 5: 0.2, 6: 0.1}
    monkeypatch.setattr(BestCheckpoint, "saw", lambda self, step, figures: self._known.update({step: accuracies[step]}))
    tester.run("train", config(tester, save_interval=1, keep_checkpoints=2, keep_best=True)).assert_ok()
    assert saved(newest(tester)) == ["latest", "step-1", "step-5", "step-6"]
    tester.run("train", config(tester, save_interval=1, keep_checkpoints=2)).assert_ok()
    assert saved(newest(tester)) == ["latest", "step-5", "step-6"]


def test_a_default_run_saves_when_minutes_have_passed(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tester.fake_run(run={"num_episodes": 8, "max_steps": 6}, log={"keep_checkpoints": 9})
    tester.run("train", file).assert_ok()
    assert saved(newest(tester)) == ["latest", "step-6"]
    assert training_run._AUTO_SAVE_SECONDS == 600.0, "docs/how_to/when_things_break.md says ten minutes"
    monkeypatch.setattr(training_run, "_AUTO_SAVE_SECONDS", 0.0)
    tester.run("train", file).assert_ok()
    assert saved(newest(tester)) == ["latest", *(f"step-{step}" for step in range(1, 7))]


def test_a_run_goes_on_from_python(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config(tester)
    run = die(tester, monkeypatch, "train", file)
    monkeypatch.chdir(tester.folder)
    with tester.plugins:
        again = rlcore.train(file, resume="auto")
        assert (again.run.name, again.steps, steps(run)) == (run.name, 6, [1, 2, 3, 4, 5, 6])
        assert rlcore.train(file, resume="auto").as_json() == again.as_json()
        with pytest.raises(UsageError, match="is finished, after 6 updates"):
            rlcore.train(resume=run)
        assert rlcore.train(resume=run, max_steps=7).steps == 7
    assert steps(run) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("begun", [True, False])
def test_a_run_is_made_private_at_its_start_or_when_it_goes_on(tester: RunTester, monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    moved = {name: str(tester.folder / name) for name in ("save_dir", "rollout_save_dir")}
    run = die(tester, monkeypatch, "train", config(tester, **moved, private=begun), update=5)
    places = (run, run / "eval", tester.folder / "save_dir" / run.name, tester.folder / "rollout_save_dir" / run.name)
    assert [not place.stat().st_mode & 0o077 for place in places] == [begun] * 4
    tester.run("resume", str(run), *([] if begun else ["--private"])).assert_ok()
    assert [place.stat().st_mode & 0o777 for place in places] == [0o700] * 4
