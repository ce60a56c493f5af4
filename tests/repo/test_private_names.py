"""No module touches what Ray or torch keep to themselves: such names change in any release, without a word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import pytest

from tests.repo.test_layout import ROOT
from tests.syntax import nodes

LIBRARIES = ("ray", "torch")
IN_A_TEXT = re.compile(rf"\b({'|'.join(LIBRARIES)})(\.\w+)*?\.(_(?!_)\w+)")
"""Code in a text, for a process of its own, and what ``monkeypatch`` is told to replace."""
MENTIONED = re.compile(rf"(?<![^\W_])({'|'.join(LIBRARIES)})(?![^\W_])")
"""A file without such a word has nothing of theirs; ``array`` is none."""
PRIVATE = re.compile(r"(\w*\.)*_(?!_)[\w.]+")
"""A name with a private part, alone in a string."""
LEADING = {"__import__", "getattr", "import_module", "vars"}
"""Functions that give their first argument, a part of it, or the module that it names."""
SOURCES = sorted(
    path
    for folder in ("rlcore", "plugins", "tests", "benchmarks", "tools")
    for path in (ROOT / folder).rglob("*.py")
    if not {"build", ".venv", "broken"} & set(path.relative_to(ROOT).parts)
)
PLANTED = {"tests/repo/test_dependencies.py", "tests/repo/test_private_names.py"}
"""They plant such names to see them found."""
ALLOWED = {
    "tests/integration/ray/test_ray_small_cluster.py": 2,
    "plugins/backends/torch/rlcore_plugin_torch/shared_attention.py": 2,
}
"""How many there may be: a start of Ray's own test cluster is made to fail half-way; no public operation of torch gives the denominators of
attention on a CPU, and these two are tried before they are used, with public ones to fall back on."""


def private_uses(source: str) -> list[str]:
    """``line: name`` of everything private of Ray or torch that a module imports, reaches from what it imports, or names in a text."""
    if not MENTIONED.search(source):
        return []
    found_nodes = nodes(source)
    theirs = _theirs(found_nodes)
    found = set()
    for node in found_nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(node.lineno, name) for _, name in _imported(node) if any(map(_is_private, name.split(".")))}
        elif isinstance(node, ast.Attribute) and _is_private(node.attr) and (owner := _owner(node, theirs)):
            found.add((node.lineno, f"{owner}…{node.attr}"))
        elif isinstance(node, ast.Call | ast.Subscript):
            found |= {(node.lineno, name) for name in _named(node, theirs)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {(node.lineno, match[0]) for match in IN_A_TEXT.finditer(node.value)}
    return [f"{line}: {name}" for line, name in sorted(found)]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """(the name that it binds, the dotted name of what that is) for all of Ray and torch that it imports."""
    for alias in node.names:
        full = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        if full.split(".")[0] in LIBRARIES:
            yield alias.asname or alias.name.split(".")[0], full


def _theirs(nodes: Sequence[ast.AST]) -> dict[str, str]:
    """Names that stand for something of Ray or torch: by an import, or by an assignment from such a name, its attributes and calls."""
    theirs = {name: full for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for name, full in _imported(node)}
    for node in nodes:
        if (
            isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr)
            and node.value is not None
            and (owner := _owner(node.value, theirs))
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            theirs |= {target.id: owner for target in targets if isinstance(target, ast.Name)}
    return theirs


def _owner(node: ast.AST, theirs: dict[str, str]) -> str:
    """What of Ray or torch a chain of attributes, calls and subscripts begins with; "" if it begins with something else."""
    while not isinstance(node, ast.Name):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if name in LEADING:
                node = first
            case ast.Subscript(value=ast.Attribute(attr="modules"), slice=first):
                node = first
            case ast.Call(func=inner) | ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Await(value=inner):
                node = inner
            case ast.Constant(value=str(name)) if name.split(".")[0] in LIBRARIES:
                return name
            case _:
                return ""
    return theirs.get(node.id, "")


def _named(node: ast.Call | ast.Subscript, theirs: dict[str, str]) -> Iterator[str]:
    """Private names in strings, beside something of Ray or torch in a call or a subscript: ``getattr(ray, "_x")``."""
    if isinstance(node, ast.Subscript):
        parts: list[ast.AST] = [node.value, node.slice]
    else:
        parts = [*node.args, *(word.value for word in node.keywords), *(node.func.args if isinstance(node.func, ast.Call) else ())]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    if private := [text for text in texts if PRIVATE.fullmatch(text) and not IN_A_TEXT.search(text)]:
        owner = next(filter(None, (_owner(part, theirs) for part in parts)), "")
        yield from (f"{owner}…{text}" for text in private if owner)


def test_no_module_uses_what_is_private_to_ray_or_torch() -> None:
    found = {str(path.relative_to(ROOT)): private_uses(path.read_text()) for path in SOURCES}
    assert {path: uses for path, uses in found.items() if len(uses) > ALLOWED.get(path, 0) and path not in PLANTED} == {}


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("import ray._raylet\n", ["1: ray._raylet"]),
        ("from ray._private.services import ConsolePopen\n", ["1: ray._private.services.ConsolePopen"]),
        ("from torch import _C\n", ["1: torch._C"]),
        ("import ray\nray._private.worker.logs = 0\n", ["2: ray…_private"]),
        ("import torch.distributed as d\no = d.ProcessGroupGloo._Options()\n", ["2: torch.distributed…_Options"]),
        ("import torch.distributed\nd: Any = torch.distributed\no = d.Options()\no._timeout = 1\n", ["4: torch.distributed…_timeout"]),
        ("import ray\nname = ray.remote(cls).remote()._actor_id\n", ["2: ray…_actor_id"]),
        ("ASK = 'from ray.x import y; ray._raylet.ask()'\n", ["1: ray._raylet"]),
        ("import ray\nlogs = getattr(ray, '_private').worker\n", ["2: ray…_private"]),
        ("import ray\nif hasattr(ray.util, '_x'):\n    pass\n", ["2: ray…_x"]),
        ("import torch\nmonkeypatch.setattr(torch, '_C', None)\n", ["2: torch…_C"]),
        ("import torch\nbits = vars(torch)['_C']\n", ["2: torch…_C"]),
        ("import torch\nbits = torch.__dict__['_C']\n", ["2: torch…_C"]),
        ("import torch\nbits = attrgetter('_C._distributed')(torch)\n", ["2: torch…_C._distributed"]),
        ("worker = importlib.import_module('ray._private.worker')\n", ["1: ray._private"]),
        ("worker = import_module('._private', package='ray')\n", ["1: ray…._private"]),
        ("worker = import_module('ray')._private\n", ["1: ray…_private"]),
        ("r = importlib.import_module('ray')\nr._private.worker = 0\n", ["2: ray…_private"]),
        ("import sys\nr = sys.modules['ray']\nr._private.worker = 0\n", ["3: ray…_private"]),
        ("worker = getattr(__import__('ray'), '_private')\n", ["1: ray…_private"]),
        ("import ray\nprint(ray, '_x is not read')\nself.parts['_private'] = getattr(self, '_ray')\n", []),
        ("import ray\nray.init(_temp_dir='x').shutdown()\nself._ray = ray.__version__\n", []),
        ("import torch\nclass A(torch.nn.Module):\n    def f(self):\n        return self._x\n", []),
    ],
)
def test_a_planted_private_name_is_found(source: str, uses: list[str]) -> None:
    assert private_uses(source) == uses
