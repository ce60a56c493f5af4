"""Decides the owner of a name that the tests use but do not define: the program, or the library because an import was forgotten.

If a name of the library were asked of the program, the program could answer anything, and would learn the expected value: ``isclose(f(2),
1.41)``. The library's names are therefore resolved on the tests' side. If a name may belong to either and the row does not decide it, the
row is refused.
"""

import ast
import builtins
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from rlcore_plugin_code.inside.wire import Unusable

__all__ = ["Names", "fields_of", "stubs_of"]

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
    """The names in the texts of the tests. ``own``: the names that the row assigns to the program; ``only``: it has no others; ``given``:
    names of the prompt's helpers, of which the tests run their own copies."""

    def __init__(self, texts: Iterable[str], own: Iterable[str], *, only: bool, given: Iterable[str] = ()) -> None:
        self._trees = [tree for tree in map(_parsed, texts) if tree is not None]
        nodes = [node for tree in self._trees for node in ast.walk(tree)]
        names = [node for node in nodes if isinstance(node, ast.Name)]
        bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)} | {name for node in nodes for name in _binds(node)}
        bound |= set(given)
        self._attributes: dict[str, set[str]] = {}
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                self._attributes.setdefault(node.value.id, set()).add(node.attr)
        self._own, self._only = set(own), only
        imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and _is_program(node.module or "")]
        self._said = bool(self._own or imports)
        imported = {(alias.asname or alias.name) for node in imports for alias in node.names}
        imported |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and node.attr[:1].isupper()}
        free = {node.id for node in names} - bound - set(dir(builtins)) - self._own
        self._others = {name for name in free if not self._module(name) and _library(name) is None}
        self.classes = {name for name in self._others | self._own | imported if self._used_as_class(name, nodes)}
        _Judges(self._others, self._others | self._own | imported, nodes).refuse()

    def of_library(self, name: str) -> Any:
        """Return the library's object of this name, None if the name belongs to the program. Unusable if it cannot be decided."""
        if name in self._own:
            return None
        if module := self._module(name):
            return _imported(module)
        where = _library(name)
        if where is None:
            if self._only:
                raise Unusable(f"the tests use {name}, which neither they nor the prompt define, and which is not the entry point")
            if self._said and name in self._others and name[:1].islower():
                raise Unusable(f'the tests use {name}, which is not defined anywhere; if it is the program\'s, add it to "names"')
            return None
        if not self._said and not self._others:
            return None  # the tests call nothing else, so they test this
        if not self._said and name not in _CERTAIN_OF:
            raise Unusable(f'the tests use {name} without importing it; if it is the program\'s, add it to "names", else import it')
        return getattr(import_module(where), name)

    def _module(self, name: str) -> str:
        """Return the module whose attributes the tests use by this name; "" if there is none."""
        used = self._attributes.get(name)
        if not used or name in self._own:
            return ""
        if name in sys.stdlib_module_names and not name.startswith("_"):
            return name if used <= set(dir(import_module(name))) else ""
        return _PACKAGES.get(name, "")

    def _used_as_class(self, name: str, nodes: list[ast.AST]) -> bool:
        """Return whether the tests use the name as only a class can be used: then they test its objects' operators."""
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


class _Judges:
    """Refuses names that judge results of the program though nothing assigns them to the program. They would be asked of the program, which
    would then be its own judge and learn the expected values."""

    def __init__(self, judges: set[str], known: set[str], nodes: list[ast.AST]) -> None:
        self._judges, self._known, self._nodes = judges, known, nodes
        self._parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
        self._from = {
            target.id: {name for name in known if _calls(node.value, name)}
            for node in nodes
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def refuse(self) -> None:
        """Raise Unusable if there is one."""
        for node in self._nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self._judges:
                name = node.func.id
                if self._takes_results(node, name) and self._decides(node):
                    raise Unusable(f'{name}, which the tests do not define, would judge the program; define it, or add it to "names"')

    def _takes_results(self, call: ast.Call, name: str) -> bool:
        """Return whether one of several arguments comes from another function of the program."""
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        parts = [part for argument in arguments for part in ast.walk(argument)]
        sources = {part.id for part in parts if isinstance(part, ast.Name)}
        others = set().union(*(self._from.get(source, set()) for source in sources)) | (sources & self._known)
        alone = len(arguments) == 1 and not isinstance(arguments[0], ast.Starred | ast.Tuple | ast.List)
        return not alone and bool(others - {name})

    def _decides(self, node: ast.AST) -> bool:
        """Return whether the test checks the truth of this part, or its distance from zero."""
        parent = self._parents.get(node)
        if isinstance(parent, ast.Compare):
            sides = [side for side in (parent.left, *parent.comparators) if side is not node]
            exact = all(isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for operator in parent.ops)
            return any(_is_nothing(side) for side in sides) if exact else any(map(_is_number, sides))
        if isinstance(parent, ast.Call) and node is not parent.func:
            return getattr(parent.func, "attr", getattr(parent.func, "id", "")) in _TRUTHS
        if isinstance(parent, ast.GeneratorExp | ast.ListComp | ast.BoolOp | ast.UnaryOp | ast.IfExp):
            return self._decides(parent)
        return isinstance(parent, ast.Assert | ast.If | ast.While | ast.NamedExpr)


_TRUTHS = ("all", "any", "bool", "assertTrue", "assertFalse")


def _is_nothing(tree: ast.expr) -> bool:
    if isinstance(tree, ast.Tuple | ast.List):
        return all(map(_is_nothing, tree.elts))
    return isinstance(tree, ast.Constant) and (isinstance(tree.value, bool) or tree.value == 0)


def _is_number(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and isinstance(tree.value, int | float)


def _only_of_objects(node: ast.AST, name: str, made: set[str]) -> bool:
    """Return whether a part of the tests uses the class, or an object made of it, in a way in which no plain value is used."""
    if isinstance(node, ast.Attribute) and node.attr not in _PLAIN:
        of = node.value
        return _calls(of, name) or (isinstance(of, ast.Name) and (of.id == name or of.id in made))
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return isinstance(node.value, ast.Name) and node.value.id in made
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
        return any(isinstance(argument, ast.Name) and argument.id == name for argument in node.args)
    return False


def _is_program(module: str) -> bool:
    """Return whether tests import the program by this name."""
    first = module.partition(".")[0]
    return first not in sys.stdlib_module_names and first != "pytest" and first not in _PACKAGES.values()


def _parsed(text: str) -> ast.AST | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None  # its execution reports the error


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
    """Return whether it calls the name, directly or as an attribute of a module."""
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(name == (function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")) for function in called)


def _library(name: str) -> str | None:
    """Return the module that has the name."""
    if found := _CERTAIN_OF.get(name) or _FURTHER_OF.get(name):
        return found
    return next((module for module in _POSSIBLE if name in vars(import_module(module)) and not name.startswith("_")), None)


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise Unusable(f"the tests use {module}, which is not available to programs in the sandbox") from None


def stubs_of(text: str) -> set[str]:
    """Return the names of a prompt that the program must define: of functions whose bodies contain only documentation, and of classes with
    such methods."""
    return {node.name for node in getattr(_parsed(text), "body", []) if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and _is_stub(node)}


def fields_of(text: str) -> dict[str, set[str]]:
    """Return the attributes that the code of each class gives to its objects."""
    classes = [node for node in getattr(_parsed(text), "body", []) if isinstance(node, ast.ClassDef)]
    return {node.name: {name for inner in ast.walk(node) for name in _field(inner)} for node in classes}


def _field(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    return [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []


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
