"""No module touches what Ray or torch keep to themselves: such names change in any release, without a word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.repo.test_layout import ROOT

LIBRARIES = ("ray", "torch")
IN_A_TEXT = re.compile(rf"\b({'|'.join(LIBRARIES)})(\.\w+)*?\.(_(?!_)\w+)")
"""Code in a text, for a process of its own, and what ``monkeypatch`` is told to replace."""
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
    nodes = list(ast.walk(ast.parse(source)))
    theirs = _theirs(nodes)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(node.lineno, name) for _, name in _imported(node) if any(_is_private(part) for part in name.split("."))}
        elif isinstance(node, ast.Attribute) and _is_private(node.attr) and (root := _root(node)) in theirs:
            found.add((node.lineno, f"{theirs[root]}…{node.attr}"))
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


def _theirs(nodes: list[ast.AST]) -> dict[str, str]:
    """Names that stand for something of Ray or torch: by an import, or by an assignment from such a name, its attributes and calls."""
    theirs = {name: full for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for name, full in _imported(node)}
    for node in nodes:
        if (
            isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr)
            and node.value is not None
            and (root := _root(node.value)) in theirs
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            theirs |= {target.id: theirs[root] for target in targets if isinstance(target, ast.Name)}
    return theirs


def _root(node: ast.AST) -> str:
    """The name that a chain of attributes, calls and subscripts begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript | ast.Await):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


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
        ("import ray\nray.init(_temp_dir='x').shutdown()\nself._ray = ray.__version__\n", []),
        ("import torch\nclass A(torch.nn.Module):\n    def f(self):\n        return self._x\n", []),
    ],
)
def test_a_planted_private_name_is_found(source: str, uses: list[str]) -> None:
    assert private_uses(source) == uses
