"""`make wheels`, then a fresh environment that has them and nothing of the checkout: what people install, and what it does there.

The fresh environment sees the third-party packages of the environment that runs the tests through links, so that nothing is downloaded. Its
index has strangers' packages that are named like ours.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tools.dependencies import normal, requirement
from tools.release.checklist import wrong_files, wrong_metadata
from tools.release.projects import projects

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
LICENSE = (ROOT / "LICENSE").read_bytes()
SOURCES = ("LICENSE", "Makefile", "README.md", "constraints.txt", "plugins", "pyproject.toml", "rlcore", "tools")
BUILT = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
PACKAGES = {path.parent.name: path.parent for path in (ROOT, *ROOT.glob("plugins/*/*/")) for path in path.glob("rlcore*/__init__.py")}
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PIP", "PYTHON", "PYTEST", "VIRTUAL_ENV"))}
OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def is_library(package: Path) -> bool:
    """Whether a package is one that plugins share and that registers nothing."""
    return "rlcore-library" in tomllib.loads((package.parent / "pyproject.toml").read_text())["project"].get("keywords", ())


def run(folder: Path, *words: str | Path) -> str:
    """Standard output of a command that must succeed, away from the checkout and without the PYTHONPATH of the tests."""
    done = subprocess.run(words, cwd=folder, env=ENVIRONMENT | OFFLINE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout in which `make wheels` was typed; an earlier build has left a module that is gone by now."""
    folder = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=BUILT)
        else:
            shutil.copy2(ROOT / name, folder / name)
    stale = folder / "build" / "lib" / "rlcore" / "gone.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    run(folder, "make", "--old-file=env", "wheels", f"BIN={Path(sys.executable).parent}")
    return folder


def test_nothing_of_the_build_is_left_behind(tree: Path) -> None:
    assert [str(path.relative_to(tree)) for path in tree.rglob("build") if path.is_dir()] == ["build"]  # the one that was there
    assert list(tree.rglob("*.egg-info")) == []
    for pattern in ("*.whl", "*.tar.gz"):
        assert len(list((tree / "dist").glob(pattern))) == len(PACKAGES)


@dataclass(frozen=True)
class Fresh:
    """A new environment: ``site`` is where it installs, ``bin`` holds its commands, ``away`` is a folder to work in."""

    site: Path
    bin: Path
    away: Path


def strangers(tree: Path, index: Path) -> str:
    """The address of an index with packages that are named like ours, of the same version and of a higher one."""
    for path in (tree / "dist").glob("*.whl"):
        package, own, *_ = path.name.split("-")
        folder = index / normal(package)
        folder.mkdir(parents=True)
        for version in (own, "99.0"):
            info = f"{package}-{version}.dist-info"
            with zipfile.ZipFile(folder / f"{package}-{version}-py3-none-any.whl", "w") as archive:
                archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\nSummary: a stranger's\n")
                archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                archive.writestr(f"{info}/RECORD", "")
        (folder / "index.html").write_text("".join(f'<a href="{file.name}">{file.name}</a>\n' for file in folder.glob("*.whl")))
    return index.as_uri()


@pytest.fixture(scope="module")
def fresh(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """What the README types, on a machine that has a copy of dist/ and an index with strangers' packages."""
    folder = tmp_path_factory.mktemp("fresh")
    run(folder, sys.executable, "-m", "venv", "--without-pip", folder / "env")
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    others = folder / "others"
    others.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"_*(editable|rlcore)|.*\.pth$", entry.name):
            (others / entry.name).symlink_to(entry)
    (site / "others.pth").write_text(f"{others}\n")
    made = Fresh(site=site, bin=folder / "env" / "bin", away=tmp_path_factory.mktemp("away"))
    (line,) = re.findall(r"^pip install (.*) 'rlcore\[quickstart\]' +# in any environment", (ROOT / "README.md").read_text(), re.MULTILINE)
    elsewhere = folder / "elsewhere"
    shutil.copytree(tree / "dist", elsewhere / "dist")
    pip = [sys.executable, "-m", "pip", "--python", made.bin / "python"]
    words = [found for word in line.split() for found in (sorted(elsewhere.glob(word)) if "*" in word else [word])]
    run(elsewhere, *pip, "install", "--quiet", "--index-url", strangers(tree, folder / "index"), *words, "rlcore[all]")
    return made


def wheel(tree: Path, package: str) -> zipfile.ZipFile:
    (path,) = (tree / "dist").glob(f"{package}-*.whl")
    return zipfile.ZipFile(path)


def metadata(tree: Path, package: str) -> Message:
    with wheel(tree, package) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_there_is_a_wheel_of_every_distribution(tree: Path) -> None:
    assert sorted(path.name.split("-")[0] for path in (tree / "dist").glob("*.whl")) == sorted(PACKAGES)


def test_the_constraints_are_those_of_the_tests_and_a_pin_for_every_distribution(tree: Path) -> None:
    ours, added = ((folder / "constraints.txt").read_text() for folder in (ROOT, tree / "dist"))
    versions = {package: metadata(tree, package)["Version"] for package in PACKAGES}
    # With pins that apply to an older Python, pip would say that packages conflict; without, it says which Python rlcore needs.
    marked = "".join(
        line if line.startswith("#") else f'{line.rstrip()}; python_version >= "3.11"\n' for line in ours.splitlines(keepends=True)
    )
    assert added.startswith(marked)
    assert sorted(added.removeprefix(marked).splitlines()) == sorted(
        f"{normal(package)}=={version}" for package, version in versions.items()
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_holds_its_package_typed_and_licensed_and_nothing_else(tree: Path, package: str) -> None:
    with wheel(tree, package) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (licence,) = (name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
        assert archive.read(licence) == LICENSE
    folder = PACKAGES[package]
    kept = {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert names == {str(path.relative_to(folder.parent)) for path in kept}
    assert f"{package}/py.typed" in names


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_asks_for_what_is_declared(tree: Path, package: str) -> None:
    asked = [text for text in metadata(tree, package).get_all("Requires-Dist", []) if ";" not in text]
    declared = tomllib.loads((PACKAGES[package].parent / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {requirement(text, "").name for text in asked} == {requirement(text, "").name for text in declared}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_source_holds_its_package_its_licence_and_what_builds_it(tree: Path, package: str) -> None:
    """Wheels are built from the sources alone, in a folder elsewhere, and the tests above compare them with the tree."""
    (source,) = (tree / "dist").glob(f"{package}-*.tar.gz")
    folder = PACKAGES[package].parent
    with tarfile.open(source) as archive:
        held = {name.partition("/")[2]: archive.extractfile(name) for name in archive.getnames() if archive.getmember(name).isreg()}
        licence = held["LICENSE"]
        assert licence is not None
        assert licence.read() == LICENSE
    with wheel(tree, package) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    written = {"PKG-INFO", "setup.cfg", *(name for name in held if ".egg-info/" in name)}
    assert set(held) - written == packed | {"LICENSE", "README.md", "pyproject.toml"}
    assert all((folder / name).exists() for name in set(held) - written)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_tells_an_index_what_it_asks_for(tree: Path, package: str) -> None:
    (path,) = (tree / "dist").glob(f"{package}-*.whl")
    (project,) = (one for one in projects(ROOT) if one.package.name == package)
    assert [*wrong_files(project, path), *wrong_metadata(project, path)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_stranger_s_package_of_the_same_name_is_not_installed(tree: Path, fresh: Fresh, package: str) -> None:
    (installed,) = fresh.site.glob(f"{package}-*.dist-info/METADATA")
    assert message_from_bytes(installed.read_bytes()).items() == metadata(tree, package).items()


def test_nothing_of_the_checkout_is_on_the_path(fresh: Fresh) -> None:
    program = f"import sys, importlib, json; print(json.dumps([importlib.import_module(n).__file__ for n in {list(PACKAGES)}] + sys.path))"
    found = json.loads(run(fresh.away, fresh.bin / "python", "-c", program))
    assert [Path(path).parents[1] for path in found[: len(PACKAGES)]] == [fresh.site] * len(PACKAGES)
    assert not [path for path in found if Path(path).is_relative_to(ROOT)]


def test_every_plugin_is_listed_and_none_failed(fresh: Fresh) -> None:
    found = json.loads(run(fresh.away, fresh.bin / "rlcore", "plugins", "--json"))
    listed, plugins = found["plugins"], [name for name, folder in PACKAGES.items() if not is_library(folder)]
    assert {normal(row["distribution"]) for row in listed} == {normal(package) for package in plugins}
    assert found["notes"] == []
    assert [row for row in listed if row["status"] != "ok" or row["problems"]] == []


def test_two_steps_of_dapo_are_trained(fresh: Fresh) -> None:
    program = "from pathlib import Path; from rlcore_plugin_quickstart.assets import prepare; prepare(Path('demo'), 0, print)"
    run(fresh.away, fresh.bin / "python", "-c", program)
    said = run(fresh.away, fresh.bin / "rlcore", "train", "demo/run.toml", "--algo", "dapo", "--max-steps", "2", "-ei", "0", "--json")
    summary = json.loads(said.splitlines()[-1])
    assert summary["steps"] == 2
    manifest = json.loads((fresh.away / summary["run"] / "manifest.json").read_text())
    assert "rlcore-plugin-dapo" in json.dumps(manifest)
