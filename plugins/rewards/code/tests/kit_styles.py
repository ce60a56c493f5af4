"""One small problem in every style that shares nothing with its tests, and what judges it."""

from rlcore_plugin_code.extract import fenced
from rlcore_plugin_code.options import CodeOptions
from rlcore_plugin_code.reward import CodeReward

from rlcore.api import RewardInput

CALLS = {"fn_name": "tripled", "inputs": [[14], [5]], "outputs": [42, 15]}
ASSERTS = {"asserts": ["assert tripled(14) == 42", "assert tripled(5) == 15"], "names": ["tripled"]}
CHECK = {
    "check": "def check(candidate):\n    assert candidate(14) == 42\n    assert not candidate(0)\n    assert candidate(5) != 42\n",
    "entry_point": "tripled",
    "before": "def tripled(n):\n    '''three times n'''\n",
}
FILE = {
    "test_file": """
import pytest
import unittest
from solution import tripled


@pytest.mark.parametrize(("n", "wanted"), [(14, 42), (5, 15)])
def test_values(n, wanted):
    assert tripled(n) == wanted


def test_zero():
    assert tripled(0) == 0
    assert isinstance(tripled(1), int)


class TestMore(unittest.TestCase):
    def test_one(self):
        self.assertEqual(tripled(1), 3)
"""
}
STYLES = {"calls": CALLS, "asserts": ASSERTS, "check": CHECK, "file": FILE}
RIGHT = "def tripled(n):\n    return 3 * n"
WRONG = "def tripled(n):\n    return n + 28"


class Bench:
    """``judge(tests, program, **options)`` at one level, all by one sandbox."""

    def __init__(self, level):
        self.level = level
        self.reward = CodeReward(CodeOptions(sandbox={"level": level}))
        self.reward.open()

    def judge(self, tests, program, *, text=None, **options):
        limits = {"cpu_seconds": 2, "wall_seconds": 20, "total_seconds": 60} | options
        self.reward.options = CodeOptions(**limits)
        return self.reward.score(RewardInput(messages=(), columns={"test_cases": tests}, text=text or fenced(program)))

    def close(self):
        self.reward.close()
