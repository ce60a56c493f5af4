"""Whose a name of the tests is that the tests do not define: the program's, or the library's because an import was forgotten.

A program that is asked for a name of the library answers as it likes, and is told what is expected: ``isclose(f(2), 1.41)``. So the
library's names are resolved beside the tests; if a name may be either one's and the row does not say whose, the row is refused.
"""

import ast
import builtins
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from rlcore_plugin_code.inside.wire import Unusable

__all__ = ["Names", "stubs_of"]

_PACKAGES = {"np": "numpy", "numpy": "numpy", "pd": "pandas", "pandas": "pandas", "scipy": "scipy", "sympy": "sympy", "torch": "torch"}
_CERTAIN = {
    "math": "isclose isnan isinf isfinite pi inf nan",
    "collections": "Counter OrderedDict defaultdict deque namedtuple ChainMap",
    "typing": "Any List Dict Set FrozenSet Tuple Optional Union Callable Iterable Iterator Sequence Generator",
    "fractions": "Fraction",
    "decimal": "Decimal",
    "datetime": "timedelta timezone",
    "functools": "partial lru_cache cmp_to_key",
    "itertools": "zip_longest islice",
    "copy": "deepcopy",
    "io": "StringIO BytesIO",
    "contextlib": "redirect_stdout suppress",
    "dataclasses": "dataclass",
    "enum": "Enum IntEnum",
    "unittest": "TestCase",
}
_POSSIBLE = ("math", "itertools", "functools", "collections", "heapq", "bisect", "datetime", "copy", "string")  # imported in any case
_FURTHER = {
    "random": "choice choices randint randrange sample shuffle uniform",
    "statistics": "mean median mode stdev pstdev variance pvariance",
}
_CERTAIN_OF = {name: module for module, names in _CERTAIN.items() for name in names.split()}
_FURTHER_OF = {name: module for module, names in _FURTHER.items() for name in names.split()}
_PLAIN = frozenset().union(*map(vars, (str, list, dict, set, tuple, int, float, complex, bytes, bytearray)))


class Names:
    """Read from the texts of the tests. ``own``: the names that the row calls the program's; ``only``: it has no others."""

    def __init__(self, texts: Iterable[str], own: Iterable[str], *, only: bool) -> None:
        self._trees = [tree for tree in map(_parsed, texts) if tree is not None]
        nodes = [node for tree in self._trees for node in ast.walk(tree)]
        names = [node for node in nodes if isinstance(node, ast.Name)]
        bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)} | {name for node in nodes for name in _binds(node)}
        self._attributes: dict[str, set[str]] = {}
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                self._attributes.setdefault(node.value.id, set()).add(node.attr)
        self._own, self._only = set(own), only
        self._said = bool(self._own) or any(
            isinstance(node, ast.ImportFrom) and node.module not in sys.stdlib_module_names for node in nodes
        )
        free = {node.id for node in names} - bound - set(dir(builtins)) - self._own
        self._others = {name for name in free if not self._module(name) and _library(name) is None}
        self.classes = {name for name in self._others | self._own if self._used_as_class(name, nodes)}
        self._refuse_judges(nodes)

    def of_library(self, name: str) -> Any:
        """Return what the library calls so, None if the name is the program's. Unusable if nobody can say."""
        if name in self._own:
            return None
        if module := self._module(name):
            return _imported(module)
        where = _library(name)
        if where is None:
            if self._only:
                raise Unusable(f"the tests use {name}, which neither they nor the prompt define, and which is not the entry point")
            return None
        if not self._said and not self._others:
            return None  # the tests call nothing else, so this is what they test
        if not self._said and name not in _CERTAIN_OF:
            raise Unusable(f'the tests use {name} without importing it; if it is the program\'s, add it to "names", else import it')
        return getattr(import_module(where), name)

    def _module(self, name: str) -> str:
        """The module of which the tests use attributes by this name; "" if there is none."""
        used = self._attributes.get(name)
        if not used or name in self._own:
            return ""
        if name in sys.stdlib_module_names and not name.startswith("_"):
            return name if used <= set(dir(import_module(name))) else ""
        return _PACKAGES.get(name, "")

    def _used_as_class(self, name: str, nodes: list[ast.AST]) -> bool:
        """Whether the tests use it as only a class can be used: then its objects' operators are what is tested."""
        if not name[:1].isupper():
            return False
        made = {
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and _calls(node.value, name)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        return any(_only_of_objects(node, name, made) for node in nodes)

    def _refuse_judges(self, nodes: list[ast.AST]) -> None:
        """A name that nobody has said is the program's must not judge what another function of the program gave."""
        judges = self._others - self._own
        for node in nodes:
            if not isinstance(node, ast.Assert):
                continue
            for truth in _truths(node.test):
                if isinstance(truth.func, ast.Name) and truth.func.id in judges:
                    name = truth.func.id
                    others = (self._others | self._own) - {name}
                    if len(truth.args) > 1 and any(_calls(argument, other) for argument in truth.args for other in others):
                        raise Unusable(f'{name}, which the tests do not define, would judge the program; define it, or add it to "names"')


def _only_of_objects(node: ast.AST, name: str, made: set[str]) -> bool:
    """Whether a part of the tests uses the class, or what was made of it, as no plain value is used."""
    if isinstance(node, ast.Attribute) and node.attr not in _PLAIN:
        of = node.value
        return _calls(of, name) or (isinstance(of, ast.Name) and (of.id == name or of.id in made))
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return isinstance(node.value, ast.Name) and node.value.id in made
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
        return any(isinstance(argument, ast.Name) and argument.id == name for argument in node.args)
    return False


def _parsed(text: str) -> ast.AST | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None  # who runs it says so


def _binds(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    found = getattr(node, "name", None) if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) else None
    return [found] if found else []


def _calls(tree: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name for node in ast.walk(tree))


def _truths(tree: ast.expr) -> list[ast.Call]:
    """The calls whose own result decides: ``g(…)``, ``not g(…)``, ``g(…) is True``, ``g(…) < 1e-6``, and these joined by and, or."""
    if isinstance(tree, ast.Call):
        return [tree]
    if isinstance(tree, ast.UnaryOp):
        return _truths(tree.operand)
    if isinstance(tree, ast.BoolOp):
        return [call for value in tree.values for call in _truths(value)]
    if isinstance(tree, ast.Compare):
        sides = [tree.left, *tree.comparators]
        near = any(isinstance(side, ast.Constant) and isinstance(side.value, bool | float) for side in sides)
        return [call for side in sides for call in _truths(side)] if near and len(sides) == 2 and not _exact(tree) else []
    return []


def _exact(tree: ast.Compare) -> bool:
    """Whether it asks for equality with a number."""
    equal = isinstance(tree.ops[0], ast.Eq | ast.NotEq)
    return equal and any(isinstance(side, ast.Constant) and isinstance(side.value, float) for side in (tree.left, *tree.comparators))


def _library(name: str) -> str | None:
    """The module that has the name."""
    if found := _CERTAIN_OF.get(name) or _FURTHER_OF.get(name):
        return found
    return next((module for module in _POSSIBLE if name in vars(import_module(module)) and not name.startswith("_")), None)


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise Unusable(f"the tests use {module}, which the sandbox does not show to programs") from None


def stubs_of(text: str) -> set[str]:
    """Return the names of a prompt that the program is to write: of functions whose bodies hold nothing but documentation, and of classes
    with such methods."""
    return {node.name for node in getattr(_parsed(text), "body", []) if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and _is_stub(node)}


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _is_stub(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(isinstance(method, _FUNCTIONS) and not method.name.startswith("__") and _is_stub(method) for method in node.body)
    return isinstance(node, _FUNCTIONS) and all(map(_says_nothing, node.body))


def _says_nothing(node: ast.stmt) -> bool:
    if isinstance(node, ast.Pass):
        return True
    if isinstance(node, ast.Raise):
        return "NotImplemented" in ast.dump(node)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
