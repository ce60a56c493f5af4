"""`make mutation` covers every estimator and loss there is, and names tests that exist. The mutation test itself runs by hand."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from benchmarks.silent_places import silent_places

ROOT = Path(__file__).parents[2]
GUARDS: dict[str, list[str]] = tomllib.loads((ROOT / "benchmarks" / "mutation.toml").read_text())["guards"]
MATHS = {"advantages", "aggregation", "correction", "kl", "losses", "objective", "overlong_punishment"}


def test_every_estimator_and_loss_is_mutated() -> None:
    covered = {path for pattern in GUARDS for path in ROOT.glob(pattern)}
    plugins = set(ROOT.glob("plugins/algos/*/rlcore_plugin_*/*.py"))
    assert (plugins | {ROOT / "rlcore" / "learning" / f"{name}.py" for name in MATHS}) - covered == set()


@pytest.mark.parametrize("pattern", GUARDS)
def test_each_pattern_finds_modules_and_tests(pattern: str) -> None:
    assert list(ROOT.glob(pattern))
    for name in GUARDS[pattern]:
        path = ROOT / name
        assert path.is_file() or list(path.glob("test_*.py"))


def test_silent_places_are_text_annotations_and_declarations() -> None:
    source = '''"""é - 1"""
__all__ = [1 + 1]
if TYPE_CHECKING:
    X = 1 + 1
@dataclass(frozen=True)
class A:
    x: int | None = 1
    """Text 1."""
def f(a: int | None = 2) -> int | None:
    return a + 1
'''
    lines = source.splitlines()
    text = [lines[start[0] - 1][start[1] : end[1]] if start[0] == end[0] else "block" for start, end in silent_places(source)]
    silent = [
        '"""é - 1"""',
        "__all__ = [1 + 1]",
        "block",
        "dataclass(frozen=True)",
        "int | None",
        '"""Text 1."""',
        "int | None",
        "int | None",
    ]
    assert sorted(text) == sorted(silent)
