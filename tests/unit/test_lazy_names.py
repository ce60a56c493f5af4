"""The public names of a package are read from its imports for type checkers, and imported when they are used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rlcore.contracts.lazy_names import lazy_names

FRONT = """
from typing import TYPE_CHECKING
from rlcore.contracts.lazy_names import lazy_names

if TYPE_CHECKING:
    from lazy_front.light import Light as Light
    from lazy_front.heavy import Heavy as Heavy
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, "VERSION", listed={listed})

VERSION = 1
"""


@pytest.fixture
def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    folder = tmp_path / "lazy_front"
    folder.mkdir()
    (folder / "__init__.py").write_text(FRONT.format(listed=getattr(request, "param", True)))
    (folder / "light.py").write_text("class Light: ...\nclass Hidden: ...\n")
    (folder / "heavy.py").write_text("class Heavy: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lazy_front")
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy_front"]:
        del sys.modules[name]


def test_a_name_is_imported_when_it_is_used_from_its_own_module(front: ModuleType) -> None:
    assert front.__all__ == ["Heavy", "Light", "VERSION"]
    assert "lazy_front.light" not in sys.modules
    assert front.Light.__module__ == "lazy_front.light"
    assert "lazy_front.heavy" not in sys.modules
    assert vars(front)["Light"] is front.Light, "kept, so that it is looked up once"


def test_any_other_name_is_refused(front: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'lazy_front' has no attribute 'Hidden'"):
        _ = front.Hidden


@pytest.mark.parametrize(("front", "shown"), [(True, True), (False, False)], indirect=["front"])
def test_dir_shows_the_names_if_the_package_says_so(front: ModuleType, shown: bool) -> None:
    assert front.Light
    assert ("Light" in dir(front)) is ("Heavy" in dir(front)) is shown
    assert "VERSION" in dir(front)


def test_a_package_without_its_source_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sourceless", ModuleType("sourceless"))
    with pytest.raises(ImportError, match="sourceless needs its source file"):
        lazy_names("sourceless")
