"""What one Python file names: modules, packages whose modules it picks while it runs, files, words and environment variables.

Everything is read from the syntax tree; nothing is imported. Docstrings name nothing.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from tests.syntax import nodes_below

__all__ = ["KINDS", "Facts", "KnownFacts", "read"]

Facts = dict[str, list[str]]
KINDS = ("modules", "picked", "targets", "words", "places", "folders", "variables", "asked", "settings")
_OURS = "rlcore|rlcore_gateway|rlcore_plugin_[a-z0-9_]+|tests|benchmarks|tools"
_TARGET = re.compile(rf"(?<![\w./-])(?:{_OURS})(?:\.[A-Za-z_]\w*)*(?![\w/-])")
_BESIDE = re.compile(r"([a-z_]\w*):[A-Za-z_]\w*")
_WORD = re.compile(r"[a-z][a-z0-9_+]{1,30}")
_QUOTED = re.compile(r"""["']([a-z][a-z0-9_+]{1,30})["']""")
_FLAGGED = re.compile(r"(?:^|\s)-{1,2}[A-Za-z][\w-]*[ =](\S+)")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|TMPDIR|TERM|LANG|TZ|HOME")
_PLACE = re.compile(r"[\w.*?/+-]*(?:/[\w.*?+-]+|\.\w{1,6})")
_ROOTS = re.compile(r"[A-Z][A-Z_]*|Path|__file__")


def read(source: bytes) -> Facts:
    """Every fact of a file; no fact of one that does not parse, as planted by tests."""
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {kind: [] for kind in KINDS}
    every = nodes_below(tree)
    silent, inner = set(_docstrings(every)), set[int]()
    for node in every:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            _of_text(node.value, found)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found["modules"].update(_imported(node))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            inner.update(_of_chain(node, found) if id(node) not in inner else ())
        elif isinstance(node, ast.keyword) and node.arg == "config" and isinstance(node.value, ast.Constant):
            found["settings"].add(str(node.value.value))  # a plan reads the settings of plugins that a run does not use, too
        elif isinstance(node, ast.Call) and node.args:
            found["picked"].update(_picked(node.args[0]) if _called(node) == "import_module" else ())
            found["asked"].update([_asked(node.args[0])] if _called(node) in ("names", "specs") else ())
    return {kind: sorted(names) for kind, names in found.items()}


def words_of(text: str) -> set[str]:
    """Words of a text of another kind, a TOML file say, that may be registered names: those in quotes and behind flags."""
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    _of_text(text, found)
    return found["words"] | found["targets"]


def _docstrings(every: Iterable[ast.AST]) -> Iterator[int]:
    for node in every:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)


def _of_text(text: str, found: dict[str, set[str]]) -> None:
    found["targets"].update(_TARGET.findall(text))
    found["variables"].update(_VARIABLE.findall(text))
    found["words"].update(_QUOTED.findall(text))
    for given in _FLAGGED.findall(text):
        found["words"].update(_WORD.findall(given))
    if len(text) > 200:
        return
    if beside := _BESIDE.fullmatch(text):  # "rank_bodies:train", a target in a file beside this one
        found["targets"].add(beside[1])
    if _WORD.fullmatch(text):
        found["words"].add(text)
    elif len(parts := re.split(r"[,:=]", text)) > 1 and " " not in text:
        found["words"].update(part for part in parts if _WORD.fullmatch(part))
    if _PLACE.fullmatch(text):
        found["places"].add(text)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        base = "." * node.level + (node.module or "")
        yield from (f"{base}.{alias.name}" if node.module else f"{base}{alias.name}" for alias in node.names)


def _of_chain(node: ast.BinOp, found: dict[str, set[str]]) -> list[int]:
    """``ROOT / "docs" / name``: the file or folder as far as it is written. Return its inner nodes, of which each is a chain as well."""
    parts: list[str | None] = []
    inner: list[int] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Div):
        parts.insert(0, left.right.value if isinstance(left.right, ast.Constant) and isinstance(left.right.value, str) else None)
        left = left.left
        inner.append(id(left))
    if not any(isinstance(part, ast.Name) and _ROOTS.fullmatch(part.id) for part in nodes_below(left)):
        return inner
    written = [part for part in parts[: parts.index(None)] if part] if None in parts else [part for part in parts if part]
    found["folders"].add("/".join(written) or "?")
    return inner


def _picked(module: ast.expr) -> Iterator[str]:
    """The package whose modules are picked by a name that is known only while it runs; "." for the file's own."""
    if isinstance(module, ast.JoinedStr):
        first = module.values[0]
        if isinstance(first, ast.Constant):
            yield str(first.value).rstrip(".")
        elif isinstance(first, ast.FormattedValue) and isinstance(first.value, ast.Name) and first.value.id == "__name__":
            yield "."


def _asked(kind: ast.expr) -> str:
    """The kind of plugin that ``registry.names(…)`` is asked for; "*" if that is known only while it runs."""
    if isinstance(kind, ast.Constant):
        return str(kind.value)
    return kind.attr if isinstance(kind, ast.Attribute) and kind.attr.isupper() else "*"


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


class KnownFacts:
    """Facts of files by the hash of their bytes, kept in a file: to parse the whole repository takes eight seconds."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._code = blake2b(Path(__file__).read_bytes(), digest_size=12).hexdigest()
        self._known: dict[str, Facts] = self._load()
        self._used: dict[str, Facts] = {}

    def of(self, hashed: str, source: bytes) -> Facts:
        """Of the file with these bytes."""
        if hashed not in self._used:
            self._used[hashed] = self._known.get(hashed) or read(source)
        return self._used[hashed]

    def save(self) -> None:
        """Keep what was used, if anything is new."""
        if self._file is None or self._used.keys() <= self._known.keys():
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        written = self._file.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({"code": self._code, "facts": self._used}), encoding="utf-8")
        written.replace(self._file)

    def _load(self) -> dict[str, Facts]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8")) if self._file else {}
        except (OSError, ValueError):  # not there yet, or cut short: it is read anew
            return {}
        return dict(kept["facts"]) if kept.get("code") == self._code else {}
