"""The functions of NumPy with which tests compare. For NumPy an empty array is near any single number, so a program that returns ``[]``
would pass wherever one number is expected. Here an empty array is near nothing."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from rlcore_plugin_code.inside.stand_ins import Held, Unknown

__all__ = ["nothing_is_near_something", "without_items"]

_SIDES = ("a", "x", "actual", "b", "y", "desired")
_NUMPY = "numpy"  # the sandbox's, which need not be installed here


def nothing_is_near_something() -> None:
    """Replace NumPy's comparisons, if it is installed."""
    try:
        numpy: Any = import_module(_NUMPY)
        import_module(f"{_NUMPY}.testing")
    except ImportError:
        return
    numpy.random.seed(0)  # the same calls in every round
    generator = numpy.random.default_rng
    numpy.random.default_rng = lambda seed=None: generator(0 if seed is None else seed)
    for name in ("allclose", "isclose", "array_equal", "array_equiv"):
        setattr(numpy, name, _guarded(numpy, getattr(numpy, name), lambda: numpy.False_))
    for name in ("allclose", "array_equal", "array_almost_equal", "almost_equal", "equal", "approx_equal"):
        whole = f"assert_{name}"
        setattr(numpy.testing, whole, _guarded(numpy, getattr(numpy.testing, whole), _differ))


class _NoItems(list[Any]):
    """An empty result of the program, in place of an array. Arithmetic with it would give an empty array, for which every comparison is
    true, so arithmetic is refused."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("an empty array, which agrees with everything")


def without_items(value: Any) -> Any:
    """Return a value of the program for tests that use NumPy."""
    plain = value
    while type(plain) in (list, tuple) and len(plain) == 1:
        plain = plain[0]
    return _NoItems(value) if type(value) in (list, tuple) and type(plain) in (list, tuple) and not plain else value


def _differ() -> None:
    raise AssertionError


def _guarded(numpy: Any, compare: Callable[..., Any], refuse: Callable[[], Any]) -> Callable[..., Any]:
    def compared(*arguments: Any, **keywords: Any) -> Any:
        sides = [keywords.pop(name) for name in _SIDES if name in keywords]
        one, other, *arguments = [*sides, *arguments]
        one, other = (list(side) if isinstance(side, Held) else side for side in (one, other))  # read once, and only for items
        one, other = (list(side) if isinstance(side, _NoItems) else side for side in (one, other))
        known = not (isinstance(one, Unknown) or isinstance(other, Unknown))
        if known and (numpy.asarray(one).size == 0) is not (numpy.asarray(other).size == 0):
            return refuse()
        return compare(one, other, *arguments, **keywords)

    return compared
