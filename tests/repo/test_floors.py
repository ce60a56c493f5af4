"""Imports only go down the floors of the architecture; plugins see the public packages only.

Imports inside functions count too: they would only hide a broken layer. So do imports for type checkers alone, and modules that are named
in a string, to ``import_module`` or anywhere in the core.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from tests.syntax import nodes
from tools.dependencies import imports

ROOT = Path(__file__).parents[2]

CONTRACTS = (
    "lazy_names",
    "public_members",
    "errors",
    "pickling",
    "messages",
    "types",
    "lease",
    "group_outlines",
    "batches",
    "snapshots",
    "weight_transfer",
    "sandboxing",
    "capabilities",
    "spec_base",
    "algorithm_specs",
    "model_hook",
    "specs",
    "from_spec",
    "control",
    "sampler",
    "loss_wrappers",
    "group_filter",
    "resume_point",
    "training_settings",
    "run_info",
    "tracker_interface",
    "needs",
    "interfaces",
    "reward_interface",
    "reward_name",
    "command_line",
    "environment",
    "conversation",
    "runtime_interface",
    "row_interfaces",
    "metric_names",
    "hookspecs",
)
HOST = ("threads", "allocator", "devices", "terminal_text", "bounded_reading", "user_cache")
REGISTRY = (
    "error_context",
    "targets",
    "known_plugins",
    "install",
    "builtin",
    "unpackaged",
    "discovery",
    "plugin_registry",
    "offers",
    "sandboxes",
)
# Within floors 0, 1 and 2 a module may import those written before it; on the floors above, neighbours never import each other.
FLOORS: list[tuple[str, ...]] = [
    tuple(f"contracts.{name}" for name in CONTRACTS),
    ("api",),
    (
        *(f"host.{name}" for name in HOST),
        *(f"registry.{name}" for name in REGISTRY),
        "api.sandbox",
        "api.environments",
        "config",
        "api.settings",
    ),
    ("data", "rewards", "schedule", "learning", "weights", "runlog"),
    ("api.conversations", "api.data", "api.judging", "api.runs", "api.schedule", "api.weights"),
    ("roles",),
    ("runtime",),
    ("api.runtime",),
    ("cli",),
    ("entry",),
    ("api.commands", "api.display"),
    ("__main__",),
]
SPLIT = ("contracts", "host", "registry")
"""Packages whose modules have places of their own. A page of ``rlcore.api`` has one, too: it re-exports what lies above ``rlcore.api``."""
SIDE = ("testing",)
ORDERED_FLOORS = 3
PUBLIC = ("rlcore.api", "rlcore.learning", "rlcore.testing")
FOR_USERS = ("rlcore", "rlcore.evaluate", "rlcore.load_run", "rlcore.score", "rlcore.train")

PLACE = {name: (floor, place) for floor, names in enumerate(FLOORS) for place, name in enumerate(names)}


PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")


def test_the_architecture_page_names_only_files_that_are_there_and_is_short() -> None:
    files = set(re.findall(r"`([\w/]+/[\w.]+\.\w+|\w+\.py)`", PAGE))
    there = {
        path.relative_to(ROOT).as_posix()
        for folder in ("rlcore", "plugins", "docs", "tests", "tools")
        for path in (ROOT / folder).rglob("*")
    }
    assert not [file for file in files if not any(path == file or path.endswith(f"/{file}") for path in there)]
    assert len(PAGE.splitlines()) <= 150


@lru_cache(maxsize=1)
def _imports(source: str) -> tuple[str, ...]:
    """Dotted names of everything that a module imports, ``from a import b`` as ``a.b``, and of what it imports by its name."""
    return tuple(one.module for one in imports(source, "", types=True))


def plugins_named(source: str) -> list[str]:
    """Modules of plugins that a module of the core imports, or names in a string: it finds plugins by what they registered alone."""
    texts = [node.value for node in nodes(source) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [name for text in (*_imports(source), *texts) for name in re.findall(r"\brlcore_plugin_[a-z]\w*", text)]


def unit(parts: Sequence[str]) -> str:
    """What has a floor: the first name below ``rlcore``; the first two for a module with a place of its own."""
    inner = ".".join(parts[:2])
    return inner if parts[0] in SPLIT or inner in PLACE else parts[0]


def violations(importer: str, source: str) -> list[str]:
    """``importer``: the unit of the module that holds ``source``."""
    found = []
    for name in _imports(source):
        parts = name.split(".")
        if (
            parts[0] != "rlcore"
            or name in ("rlcore", "rlcore.__version__")
            or importer in SIDE
            or (imported := unit(parts[1:])) == importer
        ):
            continue
        if imported in SIDE:
            found.append(f"rlcore.{importer} imports {name}: only tests and plugins' tests import rlcore.testing")
        elif imported not in PLACE:
            found.append(f"rlcore.{importer} imports {name}, which has no floor")
        elif not _below(PLACE[imported], PLACE[importer]):
            found.append(f"rlcore.{importer} (floor {PLACE[importer][0]}) imports {name} (floor {PLACE[imported][0]})")
    return found


def _below(imported: tuple[int, int], importer: tuple[int, int]) -> bool:
    return imported[0] < importer[0] or (imported[0] == importer[0] < ORDERED_FLOORS and imported[1] < importer[1])


CORE = sorted((ROOT / "rlcore").rglob("*.py"))
PLUGINS = sorted(path for path in (ROOT / "plugins").rglob("*.py") if not {"build", ".venv"} & set(path.parts))


def test_imports_only_go_down() -> None:
    wrong = []
    for path in CORE:
        importer = unit(path.relative_to(ROOT / "rlcore").with_suffix("").parts)
        wrong += [f"{path.relative_to(ROOT)} names {one}" for one in plugins_named(path.read_text())]
        if path.name == "__init__.py" and importer in ("__init__", *(f"{package}.__init__" for package in SPLIT)):
            continue  # the package itself has no floor
        if importer not in PLACE and importer not in SIDE:
            wrong.append(f"rlcore.{importer} has no floor: add it to FLOORS")
            continue
        wrong += [f"{path.relative_to(ROOT)}: {one}" for one in violations(importer, path.read_text())]
    assert wrong == []


SHARED = {
    "rlcore_gateway",
    "rlcore_plugin_extraction",
    "rlcore_plugin_processes",
    "rlcore_plugin_sandbox",
    "rlcore_plugin_serving",
    "rlcore_plugin_workers",
}
"""What a distribution of plugins offers to others: they declare that they need it, which tools/dependencies.py sees to."""


def test_plugins_see_the_public_packages_and_no_sibling() -> None:
    wrong = []
    for path in PLUGINS:
        own = {folder.name for folder in path.parents} | {child.name for folder in path.parents for child in folder.glob("rlcore_*")}
        for name in _imports(path.read_text()):
            package = name.split(".")[0]
            if (package == "rlcore" and name not in FOR_USERS and not any(f"{name}.".startswith(f"{public}.") for public in PUBLIC)) or (
                package.startswith("rlcore_") and package not in own | SHARED
            ):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("contracts.types", "from rlcore.contracts.batches import TrainBatch"),
        ("contracts.types", "import rlcore.api"),
        ("api", "from rlcore.registry import plugin_registry"),
        ("api", "from rlcore.api import weights"),
        ("weights", "from rlcore.api.weights import Publisher"),
        ("api", "from rlcore.api import sandbox"),
        ("registry.plugin_registry", "from rlcore.api.sandbox import Job"),
        ("registry.plugin_registry", "def f():\n    from rlcore.config import RunConfig"),
        ("learning", "from rlcore.weights import memory"),
        ("roles", "import rlcore.runtime.one_process"),
        ("roles", "from rlcore.testing import FakeReward"),
        ("roles", "from rlcore.nowhere import x"),
        ("data", "if TYPE_CHECKING:\n    pass\nelse:\n    import rlcore.rewards"),
        ("data", "if TYPE_CHECKING:\n    from rlcore.runtime import one_process"),
        ("contracts.runtime_interface", "if typing.TYPE_CHECKING:\n    from rlcore.schedule import Status"),
        ("config", "from rlcore.api.schedule import Coordinator"),
        ("api.settings", "import rlcore.cli"),
        ("roles", "from rlcore.api import commands"),
        ("roles", "import_module('rlcore.runtime.one_process')"),
        ("roles", "driver = importlib.import_module('rlcore.runtime').one_process"),
        ("roles", "__import__('rlcore.cli')"),
    ],
)
def test_the_test_sees_a_planted_violation(importer: str, source: str) -> None:
    assert len(violations(importer, source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import rlcore_plugin_ray",
        "def f():\n    from rlcore_plugin_ray.cluster import join",
        "join = importlib.import_module('rlcore_plugin_ray.cluster').join",
        "join = load('rlcore_plugin_ray.cluster:join')",
        "PROGRAM = 'import rlcore_plugin_ray; rlcore_plugin_ray.join()'",
    ],
)
def test_the_test_sees_a_plugin_that_the_core_names(source: str) -> None:
    assert set(plugins_named(source)) == {"rlcore_plugin_ray"}


def test_a_plugin_s_name_that_is_made_is_not_a_plugin_that_is_named() -> None:
    assert plugins_named("package = f'rlcore_plugin_{name}'") == []


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("contracts.batches", "from rlcore.contracts.types import Rollout"),
        ("config", "from rlcore.registry.plugin_registry import Registry"),
        ("api.sandbox", "from rlcore.registry.sandboxes import open_sandbox"),
        ("registry.discovery", "from rlcore.api import API_VERSION"),
        ("roles", "import rlcore.learning.objective"),
        ("cli", "from rlcore import __version__"),
        ("testing", "from rlcore.cli import main"),
        ("roles", "from rlcore.api import Lease"),
        ("api.commands", "from rlcore.cli.parser import Parser"),
    ],
)
def test_the_test_lets_sound_imports_pass(importer: str, source: str) -> None:
    assert violations(importer, source) == []


def test_a_relative_import_is_refused() -> None:
    with pytest.raises(ValueError, match="is a relative import"):
        violations("roles", "from ..runtime import one_process")
