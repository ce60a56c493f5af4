"""Verdicts of every style of tests, in the sandbox of this machine: what honest programs may do, and what is no verdict at all."""

import pytest
from kit_styles import ASSERTS, CALLS, CHECK, FILE, RIGHT, STYLES, WRONG
from rlcore_plugin_code.reward import CodeReward
from rlcore_plugin_code.styles import STYLES as KNOWN

from rlcore.api import Outcome


def calls(inputs, outputs, name="f", **more):
    return {"fn_name": name, "inputs": inputs, "outputs": outputs, **more}


RIGHT_CALLS = {
    "a method of Solution": (CALLS, "class Solution:\n    def tripled(self, n: int) -> int:\n        return 3 * n"),
    "a function made by assignment": (CALLS, "tripled = lambda n: 3 * n"),
    "what it prints does not count": (CALLS, "print('[1]')\ndef tripled(n):\n    print(n)\n    return 3 * n"),
    "names without imports": (
        calls([[[3, 1]]], [[1, 3]]),
        "def f(xs: List[int]) -> Optional[int]:\n    return list(accumulate([0] * 0)) or sorted(xs)",
    ),
    "modules without imports": (calls([[9]], [3]), "def f(n):\n    return math.isqrt(n) + 0 * len(re.findall('x', ''))"),
    "an example under main": (CALLS, f"{RIGHT}\nif __name__ == '__main__':\n    print(tripled(int(input())))"),
    "an example after it": (CALLS, f"{RIGHT}\nprint(tripled(2))"),
    "a tuple for a list": (calls([[1]], [[1, [2]]]), "def f(n):\n    return (1, (2,))"),
    "each result in a list": (calls([[1], [2]], [[3], [4]]), "def f(n):\n    return n + 2"),
    "a list of one": (calls([[1], [2]], [[3], [4]]), "def f(n):\n    return [n + 2]"),
    "a truth for a number": (calls([[1]], [True]), "def f(n):\n    return 1"),
    "a fraction nearby": (calls([[1]], [0.333333]), "def f(n):\n    return 1 / 3"),
    "a whole number for a fraction": (calls([[1]], [2.0]), "def f(n):\n    return 2"),
    "a table": (calls([["ab"]], [{"a": 1, "b": [2.5]}]), "def f(s):\n    return {'b': (2.5,), 'a': 1}"),
    "a table with numbers for keys": (calls([[{"1": 2, "-3": 4}]], [{"2": 1}]), "def f(d):\n    return {d[1]: 1} if d[-3] == 4 else {}"),
    "a value a line": (calls(['[1, 2]\n"x"'], ['"x12"']), "def f(xs, s):\n    return s + ''.join(map(str, xs))"),
    "nothing": (calls([[1]], [None]), "def f(n):\n    pass"),
    "several valid results": ({"fn_name": "f", "inputs": [[6]], "accepted": [[[2, 3], [3, 2], [6]]]}, "def f(n):\n    return [3, 2]"),
    "a large number": (calls([[100]], [2**100]), "def f(n):\n    return 2 ** n"),
    "a number of thousands of digits": (calls([[20000]], [True]), "def f(n):\n    return (10 ** n) % 7 >= 0"),
    "its own text": (calls([["\ud800é"]], ["\ud800é!"]), "def f(s):\n    return s + '!'"),
    "a dataclass inside": (
        calls([[1]], [2]),
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(n):\n    return P(n).x + 1",
    ),
}
WRONG_CALLS = {
    "a name of the library": (calls([[1, 2]], [3], "add"), "x = 1"),
    "a text that looks like the number": (calls([[1]], [0.5]), "def f(n):\n    return '0.5'"),
    "a number that looks like the text": (calls([[1]], ["0.5"]), "def f(n):\n    return 0.5"),
    "another spelling of the text": (calls([[1]], ["0.5"]), "def f(n):\n    return '0.50'"),
    "a fraction for a whole number nearby": (calls([[1]], [3]), "def f(n):\n    return 3.0000001"),
    "a set for a list": (calls([[1]], [[1]]), "def f(n):\n    return {1}"),
    "a list too long": (calls([[1]], [[1, 2]]), "def f(n):\n    return [1, 2, 2]"),
    "a table with more": (calls([[1]], [{"a": 1}]), "def f(n):\n    return {'a': 1, 'b': 2}"),
    "a table with one key twice": (
        calls([[1]], [{"1": 1, "2": 1}]),
        (
            "class K(str):\n"
            "    def __hash__(s): return id(s)\n"
            "    def __eq__(s, o): return s is o\n"
            "def f(n):\n"
            "    return {K('1'): 1, K('1'): 1}"
        ),
    ),
    "not a number": (calls([[1]], [0.5]), "def f(n):\n    return float('nan')"),
    "some of the valid results": ({"fn_name": "f", "inputs": [[6]], "accepted": [[[2, 3], [3, 2]]]}, "def f(n):\n    return [2]"),
    "state of another test": (calls([[1], [1]], [1, 2]), "n = 0\ndef f(_):\n    global n\n    n += 1\n    return n"),
    "no function": (CALLS, "tripled = 3"),
    "other arguments": (CALLS, "def tripled():\n    return 42"),
}


@pytest.mark.parametrize("name", RIGHT_CALLS)
def test_calls_that_are_right(bench, name):
    tests, program = RIGHT_CALLS[name]
    score = bench.judge(tests, program)
    assert score.outcome is Outcome.OK, score.reason


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_calls_that_are_wrong(bench, name):
    score = bench.judge(*WRONG_CALLS[name])
    assert score.outcome is Outcome.WRONG, score.reason


def coded(*lines, **more):
    return {"asserts": list(lines), **more}


RIGHT_CODE = {
    "one result is the argument of the next": (
        coded("assert undone(done('abc')) == 'abc'"),
        "def done(s):\n    return s[::-1]\nundone = done",
    ),
    "an argument that is changed": (
        {"test_file": "xs = [3, 1]\nd = {}\nput(xs, d)\nassert xs == [1, 3] and d == {'n': 2}"},
        "def put(xs, d):\n    xs.sort()\n    d['n'] = 2",
    ),
    "words of an assertion": (coded("assert f(1) == 2, 'f(1)'"), "def f(n):\n    return n + 1"),
    "Python's own name": (coded("assert sum(1, 2) == 3", names=["sum"]), "def sum(a, b):\n    return a + b"),
    "setup": (coded("assert math.isclose(f(1), 1 / 3, rel_tol=1e-3)", setup="import math"), "def f(n):\n    return n / 3"),
    "tuples, sets, bytes, complex": (
        coded("assert f() == ((1,), {2}, b'x', 1j, frozenset({3}))"),
        "def f():\n    return ((1,), {2}, b'x', 1j, frozenset({3}))",
    ),
    "objects": (
        coded("assert str(P(1) + P(2)) == 'P3' and P(1) == P(1) and P(1) < P(2) and not P(0)"),
        (
            "class P:\n"
            "    def __init__(s, n): s.n = n\n"
            "    def __add__(s, o): return P(s.n + o.n)\n"
            "    def __eq__(s, o): return s.n == o.n\n"
            "    def __lt__(s, o): return s.n < o.n\n"
            "    def __bool__(s): return s.n != 0\n"
            "    def __str__(s): return f'P{s.n}'"
        ),
    ),
    "attributes and items": (
        coded("p = P([4, 5])\nassert p.xs == [4, 5] and p[1] == 5 and len(p) == 2 and list(p) == [4, 5] and 5 in p"),
        (
            "class P(object):\n"
            "    def __init__(s, xs): s.xs = xs\n"
            "    def __getitem__(s, i): return s.xs[i]\n"
            "    def __len__(s): return len(s.xs)"
        ),
    ),
    "attributes and items that the tests set": (
        coded("root = Node(1)\nroot.left = Node(2)\nroot.left[0] = 5", "assert total(root) == 8"),
        (
            "class Node:\n"
            "    def __init__(s, n): s.n, s.left, s.more = n, None, 0\n"
            "    def __setitem__(s, key, value): s.more = value\n"
            "def total(node):\n"
            "    return node.n + node.more + total(node.left) if node else 0"
        ),
    ),
    "how objects show and compare": (
        coded("assert repr(P(1)) == f'{P(1)!r}' == 'P(1)' and P(1) <= P(1) and P(2) >= P(1) and len({P(1), P(1), P(2)}) == 2"),
        (
            "class P:\n"
            "    def __init__(s, n): s.n = n\n"
            "    def __repr__(s): return f'P({s.n})'\n"
            "    def __eq__(s, o): return s.n == o.n\n"
            "    def __le__(s, o): return s.n <= o.n\n"
            "    def __ge__(s, o): return s.n >= o.n\n"
            "    def __hash__(s): return s.n"
        ),
    ),
    "classes of objects": (
        coded("assert isinstance(P(), P) and isinstance(Q(), P) and not isinstance(P(), Q) and not isinstance(3, P)"),
        "class P: pass\nclass Q(P): pass",
    ),
    "numbers of its own": (
        coded("assert float(P(2)) == 2.5 and int(P(2)) == 2 and (-P(2)).n == -2 and abs(P(-2)).n == 2"),
        (
            "class P:\n"
            "    def __init__(s, n): s.n = n\n"
            "    def __float__(s): return s.n + 0.5\n"
            "    def __int__(s): return s.n\n"
            "    def __neg__(s): return P(-s.n)\n"
            "    def __abs__(s): return P(abs(s.n))"
        ),
    ),
    "with": (
        coded("with P() as p:\n    assert p.n == 1\nassert p.n == 0"),
        "class P:\n    n = 0\n    def __enter__(s):\n        s.n = 1\n        return s\n    def __exit__(s, *_): s.n = 0",
    ),
    "its own errors": (
        coded(
            "try:\n    f(3)\nexcept Special as error:\n    assert error.code == 3 and error.args == (3,) and str(error) == 'no 3'",
            "import unittest\nwith unittest.TestCase().assertRaises(General):\n    f(4)",
            "assert issubclass(Special, General) and issubclass(General, ValueError)",
            names=["f"],
        ),
        (
            "class General(ValueError): pass\n"
            "class Special(General):\n"
            "    def __init__(s, code):\n"
            "        super().__init__(code)\n"
            "        s.code = code\n"
            "    def __str__(s): return f'no {s.code}'\n"
            "def f(n): raise Special(n)"
        ),
    ),
    "Python's own errors": (
        coded("try:\n    f()\nexcept KeyError as error:\n    assert error.args == ('x',)\nelse:\n    assert False"),
        "def f():\n    return {}['x']",
    ),
    "generators without end": (
        coded(
            "from itertools import islice\nassert list(islice(f(), 2000)) == list(range(2000))",
            "for n in f():\n    if n > 2: break\nassert n == 3",
        ),
        "def f():\n    n = 0\n    while True:\n        yield n\n        n += 1",
    ),
    "more items than are read at once": (
        coded("assert list(f(2500)) == list(range(2500))"),
        "from collections import deque\ndef f(n):\n    return deque(range(n))",
    ),
    "a named tuple": (
        coded("p = P(1, 2)\nassert p.x == 1 and p[1] == 2 and p == (1, 2)"),
        "from collections import namedtuple\nP = namedtuple('P', 'x y')",
    ),
    "values of the library": (
        coded(
            "import datetime as d, decimal, fractions\n"
            "assert f(d.date(2020, 1, 31), d.timedelta(1)) == d.date(2020, 2, 1)\n"
            "assert f(fractions.Fraction(1, 2), 1) == fractions.Fraction(3, 2)\n"
            "assert f(decimal.Decimal('0.10'), decimal.Decimal(1)) == decimal.Decimal('1.1')\n"
            "assert f(d.datetime(2020, 1, 1, 5, tzinfo=d.UTC), d.timedelta(0, 1)).second == 1"
        ),
        "def f(a, b):\n    return a + b",
    ),
    "arrays": (
        coded("import numpy as np\nassert np.allclose(f(np.array([1.0, 2.0])), [2, 4]) and f(np.ones((2, 3))).shape == (2, 3)"),
        "def f(a):\n    return a * 2",
    ),
    "generators": (
        coded("assert list(f(3)) == [0, 1, 2]", "g = f(2)\nassert next(g) == 0 and next(g) == 1"),
        "def f(n):\n    yield from range(n)",
    ),
    "an error that is wanted": (
        {
            "test_file": (
                "try:\n    f(0)\n    assert False\nexcept ZeroDivisionError as error:\n    assert 'zero' in str(error)\nassert f(1) == 1"
            )
        },
        "def f(n):\n    return 1 / n",
    ),
    "branches on a result": (
        {"test_file": "for n in range(20):\n    if even(n):\n        assert half(n) * 2 == n\n    else:\n        assert half(n) is None"},
        "def even(n):\n    return n % 2 == 0\ndef half(n):\n    return n // 2 if n % 2 == 0 else None",
    ),
    "numbers at random": (
        {"test_file": "import random\nfor _ in range(10):\n    n = random.randint(0, 99)\n    assert f(n) == n + 1"},
        "def f(n):\n    return n + 1",
    ),
    "words by keyword": (coded("assert f(n=1, m=2) == 3"), "def f(n, m):\n    return n + m"),
    "a type as an argument": (coded("assert f([1, 'a'], int) == [1]"), "def f(xs, t):\n    return [x for x in xs if isinstance(x, t)]"),
    "helpers of the stub": (
        {
            "check": "def check(candidate):\n    assert candidate(2) == 5",
            "entry_point": "f",
            "before": "def helper(n):\n    return n + 3\ndef f(n):\n    '''doc'''\n",
        },
        "def f(n):\n    return helper(n)",
    ),
    "an entry in a class": (CHECK, "class Solution:\n    def tripled(self, n):\n        return 3 * n"),
}


@pytest.mark.parametrize("name", RIGHT_CODE)
def test_code_that_is_right(bench, name):
    score = bench.judge(*RIGHT_CODE[name])
    assert score.outcome is Outcome.OK, score.reason


@pytest.mark.parametrize("name", RIGHT_CODE)
def test_code_judges_another_program_wrong(bench, name):
    score = bench.judge(
        RIGHT_CODE[name][0],
        "def f(*_, **__):\n    return 7\ndone = undone = put = even = half = sum = tripled = P = Q = Node = total = General = Special = f",
    )
    assert score.outcome is Outcome.WRONG, score.reason


USELESS = {
    "never calls": (coded("assert True", "assert 1 + 1 == 2"), "never call the program"),
    "no Python": (coded("assert f(1) ==", names=["f"]), "cannot be read as Python"),
    "what is not installed": ({"test_file": "import surely_not_installed\nassert f(1) == 1"}, "surely_not_installed"),
    "fails by itself": (coded("assert 1 == 2"), "before they call the program"),
    "a fixture of pytest": ({"test_file": "def test_it(capsys):\n    assert f(1) == 1"}, "capsys"),
    "more of pytest": ({"test_file": "import pytest\n@pytest.mark.skipif(True)\ndef test_it():\n    assert f(1) == 1"}, "skipif"),
    "a function as an argument": (coded("assert f(lambda n: n) == 1"), "cannot be sent"),
    "exits": ({"test_file": "import os\nos._exit(0)"}, "without a verdict"),
}


@pytest.mark.parametrize("name", USELESS)
def test_tests_that_can_judge_nothing_are_no_verdict(bench, name):
    tests, words = USELESS[name]
    score = bench.judge(tests, "def f(n):\n    return 1")
    assert score.outcome is Outcome.INVALID
    assert words in score.reason
    assert "\n" not in score.reason


PYTEST = """
import pytest
from solution import Stack, Empty


@pytest.fixture
def stack():
    made = Stack()
    made.push(1)
    yield made
    made.push(2)


@pytest.mark.parametrize("n", [1, pytest.param(2)])
@pytest.mark.slow
def test_push(stack, n):
    stack.push(n)
    assert stack.pop() == n and len(stack) == 1


def test_empty():
    with pytest.raises(Empty, match="empty"):
        Stack().pop()
    with pytest.raises((KeyError, ValueError)):
        Stack().pop()


def test_mean(stack):
    assert stack.mean() == pytest.approx(1.0)
    assert [stack.mean()] == pytest.approx([1.00000001])


class TestClass:
    def setup_method(self):
        self.stack = Stack()

    def test_it(self):
        self.stack.push("x")
        assert self.stack.pop() == "x"


def test_skipped():
    pytest.skip("not here")
"""
STACK = """
class Empty(ValueError):
    pass


class Stack:
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item)
    def pop(self):
        if not self.items: raise Empty("empty")
        return self.items.pop()
    def __len__(self): return len(self.items)
    def mean(self): return sum(self.items) / len(self.items)
"""


def test_a_file_for_pytest(bench):
    assert bench.judge({"test_file": PYTEST}, STACK).outcome is Outcome.OK
    changes = {'Empty("empty")': "KeyError('empty')", "sum(self.items)": "1.1", "return self.items.pop()": "return self.items.pop(0)"}
    for old, new in changes.items():
        assert bench.judge({"test_file": PYTEST}, STACK.replace(old, new)).outcome is Outcome.WRONG, old


def test_the_file_names_its_module(bench):
    tests = {"test_file": "import mine\ndef test_it():\n    assert mine.f(1) == 1", "module": "mine"}
    assert bench.judge(tests, "def f(n):\n    return 1").outcome is Outcome.OK


@pytest.mark.parametrize("style", STYLES)
def test_a_share_of_the_tests(bench, style):
    score = bench.judge(STYLES[style], WRONG, partial=True)
    share = {"calls": 0.5, "asserts": 0.5, "check": 0.0, "file": 0.25}[style]
    assert (score.value, score.accuracy, score.outcome) == (10 * share, 0.0, Outcome.WRONG), score.reason
    assert "tests passed)" in score.reason
    assert bench.judge(STYLES[style], RIGHT, partial=True).value == 10.0


def test_a_program_that_ends_after_some_tests_earned_their_share(bench):
    program = "import os\ndef tripled(n):\n    if n == 5: os._exit(0)\n    return 3 * n"
    assert bench.judge(ASSERTS, program, partial=True).value == 5.0


@pytest.mark.parametrize("style", STYLES)
def test_hanging_is_wrong_and_names_the_limit(bench, style):
    score = bench.judge(STYLES[style], "def tripled(n):\n    while True: pass", cpu_seconds=0.5, wall_seconds=5)
    assert score.outcome is Outcome.WRONG
    assert "limit: " in score.reason


def test_the_time_of_all_runs_is_limited(bench):
    score = bench.judge(ASSERTS, "import time\ndef tripled(n):\n    time.sleep(0.4)\n    return 3 * n", total_seconds=0.5, wall_seconds=0.5)
    assert score.outcome is Outcome.WRONG
    assert score.reason.startswith("limit: total, 0.5 s")


BAD = [
    ({**CALLS, **ASSERTS}, "both fn_name and asserts"),
    ({**CALLS, "fn_name": "a.b"}, "name of a function"),
    ({**CALLS, "inputs": [3, 4]}, "list of arguments"),
    ({**CALLS, "inputs": ["x", "1"], "outputs": ["1", "1"]}, "not one JSON value per line"),
    ({**CALLS, "inputs": ["1", "1"], "outputs": ["x", "1"]}, "not JSON"),
    ({**CALLS, "outputs": [1]}, "2 inputs and 1 outputs"),
    ({**ASSERTS, "asserts": [3]}, "Python statements"),
    ({**ASSERTS, "setup": 3}, "setup of test_cases is of type int"),
    ({**CHECK, "entry_point": ""}, "entry_point"),
    ({"inputs": ["1"], "accepted": [[]]}, "accepted 1"),
    ({"inputs": ["1"], "accepted": [["1"]], "outputs": ["1"]}, "both outputs and accepted"),
    ({"inputs": ["1"], "outputs": ["1"], "checker": " "}, "checker"),
    ({"inputs": ["1"], "outputs": ["1"], "numeric": 1}, "numeric"),
]


@pytest.mark.parametrize(("tests", "words"), BAD, ids=[words for _, words in BAD])
def test_tests_that_cannot_be_used_are_one_sentence(tests, words):
    problem = CodeReward().check({"test_cases": tests})
    assert words in problem
    assert "\n" not in problem


def test_each_style_has_a_key_of_its_own():
    assert [style.key for style in KNOWN] == ["fn_name", "asserts", "check", "test_file"]
    assert all(CodeReward().check({"test_cases": tests}) is None for tests in (CALLS, ASSERTS, CHECK, FILE))


LOOPS = {
    "a loop on what is unknown": (
        {"test_file": "it = Down(5)\nn = 0\nwhile it.more():\n    it.step()\n    n += 1\nassert n == 5"},
        "class Down:\n    def __init__(s, n): s.n = n\n    def more(s): return s.n > 0\n    def step(s): s.n -= 1",
    ),
    "a loop on a part of what is unknown": (
        {"test_file": "it = Down(3)\nn = 0\nwhile it.n:\n    it.step()\n    n += 1\nassert n == 3"},
        "class Down:\n    def __init__(s, n): s.n = n\n    def step(s): s.n -= 1",
    ),
    "thousands of calls": ({"test_file": "for n in range(7000):\n    assert f(n) == n + 1"}, "def f(n):\n    return n + 1"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_the_tests_end(bench, name):
    score = bench.judge(*LOOPS[name])
    assert score.outcome is Outcome.OK, score.reason


@pytest.mark.parametrize("style", STYLES)
def test_answers_nested_very_deep_are_wrong(bench, style):
    forged = (
        "import os\n"
        "for fd in range(3, 20):\n"
        "    for depth in (150, 300, 700, 900, 5000):\n"
        "        try: os.write(fd, b'{\"value\": ' + b'[' * depth + b']' * depth + b'}\\n')\n"
        "        except OSError: pass\n"
    )
    for program in (forged + "os._exit(0)", forged + "def tripled(n): return 3"):
        assert bench.judge(STYLES[style], program).outcome is Outcome.WRONG


def test_a_program_that_fills_its_answers_is_wrong(bench):
    assert bench.judge(CHECK, "def tripled(n):\n    return [[]] * (1 << 21)", cpu_seconds=20).reason.startswith("limit: output")
    assert bench.judge(CALLS, "def tripled(n):\n    return [[]] * (1 << 21)", cpu_seconds=20).reason.startswith("limit: output")


def test_arguments_that_are_larger_than_a_folder_usually_is(bench):
    large = "x" * (70 << 20)
    assert bench.judge({"fn_name": "f", "inputs": [[large]], "outputs": [len(large)]}, "def f(s):\n    return len(s)").outcome is Outcome.OK


def test_a_sandbox_with_another_python_gets_the_text(bench, monkeypatch):
    from rlcore_plugin_code import texts

    for side in (texts.program_side, texts.test_side):
        monkeypatch.setitem(side(), "side.bin", b"of another Python")
    for tests in STYLES.values():
        assert bench.judge(tests, RIGHT).outcome is Outcome.OK
        assert bench.judge(tests, WRONG).outcome is Outcome.WRONG


def test_an_object_of_the_program_swallows_no_assertion(bench):
    program = "class P:\n    n = 0\n    def __enter__(s): return s\n    def __exit__(s, *_): return True"
    assert bench.judge(coded("with P() as p:\n    assert p.n == 1"), program).outcome is Outcome.WRONG
