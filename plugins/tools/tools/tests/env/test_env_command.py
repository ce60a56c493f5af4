"""``rlcore env``: a lock file becomes an environment once, whole or not at all. The packages are wheels made here; no index is asked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
from rlcore_plugin_tools import rlcore_register_commands
from rlcore_plugin_workers.environment_folders import MARKER
from rlcore_plugin_workers.environment_locks import HERE, Lock

from rlcore.testing import RunTester, check_command

LOCK = "# what the engine needs\nacme-part==1.0  # and why\n"
ALONE = "# without: rlcore\n"
"""The line of an environment that needs none of the packages that rlcore imports."""


def wheel(folder: Path, version: str = "1.0") -> None:
    """A distribution of one module."""
    folder.mkdir(exist_ok=True)
    info = f"acme_part-{version}.dist-info"
    written = {
        "acme_part.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: acme-part\nVersion: {version}\nRequires-Dist: not-there\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"acme_part-{version}-py3-none-any.whl", "w") as archive:
        for name, text in written.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*written, f"{info}/RECORD"]))


PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi
"""
"""What makes an environment in no time."""


class Site:
    """A project with a plugin ``acme`` that has an environment ``acme-cpu``, and a cache folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.tester, self.cache = RunTester(folder, in_process=True), folder / "cache"
        wheel(folder / "wheels")
        self.variables = {
            "XDG_CACHE_HOME": str(self.cache),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(folder / "wheels"),
            "PIP_CONFIG_FILE": "/dev/null",
        }
        self.lock(LOCK)

    def lock(self, text: str, plugin: str = "acme", name: str = "acme-cpu", alone: str = ALONE) -> None:
        text += alone
        self.tester.plugins.install(plugin, files={f"environments/{name}.lock": text})

    def run(self, *words: str):
        return self.tester.run("env", *words, env=self.variables)

    def made(self, name: str = "acme-cpu") -> Path:
        """What a build of the lock of this name leaves, without Python and pip in it; what these write is another test's subject."""
        folder = Path(self.run("build", name, "--dry-run", "--json").assert_ok().json["folder"])
        folder.mkdir(parents=True)
        (folder / MARKER).write_text(json.dumps({"name": name, "owner": "rlcore-plugin-acme", "packages": 1, "for": HERE}) + "\n")
        return folder

    def folders(self) -> list[Path]:
        """All environments, whole or not."""
        return sorted(path for path in (self.cache / "rlcore" / "envs").glob("*") if path.is_dir())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_command_conforms(tmp_path: Path) -> None:
    (spec,) = (one for one in rlcore_register_commands() if one.name == "env")
    check_command(spec, RunTester(tmp_path, in_process=True).with_fakes(), "list")


def test_an_environment_is_built_once_and_found_again(site: Site) -> None:
    built = site.run("build", "acme-cpu").assert_ok()
    [folder] = site.folders()
    assert built.lines == [str(folder)]
    assert "acme-cpu: 1 packages into" in built.stderr
    said = subprocess.run(
        [folder / "bin/python", "-c", "from acme_part import *; print(VERSION)"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "1.0\n"
    marker = folder / MARKER
    before = marker.stat().st_mtime_ns
    again = site.run("build", "acme-cpu", "--json").assert_ok()
    assert (again.json["made"], again.json["folder"], again.stderr) == (False, str(folder), "")
    assert marker.stat().st_mtime_ns == before
    assert site.run("path", "acme-cpu").lines == [str(folder)]
    listed = next(one for one in site.run("list", "--json").json["environments"] if one["name"] == "acme-cpu")
    assert (listed["name"], listed["owner"], listed["built"], listed["packages"]) == ("acme-cpu", "rlcore-plugin-acme", True, 1)


def test_another_lock_is_another_environment_and_remove_deletes_both(site: Site) -> None:
    site.made()
    site.lock("acme-part==2.0\n")
    site.lock("acme-part==2.0\n", plugin="other", name="acme-cpu-two")
    site.run("path", "acme-cpu").assert_refused("acme-cpu has not been made; type: rlcore env build acme-cpu")
    assert "from an older lock" in site.run("list").stdout
    site.made()
    site.made("acme-cpu-two")
    assert len(site.folders()) == 3
    assert len(site.run("remove", "acme-cpu", "--json").json["removed"]) == 2
    assert [folder.name.rpartition("-")[0] for folder in site.folders()] == ["acme-cpu-two"]


def test_comments_and_order_of_reading_change_nothing_but_a_version_does(site: Site) -> None:
    first = site.run("build", "acme-cpu", "--dry-run", "--json").json["folder"]
    site.lock("# another comment\n\nacme-part==1.0\n")
    assert site.run("build", "acme-cpu", "--dry-run", "--json").json["folder"] == first
    site.lock("acme-part==1.1\n")
    assert site.run("build", "acme-cpu", "--dry-run", "--json").json["folder"] != first


def test_a_build_that_fails_leaves_nothing_and_says_what_pip_said(site: Site) -> None:
    site.lock("acme-part==3.0\n")
    failed = site.run("build", "acme-cpu", "--json")
    assert failed.exit_code == 1
    assert "environment acme-cpu cannot be made: ERROR: No matching distribution found for acme-part==3.0" in failed.json["error"]
    assert site.folders() == []
    site.run("path", "acme-cpu").assert_refused("has not been made")


def test_what_a_killed_build_left_is_not_taken_for_whole(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    python = site.tester.write("python", PYTHON)
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    [folder] = [Path(site.run("build", "acme-cpu", "--dry-run", "--json").json["folder"])]
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "rest").touch()
    site.run("path", "acme-cpu").assert_refused("has not been made")
    site.run("build", "acme-cpu").assert_ok()
    assert not (folder / "bin" / "rest").exists()
    assert json.loads((folder / MARKER).read_text()) == {"name": "acme-cpu", "owner": "rlcore-plugin-acme", "packages": 1, "for": HERE}


def test_a_dry_run_makes_nothing(site: Site) -> None:
    told = site.run("build", "acme-cpu", "--dry-run").assert_ok()
    assert told.lines[0].startswith("acme-cpu would be made of 1 packages: ")
    assert not site.cache.exists()


def test_a_dry_run_says_megabytes_and_minutes_if_the_lock_names_them(site: Site) -> None:
    assert "MB" not in site.run("build", "acme-cpu", "--dry-run").assert_ok().stdout
    site.lock(f"# cost: 1600 MB, 2 minutes\n{LOCK}")
    assert site.run("build", "acme-cpu", "--dry-run").assert_ok().lines[0].endswith("; about 1600 MB, 2 min with a fast package index")
    told = site.run("build", "acme-cpu", "--dry-run", "--json").assert_ok().json
    assert (told["megabytes"], told["minutes"]) == (1600, 2)


@pytest.mark.parametrize("lock", sorted(Path(__file__).parents[4].glob("backends/*/*/environments/*.lock")), ids=lambda path: path.stem)
def test_the_locks_of_this_repository_name_their_cost(lock: Path) -> None:
    assert Lock(lock.stem, "owner", lock).cost is not None


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://example.org",
        "acme @ https://example.org/acme.whl",
        "acme>=1",
        "acme",
        "-r other.txt",
        "acme==1.*",
        "# index: https://example.org",
    ],
)
def test_a_line_that_is_no_pinned_package_is_refused(line: str, site: Site) -> None:
    site.lock(f"acme-part==1.0\n{line}\n")
    site.run("build", "acme-cpu").assert_refused("line 2", "rlcore-plugin-acme", repr(line))


def test_a_name_that_no_plugin_has_is_refused_with_the_nearest(site: Site) -> None:
    site.run("build", "acme-cp").assert_refused("'acme-cp' is not an environment of an installed plugin; did you mean acme-cpu?")
    site.run("remove", "zzz").assert_refused("installed plugins have: acme-cpu")


def test_two_plugins_with_one_name_are_both_told_and_other_names_work(site: Site) -> None:
    site.lock(LOCK, plugin="other")
    site.lock(LOCK, plugin="more", name="more-cpu")
    both = "rlcore-plugin-acme and rlcore-plugin-other both have an environment 'acme-cpu'"
    site.run("build", "acme-cpu").assert_refused(both)
    assert both in site.run("list").assert_ok().stdout
    site.run("build", "more-cpu", "--dry-run").assert_ok()


def test_a_bad_line_stops_no_other_lock(site: Site) -> None:
    site.lock("bad>=1\n", plugin="other", name="other-cpu")
    site.run("build", "acme-cpu", "--dry-run").assert_ok()
    listed = {one["name"]: one for one in site.run("list", "--json").assert_ok().json["environments"]}
    assert "'bad>=1' is not package==version" in listed["other-cpu"]["error"]
    assert listed["acme-cpu"]["packages"] == 1


def test_a_lock_without_what_rlcore_imports_is_refused_before_anything_is_made(site: Site) -> None:
    site.lock("", alone="")
    names = [re.match(r"[\w-]+", text)[0] for text in distribution("rlcore").requires or () if "extra" not in text]  # type: ignore[index]
    site.run("build", "acme-cpu").assert_refused(f"its lock lacks {', '.join(names)}, which rlcore imports in it; add them to ")
    pinned = [f"{name.replace('-', '_')}=={version(name)}\n" for name in names if name != "pluggy"]
    site.lock("".join(pinned), alone="")
    said = f"environment acme-cpu: its lock lacks pluggy, which rlcore imports in it; add them to {site.tester.plugins.root}"
    site.run("build", "acme-cpu").assert_refused(said, f"(this Python has pluggy=={version('pluggy')})")
    assert not site.cache.exists()
    site.lock("".join([*pinned, "Pluggy==1.0\n"]), alone="")
    site.run("build", "acme-cpu", "--dry-run").assert_ok()


def test_the_locks_of_this_repository_have_what_rlcore_imports() -> None:
    for lock in Path(__file__).parents[4].glob("*/*/rlcore_plugin_*/environments/*.lock"):
        Lock(lock.stem, "owner", lock).check_packages()


def test_a_lock_for_another_python_is_refused_before_anything_is_made(site: Site) -> None:
    site.lock("# for: Python 2.7 on plan9 mips\n" + LOCK)
    site.run("build", "acme-cpu").assert_refused(f"environment acme-cpu is for Python 2.7 on plan9 mips, but this is {HERE}")
    assert not site.cache.exists()
    site.lock(f"# for: Python 2.7 on plan9 mips\n# for: {HERE}\n" + LOCK)
    site.run("build", "acme-cpu", "--dry-run").assert_ok()
