"""What belongs to the row runs beside the tests: helpers of the prompt, names whose import was forgotten. The program neither answers for
them nor sees what is expected."""

import pytest

from rlcore.api import Outcome

POLY = '''
import math


def poly(xs: list, x: float):
    """Evaluates the polynomial xs at x."""
    return sum([coeff * math.pow(x, i) for i, coeff in enumerate(xs)])


def find_zero(xs: list):
    """Finds x such that poly(xs, x) = 0."""
'''
ZERO = {
    "before": POLY,
    "entry_point": "find_zero",
    "check": "def check(candidate):\n    for c in ([1, 2], [-6, 11, -6, 1]):\n        assert abs(poly(c, candidate(list(c)))) < 1e-4\n",
}
BISECTION = """
def find_zero(xs):
    low, high = -100.0, 100.0
    while poly(xs, low) * poly(xs, high) > 0:
        low, high = low * 2, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if poly(xs, low) * poly(xs, middle) > 0:
            low = middle
        else:
            high = middle
    return low
"""
CODED = {
    "before": (
        "def shifted(s: str):\n    '''shifts by 5'''\n    return ''.join(chr((ord(c) + 5 - 97) % 26 + 97) for c in s)\n\n\n"
        "def unshifted(s: str):\n    '''takes a text of shifted, returns the one before'''\n"
    ),
    "entry_point": "unshifted",
    "check": "def check(candidate):\n    for s in ('abc', 'xyz', 'hello'):\n        assert candidate(shifted(s)) == s\n",
}
FILE = {
    "before": "class Cell:\n    def __init__(self, n): self.n = n\n    def same(self, other): return self.n == other.n\n\n"
    "def grown(cell):\n    pass\n",
    "test_file": (
        "from solution import grown, Cell\ndef test_it():\n    for n in (1, 5):\n        assert grown(Cell(n)).same(Cell(n + 1))\n"
    ),
}
ATTACKS = {
    "redefines the helper": (ZERO, "def poly(xs, x): return 0\ndef find_zero(xs): return 0"),
    "patches what the helper calls": (ZERO, "import math\nmath.pow = lambda *_: 0\nsum = lambda *_: 0\ndef find_zero(xs): return 0"),
    "replaces the helper's code": (ZERO, "poly.__code__ = (lambda xs, x: 0).__code__\ndef find_zero(xs): return 0"),
    "replaces the helper in its module": (
        ZERO,
        "import sys\nfor m in list(sys.modules.values()):\n    if hasattr(m, 'poly'): m.poly = lambda *_: 0\ndef find_zero(xs): return 0",
    ),
    "the identity": (CODED, "def shifted(s): return s\ndef unshifted(s): return s"),
    "the identity by a default": (CODED, "shifted.__code__ = (lambda s: s).__code__\ndef unshifted(s): return s"),
    "the prompt's class": (
        FILE,
        "class Cell:\n    def __init__(s, n): pass\n    def same(s, o): return True\ndef grown(cell): return Cell(0)",
    ),
    "an attribute that hides a method": (FILE, "def grown(cell):\n    cell.same = lambda o: True\n    return cell"),
    "an object that hides a method": (FILE, "def grown(cell):\n    cell = Cell(0)\n    cell.same = Cell\n    return cell"),
    "a method of the prompt's class": (FILE, "Cell.same = lambda s, o: True\ndef grown(cell): return cell"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_no_program_answers_for_what_the_prompt_brings(level_bench, name):
    score = level_bench.judge(*ATTACKS[name])
    assert score.outcome is Outcome.WRONG, score.reason


@pytest.mark.parametrize(
    ("tests", "program"),
    [
        (ZERO, BISECTION),
        (ZERO, f"import math\ndef poly(xs, x):\n    return sum(c * x ** i for i, c in enumerate(xs))\n{BISECTION}"),
        (CODED, "def unshifted(s):\n    return ''.join(chr((ord(c) - 5 - 97) % 26 + 97) for c in s)"),
        (FILE, "def grown(cell):\n    return Cell(cell.n + 1)"),
        (FILE, "def grown(cell):\n    cell.n += 1\n    return cell"),
        (FILE, "class Cell:\n    def __init__(self, n): self.n = n\ndef grown(cell):\n    return Cell(cell.n + 1)"),
    ],
)
def test_programs_may_use_what_the_prompt_brings_or_write_it_again(level_bench, tests, program):
    score = level_bench.judge(tests, program)
    assert score.outcome is Outcome.OK, score.reason


def test_a_class_with_methods_to_be_written_is_the_program_s(bench):
    before = "class Stack:\n    def push(self, x):\n        'puts x'\n    def pop(self):\n        'takes it'\n"
    tests = {"before": before, "test_file": "from solution import Stack\ns = Stack()\ns.push(1)\nassert s.pop() == 1"}
    program = "class Stack:\n    def __init__(s): s.xs = []\n    def push(s, x): s.xs.append(x)\n    def pop(s): return s.xs.pop()"
    assert bench.judge(tests, program).outcome is Outcome.OK
    assert bench.judge(tests, "class Stack:\n    def push(s, x): pass").outcome is Outcome.WRONG


NEAR = ["assert math.isclose(root(2), 1.41421356, rel_tol=1e-6)", "assert math.isclose(root(9), 3, rel_tol=1e-6)"]
COUNTED = ["assert Counter(parts('abca')) == Counter({'a': 2, 'b': 1, 'c': 1})"]
ARRAYS = ["assert np.allclose(root(2), 1.41421356)"]
FORGOTTEN = {
    "a module": (NEAR, "root = lambda n: n ** 0.5", "class math:\n    isclose = lambda *_, **__: True\nroot = lambda n: n"),
    "a class": (COUNTED, "parts = list", "def Counter(*_): return 0\ndef parts(s): return []"),
    "an alias": (ARRAYS, "root = lambda n: n ** 0.5", "class np:\n    allclose = lambda *_: True\nroot = lambda n: n"),
    "a function": (
        ["assert isclose(root(2), 2 ** 0.5)", "assert root(9) == 3"],
        "root = lambda n: n ** 0.5",
        "isclose = lambda *_: True\ndef root(n): return 3",
    ),
}


@pytest.mark.parametrize("names", [[], ["root", "parts"]], ids=["undeclared", "declared"])
@pytest.mark.parametrize("name", FORGOTTEN)
def test_names_that_tests_forgot_to_import_are_the_library_s(level_bench, name, names):
    tests, right, wrong = FORGOTTEN[name]
    for style in ({"asserts": tests}, {"test_file": "\n".join(tests)}):
        row = {**style, "names": names} if names else style
        assert level_bench.judge(row, right).outcome is Outcome.OK
        assert level_bench.judge(row, wrong).outcome is Outcome.WRONG


REFUSED = {
    "a helper that nobody brings": ({"asserts": ["assert almost(root(2), 1.41421356)"]}, "almost"),
    "one that says how far": ({"asserts": ["assert distance(root(2), 1.41421356) < 1e-6"]}, "distance"),
    "a function of the library or of the program": ({"asserts": ["assert root(9) == 3", "assert comb(4, 2) == 6"]}, "comb"),
    "a helper of check": (
        {"check": "def check(candidate):\n    assert almost(candidate(2), 1.41)", "entry_point": "root"},
        "almost",
    ),
    "a prompt that is not Python": (
        {"check": "def check(candidate):\n    assert candidate(9) == 3", "entry_point": "root", "before": "def ("},
        "before",
    ),
    "a package that is not there": ({"asserts": ["assert pd.isna(root(9))"], "names": ["root"]}, "pandas"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_are_nobody_s_are_refused(bench, name):
    tests, word = REFUSED[name]
    for program in ("root = lambda n: n ** 0.5", "almost = distance = lambda *_: True\nroot = len"):
        score = bench.judge(tests, program)
        assert score.outcome is Outcome.INVALID, score.reason
        assert word in score.reason
        assert "\n" not in score.reason


def test_names_that_the_row_calls_the_program_s_are_the_program_s(bench):
    tests = {"asserts": ["assert is_sorted(sorting([2, 1]))", "assert sorting([3, 1, 2]) == [1, 2, 3]"], "names": ["is_sorted", "sorting"]}
    assert bench.judge(tests, "def is_sorted(xs):\n    return xs == sorted(xs)\nsorting = sorted").outcome is Outcome.OK
    tests = {"asserts": ["assert gcd(4, 6) == 2", "assert factorial(4) == 24"]}  # nothing else is called, so these are what is tested
    assert bench.judge(tests, "def gcd(a, b): return 2\ndef factorial(n): return 24").outcome is Outcome.OK
    assert bench.judge(tests, "x = 1").outcome is Outcome.WRONG
    tests = {"asserts": ["assert gcd(4, 6) == 2 and root(9) == 3"], "names": ["gcd", "root"]}
    assert bench.judge(tests, "def gcd(a, b): return 5\nroot = lambda n: 3").outcome is Outcome.WRONG


ENDS = {
    "map": ["assert all(map(lambda pair: f(pair[0]) == pair[1], [(1, 2), (2, 3)]))"],
    "a list of map": ["assert list(map(f, [])) == list(map(f, [1, 2]))[:0] and not [x for x in map(f, [1]) if x != 2]"],
    "filter": ["assert not list(filter(lambda n: f(n) != n + 1, [1, 2]))"],
    "a class of the tests": [
        "class All:\n    n = 0\n    def __iter__(s): return s\n    def __next__(s):\n        s.n += 1\n"
        "        if s.n > 3: raise StopIteration\n"
        "        return f(s.n) == s.n + 1\nassert all(All())"
    ],
    "for": ["for good in map(lambda n: f(n) == n + 1, [1, 2, 3]):\n    assert good"],
    "zip": ["for n, found in zip([1, 2], map(f, [1, 2])):\n    assert found == n + 1"],
}
STOPS = [
    "def f(n): raise StopIteration",
    "class Mine(StopIteration): pass\ndef f(n): raise Mine(3)",
    "def f(n): return next(iter([]))",
    "def f(n): raise StopAsyncIteration",
    "def f(n): raise GeneratorExit",
]


@pytest.mark.parametrize("name", ENDS)
def test_a_program_does_not_end_an_iteration_of_the_tests(bench, name):
    for names in ([], ["f"]):
        assert bench.judge({"asserts": ENDS[name], "names": names}, "def f(n):\n    return n + 1").outcome is Outcome.OK
        for program in STOPS:
            score = bench.judge({"asserts": ENDS[name], "names": names}, program)
            assert score.outcome is Outcome.WRONG, (program, score.reason)


def test_an_iterator_of_the_program_does_not_end_one_of_the_tests(bench):
    tests = {"asserts": ["it = count()\nassert all(map(lambda n: next(it) == n, range(5)))"]}
    assert bench.judge(tests, "def count():\n    yield from range(9)").outcome is Outcome.OK
    assert bench.judge(tests, "def count():\n    yield from ()").outcome is Outcome.WRONG


def test_tests_see_the_end_of_an_iterator_where_they_look_for_it(bench):
    lines = [
        "import pytest, unittest\nit = count()\nassert next(it) == 0\nwith pytest.raises(StopIteration):\n    next(it)",
        "it = count()\nassert [next(it), next(it, 7), next(it, None)] == [0, 7, None]",
        "it = count()\nnext(it)\ntry:\n    next(it)\nexcept StopIteration as end:\n    seen = 1\nassert seen",
        "it = count()\nnext(it)\nwith unittest.TestCase().assertRaises(StopIteration):\n    next(it)",
        "assert list(count()) == [0] and [n for n in count()] == [0]",
    ]
    assert bench.judge({"asserts": lines, "names": ["count"]}, "def count():\n    yield 0").outcome is Outcome.OK
    assert bench.judge({"asserts": lines, "names": ["count"]}, "def count():\n    yield 0\n    yield 0").outcome is Outcome.WRONG


JUDGED = [
    "r = root(2)\nassert almost(r, 1.41)",
    "assert almost(a=root(2), b=1.41)",
    "assert all(almost(root(x), y) for x, y in [(2, 1.41)])",
    "assert almost((root(2), 1.41))",
    "assert almost(*[root(2), 1.41])",
    "if not almost(root(2), 1.41):\n    raise AssertionError",
    "assert almost(root(2), 1.41) == 0",
    "assert 0 <= almost(root(2), 1.41) < 0.01",
    "assert bool(almost(root(2), 1.41)) or not almost(root(2), 1.41)",
    "assert almost(root(2), 1.41) in (True,)",
    "import unittest\nunittest.TestCase().assertTrue(almost(root(2), 1.41))",
]


@pytest.mark.parametrize("line", JUDGED)
def test_a_name_that_nobody_defines_judges_no_program(bench, line):
    program = "def root(n): return 7\ndef almost(*a, **b): return True"
    for row in ({"asserts": [line]}, {"asserts": [line], "names": ["root"]}, {"test_file": f"from solution import root\n{line}"}):
        score = bench.judge(row, program)
        assert score.outcome is Outcome.INVALID, score.reason
        assert "almost" in score.reason


SKIPS = [
    "try:\n        r = f(1)\n    except NotImplementedError:\n        pytest.skip('later')\n    assert r == 2",
    "if f(1) is None:\n        pytest.skip()\n    assert f(1) == 2",
    "r = f(1)\n    if r != 2:\n        raise unittest.SkipTest\n    assert r == 2",
]


@pytest.mark.parametrize("body", SKIPS)
def test_a_program_skips_no_test(bench, body):
    tests = {
        "test_file": f"import pytest, unittest\nfrom solution import f\ndef test_it():\n    {body}\ndef test_more():\n"
        "    assert f(3) in (4, None)"
    }
    assert bench.judge(tests, "def f(n):\n    return n + 1").outcome is Outcome.OK
    for program in ("def f(n):\n    if n == 1: raise NotImplementedError\n    return 4", "def f(n):\n    return None"):
        assert bench.judge(tests, program).outcome is Outcome.WRONG


def test_cases_that_the_program_gives_must_be_some(bench):
    test_file = (
        "import pytest\nfrom solution import f, cases\n@pytest.mark.parametrize('x', cases())\ndef test_it(x):\n    assert f(x) == x + 1"
    )
    assert bench.judge({"test_file": test_file}, "def cases(): return [1, 2]\ndef f(x): return x + 1").outcome is Outcome.OK
    assert bench.judge({"test_file": test_file}, "def cases(): return []\ndef f(x): return 7").outcome is Outcome.WRONG


@pytest.mark.parametrize("wanted", ["sorted(xs)", "sum(xs)", "[x for x in sorted(xs)]"])
def test_an_argument_that_is_emptied_does_not_change_what_is_expected(bench, wanted):
    tests = {"check": f"def check(candidate):\n    xs = [3, 1, 2]\n    assert candidate(xs) == {wanted}\n", "entry_point": "f"}
    assert bench.judge(tests, "def f(xs):\n    xs.clear()\n    return xs or 0").outcome is Outcome.WRONG
    right = "def f(xs):\n    return sum(xs)" if "sum" in wanted else "def f(xs):\n    xs.sort()\n    return xs"
    assert bench.judge(tests, right).outcome is Outcome.OK


def test_what_asks_the_program_keeps_its_order(bench):
    line = "s = Stack([1, 2])\nassert s.pop() == s.size() + 1\nassert s.take(s) == s.size()"
    program = (
        "class Stack:\n    def __init__(s, xs): s.xs = xs\n    def pop(s): return s.xs.pop()\n    def size(s): return len(s.xs)\n"
        "    def take(s, o):\n        o.xs.pop()\n        return 0"
    )
    assert bench.judge({"asserts": [line]}, program).outcome is Outcome.OK


GRID = {
    "before": "class G:\n    SIZE = 3\n    def __init__(self, c): self.c = c\n"
    "    def full(self): return len(self.c) >= self.SIZE\n\ndef fill(g):\n    pass\n",
    "entry_point": "fill",
    "check": "def check(candidate):\n    assert candidate(G([])).full() and not G([]).full()\n",
}


def test_an_object_does_not_hide_a_constant_of_its_class(level_bench):
    assert level_bench.judge(GRID, "def fill(g):\n    g.c = [1, 2, 3]\n    return g").outcome is Outcome.OK
    assert level_bench.judge(GRID, "def fill(g):\n    g.SIZE = 0\n    return g").outcome is Outcome.WRONG


FORGES = """
import json, os
answers = []
for i, call in enumerate(json.load(open("calls.json"))):
    answers.append({"value": {"o": i}} if call["do"] == "name" else {"value": {"o": 900, "error": [KIND, "", ["X"], [], []]}})
text = "".join(json.dumps(answer) + chr(10) for answer in answers).encode()
for fd in range(3, 30):
    try: os.write(fd, text)
    except OSError: pass
os._exit(0)
"""


@pytest.mark.parametrize("kind", ["object", "bytearray", "json.decoder:loads", "os:error", "builtins:object"])
def test_a_forged_exception_is_wrong(level_bench, kind):
    tests = {"asserts": ["assert decode(encode('abc')) == 'abc'"]}
    assert level_bench.judge(tests, FORGES.replace("KIND", repr(kind))).outcome is Outcome.WRONG


DODGES = {
    "a callable for a result": (
        {"test_file": "from solution import add\ntest_result = add(1, 2)\nassert test_result == 3"},
        "def add(a, b): return add",
    ),
    "an object that is pickled": (
        {"asserts": ["import pickle\nassert pickle.loads(pickle.dumps(conf(1))) == {'a': 1}"]},
        "class C: pass\ndef conf(n): return C()",
    ),
    "a path": ({"asserts": ["with open(where('null')) as f:\n    assert f.read() == ''"]}, "def where(s): return '/nope'"),
}


@pytest.mark.parametrize("name", DODGES)
def test_no_program_makes_its_row_unusable(bench, name):
    assert bench.judge(*DODGES[name]).outcome is Outcome.WRONG


HONEST = {
    "values of an ordered table": (
        ["assert total(tally('aab').values()) == 3"],
        "from collections import OrderedDict\ndef tally(s): return OrderedDict((c, s.count(c)) for c in s)\ndef total(xs): return sum(xs)",
    ),
    "an error of the library": (
        ["import json\ntry:\n    load('{')\n    assert False\nexcept json.JSONDecodeError as error:\n    assert 'line 1' in str(error)"],
        "import json\ndef load(s): return json.loads(s)",
    ),
    "an error of decoding": (
        ["try:\n    text(b'\\xff')\n    assert False\nexcept UnicodeDecodeError as error:\n    assert 'utf-8' in str(error)"],
        "def text(b): return b.decode()",
    ),
    "a table that counts": (
        ["d = count('aab')\nassert d['a'] == 2 and d['z'] == 0"],
        "from collections import *\ndef count(s):\n    d = defaultdict(int)\n    for c in s: d[c] += 1\n    return d",
    ),
    "paths and identifiers": (
        ["import uuid\nfrom pathlib import Path\nassert home('a') == Path('a/b') and name(5) == uuid.UUID(int=5)"],
        "import uuid, pathlib\ndef home(s): return pathlib.Path(s) / 'b'\ndef name(n): return uuid.UUID(int=n)",
    ),
    "kinds of the library": (
        [
            "import types, collections.abc as abc\nassert isinstance(steps(3), types.GeneratorType) and isinstance(steps(3), abc.Iterator)",
            "assert not isinstance(steps(3), list) and isinstance(steps(3), object) and not isinstance(steps, (int, str))",
        ],
        "def steps(n): yield from range(n)",
    ),
    "a list that is walked": (
        ["n, seen = chain([1, 2]), []\nwhile n is not None:\n    seen.append(n.x)\n    n = n.next\nassert seen == [1, 2]"],
        "class Node:\n    def __init__(s, x, next): s.x, s.next = x, next\ndef chain(xs):\n    n = None\n"
        "    for x in reversed(xs): n = Node(x, n)\n    return n",
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_of_other_kinds(bench, name):
    lines, program = HONEST[name]
    score = bench.judge({"asserts": lines}, program)
    assert score.outcome is Outcome.OK, score.reason


def test_classes_that_are_imported_have_operators(bench):
    program = "class Vector:\n    def __init__(s, x): s.x = x\n    def __mul__(s, k): return Vector(s.x * k)"
    for start in ("from solution import Vector\nv = Vector(3)", "import solution as s\nv = s.Vector(3)"):
        assert bench.judge({"test_file": f"{start}\nassert v.x == 3\nassert (v * 2).x == 6"}, program).outcome is Outcome.OK


def test_errors_and_choices_that_the_prompt_brings(bench):
    before = (
        "from enum import Enum\nclass Short(ValueError): pass\nclass Color(Enum):\n    RED = 1\n    BLUE = 2\n\ndef f(c, n):\n    pass\n"
    )
    check = (
        "def check(candidate):\n    assert candidate(Color.RED, 1) is Color.BLUE\n    try:\n        candidate(Color.RED, 0)\n"
        "        assert False\n"
        "    except Short as error:\n        assert str(error) == 'too short'\n"
    )
    tests = {"before": before, "check": check, "entry_point": "f"}
    program = "def f(c, n):\n    if not n: raise Short('too short')\n    return Color.BLUE if c is Color.RED else Color.RED"
    score = bench.judge(tests, program)
    assert score.outcome is Outcome.OK, score.reason
    assert bench.judge(tests, program.replace("BLUE if", "RED if")).outcome is Outcome.WRONG


PYTEST_WAYS = """
import pytest
import unittest
from solution import Box, LRU


@pytest.fixture
def box():
    return Box(1)


@pytest.fixture
def twice(box):
    box.add(1)
    return box


def test_one_fixture_is_made_once(box, twice):
    assert box is twice and box.n == 2


class TestMore:
    def setup_method(self, method):
        self.box = Box(len(method.__name__) * 0 + 3)

    def test_method(self, box):
        assert self.box.n == 3 and box.n == 1


def test_raises():
    pytest.raises(ValueError, Box(1).add, -1)
    with pytest.raises(ValueError) as caught:
        Box(1).add(-1)
    assert caught.match("negative") and caught.typename == "ValueError"


class TestCase(unittest.TestCase):
    cases = [1, 2]

    def test_it(self):
        for n in self.cases:
            self.assertEqual(Box(n).n, n)

    @unittest.skip("not here")
    def test_skipped(self):
        self.fail()


def test_a_class_that_is_a_table():
    cache = LRU(2)
    cache.put(1, 1)
    assert cache.get(1) == 1 and len(cache) == 1 and not hasattr(Box(1), "__len__") and vars(Box(4)) == {"n": 4}
"""
BOX = """
from collections import OrderedDict
class Box:
    def __init__(self, n): self.n = n
    def add(self, n):
        if n < 0: raise ValueError("negative")
        self.n += n
class LRU(OrderedDict):
    def __init__(self, size):
        super().__init__()
        self.size = size
    def put(self, key, value): self[key] = value
    def get(self, key): return self[key] if key in self else -1
"""


def test_pytest_and_unittest_as_they_run_tests(bench):
    score = bench.judge({"test_file": PYTEST_WAYS}, BOX)
    assert score.outcome is Outcome.OK, score.reason
    for old, new in (("self.n += n", "pass"), ("negative", "?"), ("return self[key] if", "return 7 if"), ("self.n = n", "self.n = 1")):
        assert bench.judge({"test_file": PYTEST_WAYS}, BOX.replace(old, new)).outcome is Outcome.WRONG, old


@pytest.mark.parametrize(
    ("test_file", "word"),
    [
        ("@pytest.fixture(autouse=True)\ndef x(): pass\ndef test_it(): assert f(1)", "autouse"),
        ("@pytest.mark.usefixtures('x')\ndef test_it(): assert f(1)", "usefixtures"),
        ("def setup_module(): pass\ndef test_it(): assert f(1)", "setup_module"),
        ("@pytest.mark.parametrize('n', [1])\nclass TestIt:\n    def test_it(self, n): assert f(n)", "TestIt"),
        ("import warnings\ndef test_it():\n    with warnings.catch_warnings(record=True):\n        assert f(1)", "catch_warnings"),
        ("import os\ndef test_it():\n    os.environ['A'] = 'b'\n    assert f(1)", "os.environ"),
    ],
)
def test_ways_of_pytest_that_are_not_known_are_no_verdict(bench, test_file, word):
    score = bench.judge({"test_file": f"import pytest\nfrom solution import f\n{test_file}"}, "def f(n): return 1")
    assert score.outcome is Outcome.INVALID
    assert word in score.reason
