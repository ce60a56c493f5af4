"""What is wrong with the Python of a page: it does not compile, names what rlcore lacks, does not run, or is marked for a test that is not.

A block that only imports, defines, assigns and asserts is run, and so are its hooks that register plugins. Other blocks are marked."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from enum import EnumType
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
OURS = re.compile(r"rlcore(\.|_plugin_|_gateway|$)")
SAFE = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Assert)

NOT_RUN = {
    ("README.md", "summary = rlcore.train("): "tests/repo/test_docs.py runs it in the folder of a quickstart",
    ("docs/authors/environments.md", "return EpisodeResult("): "a fragment: the last line of a method",
    ("docs/authors/sandboxes.md", "with open_sandbox() as sandbox:"): "tests/integration/test_docs_sandbox.py runs it",
    ("docs/authors/sandboxes.md", "job = SessionJob("): "it starts an agent that a reader has installed",
    ("plugins/environments/gateway/README.md", "await GatewayServer()"): "a fragment: the reader has the engine and the loop",
    ("plugins/rewards/adapters/README.md", "GRPOTrainer("): "a fragment: the reader has a model and TRL",
}
"""A page and a text of one of its blocks -> why the block is not run here. Its syntax and names are checked."""


ONLY = {"tests/repo/test_docs.py": {"README.md"}, "tests/contracts/test_authors_types.py": set[str]()}
"""A test -> the pages whose blocks it runs. It reads others for their commands and types only."""


class Block(NamedTuple):
    """A fenced block: its first line in the page, its language, the name in the mark above it ("" without one), and its text."""

    line: int
    language: str
    mark: str
    text: str


def python_faults(page: str, block: Block, before: Sequence[Block], marks: str) -> Iterator[str]:
    """``before``: the earlier blocks of the page. ``marks``: all of the page's marks, which name the modules that it writes."""
    text = textwrap.dedent(block.text)
    listed = any(page == name and part in text for name, part in NOT_RUN)
    try:
        tree = ast.parse(text)
        if not listed:
            compile(text, page, "exec", dont_inherit=True)
    except SyntaxError as error:
        yield f"Python does not compile: {error.msg} in line {error.lineno} of the block"
        return
    absent = [*absent_names(tree, marks)]
    yield from absent
    if block.mark or listed or absent:
        return
    if other := [node for node in tree.body if not safe(node)]:
        yield f"line {other[0].lineno} of the block does more than define: mark the block for a test, or list it in {Path(__file__).name}"
        return
    if unbound := unbound_names(tree):
        yield f"the block does not define {', '.join(sorted(unbound))}"
        return
    earlier = [textwrap.dedent(one.text) for one in before if one.language == "python" and not one.mark]
    yield from run_faults(tree, earlier)


def safe(node: ast.stmt) -> bool:
    return isinstance(node, SAFE) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


# --- names of rlcore ---------------------------------------------------------------------------------------------------


def absent_names(tree: ast.Module, marks: str) -> Iterator[str]:
    """What a block imports from rlcore, or reads from a module or an enum of it, and is not there."""
    bound: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if theirs(alias.name, marks):
                    continue
                if problem := missing(alias.name, []):
                    yield problem
                else:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    bound[alias.asname or name] = importlib.import_module(name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level and not theirs(node.module, marks):
            names = [alias.name for alias in node.names if alias.name != "*"]
            if problem := missing(node.module, names):
                yield problem
            else:
                module = importlib.import_module(node.module)
                bound |= {alias.asname or alias.name: getattr(module, alias.name, None) for alias in node.names}
    again = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    again |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            owner = bound.get(first) if first not in again else None
            for name in rest[:-1]:
                owner = getattr(owner, name, None) if isinstance(owner, ModuleType | EnumType) else None
            if isinstance(owner, ModuleType | EnumType) and not hasattr(owner, node.attr):
                yield f"{ast.unparse(node.value)} has no {node.attr}"


def unbound_names(tree: ast.Module) -> set[str]:
    """The names that a block reads and binds nowhere."""
    bound, read = {"__name__", "__file__", *dir(builtins)}, set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name.partition(".")[0])
        elif not isinstance(node, ast.keyword):
            bound |= {name for name in (getattr(node, "name", None), getattr(node, "arg", None)) if isinstance(name, str)}
    return read - bound


def theirs(module: str, marks: str) -> bool:
    """Is this no module of rlcore, or one that the page writes? Other packages may be the reader's, or of another environment."""
    return not OURS.match(module) or bool(re.search(rf"(^|/){re.escape(module.partition('.')[0])}(/|\.py$)", marks, re.MULTILINE))


def missing(module: str, names: list[str]) -> str:
    """What an import of rlcore lacks."""
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        return f"{module} cannot be imported: {error}"
    absent = [name for name in names if not hasattr(found, name) and importlib.util.find_spec(module + "." + name) is None]
    return f"{module} has no {', '.join(absent)}" if absent else ""


# --- running -----------------------------------------------------------------------------------------------------------


def run_faults(tree: ast.Module, earlier: list[str]) -> Iterator[str]:
    """A module that is not installed is the reader's file, if an earlier block defines all that is imported from it."""
    names: dict[str, Any] = {"__name__": "block_of_a_page"}
    added = []
    try:
        for node in tree.body:
            for module in [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]:
                if not module or OURS.match(module) or installed(module):
                    continue
                wanted = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
                source = next((text for text in reversed(earlier) if wanted and wanted <= defined(text)), None)
                if source is None:
                    continue  # the block fails
                stand_in = ModuleType(module)
                exec(compile(source, module, "exec", dont_inherit=True), stand_in.__dict__)
                sys.modules[module] = stand_in
                added.append(module)
        exec(compile(tree, "block", "exec", dont_inherit=True), names)
        for name in [name for name in names if name.startswith("rlcore_register_")]:
            list(names[name]())
    except (Exception, SystemExit) as error:
        yield f"the block fails: {type(error).__name__}: {error}"
    finally:
        for module in added:
            del sys.modules[module]


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def defined(text: str) -> set[str]:
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


# --- marks -------------------------------------------------------------------------------------------------------------


def mark_faults(page: str, mark: str) -> list[str]:
    """A marked block is one that a test writes out: a module that reads blocks, and names the page with its folder."""
    for module, names in page_tests().items():
        for name in names:
            if fnmatch(page, name) or fnmatch(page, f"docs/{name}" if "/" in name else "") or page == f"{package_of(module)}/{name}":
                return []
    return [f"no test reads the block {mark!r}: no module that writes out blocks names {page}"]


def package_of(module: str) -> str:
    return "/".join(module.split("/")[:3]) if module.startswith("plugins/") else ""


@cache
def page_tests() -> dict[str, set[str]]:
    """Module -> the pages that it names, of the tests that write out blocks of pages."""
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("plugins/*/*/tests/**/*.py")]
    ours = {Path(__file__), ROOT / "tests" / "repo" / "test_blocks.py"}
    texts = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files if file not in ours}
    reads = re.compile(r"<!-- test: |PageWalk\(|import .*\bBLOCK\b|= blocks\(|blocks\(README")
    pages = {module: pages_in(text, bool(package_of(module))) for module, text in texts.items() if reads.search(text)}
    for module in pages:
        for tool in re.findall(r"^from tools import (\w+)$", texts[module], re.MULTILINE):  # as suite_page.PAGE
            pages[module] |= pages_in((ROOT / "tools" / f"{tool}.py").read_text(encoding="utf-8"), of_package=False)
    return pages | ONLY


def pages_in(text: str, of_package: bool) -> set[str]:
    """The pages in the paths and strings of a module; a path is what follows the folder of the repository or of the package."""
    tree = ast.parse(text)
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.comprehension) and isinstance(node.target, ast.Name):
            values.setdefault(node.target.id, []).extend(getattr(node.iter, "elts", []))

    def paths(node: ast.expr, depth: int = 0) -> set[str]:
        match node:
            case ast.Constant(value=str(value)):
                return {value}
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                pairs = itertools.product(paths(left, depth), paths(right, depth))
                return {f"{one}/{other}".lstrip("/") for one, other in pairs if other}
            case ast.Name(id=name) if depth < 9:
                return set().union(*(paths(value, depth + 1) for value in values.get(name, []))) or {""}
            case ast.Call(func=ast.Attribute(value=folder, attr="glob"), args=[ast.Constant(value="*.md")]):
                return {f"{one}/*.md" for one in paths(folder, depth) if one}
        return {""}

    parts = {id(node.right) for node in ast.walk(tree) if isinstance(node, ast.BinOp)}
    joined = {path for node in ast.walk(tree) if isinstance(node, ast.BinOp | ast.Call) for path in paths(node)}
    plain = {path for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in parts for path in paths(node)}
    named = joined | {path for path in plain if "/" in path or of_package}
    return {name for name in named if name.endswith(".md") and not re.search(r"\s", name)}
