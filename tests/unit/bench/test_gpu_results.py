"""`make gpu`: which parts run again, and what the tables say; without running a part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu import child
from benchmarks.gpu.parts import PARTS, TINY, Part, choose
from benchmarks.gpu.refused import Refused
from benchmarks.gpu.results import FILE, Results
from benchmarks.gpu.runner import Runner, commit
from benchmarks.gpu.setting import UNFINISHED, Outcome, Setting
from benchmarks.gpu.table import BEGIN, END, NOT_YET, check_page, markdown, put_into

MACHINE = {"card": "NVIDIA H200", "memory_gb": 139.8, "python": "3.12.3", "torch": "2.11.0", "cuda": "13.0", "transformers": "5.17.0"}


def line(part: str, status: str = "done", **changes: Any) -> dict[str, Any]:
    base = {"part": part, "status": status, "said": "all well", "seconds": 12.5, "date": "2026-11-22", "commit": "abc1234"}
    return {**base, "device": "cuda", "tiny": False, "machine": MACHINE, "figures": {}, "rows": [], **changes}


def runner(folder: Path, said: list[str] | None = None, until: float | None = None, tiny: bool = True) -> Runner:
    return Runner(device="cpu", tiny=tiny, folder=folder, path=(), say=(said if said is not None else []).append, until=until)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Parts as they were run, with the status that each is to have."""
    statuses: dict[str, str] = {}
    calls: list[str] = []

    def outcome(self: Runner, part: Part, *rest: Any) -> dict[str, Any]:
        calls.append(part.name)
        return {
            "status": statuses.get(part.name, "done"),
            "said": "run " + str(calls.count(part.name)),
            "figures": {},
            "rows": [],
            "machine": {},
        }

    monkeypatch.setattr(Runner, "_outcome", outcome)
    statuses["calls"] = calls  # type: ignore[assignment]
    return statuses


@pytest.mark.parametrize("absent", sorted(line("sleep")))
def test_a_line_that_lacks_what_the_tables_show_does_not_count(tmp_path: Path, absent: str) -> None:
    results = Results(tmp_path / FILE)
    results.path.write_text(json.dumps({name: value for name, value in line("sleep").items() if name != absent}) + "\n")
    assert results.lines() == {}
    assert markdown(results.lines()) == NOT_YET


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs git in a repository of one commit that stands for the checkout."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    root = tmp_path / "checkout"
    (root / "docs" / "maintainers").mkdir(parents=True)
    (root / "docs" / "maintainers" / "gpu.md").touch()
    (root / "code.py").touch()

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", "-C", str(root), *who, *words], check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "one")
    monkeypatch.setattr("benchmarks.gpu.runner.REPOSITORY", root)
    monkeypatch.setattr("benchmarks.gpu.runner.DOCUMENT", root / "docs" / "maintainers" / "gpu.md")
    return git


def test_a_row_says_whether_the_checkout_had_changes(tmp_path: Path, checkout: Callable[..., str]) -> None:
    short, root = checkout("rev-parse", "--short", "HEAD"), tmp_path / "checkout"
    (root / "docs" / "maintainers" / "gpu.md").write_text("the tables of an earlier part")
    assert commit() == short
    (root / "code.py").write_text("two")
    assert commit() == f"{short}-dirty"
    checkout("checkout", "code.py")
    assert commit() == short
    (root / "new.py").touch()
    assert commit() == f"{short}-dirty"


def test_files_copied_into_another_repository_have_no_commit(
    tmp_path: Path, checkout: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkout" / "copied" / "docs" / "maintainers").mkdir(parents=True)
    monkeypatch.setattr("benchmarks.gpu.runner.REPOSITORY", tmp_path / "checkout" / "copied")
    monkeypatch.setattr("benchmarks.gpu.runner.DOCUMENT", tmp_path / "checkout" / "copied" / "docs" / "maintainers" / "gpu.md")
    assert commit() is None
    monkeypatch.setenv("PATH", "")
    assert commit() is None


def test_what_is_done_does_not_run_again_and_what_failed_does(tmp_path: Path, ran: dict[str, Any]) -> None:
    chosen, said = choose(["sleep", "trace", "peers-0.6b"]), []
    ran.update({"trace": "failed", "peers-0.6b": "not run"})
    runner(tmp_path).run(chosen)
    assert ran["calls"] == ["sleep", "trace", "peers-0.6b"]
    runner(tmp_path, said).run(chosen)
    assert ran["calls"][3:] == ["trace", "peers-0.6b"]
    assert said[0] == "sleep: done before; --again runs it once more"
    runner(tmp_path).run(chosen, again=True)
    assert ran["calls"][5:] == ["sleep", "trace", "peers-0.6b"]
    lines = Results(tmp_path / "results.jsonl").lines()
    assert {name: entry["said"] for name, entry in lines.items()} == {"sleep": "run 2", "trace": "run 3", "peers-0.6b": "run 3"}


def test_a_part_that_may_not_end_in_time_is_left_for_the_next_call(tmp_path: Path, ran: dict[str, Any]) -> None:
    long, short = choose(["sleep", "peers-1.7b"])[::-1]
    assert short.expected < long.expected
    until = time.monotonic() + (short.expected + long.expected) / 2
    assert runner(tmp_path, until=until, tiny=False).run([long, short]) == [long]
    assert ran["calls"] == ["sleep"]


def test_a_tiny_part_begins_only_if_it_ends_in_time_too(tmp_path: Path, ran: dict[str, Any]) -> None:
    chosen = choose(["sleep"])
    assert runner(tmp_path, until=time.monotonic() + TINY / 2).run(chosen) == chosen
    assert ran["calls"] == []
    assert Results(tmp_path / "results.jsonl").lines() == {}
    assert runner(tmp_path, until=time.monotonic() + 2 * TINY).run(chosen) == []
    assert ran["calls"] == ["sleep"]


def test_what_a_part_reported_before_it_was_ended_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"status": UNFINISHED, "said": "a first row", "figures": {}, "rows": [{"shape": "0.6b"}], "machine": MACHINE}

    def too_long(self: Runner, command: list[str], log: Path, limit: float) -> None:
        log.write_text("still at it\n")
        Path(command[command.index("--answer") + 1]).write_text(json.dumps(found))

    monkeypatch.setattr(Runner, "_wait", too_long)
    runner(tmp_path).run(choose(["peers-0.6b"]))
    line = Results(tmp_path / "results.jsonl").lines()["peers-0.6b"]
    assert (line["status"], line["rows"], line["machine"]) == ("failed", found["rows"], MACHINE)
    assert line["said"].startswith("ran longer than 480 s; ")


def test_a_part_s_process_writes_what_it_reports_and_then_its_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, seen = tmp_path / "answer", []

    def work(setting: Setting) -> Outcome:
        setting.report(Outcome(said="half"))
        seen.append((setting.until, json.loads(answer.read_text())))
        return Outcome(said="whole")

    monkeypatch.setitem(sys.modules, "a_part", SimpleNamespace(work=work))  # type: ignore[arg-type]
    monkeypatch.setattr(child, "choose", lambda names: [Part(name=names[0], what="", target="a_part:work")])
    folders = ["--keep", str(tmp_path), "--scratch", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["child", "any", "--device", "cpu", *folders, "--until", "12.5", "--answer", str(answer)])
    child.main()
    ((until, half),) = seen
    assert (until, half["said"], half["status"]) == (12.5, "half", UNFINISHED)
    whole = json.loads(answer.read_text())
    assert (whole["said"], whole["status"], whole["machine"]["device"]) == ("whole", "done", "cpu")


def test_a_line_that_was_cut_short_does_not_count(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.write(line("sleep"))
    whole = results.path.read_text()
    results.path.write_text(whole + whole.replace("sleep", "trace")[:40])
    assert results.done() == {"sleep"}
    results.write(line("sleep", "failed"))
    assert results.done() == set()
    assert results.path.read_text().count("\n") == 1


@pytest.mark.parametrize("text", ["[1]", "7", '{"part": "trace"}', '{"status": "done"}'])
def test_a_line_that_is_no_result_does_not_count(tmp_path: Path, text: str) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.write(line("sleep"))
    results.path.write_text(results.path.read_text() + text + "\n")
    assert results.done() == {"sleep"}


def test_an_unknown_part_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="--only 'slep': no part is called so; the parts are contracts-fp32"):
        choose(["sleep", "slep"])
    assert choose([]) == list(PARTS)
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_the_tables_have_a_row_for_each_part_in_the_order_of_the_parts() -> None:
    throughput = {"shape": "0.6b", "who": "rlcore", "generated_tokens_per_second": 12345.6, "update_seconds": 1.234, "update_mfu": 0.41}
    throughput |= {"generation_mfu": 0.12, "update_peak_gb": 30.5}
    comparison = {"shape": "0.6b", "who": "TRL, static cache", "step_peak_gb": 61.25, "rows_per_forward": 16}
    operation = {"phase": "update", "operation": "aten::mm | x", "ms": 3.5, "share": 0.6, "calls": 7}
    lines = {
        "trace": line("trace", rows=[operation]),
        "sleep": line("sleep", "failed", said="memory grows\nasleep", commit=None),
        "throughput-0.6b": line("throughput-0.6b", rows=[throughput]),
        "peers-0.6b": line("peers-0.6b", rows=[comparison]),
    }
    text = markdown(lines)
    rows = text.splitlines()
    assert rows[0] == "NVIDIA H200, 139.8 GB; python 3.12.3, torch 2.11.0, cuda 13.0, transformers 5.17.0."
    assert [row.split(" | ")[0] for row in rows if row.startswith(("| sleep", "| throughput", "| trace"))] == [
        "| sleep",
        "| throughput-0.6b",
        "| trace",
    ]
    assert "| sleep | failed | memory grows asleep | 12.5 | 2026-11-22 | – |" in rows
    assert (
        "| shape | program | generation tokens/s | generation MFU | update s | update tokens/s | update MFU "
        "| peak GB, generation | peak GB, update |"
    ) in rows
    assert "| 0.6b | rlcore | 12346 | 0.12 | 1.23 | – | 0.41 | – | 30.5 |" in rows
    assert (
        "| shape | program | step s | of it generation | generation tokens/s | step MFU | peak GB | rollouts a forward "
        "| tokens a completion |"
    ) in rows
    assert "| 0.6b | TRL, static cache | – | – | – | – | 61.2 | 16 | – |" in rows
    assert "| update | aten::mm \\| x | 3.5 | 0.6 | 7 |" in rows


def test_results_go_between_the_marks_and_again(tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    page.write_text(f"before\n{BEGIN}\n{NOT_YET}\n{END}\nafter\n")
    put_into(page, {"sleep": line("sleep")})
    first = page.read_text()
    assert first.startswith(f"before\n{BEGIN}\nNVIDIA H200")
    assert first.endswith(f"\n{END}\nafter\n")
    assert "| sleep |" in first
    with pytest.raises(Refused, match="shows sleep, which these results lack; run these parts too"):
        put_into(page, {"trace": line("trace")})
    assert page.read_text() == first
    put_into(page, {"trace": line("trace"), "sleep": line("sleep")})
    assert check_page(page) == {"sleep", "trace"}


@pytest.mark.parametrize("changes", [{"device": "cpu"}, {"tiny": True}])
def test_only_full_runs_on_a_gpu_go_into_the_page(tmp_path: Path, changes: dict[str, Any]) -> None:
    page = tmp_path / "gpu.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    with pytest.raises(Refused, match="part sleep ran on a CPU or with tiny models"):
        put_into(page, {"sleep": line("sleep", **changes)})
    page.write_text(BEGIN)
    with pytest.raises(Refused, match=f"has no line {END}; results are written between {BEGIN} and {END}"):
        put_into(page, {"sleep": line("sleep")})


def test_the_page_has_its_marks_and_says_honestly_whether_anything_ran() -> None:
    page = Path(__file__).parents[3] / "docs" / "maintainers" / "gpu.md"
    results = page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert bool(check_page(page)) != (results.strip() == NOT_YET)
    assert markdown({}) == NOT_YET
