"""The key of a group of tests changes with every kind of file and variable that its tests read, and with nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.groups import keys as keys_module
from tests.groups.closure import ALWAYS, CHOSEN, registered_names
from tests.groups.facts import KnownFacts, read
from tests.groups.keys import Key, Keys, cache_folder
from tests.groups.table import Group, Table
from tests.groups.tree import Tree

ROOT = Path(__file__).parents[2]
ENTRY = """
from rlcore_plugin_{name}.options import Options
TARGET = "rlcore_plugin_{name}.reward:Reward"
SPEC = Spec(config="rlcore_plugin_{name}.choices:Choices")
"""
TEST = """
from typing import TYPE_CHECKING
import pytest
from tests.helper import run
if TYPE_CHECKING:
    from tests.typed import Typed

@pytest.mark.full
def test_it():
    import tests.late
    run("train", "--reward", "boxed", target="rlcore.losses:Loss", environment="ACME_SPEED")
    run([sys.executable, "-m", "tests.program"])
    assert (ROOT / "docs" / "page.md").read_text()
    assert (Path(__file__).parent / "script.py").exists()
    run_ranks("bodies:train")
    read("benchmarks/figures.json", *ROOT.glob("recipes/*.toml"))
"""
DECLARED = """
[project]
name = "rlcore-plugin-{name}"
dependencies = ["rlcore>=1", "rlcore-plugin-{needs}>=1"]
[project.entry-points.rlcore]
a = "rlcore_plugin_{name}"
"""
FILES = {
    "Makefile": "",
    ".ci/run": "",
    "conftest.py": "",
    "constraints.txt": "torch==1",
    "pyproject.toml": '[project]\nname = "rlcore"\n'
    '[project.optional-dependencies]\ntorch = ["rlcore-plugin-torch", "rlcore-plugin-late"]\n',
    "rlcore/__init__.py": "def __getattr__(name):\n    return import_module(f'rlcore.parts.{name}')\n",
    "rlcore/parts/picked.py": "",
    "rlcore/registry/discovery.py": "",
    "rlcore/config/resolve.py": "",
    "rlcore/losses.py": "",
    "rlcore/unused.py": "",
    "plugins/rewards/demo/pyproject.toml": DECLARED.format(name="demo", needs="math"),
    "plugins/rewards/demo/rlcore_plugin_demo/__init__.py": ENTRY.format(name="demo"),
    "plugins/rewards/demo/rlcore_plugin_demo/options.py": "",
    "plugins/rewards/demo/rlcore_plugin_demo/choices.py": "",
    "plugins/rewards/demo/rlcore_plugin_demo/reward.py": "",
    "plugins/rewards/math/pyproject.toml": DECLARED.format(name="math", needs="jail"),
    "plugins/rewards/math/rlcore_plugin_math/__init__.py": ENTRY.format(name="math"),
    "plugins/rewards/math/rlcore_plugin_math/options.py": "",
    "plugins/rewards/math/rlcore_plugin_math/reward.py": "",
    "plugins/rewards/math/rlcore_plugin_math/corpus/cases.jsonl": "",
    "plugins/rewards/math/rlcore_plugin_math/environments/math-cpu.lock": "",
    "plugins/rewards/math/tests/test_math.py": "",
    "plugins/sandboxes/jail/pyproject.toml": DECLARED.format(name="jail", needs="jail"),
    "plugins/sandboxes/jail/rlcore_plugin_jail/__init__.py": ENTRY.format(name="jail"),
    "plugins/sandboxes/jail/rlcore_plugin_jail/reward.py": "",
    "plugins/backends/torch/pyproject.toml": DECLARED.format(name="torch", needs="torch"),
    "plugins/backends/torch/rlcore_plugin_torch/__init__.py": ENTRY.format(name="torch"),
    "plugins/backends/torch/rlcore_plugin_torch/reward.py": "LATER, OTHER = ('late', 'demo')",
    "plugins/rewards/late/pyproject.toml": DECLARED.format(name="late", needs="late"),
    "plugins/rewards/late/rlcore_plugin_late/__init__.py": ENTRY.format(name="late"),
    "plugins/rewards/late/rlcore_plugin_late/reward.py": "",
    "tests/helper.py": "import rlcore.registry.discovery\nimport rlcore.config.resolve\n",
    "tests/late.py": "",
    "tests/typed.py": "",
    "tests/program.py": "",
    "tests/integration/conftest.py": "",
    "tests/integration/data.toml": "",
    "tests/integration/page.jinja": "",
    "tests/integration/script.py": "",
    "tests/integration/bodies.py": "",
    "tests/integration/test_it.py": TEST,
    "tests/integration/test_other.py": "import pytest\n",
    "benchmarks/figures.json": "",
    "recipes/small.toml": "",
    "docs/page.md": "",
    "docs/other.md": "",
}
GROUP = Group(name="it", kind="full", paths=("tests/integration",), minutes=1)
NAMES = {
    "boxed": frozenset({"rlcore_plugin_math"}),
    "demo": frozenset({"rlcore_plugin_demo"}),
    "torch": frozenset({"rlcore_plugin_torch"}),
    "late": frozenset({"rlcore_plugin_late"}),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "machine", lambda: {"python": "3.11"})


def key(repository: Path, group: Group = GROUP, **changed: bytes) -> Key:
    return Keys(Table((group,)), Tree(repository, changed), NAMES, KnownFacts()).of(group)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("tests/integration/test_it.py", id="its own file"),
        pytest.param("tests/helper.py", id="an import"),
        pytest.param("tests/late.py", id="an import inside a function"),
        pytest.param("tests/typed.py", id="an import for type checkers"),
        pytest.param("rlcore/__init__.py", id="an import of an import"),
        pytest.param("rlcore/parts/picked.py", id="a module picked while it runs"),
        pytest.param("rlcore/losses.py", id="a target in a string"),
        pytest.param("tests/program.py", id="a program of a subprocess"),
        pytest.param("tests/integration/script.py", id="a script of a subprocess"),
        pytest.param("tests/integration/bodies.py", id="a target in a file beside it"),
        pytest.param("plugins/rewards/math/rlcore_plugin_math/reward.py", id="the plugin of a registered name"),
        pytest.param("plugins/rewards/math/rlcore_plugin_math/corpus/cases.jsonl", id="data of that plugin"),
        pytest.param("plugins/rewards/demo/rlcore_plugin_demo/__init__.py", id="what the registry imports"),
        pytest.param("plugins/rewards/demo/rlcore_plugin_demo/options.py", id="what that imports"),
        pytest.param("plugins/rewards/demo/rlcore_plugin_demo/choices.py", id="settings of a plugin"),
        pytest.param("plugins/rewards/demo/pyproject.toml", id="what a plugin declares"),
        pytest.param("plugins/sandboxes/jail/rlcore_plugin_jail/reward.py", id="a plugin that a named one requires"),
        pytest.param("plugins/backends/torch/rlcore_plugin_torch/reward.py", id="a plugin that a run chooses by itself"),
        pytest.param("plugins/rewards/late/rlcore_plugin_late/reward.py", id="a plugin that its extra installs and its code names"),
        pytest.param("benchmarks/figures.json", id="a file by its path"),
        pytest.param("recipes/small.toml", id="files of a glob"),
        pytest.param("tests/integration/data.toml", id="data beside the test"),
        pytest.param("tests/integration/page.jinja", id="a template beside the test"),
        pytest.param("docs/page.md", id="a page that it reads"),
        pytest.param("conftest.py", id="the conftest at the top"),
        pytest.param("tests/integration/conftest.py", id="a conftest beside it"),
        pytest.param("constraints.txt", id="constraints"),
        pytest.param("pyproject.toml", id="settings of pytest"),
        pytest.param("Makefile", id="the Makefile"),
        pytest.param(".ci/run", id="CI"),
    ],
)
def test_a_changed_file_changes_the_key(repository: Path, path: str) -> None:
    before, after = key(repository), key(repository, **{path: FILES[path].encode() + b"\n"})
    assert before.text != after.text
    assert [name for name in after.files if after.files[name] != before.files.get(name)] == [path]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("plugins/rewards/demo/rlcore_plugin_demo/reward.py", id="a plugin that nobody names"),
        pytest.param("plugins/rewards/math/tests/test_math.py", id="tests of a plugin"),
        pytest.param("tests/integration/test_other.py", id="a test of another kind"),
        pytest.param("rlcore/unused.py", id="a module that nobody imports"),
        pytest.param("docs/other.md", id="another page"),
    ],
)
def test_an_unrelated_file_leaves_it(repository: Path, path: str) -> None:
    assert key(repository).text == key(repository, **{path: FILES[path].encode() + b"\n# changed\n"}).text


def test_a_file_that_comes_and_one_that_goes_change_the_key(repository: Path) -> None:
    before = key(repository).text
    assert key(repository, **{"tests/integration/more.toml": b""}).text != before
    assert key(repository, **{"tests/integration/test_new.py": b"pytest.mark.full"}).text != before


def test_the_lock_of_an_environment_and_how_a_group_runs_are_in_its_key(repository: Path) -> None:
    group = Group(name="it", kind="engine", paths=("tests/integration/test_other.py",), minutes=1, environments=("math-cpu",))
    lock = "plugins/rewards/math/rlcore_plugin_math/environments/math-cpu.lock"
    assert key(repository, group).text != key(repository, group, **{lock: b"x"}).text
    elsewhere = Group(name="it", kind="engine", paths=group.paths, minutes=1, environments=group.environments, inside=True)
    assert key(repository, group).text != key(repository, elsewhere).text


@pytest.mark.parametrize("name", ["ACME_SPEED", "RLCORE_ANYTHING", "OMP_NUM_THREADS"])
def test_a_variable_that_a_test_reads_is_in_the_key(repository: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(name, raising=False)
    before = key(repository).text
    monkeypatch.setenv(name, "7")
    assert key(repository).text != before
    monkeypatch.delenv(name)
    monkeypatch.setenv("ACME_OTHER", "7")
    assert key(repository).text == before


@pytest.mark.parametrize("fact", ["python", "packages", "bwrap", "chromium", "kernel", "user"])
def test_what_the_machine_has_is_in_the_key(repository: Path, monkeypatch: pytest.MonkeyPatch, fact: str) -> None:
    before = key(repository).text
    monkeypatch.setattr(keys_module, "machine", lambda: {"python": "3.11", fact: "another"})
    assert key(repository).text != before


def test_every_fact_of_the_machine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = keys_module.machine()
    assert set(found) == {"python", "packages", "bwrap", "chromium", "kernel", "user"}
    assert all(found.values()), found


@pytest.mark.parametrize(
    ("source", "kind", "found"),
    [
        ('run("train --algo dapo")', "words", "dapo"),
        ("text = '''[inference]\\nname = \"vllm\"\\n'''", "words", "vllm"),
        ('x = "math,code"', "words", "code"),
        ('f"rlcore.learning.kl:{name}"', "targets", "rlcore.learning.kl"),
        ('x = "import rlcore_plugin_math.reward"', "targets", "rlcore_plugin_math.reward"),
        ('Registry.discover().names("algo")', "asked", "algo"),
        ("registry.names(PluginKind.ALGORITHM)", "asked", "ALGORITHM"),
        ("registry.names(kind)", "asked", "*"),
        ('ROOT.glob("docs/*.md")', "places", "docs/*.md"),
        ('ROOT / "docs" / name', "folders", "docs"),
    ],
)
def test_strings_are_read_for_what_they_name(source: str, kind: str, found: str) -> None:
    assert found in read(source.encode())[kind]


def test_a_docstring_names_nothing() -> None:
    assert read(b'"""Like rlcore_plugin_code.reward, or --reward code."""')["words"] == []


def test_what_a_run_chooses_by_itself_is_registered() -> None:
    assert set(registered_names()) >= CHOSEN


@pytest.fixture(scope="module")
def real() -> tuple[Table, Keys]:
    table = Table.load()
    return table, Keys(table, Tree(ROOT), known=KnownFacts(cache_folder() / "facts.json"))


@pytest.mark.parametrize(
    ("path", "least", "most"),
    [
        ("plugins/rewards/judge/rlcore_plugin_judge/chat_service.py", 1, 8),
        ("plugins/rewards/code/rlcore_plugin_code/reward.py", 1, 12),
        ("rlcore/learning/losses.py", 26, 99),
        ("docs/authors/rewards.md", 1, 9),
    ],
)
def test_after_a_change_these_many_groups_of_ci_run(real: tuple[Table, Keys], path: str, least: int, most: int) -> None:
    table, keys = real
    groups = [*table.of("full"), *table.of("engine")]
    assert least <= len([group for group in groups if path in keys.why(group)]) <= most


def test_every_key_has_what_the_conftest_of_all_tests_imports() -> None:
    imported = re.findall(r"from (tests\.\w+) import", (ROOT / "conftest.py").read_text(encoding="utf-8"))
    assert imported
    assert {f"{name.replace('.', '/')}.py" for name in imported} <= set(ALWAYS)
