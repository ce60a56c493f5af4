"""Which code a row of the learning table was made with: read from a real repository, recorded, and held to one code a table."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import algorithms
from benchmarks.algorithms_plan import Row, Run
from benchmarks.algorithms_source import code_of, counts, read_source, refuse_foreign, refuse_mixed
from benchmarks.algorithms_table import append_result, lines_of, read_results, split_page, table_text
from rlcore.contracts.errors import UsageError
from rlcore.registry.plugin_registry import Registry

COUNTED = ("rlcore/learning/kl.py", "plugins/algos/grpo/rlcore_plugin_grpo/loss.py", "benchmarks/coin.py", "constraints.txt")
NOT_COUNTED = ("rlcore/testing/kit.py", "rlcore/cli/train.py", "plugins/algos/grpo/tests/test_loss.py", "plugins/algos/grpo/README.md")
ELSEWHERE = ("docs/how_to/algorithms.md", "benchmarks/algorithms.py", "tests/unit/test_kl.py", "rlcore_more/kl.py")

_ROW, _OTHER_ROW = Row("newcomer", "newcomer"), Row("rloo", "rloo")


def record(row: Row, seed: int, **other: Any) -> dict[str, Any]:
    figures = {"base": 0.4, "final": 0.9, "steps": 100, "seconds": 9.0, "cpu_seconds": 11.0, "lag": 0.0, "learning_rate": 4e-4}
    made_with = {"commit": "1234567890" * 4, "code": "c0de", "date": "2026-01-01"}
    return {**Run(row, seed).identity(), **figures, **made_with, **other}


class Repository:
    """A git repository with one small file for every path, and one commit."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q")
        for path in (*COUNTED, *NOT_COUNTED, *ELSEWHERE):
            self.write(path, "one\n")
        self.commit()

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", "-C", str(self.root), *who, *words], check=True, capture_output=True, text=True).stdout

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # a git hook that runs the tests sets them
    return Repository(tmp_path / "clone with a space")


# --- what counts


def test_the_commit_is_the_full_hash_and_the_code_a_short_digest(repository: Repository) -> None:
    source = read_source(repository.root)
    assert source.commit == repository.git("rev-parse", "HEAD").strip()
    assert len(source.commit) == 40
    assert source.code == code_of(repository.root, source.commit)
    assert len(source.code) == 12


@pytest.mark.parametrize("path", COUNTED)
def test_a_file_that_decides_what_is_learned_changes_the_code(repository: Repository, path: str) -> None:
    before = read_source(repository.root)
    repository.write(path, "two\n")
    with pytest.raises(UsageError, match=f"{path} differs from the last commit"):
        read_source(repository.root)
    repository.commit()
    assert read_source(repository.root).code != before.code
    assert code_of(repository.root, before.commit) == before.code


@pytest.mark.parametrize("path", [*NOT_COUNTED, *ELSEWHERE])
def test_another_file_neither_changes_the_code_nor_stops_anything(repository: Repository, path: str) -> None:
    before = read_source(repository.root)
    repository.write(path, "two\n")
    assert read_source(repository.root) == before
    repository.commit()
    now = read_source(repository.root)
    assert now.commit != before.commit
    assert now.code == before.code


def test_new_files_and_files_that_are_gone_count_and_are_told(repository: Repository) -> None:
    before = read_source(repository.root)
    repository.write("rlcore/new one.py", "")
    (repository.root / COUNTED[0]).unlink()
    with pytest.raises(UsageError, match=f"^{COUNTED[0]} and 1 more differs"):
        read_source(repository.root)
    repository.commit()
    assert read_source(repository.root).code != before.code


def test_a_file_that_moves_is_other_code(repository: Repository) -> None:
    before = read_source(repository.root)
    repository.git("mv", COUNTED[0], "rlcore/learning/divergence.py")
    with pytest.raises(UsageError, match=r"rlcore/learning/divergence\.py and 1 more"):
        read_source(repository.root)
    repository.commit()
    assert read_source(repository.root).code != before.code


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("GIT_DIR", raising=False)
    with pytest.raises(UsageError, match=r"git gives none: .*; run the benchmark in a clone of the repository"):
        read_source(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="install git"):
        read_source(tmp_path)


def test_a_folder_inside_another_repository_is_refused_and_has_no_digest_of_nothing(repository: Repository) -> None:
    copied = repository.root / "copied"
    for path in COUNTED:
        repository.write(f"copied/{path}", "one\n")
    repository.write(".gitignore", "copied/\n")
    with pytest.raises(UsageError, match=r"copied is not a repository of its own but lies inside .*space; run the benchmark in a clone"):
        read_source(copied)


def test_a_checkout_by_another_name_is_the_same_checkout(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repository.root)
    repository.git("worktree", "add", "-q", str(tmp_path / "tree"))
    assert read_source(tmp_path / "link") == read_source(tmp_path / "tree") == read_source(repository.root)


# --- which modules are run


def module(name: str, file: Path | None) -> dict[str, ModuleType]:
    made = ModuleType(name)
    made.__file__ = file and str(file)
    return {name: made}


def test_modules_of_the_checkout_and_of_others_are_no_matter(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    refuse_foreign(tmp_path, module("rlcore.learning.kl", tmp_path / "rlcore" / "learning" / "kl.py"))
    refuse_foreign(tmp_path / "link", module("rlcore_plugin_grpo", tmp_path / "plugins" / "algos" / "grpo" / "__init__.py"))
    refuse_foreign(tmp_path, module("torch", Path("/usr/lib/torch/__init__.py")) | module("rlcore_plugin_spaces", None))


@pytest.mark.parametrize("name", ["rlcore", "rlcore.learning.kl", "rlcore_plugin_grpo", "rlcore_plugin_grpo.loss"])
@pytest.mark.parametrize("where", ["elsewhere/plugins", "checkout/.venv/site-packages", "checkout/rlcore_more"])
def test_a_module_that_the_digest_does_not_cover_is_refused(tmp_path: Path, name: str, where: str) -> None:
    with pytest.raises(UsageError, match=f"^{name} is loaded from .*/{where}/file.py, not from the checkout .*; type `make env` there"):
        refuse_foreign(tmp_path / "checkout", module(name, tmp_path / where / "file.py"))


def test_the_files_that_count_are_where_this_repository_has_them() -> None:
    root = algorithms.ROOT
    for path in (
        "rlcore/learning/kl.py",
        "plugins/tools/quickstart/rlcore_plugin_quickstart/warmstart.py",
        "benchmarks/algorithms_plan.py",
        "constraints.txt",
    ):
        assert (root / path).is_file()
        assert counts(path)
    for path in ("rlcore/testing/__init__.py", "rlcore/cli/__init__.py", "plugins/algos/grpo/tests"):
        assert (root / path).exists()
        assert not counts(path)


# --- one table, one code


class Sweeps:
    """The command for one recipe in a real repository, its training replaced: every run gains 0.5."""

    def __init__(self, repository: Repository, folder: Path) -> None:
        self.repository, self.results, self.page = repository, folder / "results.jsonl", folder / "page.md"
        self.made: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def train(self, run: Run, assets: Path, children: Any) -> dict[str, Any]:
        self.made.append(str(run))
        self.meanwhile()
        made = record(run.row, run.seed)
        return {name: value for name, value in made.items() if name not in ("commit", "code")}

    def __call__(self, *words: str) -> int:
        self.made.clear()
        return algorithms.main([*words, "--results", str(self.results), "--page", str(self.page)])

    def change_code(self) -> None:
        self.repository.write(COUNTED[0], f"{len(self.repository.git('log', '--format=%H'))}\n")


@pytest.fixture
def sweeps(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweeps:
    made = Sweeps(repository, tmp_path)
    monkeypatch.setattr(algorithms, "ROOT", repository.root)
    monkeypatch.setattr(algorithms, "refuse_foreign", lambda root, modules: None)  # the tests' own modules are of this checkout
    monkeypatch.setattr(algorithms, "train", made.train)
    monkeypatch.setattr(algorithms, "prepare", lambda folder, seed, report: None)
    monkeypatch.setattr(algorithms, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(Registry, "names", lambda self, kind: ["newcomer", "rloo"])
    return made


def test_a_result_says_which_code_made_it_and_the_table_shows_it(sweeps: Sweeps, capsys: pytest.CaptureFixture[str]) -> None:
    sweeps("--only", "newcomer")
    source = read_source(sweeps.repository.root)
    assert {(made["commit"], made["code"]) for made in read_results(sweeps.results)[0]} == {(source.commit, source.code)}
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"][0]["commits"] == [source.commit]
    page = sweeps.page.read_text()
    assert f"| no control yet | `{source.commit[:7]}` |" in page
    assert f"All rows are of one code, whose digest is `{source.code}`." in page


def test_a_sweep_goes_on_at_another_commit_of_the_same_code(sweeps: Sweeps) -> None:
    sweeps("--only", "newcomer")
    first = read_source(sweeps.repository.root).commit
    sweeps.repository.write("docs/how_to/algorithms.md", "two\n")
    sweeps.repository.commit()
    sweeps("--only", "newcomer", "rloo")
    assert sweeps.made == [f"rloo, staleness 0, seed {seed}" for seed in (0, 1, 2)]
    commits = {line.row.label: line.commits for line in lines_of(read_results(sweeps.results)[0])}
    assert commits == {"newcomer": (first,), "rloo": (read_source(sweeps.repository.root).commit,)}


@pytest.mark.parametrize("words", [("--only", "newcomer"), ("--only", "rloo"), ("--again", "newcomer")])
def test_a_sweep_with_other_code_ends_before_anything_runs(
    sweeps: Sweeps, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    sweeps("--only", "newcomer")
    old = read_source(sweeps.repository.root)
    sweeps.change_code()
    sweeps.repository.commit()
    now, before, page = read_source(sweeps.repository.root).code, sweeps.results.read_bytes(), sweeps.page.read_bytes()
    assert sweeps(*words) == 2
    assert capsys.readouterr().err == (
        f"error: {sweeps.results}, line 3: 3 of 3 runs are of other code ({old.code} at {old.commit[:12]})"
        f" than this checkout ({now}); continue at that commit, or type --fresh\n"
    )
    assert (sweeps.made, sweeps.results.read_bytes(), sweeps.page.read_bytes()) == ([], before, page)


def test_a_sweep_with_modules_of_another_checkout_ends_before_anything_runs(
    sweeps: Sweeps, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps("--only", "newcomer")
    before = sweeps.results.read_bytes()
    monkeypatch.setattr(algorithms, "refuse_foreign", refuse_foreign)
    assert sweeps("--fresh") == 2
    assert capsys.readouterr().err.startswith("error: rlcore is loaded from ")
    assert (sweeps.made, sweeps.results.read_bytes()) == ([], before)


def test_the_refusal_is_short_however_many_rows_there_are(sweeps: Sweeps, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(40):
        append_result(sweeps.results, record(Row(f"recipe-{number}", "newcomer"), 0, code=f"c0de{number:08}"))
    assert sweeps("--only", "newcomer") == 2
    assert len(capsys.readouterr().err.replace(str(sweeps.results), "benchmarks/results/algorithms.jsonl")) <= 200


def test_results_of_unknown_code_are_no_start_for_a_sweep(sweeps: Sweeps, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, commit in enumerate(("1234567890" * 4, "1234567890" * 4, "0987654321" * 4)):
        append_result(sweeps.results, record(_ROW, seed, code=None, commit=commit))
    assert sweeps("--only", "rloo") == 2
    told = capsys.readouterr().err
    assert "line 3: 3 of 3 runs are of other code (unknown at 098765432109) than this checkout (" in told
    assert told.endswith("); type --fresh\n")  # no checkout is known to continue in
    assert sweeps("--only", "newcomer", "--table") == 1
    assert "The rows are of 2 commits of 2026-01-01, made before the code was recorded," in sweeps.page.read_text()


def test_fresh_starts_a_new_table_and_keeps_every_old_file(sweeps: Sweeps, capsys: pytest.CaptureFixture[str]) -> None:
    sweeps("--fresh", "--only", "newcomer")
    assert "kept in" not in capsys.readouterr().out
    first = sweeps.results.read_bytes()
    sweeps.change_code()
    sweeps.repository.commit()
    for number in (1, 2):
        sweeps("--fresh", "--only", "newcomer")
        assert f"the old results are kept in {sweeps.results}.old-{number}\n" in capsys.readouterr().out
        assert len(sweeps.made) == 3
    assert Path(f"{sweeps.results}.old-1").read_bytes() == first
    assert {made["code"] for made in read_results(sweeps.results)[0]} == {read_source(sweeps.repository.root).code}


def test_fresh_moves_nothing_where_no_run_could_be_recorded(sweeps: Sweeps) -> None:
    sweeps("--only", "newcomer")
    before = sweeps.results.read_bytes()
    sweeps.change_code()
    assert sweeps("--fresh") == 2
    assert (sweeps.made, sweeps.results.read_bytes()) == ([], before)


@pytest.mark.parametrize("committed", [False, True])
def test_a_run_under_which_the_code_changed_is_not_recorded(sweeps: Sweeps, capsys: pytest.CaptureFixture[str], committed: bool) -> None:
    def change() -> None:
        if len(sweeps.made) == 2:
            sweeps.change_code()
            if committed:
                sweeps.repository.commit()

    sweeps.meanwhile = change
    assert sweeps("--only", "newcomer") == 1
    assert "the code changed during a run, so the run is not recorded: " in capsys.readouterr().err
    assert [made["seed"] for made in read_results(sweeps.results)[0]] == [0]


def test_a_table_of_two_codes_is_refused(sweeps: Sweeps, capsys: pytest.CaptureFixture[str]) -> None:
    sweeps("--only", "newcomer")
    page = sweeps.page.read_bytes()
    old = read_source(sweeps.repository.root)
    append_result(sweeps.results, record(_OTHER_ROW, 0))
    assert sweeps("--table") == 2
    assert capsys.readouterr().err == (
        f"error: {sweeps.results}, line 4: of other code (c0de at 123456789012) than line 1 ({old.code} at {old.commit[:12]});"
        " keep the lines of one, or type --fresh\n"
    )
    assert sweeps.page.read_bytes() == page


@pytest.mark.parametrize("codes", [("c0de", None), (None, "c0de")])
def test_a_table_in_which_only_some_rows_have_a_code_is_refused(
    sweeps: Sweeps, capsys: pytest.CaptureFixture[str], codes: tuple[str | None, str | None]
) -> None:
    for row, code in zip((_ROW, _OTHER_ROW), codes, strict=True):
        append_result(sweeps.results, record(row, 0, code=code))
    assert sweeps("--table") == 2
    said = capsys.readouterr().err
    assert "c0de at 123456789012" in said
    assert "unknown at 123456789012" in said
    assert not sweeps.page.exists()


def test_the_sentence_above_rows_of_unknown_code_says_from_when_to_when_they_are() -> None:
    days = [record(_ROW, seed, code=None, date=date) for seed, date in enumerate(("2026-01-03", "2026-01-01", "2026-01-02"))]
    assert "The rows are of 1 commit of 2026-01-01 to 2026-01-03," in table_text(lines_of(days))


def test_the_table_alone_needs_neither_the_code_nor_a_clean_checkout(sweeps: Sweeps) -> None:
    sweeps("--only", "newcomer")
    page = sweeps.page.read_bytes()
    sweeps.change_code()
    assert sweeps("--table") == 1
    assert sweeps.page.read_bytes() == page


@pytest.mark.parametrize("absent", ["commit", "code", "date"])
def test_a_result_that_does_not_say_what_made_it_is_named(tmp_path: Path, absent: str) -> None:
    made = {name: value for name, value in record(_ROW, 0).items() if name != absent}
    (tmp_path / "results.jsonl").write_text(json.dumps(made) + "\n")
    with pytest.raises(UsageError, match="line 1: not a result"):
        read_results(tmp_path / "results.jsonl")


# --- what is committed


def test_the_committed_table_is_what_its_results_give() -> None:
    records, note = read_results(algorithms.RESULTS)
    before, after = split_page(algorithms.PAGE)
    shown = algorithms.PAGE.read_text(encoding="utf-8").removeprefix(before).removesuffix(after)
    assert shown == f"\n{table_text(lines_of(records))}\n\n", "type: make bench-algorithms ARGS=--table"
    assert not note


def test_every_committed_result_names_a_commit_and_all_are_of_one_code_or_none_says_which() -> None:
    records, _ = read_results(algorithms.RESULTS)
    assert {len(record["commit"]) for record in records} == {40}
    refuse_mixed(records, algorithms.RESULTS)


def test_the_code_of_every_committed_result_is_that_of_its_commit() -> None:
    made = {(record["commit"], record["code"]) for record in read_results(algorithms.RESULTS)[0] if record["code"] is not None}
    if not made:
        pytest.skip("the committed results were made before the code was recorded")
    if not (algorithms.ROOT / ".git").exists():
        pytest.skip("no clone of the repository: there are no commits to compare with")
    history = set(git("rev-list", "HEAD"))
    absent = sorted(commit for commit, _ in made if commit not in history)
    wrong = {commit: code for commit, code in made if commit in history and code_of(algorithms.ROOT, commit) != code}
    assert not wrong, "these commits have other code than was recorded with them"
    if absent and git("rev-parse", "--is-shallow-repository") == ["true"]:
        pytest.skip(f"a shallow clone: {', '.join(absent)} cannot be compared; type: git fetch --unshallow")
    assert not absent, "these commits are not in the history of HEAD"


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(algorithms.ROOT), *words], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()
