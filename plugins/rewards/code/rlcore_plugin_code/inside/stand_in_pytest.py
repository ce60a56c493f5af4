"""The parts of pytest that tests use, which is not in the sandbox: ``raises``, ``approx``, ``mark.parametrize``, ``skip``, ``fail``, plain
``fixture``. Test functions run one after another, in the order of the file. Any other part makes the tests unusable, and one sentence names
it."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from rlcore_plugin_code.inside.stand_in_asyncio import finished
from rlcore_plugin_code.inside.stand_ins import Unknown
from rlcore_plugin_code.inside.surroundings import REPLACEABLE
from rlcore_plugin_code.inside.wire import Unusable

__all__ = ["Skipped", "install", "units_of"]

_Unit = tuple[str, Callable[[], None]]
_MODULE_STEPS = ("setup_module", "teardown_module", "setup_function", "teardown_function", "setUpModule", "tearDownModule")


class Skipped(Exception):
    """The test skips itself."""


class _Raises:
    """``with pytest.raises(ValueError, match="…") as caught:``"""

    def __init__(self, expected: Any, match: str | None = None) -> None:
        self._expected, self._match = expected, match
        self.value: Any = None

    def match(self, pattern: str) -> bool:
        """``caught.match("…")``"""
        if not re.search(pattern, str(self.value)):
            raise AssertionError("the error has another message")
        return True

    @property
    def typename(self) -> str:
        """The name of the class."""
        return str(self.type.__name__)

    def __enter__(self) -> "_Raises":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if error is None:
            raise AssertionError("did not raise")
        kinds = self._expected if isinstance(self._expected, tuple) else (self._expected,)
        if not any(isinstance(kind, type) and isinstance(error, kind) for kind in kinds) or (
            self._match is not None and not re.search(self._match, str(error))
        ):
            return False
        self.value, self.type = error, type(error)
        return True


class _Approx:
    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> None:
        self._expected, self._rel, self._abs, self._nan_ok = expected, rel, abs, nan_ok

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) or self._near(self._expected, other)

    def __hash__(self) -> int:
        return 0

    def _near(self, wanted: Any, found: Any) -> bool:
        if isinstance(wanted, dict):
            return isinstance(found, dict) and wanted.keys() == found.keys() and all(self._near(wanted[key], found[key]) for key in wanted)
        if isinstance(wanted, list | tuple):
            return isinstance(found, list | tuple) and len(wanted) == len(found) and all(map(self._near, wanted, found))
        if not isinstance(wanted, int | float | complex) or not isinstance(found, int | float | complex):
            return bool(wanted == found)
        if wanted != wanted:
            return self._nan_ok and found != found
        relative = (1e-6 if self._rel is None and self._abs is None else self._rel or 0.0) * abs(wanted)
        return wanted == found or abs(wanted - found) <= max(relative, 1e-12 if self._abs is None else self._abs) < float("inf")


class _Marks:
    def parametrize(self, names: Any, values: Any, **_: Any) -> Callable[[Any], Any]:
        listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

        def mark(function: Any) -> Any:
            rows = [getattr(row, "values", row if len(listed) > 1 else (row,)) for row in values]
            before = getattr(function, "parametrized", [{}])
            function.parametrized = [{**case, **dict(zip(listed, row, strict=True))} for case in before for row in rows]
            return function

        return mark

    def __getattr__(self, name: str) -> Any:
        if name in ("skip", "skipif", "xfail", "usefixtures"):
            raise Unusable(f"the tests use pytest.mark.{name}, which is not supported here")
        return lambda *arguments, **_: arguments[0] if arguments and callable(arguments[0]) else lambda function: function


class _Patching:
    """The fixture ``monkeypatch``, limited to changes that reach the program."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def setattr(self, target: Any, name: Any, *value: Any) -> None:
        if isinstance(target, str):
            (value, (module, _, name)) = ((name,), target.rpartition("."))
            target = sys.modules.get(module, module)
        where = getattr(target, "__name__", str(target))
        if (where, name) not in REPLACEABLE:
            raise Unusable(f"the tests replace {where}.{name}, which does not reach the program")
        self._before.append((target, name, getattr(target, name)))
        setattr(target, name, *value)

    def __getattr__(self, name: str) -> Any:
        raise Unusable(f"the tests use {name} of pytest's fixture monkeypatch, which is not supported here")

    def undo(self) -> None:
        for target, name, value in reversed(self._before):
            setattr(target, name, value)


def _fixture(function: Any = None, **options: Any) -> Any:
    if strange := [name for name, value in options.items() if value not in (False, "function")]:
        raise Unusable(f"the tests use {strange[0]} of pytest.fixture, which is not supported here")
    if function is None:
        return _fixture
    function.is_fixture = True
    return function


def _raises(expected: Any, *call: Any, match: str | None = None, **keywords: Any) -> _Raises:
    """``raises(ValueError)``, or ``raises(ValueError, function, argument)``."""
    caught = _Raises(expected, match)
    if call:
        with caught:
            call[0](*call[1:], **keywords)
    return caught


def _stop(kind: type[Exception]) -> Callable[..., None]:
    def stop(reason: str = "", **_: Any) -> None:
        raise kind(reason)

    return stop


def _unknown(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise Unusable(f"the tests use pytest.{name}, which is not supported here")


def install() -> None:
    """Make ``import pytest`` find this stand-in from now on."""
    module = ModuleType("pytest")
    module.__dict__.update(
        raises=_raises,
        approx=_Approx,
        mark=_Marks(),
        fixture=_fixture,
        fail=_stop(AssertionError),
        skip=_stop(Skipped),
        param=lambda *values, **_: SimpleNamespace(values=values),
        main=lambda *_: 0,
        __getattr__=_unknown,
    )
    sys.modules["pytest"] = module


def units_of(names: dict[str, Any]) -> Iterator[_Unit]:
    """Yield (name, function without arguments) of each test in a module: functions ``test…``, methods ``test…`` of classes ``Test…`` and of
    ``unittest.TestCase``."""
    if strange := next((name for name in _MODULE_STEPS if name in names), ""):
        raise Unusable(f"the tests have a {strange}, which is not supported here")
    for name, value in list(names.items()):
        if name.startswith("test") and isinstance(value, FunctionType):
            yield from _expanded(name, value, names, ())
        elif isinstance(value, type) and value.__module__ == names["__name__"] and (name.startswith("Test") or _is_case(value)):
            for method in [entry for entry in dir(value) if entry.startswith("test")]:
                yield f"{name}.{method}", lambda value=value, method=method: _method(value, method, names)  # type: ignore[misc]


def _is_case(value: type) -> bool:
    unittest = sys.modules.get("unittest")
    return unittest is not None and issubclass(value, unittest.TestCase)


def _method(kind: type, name: str, names: dict[str, Any]) -> None:
    if hasattr(kind, "parametrized") or any(
        isinstance(value, FunctionType) and hasattr(value, "is_fixture") for value in vars(kind).values()
    ):
        raise Unusable(f"the tests mark the class {kind.__name__}, or have fixtures in it, which is not supported here")
    if hasattr(getattr(kind, name), "__unittest_expecting_failure__"):
        raise Unusable("the tests use unittest.expectedFailure, which is not supported here")
    if getattr(kind, "__unittest_skip__", False) or getattr(getattr(kind, name), "__unittest_skip__", False):
        return
    one = kind(name) if _is_case(kind) else kind()
    before, after = ("setUp", "tearDown") if _is_case(kind) else ("setup_method", "teardown_method")
    for whole in ("setUpClass", "setup_class"):
        getattr(kind, whole, lambda: None)()
    function = getattr(one, name)
    for case in getattr(function, "parametrized", [{}]):
        for step in (before, "asyncSetUp"):
            _step(one, step, function)
        _with_fixtures(function, case, names)
        for step in ("asyncTearDown", after):
            _step(one, step, function)


def _step(one: Any, name: str, function: Any) -> None:
    """Run a set-up or a similar step, which may take its test as an argument."""
    step = getattr(one, name, None)
    if step is not None:
        finished(step(function) if getattr(step, "__code__", function.__code__).co_argcount > 1 and name.endswith("_method") else step())


def _expanded(name: str, function: Any, names: dict[str, Any], first: tuple[Any, ...]) -> Iterator[_Unit]:
    if getattr(function, "parametrized", None) == []:
        yield name, _no_case
    for number, case in enumerate(getattr(function, "parametrized", [{}])):
        label = f"{name}[{number}]" if hasattr(function, "parametrized") else name
        yield label, lambda case=case: _with_fixtures(function, case, names)  # type: ignore[misc]


def _no_case() -> None:
    raise AssertionError("the test has no case, perhaps because the program returned none")


def _with_fixtures(function: Any, case: dict[str, Any], names: dict[str, Any]) -> None:
    open_ones: list[Iterator[Any]] = []
    patching = _Patching()
    try:
        values = _filled(function, case, names, open_ones, patching, {})
        finished(function(**values))
    finally:
        for one in reversed(open_ones):
            with suppress(StopIteration):
                next(one)
        patching.undo()


def _filled(
    function: Any,
    given: dict[str, Any],
    names: dict[str, Any],
    open_ones: list[Iterator[Any]],
    patching: _Patching,
    made_before: dict[str, Any],
) -> dict[str, Any]:
    """Return the arguments of a function. ``made_before``: fixtures of this test, each of which is made once."""
    values = dict(given)
    if not hasattr(function, "__code__"):
        return values
    count = function.__code__.co_argcount - len(function.__defaults__ or ())
    bound = getattr(function, "__self__", None) is not None  # its first argument is there
    for name in function.__code__.co_varnames[int(bound) : count]:
        if name in values:
            continue
        if name in made_before:
            values[name] = made_before[name]
            continue
        if name == "monkeypatch":
            values[name] = patching
            continue
        fixture = names.get(name)
        if not getattr(fixture, "is_fixture", False):
            raise Unusable(f"the tests use pytest's fixture {name}, which is not supported here")
        made = fixture(**_filled(fixture, {}, names, open_ones, patching, made_before))
        if hasattr(made, "__next__") and hasattr(made, "gi_frame"):
            open_ones.append(made)
            made = next(made)
        values[name] = made_before[name] = made
    return values
