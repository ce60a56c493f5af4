"""The distributions of the repository, their versions, and what they require of each other.

The version of a release stands in ``rlcore/__init__.py``. Every plugin has the same version in its pyproject.toml, because a source
distribution must build without the repository; ``set_version`` writes the copies and ``out_of_step`` compares them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
"""What a version may be. A release candidate has none: ``>=0.2`` would not admit 0.2.0rc1, so its plugins could not be installed."""
_CORE = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_PLUGIN = re.compile(r'^version = "(.+)"$', re.MULTILINE)
_SIBLING = re.compile(r'(?<=")(rlcore[\w-]*(?:\[[\w,]+\])?)>=[\d.]+,<\d+(?=")')


@dataclass(frozen=True)
class Project:
    """One distribution: its folder, the table ``[project]`` of its pyproject.toml, its version, and the folder of its package."""

    folder: Path
    table: dict[str, Any]
    version: str
    package: Path

    @property
    def name(self) -> str:
        """Return the name on the index."""
        return str(self.table["name"])

    @property
    def requirements(self) -> Iterator[str]:
        """Yield each requirement, those of extras included."""
        yield from self.table["dependencies"]
        for texts in self.table.get("optional-dependencies", {}).values():
            yield from texts


def projects(root: Path) -> list[Project]:
    """Return the core, then the plugins."""
    return [_project(folder) for folder in (root, *sorted(path.parent for path in root.glob("plugins/*/*/pyproject.toml")))]


def _project(folder: Path) -> Project:
    table = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (package,) = (path.parent for path in folder.glob("rlcore*/__init__.py"))
    version = table["version"] if "version" in table else _CORE.findall((package / "__init__.py").read_text(encoding="utf-8"))[0]
    return Project(folder, table, version, package)


def bounds(version: str) -> str:
    """Return what a distribution of this version requires of the others: the same minor release or a later one, below the next major."""
    found = VERSION.fullmatch(version)
    assert found is not None, version
    return f">={found[1]}.{found[2]},<{int(found[1]) + 1}"


def step_back(root: Path, version: str) -> str:
    """Return one sentence if the version is below that of the tree. The same version is no step back: writing it again mends the copies."""
    found, present = VERSION.fullmatch(version), VERSION.fullmatch(projects(root)[0].version)
    assert found is not None, version
    if present is None or [*map(int, found.groups())] >= [*map(int, present.groups())]:
        return ""
    return f"{version} is below the present version {present[0]}; choose a higher one"


def out_of_step(root: Path) -> list[str]:
    """Return one sentence for each version, or requirement on another distribution of the repository, that is not the core's."""
    core, *plugins = found = projects(root)
    if not VERSION.fullmatch(core.version):
        return [f"rlcore has the version {core.version!r}, which is not of the form 1.2.3"]
    names, asked = {one.name for one in found}, bounds(core.version)
    wrong = [f"{one.name} has the version {one.version}, and rlcore has {core.version}" for one in plugins if one.version != core.version]
    for one in found:
        for text in one.requirements:
            name, bound = re.fullmatch(r"([\w.-]+(?:\[[^]]*\])?)\s*(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
            if (other := name.partition("[")[0]) in names - {one.name} and bound != asked:
                wrong.append(f"{one.name} requires {text!r}; of {other} it must be {name + asked!r}")
    return wrong


def set_version(root: Path, version: str) -> list[Path]:
    """Write the version into each distribution, with the requirements that follow from it; return the files that changed."""
    asked, changed = bounds(version), []
    for one in projects(root):
        texts = {path: path.read_text(encoding="utf-8") for path in (one.folder / "pyproject.toml", one.package / "__init__.py")}
        for path, text in texts.items():
            pattern, line = (_CORE, "__version__") if path.name == "__init__.py" else (_PLUGIN, "version")
            new = _SIBLING.sub(rf"\g<1>{asked}", pattern.sub(f'{line} = "{version}"', text))
            if new != text:
                path.write_text(new, encoding="utf-8")
                changed.append(path)
    return changed
