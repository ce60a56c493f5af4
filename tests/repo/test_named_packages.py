"""Texts, advice and the tables of known names name packages and extras that are in this repository; of the others they say so."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from rlcore.contracts.specs import PluginKind
from rlcore.host.catalogue import distribution_of, known_names
from rlcore.host.install import EXTRAS, NEEDS_EXTRA, NOT_RELEASED, RELEASED, REQUIRED, install_line
from rlcore.host.registry import Registry

ROOT = Path(__file__).parents[2]
PACKAGE = re.compile(r"rlcore-plugin-[a-z0-9]+")
EXTRA = re.compile(r"rlcore\[([a-z, ]+)\]")
OWN_NAME = re.compile(r'^name = "(rlcore-plugin-[a-z0-9]+)"', re.MULTILINE)
TABLES = ("rlcore/host/catalogue.py",)
"""Where a plugin that nobody has published may be named: a user who types its name is told that it is in no release."""
ADVICE = re.compile(r"(?:--backend|-b|--trainer|--trackers|--runtime|--algo|-a|--loss|--estimator|-rt|--reward) ([a-z][a-z0-9_+]*)")

PROJECTS = {path: tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in (ROOT / "plugins").glob("*/*/pyproject.toml")}
IN_TREE = {project["name"] for project in PROJECTS.values()}
IN_PYPROJECT = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])


def texts() -> list[str]:
    """Every text that a user may read, sentences of the code included, as paths below the root."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    kept = [path for path in listed if path.endswith((".md", ".py", ".toml", ".txt")) or path == "Makefile"]
    return [path for path in kept if "/tests/" not in f"/{path}" and not path.startswith(("tools/", "constraints"))]


def unknown_names(text: str, *, table: bool = False) -> list[str]:
    """What a text names and nobody can install; packages that it defines itself are examples."""
    known = IN_TREE | set(OWN_NAME.findall(text)) | (NOT_RELEASED if table else set())
    packages = [name for name in PACKAGE.findall(text) if name not in known]
    return packages + [extra for extras in EXTRA.findall(text) for extra in re.split(r", *", extras) if extra not in IN_PYPROJECT]


def test_every_text_names_packages_and_extras_that_exist() -> None:
    paths = texts()
    assert {"README.md", "rlcore/host/install.py", "recipes/README.md", "docs/gpu.md"} <= set(paths)
    found = {path: unknown_names((ROOT / path).read_text(encoding="utf-8"), table=path in TABLES) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install rlcore-plugin-wandb", ["rlcore-plugin-wandb"]),
        ("pip install 'rlcore[quickstart,gpu]'", ["gpu"]),
        ('name = "rlcore-plugin-mine"\npip install -e rlcore-plugin-mine', []),
        ("rlcore-plugin-math and rlcore[ray]", []),
    ],
)
def test_what_nobody_can_install_is_found(text: str, found: list[str]) -> None:
    assert unknown_names(text) == found


def test_the_tables_of_what_can_be_installed_are_those_of_the_tree() -> None:
    assert RELEASED == IN_TREE
    assert not NOT_RELEASED & IN_TREE
    assert set(EXTRAS) <= IN_PYPROJECT
    assert set(NEEDS_EXTRA) | {f"rlcore-plugin-{name}" for name in REQUIRED} <= IN_TREE
    assert {f"rlcore-plugin-{name}" for plugins in EXTRAS.values() for name in plugins} <= IN_TREE


@pytest.mark.parametrize("kind", list(PluginKind), ids=str)
def test_a_known_name_is_offered_by_its_package_or_is_told_to_be_in_no_release(kind: PluginKind) -> None:
    registry = Registry.discover()
    for name in known_names(kind):
        package = str(distribution_of(kind, name))
        if package in NOT_RELEASED:
            assert install_line(package) == f"{package} is not in this release"
        else:
            assert registry.owner(kind, name) == package


def test_no_text_tells_to_type_the_name_of_a_plugin_that_is_in_no_release() -> None:
    unpublished = {name for kind in PluginKind for name in known_names(kind) if distribution_of(kind, name) in NOT_RELEASED}
    told = [(path, name) for path in texts() for name in ADVICE.findall((ROOT / path).read_text(encoding="utf-8")) if name in unpublished]
    assert told == []
    for recipe in (ROOT / "recipes").glob("*.toml"):
        text = recipe.read_text(encoding="utf-8")
        named = [name for name in unpublished if f'name = "{name}"' in text]
        assert not named or "are not in this release" in text.partition("\n[")[0], f"{recipe.name} needs {named}, and does not say so"
