"""``docs/reference/trust.md`` lists every place that turns bytes or names into code: a new one must be listed, with why it is safe."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest

from tests.syntax import nodes

ROOT = Path(__file__).parents[2]
_MODULES = frozenset({"cloudpickle", "dill", "joblib", "marshal", "pickle", "runpy", "shelve", "yaml"})
"""Every use of these counts, except those that only write."""
_WRITES = re.compile(r"dumps?$|PickleBuffer$|_by_value$")
_BUILTINS = frozenset({"eval", "exec", "compile", "__import__"})
_METHODS = frozenset(
    {"import_module", "exec_module", "load_dataset", "load_from_disk", "from_pretrained", "Client", "Listener", "Connection", "Pipe"}
    | {"broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list"}
)
_LOADS = {"torch.load": "torch.load", "numpy.load": "np.load", "torch.distributed.checkpoint.load": "dcp.load"}
_MENTIONED = re.compile(rf"\b({'|'.join(sorted(_MODULES | _BUILTINS | _METHODS))}|load|sys)\b")
"""Whatever the table must list has one of these words."""
_CELL = re.compile(r"`([^`]+)`")


def _imported(tree: Sequence[ast.AST]) -> dict[str, str]:
    """Local name -> what it was imported as."""
    found: dict[str, str] = {}
    for node in tree:
        if isinstance(node, ast.Import):
            found |= {
                item.asname or item.name.partition(".")[0]: item.name if item.asname else item.name.partition(".")[0] for item in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            found |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
    return found


def _spelt(node: ast.expr, known: dict[str, str]) -> str:
    """The dotted name of an expression; parts that are no names are left out."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    return f"{_spelt(node.value, known)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _called(spelt: str) -> str:
    """What the table calls it; "" for a call that need not be listed."""
    first, _, rest = spelt.partition(".")
    last = spelt.rpartition(".")[2]
    if first in _MODULES:
        return "" if _WRITES.search(rest) else spelt
    if spelt in _BUILTINS or spelt.startswith("sys.path."):
        return "sys.path" if spelt.startswith("sys.path.") else spelt
    return _LOADS.get(spelt) or (last if last in _METHODS else "")


def uses(source: str) -> set[str]:
    """Every call, base class and change of ``sys.path`` in a module that the table must list."""
    if not _MENTIONED.search(source):
        return set()
    tree = nodes(source)
    known, found = _imported(tree), set[str]()
    for node in tree:
        if isinstance(node, ast.Call):
            found.add(_called(_spelt(node.func, known)))
        elif isinstance(node, ast.ClassDef):
            found |= {_called(_spelt(base, known)) for base in node.bases}
        elif isinstance(node, ast.AugAssign) and _spelt(node.target, known) == "sys.path":
            found.add("sys.path")
    return found - {""}


def _in_source() -> dict[str, set[str]]:
    core = {str(path.relative_to(ROOT)): path for path in (ROOT / "rlcore").rglob("*.py")}
    plugins = {"/".join(path.relative_to(ROOT).parts[3:]): path for path in (ROOT / "plugins").glob("*/*/rlcore_plugin_*/**/*.py")}
    found = {name: uses(path.read_text(encoding="utf-8")) for name, path in {**core, **plugins}.items()}
    return {name: calls for name, calls in found.items() if calls}


def _in_table() -> dict[str, set[str]]:
    lines = (ROOT / "docs" / "reference" / "trust.md").read_text(encoding="utf-8").splitlines()
    found: dict[str, set[str]] = {}
    for line in lines:
        words = _CELL.findall(line.split("|")[1]) if line.startswith("| `") else []
        module = ""
        for word in words:
            module = word if word.endswith(".py") else module
            found.setdefault(module, set()).update({word} - {module})
    return found


def test_the_table_lists_every_place_that_can_execute_code() -> None:
    assert _in_source() == _in_table()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle as p\nx = p.loads(b'')", {"pickle.loads"}),
        ("from pickle import loads\nloads(b'')", {"pickle.loads"}),
        ("import pickle\nclass A(pickle.Unpickler): ...", {"pickle.Unpickler"}),
        ("import torch\ntorch.load('a')", {"torch.load"}),
        ("import numpy as np\nnp.load('a')", {"np.load"}),
        ("import yaml\nyaml.load('a')", {"yaml.load"}),
        ("from importlib import import_module\nimport_module('a')", {"import_module"}),
        ("eval('1')\nmodel.eval()\nimport re\nre.compile('')", {"eval"}),
        ("import sys\nsys.path += ['a']\nsys.path.insert(0, 'a')", {"sys.path"}),
        ("import pickle\npickle.dumps(1)", set()),
    ],
)
def test_each_kind_of_call_is_found(source: str, found: set[str]) -> None:
    assert uses(source) == found


_SAFE_FROM = {"torch": (2, 6), "numpy": (1, 26), "datasets": (4,), "pyarrow": (14, 0, 1), "jinja2": (3, 1, 6)}
"""weights_only that holds; no pickles by default; no loading scripts; no pickled types in files; no way out of the sandbox of templates."""
_BOUND = re.compile(r"([\w-]+)>=([\d.]+)")


def test_no_library_is_admitted_in_a_version_that_executes_what_it_reads() -> None:
    seen = set[str]()
    for path in [ROOT / "pyproject.toml", *(ROOT / "plugins").glob("*/*/pyproject.toml")]:
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        for text in chain(project.get("dependencies", []), *project.get("optional-dependencies", {}).values()):
            if (name := re.split(r"[^\w-]", text)[0]) in _SAFE_FROM:
                seen.add(name)
                bound = _BOUND.match(text)
                least = tuple(map(int, bound[2].split("."))) if bound else ()
                assert least >= _SAFE_FROM[name], f"{path.relative_to(ROOT)}: {text}"
    assert seen == set(_SAFE_FROM)
