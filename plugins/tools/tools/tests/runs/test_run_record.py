"""A run folder read back: whole, killed in the middle of a line, still going on, damaged."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rlcore_plugin_tools.run_record import RunRecord, as_rollout

from rlcore.api import ConfigError
from rlcore.api.runs import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path, "project", save_dir=None, eval_save_dir=None, rollout_save_dir=tmp_path / "elsewhere")
    (made.root / "run.toml").write_text(f'[run]\nproject = "project"\n[log]\nrollout_save_dir = "{tmp_path / "elsewhere"}"\n')
    return made


def test_every_file_is_found_where_it_was_written(run: RunFolder) -> None:
    run.log("metrics", {"step": 0, "eval/a": 0.5})
    run.log("metrics", {"step": 1, "reward/mean": 1.0, "seconds": 2.0})
    run.write_rollouts(1, [{"step": 1, "text": "é\u2028x"}], 1e9)
    run.write_rollouts(12, [], 1e9)
    run.write_evaluation("a", 0, [{"prediction": "7"}], 1e9)
    run.log_times({"trainer-0": {"compute": 1.0}}, 1)
    run.log_capped("failures", {"step": 1})
    record = RunRecord(run.root)
    assert [row["step"] for row in record.updates()] == [1]
    assert record.evaluations() == [{"step": 0, "eval/a": 0.5}]
    assert (record.rollout_steps(), list(record.rollouts(1))) == ([1, 12], [{"step": 1, "text": "é\u2028x"}])
    assert (record.tasks(), record.evaluated_steps("a"), record.evaluation_rows("a", 0)) == (["a"], [0], [{"prediction": "7"}])
    assert (len(record.times()), len(record.failures())) == (1, 1)
    assert (list(record.rollouts(3)), record.evaluation_rows("b", 0), record.summary, record.manifest) == ([], [], None, {})


def test_half_a_line_is_skipped_and_a_damaged_one_is_named(run: RunFolder) -> None:
    log = run.root / "metrics.jsonl"
    log.write_text('{"step": 1, "seconds": 1.0}\n{"step": 2, "sec')
    assert [row["step"] for row in RunRecord(run.root).updates()] == [1]
    log.write_text('{"step": 1, "seconds": 1.0}\nnothing\n')
    with pytest.raises(ConfigError, match=r"metrics\.jsonl:2 is not JSON"):
        RunRecord(run.root).updates()
    (run.rollouts / "step-4.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(ConfigError, match=r"step-4\.jsonl\.gz cannot be read"):
        list(RunRecord(run.root).rollouts(4))


def test_numbers_that_nothing_holds_are_no_figures(run: RunFolder) -> None:
    row = f'{{"step": 1, "seconds": 1.0, "a": NaN, "b": 1e999, "c": -Infinity, "d": {"9" * 400}, "e": 12}}'
    (run.root / "metrics.jsonl").write_text(row + "\n")
    assert RunRecord(run.root).updates() == [{"step": 1, "seconds": 1.0, "a": None, "b": None, "c": None, "d": None, "e": 12}]


def test_what_is_nested_without_end_and_what_is_no_table_are_named(run: RunFolder) -> None:
    (run.root / "metrics.jsonl").write_text("[" * 100_000 + "\n")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl:1 is not JSON"):
        RunRecord(run.root).updates()
    (run.root / "run.toml").write_text('log = "x"\n')
    with pytest.raises(ConfigError, match="log is not a table"):
        RunRecord(run.root)


def test_half_a_surrogate_pair_ends_no_run(run: RunFolder) -> None:
    run.log("metrics", {"step": 1, "seconds": 1.0, "reward/part/\ud800": 1.0})
    run.write_rollouts(1, [{"parsed": "\ud800x"}], 1e9)
    run.write_evaluation("a", 1, [{"reason": "\udfff"}], 1e9)
    run.write_document("summary", {"remarks": ["\ud800"], "interrupted": False, "steps": 1})
    record = RunRecord(run.root)
    assert record.updates()[0]["reward/part/?"] == 1.0
    assert (next(record.rollouts(1))["parsed"], record.evaluation_rows("a", 1)[0]["reason"]) == ("?x", "?")
    assert record.summary is not None
    assert record.summary["remarks"] == ["?"]


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a run folder, since it has no run\.toml"):
        RunRecord(tmp_path)


def test_the_state_of_a_run(run: RunFolder) -> None:
    record, lock = RunRecord(run.root), run.root / ".lock"
    assert record.state == "ended"
    lock.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
    assert record.state == "running"
    lock.write_text("process 1 on another-host\n")
    assert record.state == "running", "nobody here knows better"
    child = subprocess.Popen([sys.executable, "-c", ""])
    lock.write_text(f"process {child.pid} on {socket.gethostname()}\n")
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert record.state == "ended", "it has ended, though its parent has not noticed"
    child.wait()
    assert record.state == "ended"
    run.write_document("summary", {"steps": 3, "interrupted": True})
    assert record.state == "interrupted"
    run.write_document("summary", {"steps": 3, "interrupted": False})
    assert record.state == "finished"


def test_an_answer_of_an_evaluation_has_the_names_of_a_rollout() -> None:
    answer = {"prediction": "7", "ans_valid": 1.0, "format_valid": True, "response_length": 3, "gold": "7"}
    assert as_rollout(answer) == {"text": "7", "accuracy": 1.0, "format_ok": True, "length": 3, "gold": "7"}
    assert as_rollout({"text": "7", "length": 3}) == {"text": "7", "length": 3}


MIB = 1 << 20


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"text": "' + b"x" * 4 * MIB + b'"}\n', "1: the line has more than 1 MiB"),
        (b'{"text": "' + b"x" * 4 * MIB, "1: the line has more than 1 MiB"),
        (b'{"step": 1}\n' + b" " * 4 * MIB, "2: the line has more than 1 MiB"),
        ((b'{"text": "' + b"x" * 9000 + b'"}\n') * 500, "it unpacks to more than 2 MiB"),
        (b"{}\n" * 1001, "it unpacks to more than 1000 lines"),
    ],
)
def test_rollouts_that_unpack_to_more_than_a_run_writes_are_named(
    run: RunFolder, content: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcore.host.bounded_reading.LONGEST_ROW", MIB)
    monkeypatch.setattr("rlcore_plugin_tools.run_record._MOST_UNPACKED", 2 * MIB)
    monkeypatch.setattr("rlcore_plugin_tools.run_record._MOST_LINES", 1000)
    path = run.rollouts / "step-4.jsonl.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(ConfigError) as caught:
        list(RunRecord(run.root).rollouts(4))
    assert str(caught.value) == f"{path} contains more than a run writes ({said}); remove it"


def test_a_log_without_an_end_is_named(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.host.bounded_reading.LONGEST_ROW", MIB)
    with (run.root / "metrics.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match=r"metrics\.jsonl contains more than a run writes \(1: the line has more than 1 MiB\)"):
        RunRecord(run.root).updates()


READS = {
    "metrics.jsonl": RunRecord.updates,
    "times.jsonl": RunRecord.times,
    "failures.jsonl": RunRecord.failures,
    "reward_errors.jsonl": RunRecord.reward_errors,
    "summary.json": lambda record: record.state,
    "manifest.json": lambda record: record.manifest,
    "eval/a/step-1.jsonl": lambda record: record.evaluation_rows("a", 1),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("there", ["pipe", "device", "folder", "nested"])
def test_what_stands_in_the_place_of_a_file_hangs_nobody(run: RunFolder, name: str, there: str) -> None:
    path = run.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if there == "pipe":
        os.mkfifo(path)
    elif there == "device":
        path.symlink_to("/dev/zero")
    elif there == "folder":
        path.mkdir()
    else:
        path.write_text("[" * 100_000 + "\n")
    with pytest.raises(ConfigError, match=rf"{path}"):
        READS[name](RunRecord(run.root))


def test_settings_of_a_run_that_are_nested_without_end_are_named(run: RunFolder) -> None:
    (run.root / "run.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(ConfigError, match=r"run\.toml cannot be read"):
        RunRecord(run.root)
