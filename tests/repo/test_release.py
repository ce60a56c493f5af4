"""tools.release on a small repository of two distributions: versions in step, packages, a local index, and the checklist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.release import __main__ as command
from tools.release.checklist import Checklist, Failed, check, wrong_files, wrong_metadata
from tools.release.clean import TrialError, find_python, installed, try_out, without_torch
from tools.release.dists import BuildError, build
from tools.release.local_index import serve
from tools.release.projects import bounds, out_of_step, projects, set_version

ROOT = Path(__file__).parents[2]
BUILDS = '[build-system]\nrequires = ["setuptools>=77"]\nbuild-backend = "setuptools.build_meta"\n\n'
FIELDS = """description = "Something"
readme = "README.md"
license = "Apache-2.0"
license-files = ["LICENSE"]
requires-python = ">=3.11"
classifiers = [
  "Programming Language :: Python :: 3.11",
  "Programming Language :: Python :: 3.12",
  "Programming Language :: Python :: 3.13",
]
"""
CORE = f"""{BUILDS}[project]
name = "rlcore"
{FIELDS}dynamic = ["version"]
dependencies = ["rich>=13"]

[project.optional-dependencies]
more = ["rlcore-plugin-small>=0.1,<1", "torch>=2"]
all = ["rlcore[more]"]

[tool.setuptools.dynamic]
version = {{ attr = "rlcore.__version__" }}

[tool.setuptools.packages.find]
include = ["rlcore*"]
"""
PLUGIN = f"""{BUILDS}[project]
name = "rlcore-plugin-small"
version = "0.1.0"
{FIELDS}dependencies = ["rlcore>=0.1,<1", "rich"]

[tool.setuptools.packages.find]
include = ["rlcore_plugin_small*"]
"""


def write(root: Path) -> Path:
    """A repository of two distributions."""
    small = root / "plugins" / "tools" / "small"
    for folder, package, text in ((root, "rlcore", CORE), (small, "rlcore_plugin_small", PLUGIN)):
        (folder / package).mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(text)
        (folder / "README.md").write_text("# Something\n")
        (folder / "LICENSE").write_text("You may.\n")
        (folder / package / "__init__.py").write_text('__version__ = "0.1.0"\n' if folder == root else "")
        (folder / package / "py.typed").touch()
    (root / "constraints.txt").write_text("# tried\nrich==15.0.0\n")
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 (2026-12-01)\n\n- Begun.\n")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = write(tmp_path / "repository")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "begun"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build(write(folder / "repository"), folder / "dist")
    return folder / "dist"


# --- versions ----------------------------------------------------------------------------------------------------------


def test_the_distributions_of_this_repository_are_in_step() -> None:
    assert out_of_step(ROOT) == []
    assert len(projects(ROOT)) == 1 + len(list(ROOT.glob("plugins/*/*/pyproject.toml")))


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("plugins/tools/small/pyproject.toml", 'version = "0.1.0"', 'version = "0.2.0"', "rlcore-plugin-small has the version 0.2.0"),
        ("plugins/tools/small/pyproject.toml", "rlcore>=0.1,<1", "rlcore>=0.0,<1", "rlcore-plugin-small requires 'rlcore>=0.0,<1'"),
        ("plugins/tools/small/pyproject.toml", "rlcore>=0.1,<1", "rlcore", "it must be 'rlcore>=0.1,<1'"),
        ("pyproject.toml", "small>=0.1,<1", "small", "rlcore requires 'rlcore-plugin-small'"),
        ("rlcore/__init__.py", "0.1.0", "0.1.0rc1", "not of the form 1.2.3"),
    ],
)
def test_a_distribution_that_is_out_of_step_is_found(root: Path, file: str, old: str, new: str, said: str) -> None:
    assert out_of_step(root) == []
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new))
    (found,) = out_of_step(root)
    assert said in found


@given(st.tuples(*[st.integers(0, 99)] * 3))
def test_a_version_that_was_set_is_everywhere(tmp_path_factory: pytest.TempPathFactory, numbers: tuple[int, int, int]) -> None:
    root, version = tmp_path_factory.getbasetemp() / "set", ".".join(map(str, numbers))
    if not root.exists():
        write(root)
    set_version(root, version)
    assert {one.version for one in projects(root)} == {version}
    assert out_of_step(root) == []
    assert set_version(root, version) == []


def test_a_minor_release_admits_the_later_ones_of_its_major() -> None:
    assert [bounds(version) for version in ("0.1.0", "0.2.7", "1.0.0")] == [">=0.1,<1", ">=0.2,<1", ">=1.0,<2"]


# --- packages ----------------------------------------------------------------------------------------------------------


def test_sources_wheels_and_pins_are_built_and_the_tree_stays_as_it_was(dist: Path) -> None:
    assert sorted(path.name for path in dist.iterdir()) == [
        "constraints.txt",
        "rlcore-0.1.0-py3-none-any.whl",
        "rlcore-0.1.0.tar.gz",
        "rlcore_plugin_small-0.1.0-py3-none-any.whl",
        "rlcore_plugin_small-0.1.0.tar.gz",
    ]
    pins = '# tried\nrich==15.0.0; python_version >= "3.11"\nrlcore-plugin-small==0.1.0\nrlcore==0.1.0\n'
    assert (dist / "constraints.txt").read_text() == pins
    tree = dist.parent / "repository"
    assert not [path for path in tree.rglob("*") if path.name in ("build", "dist") or path.suffix == ".egg-info"]


def test_what_does_not_build_is_said(tmp_path: Path) -> None:
    root = write(tmp_path)
    (root / "README.md").unlink()
    (root / "README.md").write_text("# Something\n")
    (root / "pyproject.toml").write_text(CORE.replace('license = "Apache-2.0"', "license = 7"))
    with pytest.raises(BuildError, match="the sdist of tree cannot be built"):
        build(root, tmp_path / "dist")


def test_a_wheel_that_differs_from_the_tree_is_found(dist: Path, tmp_path: Path) -> None:
    core, _ = projects(write(tmp_path))
    (wheel,) = dist.glob("rlcore-*.whl")
    assert [*wrong_files(core, wheel)] == []
    (core.package / "table.json").touch()
    (found,) = wrong_files(core, wheel)
    assert "differ by 1 files: rlcore/table.json" in found


@pytest.mark.parametrize(
    ("old", "new", "lacks"),
    [
        ("Summary: Something\n", "", "a summary"),
        ("text/markdown", "text/plain", "a description in Markdown"),
        ("License-File: LICENSE\n", "", "a license and its file"),
        ("Classifier: Programming Language :: Python :: 3.12\n", "", "classifiers of Python"),
        (">=3.11", ">=3.12", "a lower bound of Python"),
        ("Version: 0.1.0", "Version: 0.2.0", "its version"),
    ],
)
def test_metadata_that_lacks_something_is_found(dist: Path, tmp_path: Path, old: str, new: str, lacks: str) -> None:
    core, _ = projects(dist.parent / "repository")
    (wheel,) = dist.glob("rlcore-*.whl")
    assert [*wrong_metadata(core, wheel)] == []
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(tmp_path / wheel.name, "w") as copy:
        for name in archive.namelist():
            text = archive.read(name).decode()
            assert not name.endswith("METADATA") or old in text
            copy.writestr(name, text.replace(old, new, 1) if name.endswith("METADATA") else text)
    (found,) = wrong_metadata(core, tmp_path / wheel.name)
    assert lacks in found


# --- the local index ---------------------------------------------------------------------------------------------------


def stranger(folder: Path, *versions: str) -> Path:
    """Wheels of strangers with the name of our plugin, and of a package that we do not have."""
    folder.mkdir()
    for package in ("rlcore_plugin_small", "other"):
        for version in versions:
            info = f"{package}-{version}.dist-info"
            with zipfile.ZipFile(folder / f"{package}-{version}-py3-none-any.whl", "w") as archive:
                archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
                archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                archive.writestr(f"{info}/RECORD", "")
    return folder


def test_a_name_of_ours_has_one_origin_and_other_names_come_from_the_index_behind(dist: Path, tmp_path: Path) -> None:
    words = ["install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-", "--isolated"]
    with serve(stranger(tmp_path / "strangers", "0.1.0", "99.0"), "") as behind, serve(dist, behind) as index:
        asked = [sys.executable, "-m", "pip", *words, "--index-url", index, "rlcore-plugin-small", "other"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{index}rlcore/nothing.whl")
    chosen = {one["metadata"]["name"]: one["download_info"]["url"] for one in json.loads(done.stdout)["install"]}
    assert chosen["rlcore-plugin-small"] == f"{index}rlcore-plugin-small/rlcore_plugin_small-0.1.0-py3-none-any.whl"
    assert chosen["other"] == f"{behind}other/other-99.0-py3-none-any.whl"


def test_what_needs_torch_is_left_out_with_what_requires_it(tmp_path: Path) -> None:
    for name, asked in {"rlcore": "", "rlcore_a": "torch>=2", "rlcore_b": "rlcore-a", "rlcore_c": 'torch; extra == "x"'}.items():
        with zipfile.ZipFile(tmp_path / f"{name}-1-py3-none-any.whl", "w") as archive:
            archive.writestr(
                f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\n" + f"Requires-Dist: {asked}\n" * bool(asked)
            )
    assert without_torch(tmp_path) == ["rlcore", "rlcore-c"]


def test_a_stranger_s_package_in_the_new_environment_is_found(dist: Path, tmp_path: Path) -> None:
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    assert installed(tmp_path, dist) == {"rlcore": "0.1.0", "rlcore-plugin-small": "0.1.0"}
    record = site / "rlcore_plugin_small-0.1.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("sha256=", "sha256=0", 1))
    with pytest.raises(TrialError, match=r"rlcore-plugin-small was not installed from .*: pip found another"):
        installed(tmp_path, dist)


def test_what_fails_in_the_new_environment_is_said(dist: Path, tmp_path: Path) -> None:
    with pytest.raises(TrialError, match=r"false -m venv env ended with exit code 1"):
        try_out(shutil.which("false") or "", dist, tmp_path, whole=False)


# --- the checklist -----------------------------------------------------------------------------------------------------


def dirty(root: Path) -> None:
    (root / "new.txt").touch()


def tagged(root: Path) -> None:
    subprocess.run(["git", "tag", "v0.1.0"], cwd=root, check=True)


def replaced(file: str, old: str, new: str) -> Callable[[Path], None]:
    def spoil(root: Path) -> None:
        (root / file).write_text((root / file).read_text().replace(old, new))

    return spoil


@pytest.mark.parametrize(
    ("item", "spoil", "said"),
    [
        ("tree", dirty, "1 files are not committed, new.txt for one"),
        ("tag", tagged, "there is a tag v0.1.0 already"),
        ("version", replaced("rlcore/__init__.py", "0.1.0", "0.1.1"), "rlcore-plugin-small has the version 0.1.0, and rlcore has 0.1.1"),
        ("changelog", replaced("CHANGELOG.md", "2026-12-01", "unreleased"), "begins with '## 0.1.0 (unreleased)'"),
        ("constraints", replaced("constraints.txt", "15.0.0", "12.0.0"), "rlcore requires rich>=13, and constraints.txt pins 12.0.0"),
    ],
)
def test_an_item_that_does_not_hold_is_found(root: Path, tmp_path: Path, item: str, spoil: Callable[[Path], None], said: str) -> None:
    checklist = Checklist(root, "0.1.0", tmp_path)
    assert checklist.quick[item]()
    spoil(root)
    with pytest.raises(Failed) as failure:
        checklist.quick[item]()
    assert said in str(failure.value)


@pytest.mark.parametrize(("why", "failed"), [("", []), ("never passed here", ["records"])])
def test_the_checklist_is_a_table_and_one_json_line(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str, failed: list[str]
) -> None:
    monkeypatch.setattr(Checklist, "_program", lambda *_: json.dumps([{"group": "runs", "runs": why}]))
    assert check(root, "0.1.0", dry_run=True) == len(failed)
    *rows, last = capsys.readouterr().out.splitlines()
    told = json.loads(last)
    assert (told["passed"], list(told["failed"])) == (6 - len(failed), failed)
    assert told["left"] == ["distributions", "environment", "site", "tests"]
    assert [row.split()[:2] for row in rows if row.split()[1] == "FAILED"] == [[one, "FAILED"] for one in failed]
    assert len(rows) == 10


def test_the_whole_checklist_goes_on_after_a_failure(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {"tests.groups": "[]", "tools.site": '{"pages": 3, "mb": 0.1}', "tests.suite": "== 7 passed in 1s =="}
    monkeypatch.setattr(Checklist, "_program", lambda self, *words: answers[words[1]])
    monkeypatch.setattr(Checklist, "environment", lambda self: (_ for _ in ()).throw(Failed("no network")))
    assert check(root, "0.1.0", dry_run=False) == 1
    *rows, last = capsys.readouterr().out.splitlines()
    assert json.loads(last) == {"version": "0.1.0", "passed": 9, "failed": {"environment": "no network"}, "left": []}
    assert "2 sources, 2 wheels" in next(row for row in rows if row.startswith("distributions"))
    assert rows[-1].split(maxsplit=2)[2] == "7 passed in 1s"


def test_bad_words_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["check", "0.2"], ["set", "0.2.0rc1"], ["set", "01.2.3"], ["set", "1.2.03"], ["set", "١.٢.٣"], ["check", "1.2.3\n"]):
        assert command.main(words) == 2
        assert capsys.readouterr().err == f"{words[1]!r} is no version of rlcore; type three numbers without leading zeros, such as 0.2.0\n"
    assert command.main(["try", "--dist", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path} has no wheels; type make wheels\n"


def test_a_version_never_goes_back(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "ROOT", root)
    for version, code in {"0.9.0": 0, "0.8.9": 2, "0.10.0": 0, "0.9.11": 2, "0.0.99": 2}.items():
        assert command.main(["set", version]) == code
    assert capsys.readouterr().err.splitlines()[-1] == "0.0.99 is below the present version 0.10.0; choose a higher one"
    plugin = root / "plugins" / "tools" / "small" / "pyproject.toml"
    plugin.write_text(plugin.read_text().replace("0.10.0", "0.1.0"))
    assert command.main(["set", "0.10.0"]) == 0
    assert {one.version for one in projects(root)} == {"0.10.0"}
    replaced("rlcore/__init__.py", "0.10.0", "0.11.0rc1")(root)
    assert command.main(["set", "0.10.0"]) == 0


def emptied(wheel: Path) -> None:
    wheel.write_bytes(b"")


def cut(wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[:-40])


def flipped(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        place = max(archive.infolist(), key=lambda one: one.compress_size)
    data = bytearray(wheel.read_bytes())
    middle = place.header_offset + 30 + len(place.filename) + place.compress_size // 2
    data[middle] ^= 255
    wheel.write_bytes(data)


def without_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("rlcore/__init__.py", "")


def a_folder(wheel: Path) -> None:
    wheel.unlink()
    wheel.mkdir()


@pytest.mark.parametrize("light", [[], ["--light"]])
@pytest.mark.parametrize("spoil", [emptied, cut, flipped, without_metadata, a_folder])
def test_a_damaged_wheel_is_named(
    dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None], light: list[str]
) -> None:
    shutil.copytree(dist, tmp_path / "dist")
    (wheel,) = (tmp_path / "dist").glob("rlcore-*.whl")
    spoil(wheel)
    assert command.main(["try", "--dist", str(tmp_path / "dist"), *light]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"{wheel} is not a complete wheel (")
    assert said.endswith("); type make wheels")


def test_a_program_that_is_no_python_is_refused(dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text := tmp_path / "text").touch()
    (broken := tmp_path / "broken").write_text("#!/nowhere\n")
    broken.chmod(0o755)
    for program in ("ls", "true", "echo", "/nowhere/python", str(text), str(broken), str(tmp_path)):
        assert command.main(["try", "--dist", str(dist), "--python", program]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith(f"--python {program} ")
        assert said.endswith(("is no Python; type the path of one", "can be run; type the path of a Python"))


def test_a_python_may_be_named_from_the_folder_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(sys.executable)
    monkeypatch.chdir(here.parent)
    assert find_python(f"./{here.name}") == here


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["check", "0.0.0", "--dry-run"]])
def test_a_reader_that_leaves_is_no_traceback(words: list[str], unbuffered: str) -> None:
    program = f"import sys; from tools.release import __main__ as m; m.check = lambda *a, **b: print('x'); sys.exit(m.main({words}))"
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    started = [sys.executable, "-c", program]
    done = subprocess.run(started, cwd=ROOT, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 1 or (words == ["--help"] and unbuffered)  # argparse itself hides what it could not print


# --- what people read and what the host runs -----------------------------------------------------------------------------


def test_the_page_lists_every_name_and_every_item(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "maintainers" / "releasing.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(rlcore[\w-]*)` \| (?:yes|no) \|$", page, re.MULTILINE)
    assert sorted(named) == sorted(one.name for one in projects(ROOT))
    assert f"{len(named)} distributions" in page
    checklist = Checklist(ROOT, "0.1.0", tmp_path)
    rows = page.partition("| item | what must hold |\n|---|---|\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (\w+) \|", rows, re.MULTILINE) == [*checklist.quick, *checklist.slow]


def test_the_workflow_builds_by_our_command_and_only_its_upload_has_an_identity() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    build_job, publish_job = text.partition("\n  build:\n")[2].split("\n  publish:\n")
    assert "python -m tools.release build" in build_job
    assert "id-token" not in build_job
    assert "id-token: write" in publish_job
    assert "environment: release" in publish_job
    assert "\npermissions: {}\n" in text
    assert not re.search(r"secrets|password|token: \$", text)
