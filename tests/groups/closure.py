"""Which files a group of tests reads: the files of its tests, and everything that those import or name, directly or not."""

from __future__ import annotations

import re
import tomllib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from tests.groups.facts import Facts, KnownFacts, words_of
from tests.groups.tree import Tree, folder_of

__all__ = ["Graph", "Names", "registered_names"]

Names = Mapping[str, frozenset[str]]
"""Registered name -> the packages of the plugins that offer it; ``kind:algo`` and ``kind:ALGORITHM``: that offer something of the kind."""
DISCOVERY = "rlcore/registry/discovery.py"
"""Imports the entry module of every plugin. What those name in strings is imported only if somebody asks for the registered name."""
COMMAND = "command "
"""In front of a command's name in ``Names``: tests type commands, the code of plugins uses their names as words ("rollouts", "score")."""
CHOOSER = "rlcore/config/resolve.py"
CHOSEN = frozenset({"csv", "parquet", "ray", "shared", "torch"})
"""Names of what the chooser may take where a run says "auto" or nothing, one of each plugin; it takes others for what a run names."""
ALWAYS = (
    "conftest.py",
    "tests/warm_programs.py",  # conftest.py imports it
    "Makefile",
    ".ci/run",
    "constraints.txt",
    "tests/suite.py",
    "tests/in_environment.py",
    "tests/groups/plugin.py",
    "tests/groups/runner.py",
)
TOPS = ("rlcore", "plugins", "tests", "benchmarks", "tools")


class Graph:
    """``why`` of a closure gives, for each file, the file that led to it."""

    def __init__(self, tree: Tree, names: Names, facts: KnownFacts) -> None:
        self._tree, self._names, self._known = tree, names, facts
        self._packages = {path.split("/")[3]: path for path in tree.paths if _is_package(path)}
        self._declared = {folder_of(path): tree.read(path).decode() for path in tree.paths if _is_plugin(path)}
        self._extras = _extras(tree)
        self._next: dict[tuple[str, bool], list[tuple[str, bool]]] = {}

    def closure(self, roots: Collection[str]) -> dict[str, str]:
        """File -> the file that led to it, "" for what every group reads and for the roots themselves."""
        why: dict[str, str] = dict.fromkeys([*self._always(), *roots], "")
        todo = deque((path, True) for path in roots)
        seen = set(todo)
        while todo:
            path, whole = todo.popleft()
            for found in self._read_by(path, whole):
                if found not in seen and found[0] not in ALWAYS:
                    seen.add(found)
                    todo.append(found)
                    why.setdefault(found[0], path)
        return why

    def variables(self, paths: Iterable[str]) -> set[str]:
        """Names in these files that look like environment variables."""
        return {name for path in paths if path.endswith(".py") for name in self._facts(path)["variables"]}

    def _always(self) -> list[str]:
        configured = [path for path in self._tree.paths if path == "pyproject.toml" or path.endswith("/pyproject.toml")]
        return [*(path for path in ALWAYS if path in self._tree.paths), *configured]

    def _read_by(self, path: str, whole: bool) -> list[tuple[str, bool]]:
        """``whole``: follow what it names in strings, too. The core is always followed whole, a plugin that is only registered is not."""
        if (path, whole) not in self._next:
            found = self._edges(path, whole)
            self._next[path, whole] = [(other, whole or other.startswith("rlcore/")) for other in sorted(set(found)) if other != path]
            if path == DISCOVERY:
                self._next[path, whole] += [(entry, False) for entry in self._entry_modules()]
        return self._next[path, whole]

    def _edges(self, path: str, whole: bool) -> Iterator[str]:
        if path.endswith(".py"):
            facts = self._facts(path)
            for module in facts["modules"]:
                yield from self._modules(module, path)
            for package in facts["picked"]:
                yield from self._below_package(package, path)
            for target in facts["settings"]:
                yield from self._modules(target.partition(":")[0], path)
            if whole:
                yield from self._named(facts, path)
        elif whole and path.endswith(".toml") and not path.endswith("pyproject.toml"):
            yield from self._offered(words_of(self._tree.read(path).decode("utf-8", "replace")))
        if whole:
            yield from self._beside(path)
        if PurePosixPath(path).name.startswith("test_") or "/tests/" in f"/{path}":
            yield from self._conftests(path)

    def _entry_modules(self) -> Iterator[str]:
        for text in self._declared.values():
            for module in tomllib.loads(text)["project"].get("entry-points", {}).get("rlcore", {}).values():
                yield from self._modules(module.partition(":")[0], DISCOVERY)

    def _facts(self, path: str) -> Facts:
        return self._known.of(self._tree.hash(path), self._tree.read(path))

    def _named(self, facts: Facts, path: str) -> Iterator[str]:
        for target in facts["targets"]:
            yield from self._modules(target, path)
            if target == "rlcore":
                yield from self._present("rlcore/__main__.py", "rlcore/cli/__init__.py")
            elif target in self._packages:
                yield from self._package(target)
        if not _is_shipped(path):
            yield from self._offered(facts["words"])
            yield from self._offered(f"{COMMAND}{word}" for word in facts["words"])
            yield from self._written_for_tests(facts, path)
        elif path == CHOOSER:
            yield from self._offered({*facts["words"], *CHOSEN})
        elif path.startswith("rlcore/config/"):  # its defaults; elsewhere the core names plugins to say how to install them
            yield from self._offered(facts["words"])
        elif not path.startswith("rlcore/"):
            yield from self._offered(facts["words"], required_by="/".join(path.split("/")[:3]))

    def _written_for_tests(self, facts: Facts, path: str) -> Iterator[str]:
        """What tests, benchmarks and tools name besides: files, and all plugins of a kind."""
        for kind in facts["asked"]:
            yield from self._offered([f"kind:{kind}"] if kind != "*" else self._names)
        for place in facts["places"]:
            yield from self._files(place, path, folders=False)
        for place in facts["folders"]:
            if place == "?":  # a folder below the root whose name comes from a list
                yield from (inner for top in {*facts["words"]} & {*TOPS, "docs", "recipes"} for inner in self._tree.below(top))
            else:
                yield from self._files(place, path, folders=True)

    def _offered(self, words: Iterable[str], required_by: str = "") -> Iterator[str]:
        """Plugins that these words may ask for. Of a plugin's own code: those that it requires, and finds by their registered names."""
        modules = {module for word in words for module in self._names.get(word, ())}
        for package in {module.partition(".")[0] for module in modules}:
            if not required_by or self._requires(required_by, package):
                yield from self._package(package)

    def _requires(self, folder: str, package: str) -> bool:
        """Whether the plugin of this folder says that it needs the package's, or the extra of its name installs it."""
        own, other = (self._distribution(one) for one in (folder, folder_of(folder_of(self._packages.get(package, "")))))
        return any(_names(text, other) for text in (self._declared[folder], self._extras.get(own, "")))

    def _needed(self, folder: str) -> set[str]:
        project = tomllib.loads(self._declared.get(folder, "[project]"))["project"]
        return {re.split(r"[^\w-]", text)[0] for text in project.get("dependencies", [])}

    def _distribution(self, folder: str) -> str:
        found = re.search(r'^name = "(.+?)"', self._declared.get(folder, ""), re.MULTILINE)
        return found[1] if found else "\0"

    def _package(self, package: str) -> Iterator[str]:
        """All of a plugin but its tests, and the entry modules of plugins that it requires: it finds them by their registered names."""
        if package in self._packages:
            folder = folder_of(self._packages[package])
            yield from self._tree.below(folder)
            needed = self._needed(folder_of(folder))
            yield from (path for path in self._packages.values() if self._distribution(folder_of(folder_of(path))) in needed)

    def _modules(self, dotted: str, path: str) -> Iterator[str]:
        """The file of a module, the __init__ of each package above it; of ``from a import b``, where b may be no module, that of a."""
        if dotted.startswith("."):
            level = len(dotted) - len(dotted.lstrip("."))
            base = "/".join(path.split("/")[:-level])
            yield from self._at(base, dotted.lstrip(".").split("."))
            return
        parts = dotted.split(".")
        if parts[0] in self._packages:
            yield from self._at(folder_of(folder_of(self._packages[parts[0]])), parts)
        elif parts[0] in TOPS:
            yield from self._at("", parts)
        else:
            near = (list(self._at(folder, parts[:1])) for folder in _upwards(folder_of(path)))
            yield from next(filter(None, near), [])  # in a folder that a conftest puts on sys.path, or in that of a script

    def _at(self, base: str, parts: list[str]) -> Iterator[str]:
        for length in range(1, len(parts) + 1):
            stem = "/".join(part for part in (base, *parts[:length]) if part)
            yield from self._present(f"{stem}.py", f"{stem}/__init__.py")

    def _below_package(self, package: str, path: str) -> Iterator[str]:
        if package == ".":
            folder = folder_of(path)
            yield from (inner for inner in self._tree.below(folder) if folder_of(inner) == folder and inner.endswith(".py"))
        elif (parts := package.split("."))[0] in self._packages:
            yield from self._tree.below("/".join([folder_of(folder_of(self._packages[parts[0]])), *parts]))
        else:
            yield from self._tree.below("/".join(parts))

    def _beside(self, path: str) -> Iterator[str]:
        """All files but modules of the distribution that a module belongs to; of a test, those in its folder and below."""
        parts = path.split("/")
        if parts[0] == "plugins" and "tests" not in parts:
            folder, without = "/".join(parts[:3]), "/".join([*parts[:3], "tests"])
        elif path.endswith(".py"):
            folder, without = (parts[0] if parts[0] == "rlcore" else folder_of(path)), "\0"
        else:
            return
        yield from (
            inner for inner in self._tree.below(folder) if folder and not inner.endswith(".py") and not inner.startswith(f"{without}/")
        )

    def _conftests(self, path: str) -> Iterator[str]:
        yield from self._present(*(f"{folder}/conftest.py" for folder in _upwards(folder_of(path)) if folder))

    def _files(self, place: str, path: str, *, folders: bool) -> Iterator[str]:
        """The file or folder of this name below the root or near the file; files that a glob below the root finds."""
        if any(sign in place for sign in "*?"):
            if place.split("/")[0] in self._tree.folders:
                yield from (one for one in self._tree.paths if fnmatchcase(one, place))
            return
        for folder in _upwards(folder_of(path)):
            one = str(PurePosixPath(folder, place))
            if one in self._tree.paths:
                yield one
            elif folders and one in self._tree.folders:
                yield from self._tree.below(one)

    def _present(self, *paths: str) -> Iterator[str]:
        return (path for path in paths if path in self._tree.paths)


def registered_names() -> Names:
    """Of all plugins of this environment."""
    from rlcore.contracts.specs import PluginKind
    from rlcore.registry.discovery import find_plugins

    found: dict[str, set[str]] = {}
    for plugin in find_plugins():
        for kind, name in plugin.row.offers:
            called = f"{COMMAND}{name}" if kind is PluginKind.COMMAND else name
            for key in (called, f"kind:{kind.value}", f"kind:{kind.name}"):
                found.setdefault(key, set()).add(plugin.row.module)
    return {name: frozenset(packages) for name, packages in found.items()}


def _extras(tree: Tree) -> dict[str, str]:
    """What each extra of rlcore installs, by the distribution that it is named after."""
    if "pyproject.toml" not in tree.paths:
        return {}
    project = tomllib.loads(tree.read("pyproject.toml").decode())["project"]
    return {f"rlcore-plugin-{extra}": " ".join(names) for extra, names in project.get("optional-dependencies", {}).items()}


def _names(text: str, distribution: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(distribution)}(?![\w-])", text) is not None


def _is_plugin(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 4 and parts[0] == "plugins" and parts[3] == "pyproject.toml"


def _is_package(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 5 and parts[0] == "plugins" and parts[3].startswith("rlcore_") and parts[4] == "__init__.py"


def _is_shipped(path: str) -> bool:
    return path.startswith(("rlcore/", "plugins/")) and "/tests/" not in path


def _upwards(folder: str) -> Iterator[str]:
    while folder:
        yield folder
        folder = folder_of(folder)
    yield ""
