"""What to type to install: never a name of this repository alone, which a stranger may own on an index."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from rlcore.registry import install
from rlcore.registry.install import EXTRAS, RELEASED, REQUIRED, install_line, long_name

ROOT = Path(__file__).parents[3]
OWN = re.compile("rlcore-(plugin-|gateway)")


def plugins() -> dict[str, Path]:
    """Every plugin of the repository and its folder."""
    files = ROOT.glob("plugins/*/*/pyproject.toml")
    return {tomllib.loads(file.read_text("utf-8"))["project"]["name"]: file.parent for file in files}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """rlcore's files lie in site-packages, with the metadata that pip wrote."""
    site = tmp_path / "site"
    info = site / "rlcore-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlcore\nVersion: 0.1.0\n")
    monkeypatch.setattr(install, "__file__", str(site / "rlcore" / "host" / "install.py"))
    monkeypatch.setattr(sys, "path", [str(site)])
    return info


def test_the_lists_are_those_of_the_repository() -> None:
    assert set(plugins()) == RELEASED
    brought = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra, names in EXTRAS.items():
        ours = {re.split(r"[\[>]", word)[0] for word in brought[extra] if OWN.match(word)}
        assert ours == set(map(long_name, names)), extra
    for name, folder in plugins().items():
        required = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
        ours = {word.partition(">")[0] for word in required if OWN.match(word)}
        assert ours == set(map(long_name, REQUIRED.get(name.removeprefix("rlcore-plugin-"), ()))), name


@pytest.mark.parametrize("name", sorted(RELEASED))
def test_in_a_checkout_a_plugin_is_installed_from_its_folder(name: str) -> None:
    names = [name, *(long_name(short) for short in REQUIRED.get(name.removeprefix("rlcore-plugin-"), ()))]
    assert shlex.split(install_line(name)) == ["pip", "install", *(word for one in names for word in ("-e", str(plugins()[one])))]


def test_in_a_checkout_an_extra_comes_with_the_folders_of_its_plugins() -> None:
    assert shlex.split(install_line("rlcore")) == ["pip", "install", "-e", str(ROOT)]
    for extra in ("datasets", "ray", "quickstart"):
        folders = [str(plugins()[long_name(name)]) for name in EXTRAS[extra]]
        assert shlex.split(install_line(f"rlcore[{extra}]"))[2:] == [w for one in (*folders, f"{ROOT}[{extra}]") for w in ("-e", one)]


def test_in_a_checkout_a_newer_one_is_pulled() -> None:
    root = shlex.quote(str(ROOT))
    assert install_line("rlcore", upgrade=True) == f"git -C {root} pull && pip install -e {root}"


def test_a_stranger_s_package_goes_by_its_name() -> None:
    assert install_line("rlcore-plugin-acme[engine]") == "pip install rlcore-plugin-acme[engine]"
    assert install_line("acme", upgrade=True) == "pip install -U acme"


def test_without_a_checkout_a_folder_of_wheels_stands_for_one(elsewhere: Path) -> None:
    assert install_line("rlcore-plugin-dapo") == "pip install FOLDER_WITH_WHEELS/rlcore_plugin_dapo-*.whl"
    files = "FOLDER_WITH_WHEELS/rlcore_plugin_code-*.whl FOLDER_WITH_WHEELS/rlcore_plugin_sandbox-*.whl"
    assert install_line("rlcore-plugin-code") == f"pip install {files}"
    assert install_line("rlcore", upgrade=True) == "pip install -U FOLDER_WITH_WHEELS/rlcore-*.whl"
    tables = "FOLDER_WITH_WHEELS/rlcore_plugin_datasets-*.whl"
    assert install_line("rlcore[datasets]") == f"pip install {tables} FOLDER_WITH_WHEELS/rlcore-*.whl 'rlcore[datasets]'"
    files = " ".join(f"FOLDER_WITH_WHEELS/{long_name(name).replace('-', '_')}-*.whl" for name in EXTRAS["quickstart"])
    assert install_line("rlcore[quickstart]") == f"pip install {files} FOLDER_WITH_WHEELS/rlcore-*.whl 'rlcore[quickstart]'"


def test_the_folder_that_the_wheel_came_from_is_named_if_it_is_still_there(elsewhere: Path, tmp_path: Path) -> None:
    dist = tmp_path / "my dist"
    url = (dist / "rlcore-0.1.0-py3-none-any.whl").as_uri()
    (elsewhere / "direct_url.json").write_text(json.dumps({"archive_info": {}, "url": url}))
    assert "FOLDER_WITH_WHEELS" in install_line("rlcore-plugin-dapo")
    dist.mkdir()
    assert install_line("rlcore-plugin-dapo") == f"pip install '{dist}'/rlcore_plugin_dapo-*.whl"


@pytest.mark.parametrize("kind", [{"editable": True}, {}])
def test_the_checkout_that_pip_notes_is_named_and_wheels_for_what_it_lacks(elsewhere: Path, tmp_path: Path, kind: dict[str, bool]) -> None:
    checkout = tmp_path / "check out"
    (checkout / "plugins" / "algos" / "dapo").mkdir(parents=True)
    (checkout / "pyproject.toml").touch()
    (elsewhere / "direct_url.json").write_text(json.dumps({"dir_info": kind, "url": checkout.as_uri()}))
    assert install_line("rlcore-plugin-dapo") == f"pip install -e '{checkout}/plugins/algos/dapo'"
    assert install_line("rlcore-plugin-rloo") == "pip install FOLDER_WITH_WHEELS/rlcore_plugin_rloo-*.whl"


def test_no_text_hands_pip_a_name_of_this_repository_alone() -> None:
    """The page about installation does once, for the day on which they are published."""
    parts = ("rlcore", "plugins", "recipes", "docs", "benchmarks", "tools")
    found_files = (file for part in parts for kind in ("py", "md", "toml") for file in (ROOT / part).rglob(f"*.{kind}"))
    files = [file for file in found_files if "tests" not in file.relative_to(ROOT).parts]
    bare = re.compile(r"pip install (?:-U |--upgrade )*'?rlcore[\w-]*(?:\[[\w,]+\])?'?(?![\w/-])")
    found = [
        f"{file.name}:{number}: {line.strip()}"
        for file in sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *files])
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if bare.search(line)
    ]
    assert [re.sub(r":\d+", "", line) for line in found] == ["install.md: pip install 'rlcore[quickstart]'"], found
    assert "Once the packages are published, one line will do" in (ROOT / "docs" / "how_to" / "install.md").read_text("utf-8")
