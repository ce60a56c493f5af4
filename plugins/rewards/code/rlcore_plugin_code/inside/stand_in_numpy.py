"""What tests use of NumPy to compare. There an array without items is near any single number, so that a program that returns ``[]`` would
pass wherever one number is expected. Here nothing is near something.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from rlcore_plugin_code.inside.stand_ins import Held, Unknown

__all__ = ["nothing_is_near_something"]

_NUMPY = "numpy"  # the sandbox's, which need not be installed here


def nothing_is_near_something() -> None:
    """Replace NumPy's comparisons, where it is installed."""
    try:
        numpy: Any = import_module(_NUMPY)
        import_module(f"{_NUMPY}.testing")
    except ImportError:
        return
    for name in ("allclose", "isclose"):
        setattr(numpy, name, _guarded(numpy, getattr(numpy, name), lambda: numpy.False_))
    for name in ("allclose", "array_equal", "array_almost_equal", "almost_equal", "equal", "approx_equal"):
        whole = f"assert_{name}"
        setattr(numpy.testing, whole, _guarded(numpy, getattr(numpy.testing, whole), _differ))


def _differ() -> None:
    raise AssertionError


def _guarded(numpy: Any, compare: Callable[..., Any], refuse: Callable[[], Any]) -> Callable[..., Any]:
    def compared(one: Any, other: Any, *arguments: Any, **keywords: Any) -> Any:
        one, other = (list(side) if isinstance(side, Held) else side for side in (one, other))  # asked once, and for nothing but items
        known = not (isinstance(one, Unknown) or isinstance(other, Unknown))
        if known and (numpy.asarray(one).size == 0) is not (numpy.asarray(other).size == 0):
            return refuse()
        return compare(one, other, *arguments, **keywords)

    return compared
