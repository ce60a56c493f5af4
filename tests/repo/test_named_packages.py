"""Texts, advice and the tables of known names name packages and extras that are in this repository; of the others they say so."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from rlcore.contracts.specs import PluginKind
from rlcore.registry.install import EXTRAS, NEEDS_EXTRA, RELEASED, REQUIRED, long_name
from rlcore.registry.known_plugins import distribution_of, known_names
from rlcore.registry.plugin_registry import Registry

ROOT = Path(__file__).parents[2]
PACKAGE = re.compile(r"rlcore-plugin-[a-z0-9]+(?:-gym)?")
EXTRA = re.compile(r"rlcore\[([a-z, ]+)\]")
OWN_NAME = re.compile(r'^name = "(rlcore-plugin-[a-z0-9]+(?:-gym)?)"', re.MULTILINE)

PROJECTS = {path: tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in (ROOT / "plugins").glob("*/*/pyproject.toml")}
IN_TREE = {project["name"] for project in PROJECTS.values()}
IN_PYPROJECT = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])


def texts() -> list[str]:
    """Every text that a user may read, sentences of the code included, as paths below the root."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    kept = [path for path in listed if path.endswith((".md", ".py", ".toml", ".txt")) or path == "Makefile"]
    return [path for path in kept if "/tests/" not in f"/{path}" and not path.startswith(("tools/", "constraints"))]


def unknown_names(text: str) -> list[str]:
    """What a text names and nobody can install; packages that it defines itself are examples."""
    known = IN_TREE | set(OWN_NAME.findall(text))
    packages = [name for name in PACKAGE.findall(text) if name not in known]
    return packages + [extra for extras in EXTRA.findall(text) for extra in re.split(r", *", extras) if extra not in IN_PYPROJECT]


def test_every_text_names_packages_and_extras_that_exist() -> None:
    paths = texts()
    assert {"README.md", "rlcore/registry/install.py", "recipes/README.md", "docs/maintainers/gpu.md"} <= set(paths)
    found = {path: unknown_names((ROOT / path).read_text(encoding="utf-8")) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install rlcore-plugin-gpu", ["rlcore-plugin-gpu"]),
        ("pip install 'rlcore[quickstart,gpu]'", ["gpu"]),
        ('name = "rlcore-plugin-mine"\npip install -e rlcore-plugin-mine', []),
        ("rlcore-plugin-math and rlcore[ray]", []),
    ],
)
def test_what_nobody_can_install_is_found(text: str, found: list[str]) -> None:
    assert unknown_names(text) == found


def test_the_tables_of_what_can_be_installed_are_those_of_the_tree() -> None:
    assert RELEASED == IN_TREE
    assert set(EXTRAS) <= IN_PYPROJECT
    assert set(NEEDS_EXTRA) | set(map(long_name, REQUIRED)) <= IN_TREE
    assert {long_name(name) for plugins in EXTRAS.values() for name in plugins} <= IN_TREE


@pytest.mark.parametrize("kind", list(PluginKind), ids=str)
def test_a_known_name_is_offered_by_its_package(kind: PluginKind) -> None:
    registry = Registry.discover()
    for name in known_names(kind):
        assert registry.owner(kind, name) == distribution_of(kind, name)
