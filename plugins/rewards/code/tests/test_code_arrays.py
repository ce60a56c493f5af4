"""Tests that compare with NumPy: an array without items earns nothing."""

import pytest

from rlcore.api import Outcome

NEAR = {
    "allclose": "assert numpy.allclose(f(1.5), 0.5)",
    "isclose": "assert numpy.isclose(f(1.5), 0.5).all()",
    "assert_allclose": "numpy.testing.assert_allclose(f(1.5), 0.5)",
    "assert_array_equal": "numpy.testing.assert_array_equal(f(1.5), 0.5)",
    "assert_almost_equal": "numpy.testing.assert_almost_equal(f(1.5), 0.5)",
}
NOTHING = {
    "a list": "def f(n):\n    return []",
    "an object": (
        "class Empty:\n"
        "    size = 1\n"
        "    def __len__(self): return 0\n"
        "    def __iter__(self): return iter(())\n"
        "    def __getitem__(self, key): raise IndexError\n"
        "def f(n):\n"
        "    return Empty()"
    ),
}


@pytest.mark.parametrize("nothing", NOTHING)
@pytest.mark.parametrize("name", NEAR)
def test_nothing_is_near_a_number(bench, name, nothing):
    tests = {"test_file": f"import numpy\n\n\ndef test_it():\n    {NEAR[name]}"}
    assert bench.judge(tests, NOTHING[nothing]).outcome is Outcome.WRONG
    assert bench.judge(tests, "def f(n):\n    return n % 1 + 1e-9").outcome is (Outcome.WRONG if "array" in name else Outcome.OK)
    assert bench.judge(tests, "def f(n):\n    return n % 1").outcome is Outcome.OK


def test_an_array_of_nothing_equals_no_number(bench):
    tests = {"test_file": "import numpy\n\n\ndef test_it():\n    assert (f(3) == 5).all()"}
    assert bench.judge(tests, "import numpy\ndef f(n):\n    return numpy.array([])").outcome is Outcome.WRONG
    assert bench.judge(tests, "import numpy\ndef f(n):\n    return numpy.array([5])").outcome is Outcome.OK
