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


BROADCAST = [
    "assert (f(1) == np.array([1.5])).all()",
    "assert np.all(f(1) == np.array([1.5]))",
    "assert np.linalg.norm(f(1) - np.array([1.5])) < 1e-6",
    "assert np.all(np.abs(f(1) - np.array([1.5])) < 1e-6)",
    "assert np.sum(np.abs(np.array(f(1)) - np.array([1.5]))) < 1e-6",
    "assert not np.any(np.abs(np.array(f(1)) - 1.5) > 1e-6)",
    "np.testing.assert_array_less(np.abs(np.array(f(1)) - 1.5), 1e-6)",
    "np.testing.assert_allclose(actual=f(1), desired=np.array([1.5]))",
    "assert np.allclose(a=f(1), b=[1.5])",
]


@pytest.mark.parametrize("line", BROADCAST)
def test_nothing_agrees_with_no_array(bench, line):
    tests = {"asserts": [f"import numpy as np\n{line}"], "names": ["f"]}
    for nothing in ("[]", "[[]]", "()", "numpy.array([])", "numpy.zeros((0, 3))"):
        assert bench.judge(tests, f"import numpy\ndef f(n):\n    return {nothing}").outcome is Outcome.WRONG, nothing
    assert bench.judge(tests, "import numpy\ndef f(n):\n    return numpy.array([1.5])").outcome is Outcome.OK


def test_nothing_is_right_where_nothing_is_expected(bench):
    lines = ["import numpy as np\nassert f(0) == [] and len(f(0)) == 0", "assert np.array_equal(f(0), [])", "assert list(f(0)) == []"]
    assert bench.judge({"asserts": lines, "names": ["f"]}, "def f(n):\n    return [1] * n").outcome is Outcome.OK


def test_numbers_that_tests_draw_are_the_same_in_every_round(bench):
    lines = [
        "import numpy as np\nfor n in np.random.rand(3):\n    assert f(n) == n + 1",
        "x = np.random.default_rng().random()\nassert f(x) == x + 1",
    ]
    assert bench.judge({"asserts": lines}, "def f(n):\n    return n + 1").outcome is Outcome.OK
