"""Imports only go down the floors of the architecture (section 2); plugins see the public packages only.

Imports inside functions count too: they would only hide a broken layer. Imports for type checkers alone do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Within floors 0, 1 and 2 a module may import those written before it; on the floors above, neighbours never import each other.
FLOORS: list[tuple[str, ...]] = [
    ("errors", "types", "batches", "snapshots"),
    ("sandbox", "interfaces", "specs", "hookspecs", "api"),
    ("blame", "catalogue", "builtin", "observers", "functions", "unpackaged", "discovery", "registry", "audit", "config", "describe"),
    ("data", "rewards", "schedule", "learning", "weights", "runlog", "checkpoint"),
    ("roles", "scoring"),
    ("runtimes",),
    ("entry",),
    ("quickstart", "launch"),
    ("cli",),
    ("__main__",),
]
ONE_UNIT = {("checkpoint", "runlog")}  # one line of the architecture: the run folder and what is written into it
SIDE = ("testing",)
ORDERED_FLOORS = 3
PUBLIC = ("rlcore.api", "rlcore.learning", "rlcore.testing")

PLACE = {name: (floor, place) for floor, names in enumerate(FLOORS) for place, name in enumerate(names)}


def _imports(source: str) -> Iterator[str]:
    """Dotted names of everything that a module imports when it runs, ``from a import b`` as ``a.b``."""
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
                todo += orelse
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0, "relative import"
                yield from (f"{module}.{alias.name}" for alias in names)
            case _:
                todo += ast.iter_child_nodes(node)


def violations(importer: str, source: str) -> list[str]:
    """``importer``: the first name below ``rlcore`` of the module that holds ``source``."""
    found = []
    for name in _imports(source):
        parts = name.split(".")
        if parts[0] != "rlcore" or name in ("rlcore", "rlcore.__version__") or parts[1] == importer:
            continue
        if importer in SIDE or (importer, parts[1]) in ONE_UNIT:
            continue
        if parts[1] in SIDE:
            found.append(f"rlcore.{importer} imports {name}: only tests and plugins' tests import rlcore.testing")
        elif parts[1] not in PLACE:
            found.append(f"rlcore.{importer} imports {name}, which has no floor")
        elif not _below(PLACE[parts[1]], PLACE[importer]):
            found.append(f"rlcore.{importer} (floor {PLACE[importer][0]}) imports {name} (floor {PLACE[parts[1]][0]})")
    return found


def _below(imported: tuple[int, int], importer: tuple[int, int]) -> bool:
    return imported[0] < importer[0] or (imported[0] == importer[0] < ORDERED_FLOORS and imported[1] < importer[1])


CORE = sorted(path for path in (ROOT / "rlcore").rglob("*.py") if path != ROOT / "rlcore" / "__init__.py")
PLUGINS = sorted(path for path in (ROOT / "plugins").rglob("*.py") if not {"build", ".venv"} & set(path.parts))


def test_imports_only_go_down() -> None:
    wrong = []
    for path in CORE:
        importer = path.relative_to(ROOT / "rlcore").parts[0].removesuffix(".py")
        if importer not in PLACE and importer not in SIDE:
            wrong.append(f"rlcore.{importer} has no floor: add it to FLOORS")
            continue
        wrong += [f"{path.relative_to(ROOT)}: {one}" for one in violations(importer, path.read_text())]
    assert wrong == []


def test_plugins_see_the_public_packages_and_no_sibling() -> None:
    wrong = []
    for path in PLUGINS:
        own = {folder.name for folder in path.parents} | {child.name for folder in path.parents for child in folder.glob("rlcore_plugin_*")}
        for name in _imports(path.read_text()):
            package = name.split(".")[0]
            if (package == "rlcore" and not any(f"{name}.".startswith(f"{public}.") for public in PUBLIC)) or (
                package.startswith("rlcore_plugin_") and package not in own
            ):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("types", "from rlcore.batches import TrainBatch"),
        ("types", "import rlcore.api"),
        ("api", "from rlcore import registry"),
        ("registry", "def f():\n    from rlcore.config import RunConfig"),
        ("learning", "from rlcore.weights import channel"),
        ("roles", "import rlcore.runtimes.local"),
        ("roles", "from rlcore.testing import FakeReward"),
        ("roles", "from rlcore.nowhere import x"),
        ("data", "if TYPE_CHECKING:\n    pass\nelse:\n    import rlcore.rewards"),
    ],
)
def test_the_test_sees_a_planted_violation(importer: str, source: str) -> None:
    assert len(violations(importer, source)) == 1


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("batches", "from rlcore.types import Rollout"),
        ("config", "from rlcore.registry import Registry"),
        ("roles", "import rlcore.learning.objective"),
        ("cli", "from rlcore import __version__"),
        ("data", "if TYPE_CHECKING:\n    from rlcore.runtimes import local"),
        ("testing", "from rlcore.cli import main"),
    ],
)
def test_the_test_lets_sound_imports_pass(importer: str, source: str) -> None:
    assert violations(importer, source) == []
