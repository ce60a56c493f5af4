"""The pages of the Python API: the groups of ``rlcore.api`` in the order in which authors need them, then the other public modules."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.site.markdown import cell, escape, prose, signature, table

__all__ = ["api_pages"]

ROOT = Path(__file__).resolve().parents[2]
_LAST = ("to register",)
_LONGEST_VALUE = 400
_TITLES = {"to register": "Hooks and specs"}


def api_pages() -> dict[str, str]:
    """Return name on the site -> text: the overview first, then a page for each group of names."""
    api = importlib.import_module("rlcore.api")
    groups = _groups(inspect.getdoc(api) or "")
    groups["more"] = [name for name in sorted(api.__all__) if not any(name in names for names in groups.values())]
    pages: dict[str, str] = {}
    seen: dict[int, str] = {}
    rows = []
    for group in sorted(filter(groups.get, groups), key=_LAST.__contains__):
        title, place = _TITLES.get(group, group.capitalize()), f"api/{group.replace(' ', '_')}"
        pages[place] = f"# {title} of rlcore.api\n\nImport these names from `rlcore.api`.\n\n" + _names(api, groups[group], seen)
        rows.append((f"[{title}](../{place}.md)", "`rlcore.api`", ", ".join(f"`{name}`" for name in groups[group])))
    for module in _modules():
        place, names = f"api/{module.__name__}", sorted(name for name in module.__all__ if id(getattr(module, name)) not in seen)
        pages[place] = f"# {module.__name__}\n\n{prose(module.__doc__)}{_known(module, seen)}{_names(module, names, seen)}"
        rows.append((f"[{module.__name__}](../{place}.md)", f"`{module.__name__}`", ", ".join(f"`{name}`" for name in names)))
    overview = (
        "# The Python API\n\nThese names are the contract between rlcore and programs or plugins; no other name is.\n"
        "A reward needs the first page, a loss the second.\n\n"
    )
    return {"reference/api": overview + table(("page", "import from", "names"), rows), **pages}


def _modules() -> Iterator[ModuleType]:
    for path in sorted((ROOT / "rlcore" / "api").glob("[a-z]*.py")):
        yield importlib.import_module(f"rlcore.api.{path.stem}")
    yield importlib.import_module("rlcore.learning")
    yield importlib.import_module("rlcore.testing")


def _groups(doc: str) -> dict[str, list[str]]:
    """Return the groups of names in the docstring of ``rlcore.api``: lines ``label   Names``, which indented lines continue."""
    groups: dict[str, list[str]] = {}
    names = set(importlib.import_module("rlcore.api").__all__)
    current: list[str] | None = None
    for line in doc.splitlines():
        if begun := re.match(r"(\w[\w ]*?)\s{2,}(?=\S)", line):
            current = groups.setdefault(begun[1], [])
        elif not line.startswith("      "):
            current = None
        if current is not None:
            current += [name for name in re.findall(r"\w+", line) if name in names and name not in current]
    return groups


def _known(module: ModuleType, seen: Mapping[int, str]) -> str:
    """Return the sentence on the names of a module that an earlier page explains."""
    known = [f"`{name}`" for name in sorted(module.__all__) if id(getattr(module, name)) in seen]
    return f"It also has these names, which an earlier page explains: {', '.join(known)}.\n\n" if known else ""


def _names(module: ModuleType, names: list[str], seen: dict[int, str]) -> str:
    for name in names:
        seen[id(getattr(module, name))] = f"{module.__name__}.{name}"
    return "".join(_entry(name, getattr(module, name)) for name in names)


def _entry(name: str, found: Any) -> str:
    """Return the heading, the signature, the text and the members of one public name."""
    if inspect.isclass(found):
        shown, told = _class_line(name, found), prose(found.__doc__) + "".join(_members(name, found))
    elif inspect.isroutine(found) or hasattr(found, "__wrapped__"):
        shown, told = signature(name, found), prose(found.__doc__)
    else:
        shown, told = f"{name} = {_value(found)}", ""
    return f"## {name}\n\n```python\n{shown}\n```\n\n{told}"


def _value(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= _LONGEST_VALUE and "<" not in text else f"...  # {type(found).__name__}"


def _class_line(name: str, found: type) -> str:
    """Return how the class is made; for a class to derive from, an error or an enumeration, its bases."""
    bases = ", ".join(
        base.__name__ for base in found.__bases__ if base in _public() or (base.__module__ in ("builtins", "enum") and base is not object)
    )
    if issubclass(found, BaseException | enum.Enum) or inspect.isabstract(found) or "__init__" not in _own(found):
        return f"class {name}({bases}): ..." if bases else f"class {name}: ..."
    return signature(name, found)


@cache
def _public() -> frozenset[type]:
    """Return the classes that a public page has."""
    modules = [importlib.import_module("rlcore.api"), *_modules()]
    return frozenset(found for module in modules for name in module.__all__ if inspect.isclass(found := getattr(module, name)))


def _own(found: type) -> dict[str, Any]:
    """Return the members of a class, and those of its bases in rlcore that no public page has. Other inherited members are noise."""
    members: dict[str, Any] = {}
    for base in reversed(found.__mro__):
        if base is found or (base.__module__.startswith("rlcore") and base not in _public()):
            members.update(vars(base))
    return members


def _members(name: str, found: type) -> Iterator[str]:
    if issubclass(found, enum.Enum):
        yield table(("member", "value"), [(f"`{item.name}`", cell(f"`{item.value}`")) for item in found])
    own = {key: member for key, member in _own(found).items() if not key.startswith("_")}
    for key, member in own.items():
        function = getattr(member, "__func__", member)
        if key.startswith("test_"):
            continue
        if isinstance(member, property):
            yield f"### {name}.{key}\n\n{prose(member.__doc__)}"
        elif inspect.isfunction(function) and function.__doc__:  # one without a text is as its base says
            prefix = {classmethod: "@classmethod\n", staticmethod: "@staticmethod\n"}.get(type(member), "")
            prefix += "@abstractmethod\n" if getattr(function, "__isabstractmethod__", False) else ""
            shown = signature(key, getattr(found, key) if isinstance(member, classmethod) else function)
            yield f"### {name}.{key}\n\n```python\n{prefix}def {shown}: ...\n```\n\n{prose(function.__doc__)}"
    tests = [f"- `{key}`: {escape(inspect.getdoc(member) or '')}\n" for key, member in own.items() if key.startswith("test_")]
    if tests:
        yield f"Its tests:\n\n{''.join(tests)}\n"
