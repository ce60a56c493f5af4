"""The release checklist: each item is a function that returns what it found, or raises ``Failed`` with one sentence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.release.clean import TrialError, try_out
from tools.release.dists import BuildError, build
from tools.release.projects import Project, out_of_step, projects

PYTHONS = ("3.11", "3.12", "3.13")
"""What the classifiers promise."""
_DATED = r"^## {version} \(\d{{4}}-\d\d-\d\d\)$"


class Failed(Exception):
    """An item that does not hold, in one sentence."""


class Checklist:
    """The checks of one version of the repository at ``root``. ``folder`` takes what they build."""

    def __init__(self, root: Path, version: str, folder: Path) -> None:
        self._root, self._version, self._folder = root, version, folder
        self._dist = folder / "dist"

    @property
    def quick(self) -> dict[str, Callable[[], str]]:
        """Return the items that take seconds."""
        return {
            "tree": self.tree,
            "version": self.version,
            "tag": self.tag,
            "changelog": self.changelog,
            "constraints": self.constraints,
            "records": self.records,
        }

    @property
    def slow(self) -> dict[str, Callable[[], str]]:
        """Return the items that take minutes, in an order that suits them: what is built is then installed."""
        return {"distributions": self.distributions, "environment": self.environment, "site": self.site, "tests": self.tests}

    def tree(self) -> str:
        """Every change is committed."""
        changed = self._git("status", "--porcelain").splitlines()
        _expect(not changed, f"{len(changed)} files are not committed, {changed[0].split()[-1] if changed else ''} for one")
        return f"clean at {self._git('rev-parse', '--short', 'HEAD')}"

    def version(self) -> str:
        """Every distribution has the version, and requires it of the others."""
        (core, *plugins), wrong = projects(self._root), out_of_step(self._root)
        _expect(not wrong, f"{wrong[0] if wrong else ''}; type python -m tools.release set {self._version}")
        _expect(core.version == self._version, f"the tree has {core.version}; type python -m tools.release set {self._version}")
        return f"{len(plugins) + 1} distributions"

    def tag(self) -> str:
        """No tag has the name yet."""
        _expect(not self._git("tag", "--list", f"v{self._version}"), f"there is a tag v{self._version} already; choose another version")
        return f"v{self._version} is free in this clone"

    def changelog(self) -> str:
        """The newest section of CHANGELOG.md is of this version and has a date."""
        text = (self._root / "CHANGELOG.md").read_text(encoding="utf-8")
        heading = next((line for line in text.splitlines() if line.startswith("## ")), "no section")
        wanted = re.match(_DATED.format(version=re.escape(self._version)), heading)
        _expect(bool(wanted), f"CHANGELOG.md begins with {heading!r}; write '## {self._version} (YYYY-MM-DD)'")
        return heading.removeprefix("## ")

    def constraints(self) -> str:
        """What the tests ran with is admitted by what the distributions require."""
        lines = (line.partition("#")[0].strip() for line in (self._root / "constraints.txt").read_text(encoding="utf-8").splitlines())
        pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines if line)}
        asked = [(one.name, Requirement(text)) for one in projects(self._root) for text in one.table["dependencies"]]
        known = [(name, one, pins[canonicalize_name(one.name)]) for name, one in asked if canonicalize_name(one.name) in pins]
        for name, one, pin in known:
            _expect(one.specifier.contains(pin), f"{name} requires {one}, and constraints.txt pins {pin}")
        return f"{len(known)} requirements admit their pins"

    def records(self) -> str:
        """Every group of tests has passed with this tree."""
        done = self._program("-m", "tests.groups", "list", "--json")
        rows = json.loads(done.splitlines()[-1])
        stale = [row["group"] for row in rows if row["runs"]]
        _expect(not stale, f"{len(stale)} of {len(rows)} groups have not passed here with this tree; type .ci/run and make nightly")
        return f"{len(rows)} groups passed with this tree"

    def distributions(self) -> str:
        """Each source and each wheel is built, and each wheel has its files and its metadata."""
        try:
            made = build(self._root, self._dist)
        except BuildError as error:
            raise Failed(str(error)) from error
        for one in projects(self._root):
            (wheel,) = self._dist.glob(f"{one.package.name}-*.whl")
            wrong = [*wrong_files(one, wheel), *wrong_metadata(one, wheel)]
            _expect(not wrong, wrong[0] if wrong else "")
        return f"{len(made) // 2} sources, {len(made) // 2} wheels, {sum(path.stat().st_size for path in made) / 1e6:.1f} MB"

    def environment(self) -> str:
        """The wheels install into a new environment of this Python, and train there."""
        _expect(self._dist.is_dir(), "nothing was built")
        try:
            tried = try_out(sys.executable, self._dist, self._folder, whole=True)
        except TrialError as error:
            raise Failed(str(error)) from error
        return f"Python {tried['python']}: {tried['distributions']} distributions, installed in {tried['install_seconds']:.0f} s"

    def site(self) -> str:
        """The documentation is built without a warning."""
        found = json.loads(self._program("-m", "tools.site", "--out", str(self._folder / "site")).splitlines()[-1])
        return f"{found['pages']} pages, {found['mb']} MB"

    def tests(self) -> str:
        """The fast tests pass."""
        said = self._program("-m", "tests.suite", "--workers", "3", "-m", "not full and not nightly")
        return next((line.strip("= ") for line in reversed(said.splitlines()) if " passed" in line), "passed")

    def _git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self._root, capture_output=True, text=True, check=True).stdout.strip()

    def _program(self, *words: str) -> str:
        done = subprocess.run([sys.executable, *words], cwd=self._root, capture_output=True, text=True, check=False)
        _expect(
            done.returncode == 0, f"python {' '.join(words)} ended with exit code {done.returncode}; it ends with:\n{done.stdout[-2000:]}"
        )
        return done.stdout


def wrong_files(one: Project, wheel: Path) -> Iterable[str]:
    """Yield a sentence if the wheel lacks a file of the package, or has another one."""
    kept = {path for path in one.package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    if differ := packed ^ {path.relative_to(one.folder).as_posix() for path in kept}:
        yield f"{wheel.name} and {one.package} differ by {len(differ)} files: {', '.join(sorted(differ)[:3])}"


def wrong_metadata(one: Project, wheel: Path) -> Iterable[str]:
    """Yield a sentence for each field of the metadata that an index would refuse or that a reader would miss."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (found for found in archive.namelist() if found.endswith(".dist-info/METADATA"))
        found = Metadata.from_email(archive.read(name))  # raises for a field that is not valid
    told = {
        "a summary of at most 512 characters": 0 < len(found.summary or "") <= 512,
        "a description in Markdown": (found.description_content_type or "").startswith("text/markdown") and bool(found.description),
        "a license and its file": bool(found.license_expression and found.license_files),
        "a lower bound of Python": str(found.requires_python) == f">={PYTHONS[0]}",
        f"classifiers of Python {', '.join(PYTHONS)}": {f"Programming Language :: Python :: {one}" for one in PYTHONS}
        <= set(found.classifiers or ()),
        "its version": str(found.version) == one.version,
    }
    yield from (f"{wheel.name} lacks {what}" for what, holds in told.items() if not holds)


def check(root: Path, version: str, *, dry_run: bool) -> int:
    """Perform the checklist; print a table and one JSON line. Return 1 if an item failed."""
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="rlcore-release-") as name:
        checklist = Checklist(root, version, Path(name))
        todo = checklist.quick if dry_run else {**checklist.quick, **checklist.slow}
        for item, perform in todo.items():
            try:
                said = perform()
            except Failed as error:
                said = failed[item] = str(error)
            print(f"{item:14} {'FAILED' if item in failed else 'ok':7} {said}", flush=True)
    left = [item for item in checklist.slow if item not in todo]
    for item in left:
        print(f"{item:14} {'-':7} not performed, because of --dry-run")
    print(json.dumps({"version": version, "passed": len(todo) - len(failed), "failed": failed, "left": left}))
    return int(bool(failed))


def _expect(holds: bool, sentence: str) -> None:
    if not holds:
        raise Failed(sentence)
