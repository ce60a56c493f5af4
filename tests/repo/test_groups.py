"""Every test that is not fast belongs to a group; what passed is recorded, left out, drawn, and listed if it is stale."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.groups.keys import Key
from tests.groups.leash import Leash
from tests.groups.plugin import HOMELESS, homeless
from tests.groups.records import Records
from tests.groups.runner import Job, Result, Runner
from tests.groups.session import Session, drawn
from tests.groups.table import Group, Table, TableError
from tests.groups.tree import Tree, named

ROOT = Path(__file__).parents[2]
TABLE = Table.load()
LEASH = Leash({"tests/test_a.py::test_it": "seen once"})


# --- the table -------------------------------------------------------------------------------------------------------------


def test_every_collected_test_that_is_full_or_nightly_belongs_to_a_group(request: pytest.FixtureRequest) -> None:
    """Of all tests of the repository where `make test` collects them."""
    assert request.config.stash[HOMELESS] == []


@pytest.mark.parametrize(
    ("test", "marks", "said"),
    [
        ("tests/new/test_x.py::test_it", {"nightly"}, "is marked nightly, and no group"),
        ("plugins/new/x/tests/test_x.py::test_it", {"full"}, "is marked full, and no group"),
        ("tests/unit/runtime/test_allocator.py::test_it", {"full"}, "neither its file nor the conftest"),
        ("tests/unit/runtime/test_allocator.py::test_it", {"fast"}, ""),
        ("tests/integration/ray/test_ray_runs.py::test_it", {"full"}, ""),
        ("tests/integration/ray/test_ray_vllm.py::test_it", set(), ""),
    ],
)
def test_a_test_without_a_group_is_seen(test: str, marks: set[str], said: str) -> None:
    found = homeless(TABLE, test, marks)
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("test", "marks", "group"),
    [
        ("tests/integration/ray/test_ray_vllm.py::test_it", {"full"}, "vllm-ray"),
        ("tests/integration/ray/test_ray_vllm.py::test_it", {"full", "nightly"}, "ray-runs"),
        ("plugins/backends/torch/tests/test_torch_conforms.py::TestTorchLora::test_it", {"nightly"}, "torch-lora"),
        (
            "plugins/backends/torch/tests/test_torch_conforms.py::TestTorchOnFourRanks::test_layouts_train",
            {"nightly"},
            "torch-four-ranks-b",
        ),
        ("plugins/sandboxes/local/tests/test_sandbox_deaths.py::test_it", {"full", "serial"}, "sandbox-alone"),
        ("tests/integration/test_recipes_learn.py::test_a_recipe_learns[dapo]", {"nightly"}, "recipes-a"),
        ("tests/integration/test_recipes_learn.py::test_a_recipe_learns[rloo]", {"nightly"}, "recipes-b"),
        ("tests/integration/test_export.py::test_it", {"fast"}, None),
    ],
)
def test_a_test_belongs_to_the_first_group_of_its_kind_that_names_it(test: str, marks: set[str], group: str | None) -> None:
    found = TABLE.group_of(test, marks)
    assert (found and found.name) == group


def test_every_group_has_tests_and_every_path_of_it_names_some() -> None:
    paths = Tree(ROOT).paths
    tests = [path for path in paths if path.rpartition("/")[2].startswith("test_")]
    assert not [(group.name, path) for group in TABLE.groups for path in group.paths if not named(tests, path)]
    assert not [group.name for group in TABLE.groups if not TABLE.files(group, paths, lambda path: (ROOT / path).read_text())]


def test_every_test_of_an_engine_is_in_a_group_of_engines() -> None:
    """Where the environment is not there, pytest does not collect them."""
    variable = re.compile(r"RLCORE_TEST_(VLLM|SGLANG|COLOSSALAI)")
    files = [path for path in Tree(ROOT).paths if re.fullmatch(r"(tests|plugins)/.*test_\w+\.py", path) and path != own()]
    needs = [
        path for path in files if variable.search((ROOT / path).read_text()) or re.search("/tests/(engine|server)/|/trainer/test_col", path)
    ]
    assert len(needs) > 15
    assert not [path for path in needs if TABLE.kind_of(path, ()) != "engine" and "environ" in (ROOT / path).read_text()]


def test_make_runs_every_test_of_an_engine_by_hand_too() -> None:
    words = {word for word in (ROOT / "Makefile").read_text(encoding="utf-8").split() if "/" in word}
    assert not [path for one in TABLE.of("engine") for path in one.paths if not any(f"{path}/".startswith(f"{word}/") for word in words)]


def own() -> str:
    return Path(__file__).relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[full.a]\npaths = ["x"]', "group a sets no minutes"),
        ("[full.a]\nminutes = 1", "group a sets no paths"),
        ('[full.a]\npaths = ["x"]\nminutes = 1\nmatches = "x"', "group a sets matches, which no group has"),
        ('[nightly.a]\npaths = ["x"]\nminutes = 11', "group a takes 11 minutes, and a nightly group at most 10"),
        ('[full.a]\npaths = ["x"]\nminutes = 1\n[nightly.a]\npaths = ["x"]\nminutes = 1', "has two groups named a"),
    ],
)
def test_a_wrong_table_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "table.toml").write_text(text)
    with pytest.raises(TableError, match=said):
        Table.load(tmp_path / "table.toml")


def test_contributing_lists_the_nightly_groups() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [f"| `{one.name}` | {one.minutes:g} | {one.after} |" for one in TABLE.of("nightly")]
    assert all(one.after for one in TABLE.of("nightly"))
    assert [row for row in page.splitlines() if row.startswith("| `") and row in rows] == rows, "\n".join(rows)


FOUR = """
import pathlib, pytest

def test_fast(): pass

@pytest.mark.full
def test_full(): assert pathlib.Path(ROOT, "constraints.txt").read_text()

@pytest.mark.full
@pytest.mark.parametrize("ok", [True, False])
def test_fails(ok): assert ok

@pytest.mark.full
def test_skipped(): pytest.skip("not here")

@pytest.mark.nightly
def test_nightly(): pass
"""


def test_pytest_runs_one_group_and_says_what_came_of_it(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  full\n  nightly\n")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ("tests.groups.plugin",)')
    (tmp_path / "tests" / "integration").mkdir(parents=True)
    (tmp_path / "tests" / "integration" / "test_gpu_parts.py").write_text(f"ROOT = {str(ROOT)!r}\n{FOUR}")
    words = ["-p", "no:cacheprovider", "--group", "bench", "--group-report", "report.json"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    told = json.loads((tmp_path / "report.json").read_text())
    assert done.returncode == told["code"] == 1, done.stdout + done.stderr
    assert {test.partition("::")[2]: outcome for test, outcome in told["outcomes"].items()} == {
        "test_full": "passed",
        "test_fails[True]": "passed",
        "test_fails[False]": "failed",
        "test_skipped": "skipped",
    }
    assert list(told["skipped"].values()) == ["Skipped: not here"]
    assert "constraints.txt" in told["opened"]
    assert not [path for path in told["opened"] if path.startswith("tests/groups/")], "pytest itself reads them"


# --- the runner ------------------------------------------------------------------------------------------------------------


def group(name: str, **settings: Any) -> Group:
    return Group(name=name, paths=(f"tests/test_{name}.py",), **{"kind": "full", "minutes": 1, **settings})


def job(name: str, **settings: Any) -> Job:
    return Job(group(name, **settings), (f"tests/test_{name}.py",))


MEETS = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / sys.argv[2]).touch()
until = time.monotonic() + 60
while not (here / sys.argv[3]).exists():
    assert time.monotonic() < until, "the other one never ran"
    time.sleep(0.01)
"""


def runner(words: Callable[[Job, Path], list[str]], leash: Leash = LEASH) -> tuple[Runner, list[str]]:
    said: list[str] = []
    return Runner(leash, lambda name: f"/{name}", lambda job, report, folders: words(job, report), said.append), said


def test_two_groups_run_side_by_side_and_each_is_shown_when_it_ends(tmp_path: Path) -> None:
    other = {"a": "b", "b": "a"}
    made, said = runner(lambda job, _: [sys.executable, "-c", MEETS, str(tmp_path), job.group.name, other[job.group.name]])
    results = made.run([job("a"), job("b")])
    assert [result.passed for result in results] == [True, True], said
    assert said[:2] == ["[1/2] a begins", "[2/2] b begins"]


ALONE = """
import pathlib, sys
file, name = pathlib.Path(sys.argv[1]), sys.argv[2]
assert name != "alone" or file.read_text() == "ab" or file.read_text() == "ba", file.read_text()
with file.open("a") as stream: stream.write(name)
"""


def test_a_group_that_must_be_alone_runs_after_the_others(tmp_path: Path) -> None:
    (tmp_path / "order").touch()
    made, said = runner(lambda job, _: [sys.executable, "-c", ALONE, str(tmp_path / "order"), job.group.name])
    assert all(result.passed for result in made.run([job("alone", alone=True), job("a"), job("b")])), said


FAILS_ONCE = """
import json, pathlib, sys
tried, report, chosen = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
first = not tried.exists()
tried.touch()
report.write_text(json.dumps({"outcomes": {"tests/test_a.py::test_it[1]": "failed" if first else "passed"}}))
assert first or chosen == "tests/test_a.py::test_it[1]"
sys.exit(first)
"""


@pytest.mark.parametrize("forgiven", [True, False])
def test_what_passes_alone_is_forgiven_only_if_the_list_says_so(tmp_path: Path, forgiven: bool) -> None:
    leash = LEASH if forgiven else Leash({"tests/test_a.py::test_other": ""})
    made, said = runner(lambda job, report: [sys.executable, "-c", FAILS_ONCE, str(tmp_path / "tried"), str(report), job.chosen[0]], leash)
    (result,) = made.run([job("a")])
    assert result.passed == forgiven
    assert result.forgiven == (("tests/test_a.py::test_it[1]",) if forgiven else ())
    complaint = "tests/test_a.py::test_it[1] fails beside other tests and passes alone, and groups/forgiven.toml does not forgive it"
    assert any(complaint in line for line in (*said, *result.complaints)) != forgiven
    assert "[1/1] a begins again, alone" in said


SKIPS_THEN = FAILS_ONCE.replace('else "passed"', 'else "skipped"')
BREAKS_OFF = FAILS_ONCE.replace("sys.exit(first)", "sys.exit(3 if first else 0)")


@pytest.mark.parametrize("program", [SKIPS_THEN, BREAKS_OFF], ids=["skips the second time", "broke off the first time"])
def test_a_group_that_did_not_show_that_it_passes_is_not_forgiven(tmp_path: Path, program: str) -> None:
    made, _ = runner(lambda job, report: [sys.executable, "-c", program, str(tmp_path / "tried"), str(report), job.chosen[0]])
    (result,) = made.run([job("a")])
    assert not result.passed


def test_a_group_runs_whole_whatever_the_shell_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    made, said = runner(lambda *_: [sys.executable, "-c", "import os; raise SystemExit(os.environ['PYTEST_ADDOPTS'] != '')"])
    assert made.run([job("a")])[0].passed, said


def test_a_group_without_a_report_fails_and_is_not_tried_again() -> None:
    made, said = runner(lambda *_: [sys.executable, "-c", "raise SystemExit(2)"])
    assert not made.run([job("a")])[0].passed
    assert not any("again" in line for line in said)


SLEEPS = """
import pathlib, sys, time
try:
    pathlib.Path(sys.argv[1]).touch()
    time.sleep(60)
except KeyboardInterrupt: pathlib.Path(sys.argv[2]).touch()
"""


def test_at_ctrl_c_what_runs_is_ended_and_nothing_else_begins(tmp_path: Path) -> None:
    began, ended = tmp_path / "began", tmp_path / "ended"
    made, said = runner(lambda job, _: [sys.executable, "-c", SLEEPS, str(began), str(ended)])

    def interrupt() -> None:
        while not began.exists():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        made.run([job(name) for name in "abcd"])
    assert ended.exists()
    assert not any("d begins" in line for line in said)


# --- what is recorded, left out, drawn and stale ---------------------------------------------------------------------------


class FakeKeys:
    """Each group's key is a number, which a test may raise."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, group: Group) -> Key:
        number = str(self.numbers.get(group.name, 0))
        return Key(f"{group.name}-{number}", {f"{group.name}.py": number, "README.md": ""}, {})

    def files(self, group: Group) -> list[str]:
        return list(group.paths)


class FakeRunner:
    """Every test passes, but what ``differs`` says."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.differs: dict[str, dict[str, Any]] = {}

    def run(self, jobs: Sequence[Job], ended: Callable[[Result], None]) -> list[Result]:
        self.ran = [job.group.name for job in jobs]
        told = {"code": 0, "outcomes": {"t": "passed"}}
        results = [Result(**{"job": job, **told, **self.differs.get(job.group.name, {})}) for job in jobs]
        for result in results:
            if result.passed:
                ended(result)
        return results


class Place:
    """A repository of one commit, and sessions in it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.keys, self.runner = folder / "repository", FakeKeys(), FakeRunner()
        self.records = Records(folder / "records")
        kinds = {"one": "full", "two": "full", "three": "engine", "late": "nightly", "later": "nightly"}
        self.table = Table(tuple(group(name, kind=kind) for name, kind in kinds.items()), (("needs a CUDA device", "no card here"),))
        self.root.mkdir()
        (self.root / "README.md").touch()
        (self.root / "secret.toml").touch()
        self.commit()

    def commit(self) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@x")
        for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "x", "--allow-empty", "--no-verify")):
            subprocess.run(["git", "-C", str(self.root), *words], check=True)

    def session(self) -> Session:
        made: Any = {"keys": self.keys, "runner": self.runner}
        return Session(LEASH, root=self.root, table=self.table, records=self.records, **made)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_passed_is_left_out_but_one_that_is_drawn_and_all_run_if_asked(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.session().ci(everything=False) == 0
    assert place.runner.ran == ["one", "two", "three"]
    assert "no group is left out" in capsys.readouterr().out
    assert place.session().ci(everything=False) == 0
    assert len(place.runner.ran) == 1, "the one that is drawn"
    said = capsys.readouterr().out
    assert said.count("left out: ") == 3
    assert said.count("nothing that it reads has changed since ") == 3
    assert said.count("; drawn to run all the same") == 1
    assert "2 of 2 nightly groups have not passed with today's code" in said.splitlines()[-3]
    place.session().ci(everything=True)
    assert place.runner.ran == ["one", "two", "three"]


def test_a_changed_key_runs_and_the_list_names_what_changed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.session().ci(everything=False)
    place.keys.numbers["two"] = 1
    place.session().ci(everything=False)
    assert "two" in place.runner.ran
    assert len(place.runner.ran) == 2
    place.keys.numbers["two"] = 2
    capsys.readouterr()
    place.session().show(as_json=True)
    rows = {row["group"]: row["runs"] for row in json.loads(capsys.readouterr().out)}
    assert re.fullmatch(r"changed since \w{10}: two.py", rows["two"])
    assert (rows["one"], rows["late"]) == ("", "never passed here")


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ({"code": 1, "outcomes": {"t": "failed"}}, "FAILED"),
        ({"forgiven": ("t",)}, "not recorded: t failed and was forgiven"),
        (
            {"outcomes": {"t": "passed", "u": "skipped"}, "skipped": {"u": "Skipped: no network"}},
            "not recorded: 1 skipped, u: Skipped: no network",
        ),
        ({"outcomes": {}}, "not recorded: no test passed"),
        ({"opened": ("README.md", "secret.toml")}, "A DEFECT OF THE KEY: it opened secret.toml, which the key does not know"),
    ],
    ids=["failed", "forgiven", "skipped", "empty", "reads more"],
)
def test_a_group_that_did_not_run_whole_is_not_recorded(
    place: Place, capsys: pytest.CaptureFixture[str], differs: dict[str, Any], said: str
) -> None:
    place.runner.differs["two"] = differs
    assert place.session().ci(everything=False) == ("code" in differs)
    assert said in capsys.readouterr().out
    assert place.records.newest("two") is None
    assert place.records.newest("one") is not None


def test_a_skip_of_the_list_is_recorded(place: Place) -> None:
    place.runner.differs["two"] = {"outcomes": {"t": "passed", "u": "skipped"}, "skipped": {"u": "Skipped: needs a CUDA device"}}
    place.session().ci(everything=False)
    assert place.records.newest("two") is not None


def test_a_tree_with_changes_records_nothing(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (place.root / "new").touch()
    place.session().ci(everything=False)
    assert "nothing is recorded: the working tree has changes" in capsys.readouterr().out
    assert place.records.newest("one") is None


def test_groups_that_are_run_by_name_record_nothing(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    session = place.session()
    assert session.run(session.table.of("full"), record=False) == 0
    assert place.runner.ran == ["one", "two"]
    assert "nothing is recorded: that is for .ci/run and make nightly" in capsys.readouterr().out
    assert place.records.newest("one") is None


def test_a_drawn_group_that_fails_is_a_defect_of_its_key(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.session().ci(everything=False)
    place.runner.differs = {name: {"code": 1, "outcomes": {"t": "failed"}} for name in ("one", "two", "three")}
    assert place.session().ci(everything=False) == 1
    (ran,) = place.runner.ran
    assert f"{ran} was left out as unchanged, was drawn, and failed: its key lacks something" in capsys.readouterr().out


def test_every_group_is_drawn_by_some_commit() -> None:
    names = ["a", "b", "c"]
    assert {drawn(names, f"{number:040x}"[::-1]) for number in range(16)} == {"a", "b", "c"}
    assert drawn([], "f" * 40) == ""


def test_nightly_goes_on_where_it_was_stopped(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.runner.differs["later"] = {"code": 1, "outcomes": {"t": "failed"}}
    assert place.session().nightly() == 1
    assert place.runner.ran == ["late", "later"]
    capsys.readouterr()
    place.session().stale()
    assert capsys.readouterr().out.splitlines()[1:] == [f"  {'later':24} never passed here"]
    place.runner.differs = {}
    assert place.session().nightly() == 0
    assert place.runner.ran == ["later"]
    assert place.session().nightly() == 0
    assert place.runner.ran == []
