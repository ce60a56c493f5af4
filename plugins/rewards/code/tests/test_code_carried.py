"""What tests may do with a program that runs elsewhere: an honest one is right, another one wrong. What cannot be carried is ``invalid``
whatever the program does, so that no program gains by it."""

import pytest

from rlcore.api import Outcome

VECTOR = """
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __mul__(self, k): return Vector(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __truediv__(self, k): return Vector(self.x / k, self.y / k)
    def __floordiv__(self, k): return Vector(self.x // k, self.y // k)
    def __mod__(self, k): return Vector(self.x % k, self.y % k)
    def __pow__(self, k): return Vector(self.x ** k, self.y ** k)
    def __matmul__(self, other): return self.x * other.x + self.y * other.y
    def __iadd__(self, other):
        self.x += other.x
        self.y += other.y
        return self
    def __and__(self, k): return Vector(self.x & k, self.y & k)
    def __or__(self, k): return Vector(self.x | k, self.y | k)
    def __xor__(self, k): return Vector(self.x ^ k, self.y ^ k)
    def __lshift__(self, k): return Vector(self.x << k, self.y << k)
    def __rsub__(self, k): return Vector(k - self.x, k - self.y)
    def __pos__(self): return Vector(+self.x, +self.y)
    def __invert__(self): return Vector(~self.x, ~self.y)
    def __round__(self, digits=None): return Vector(round(self.x, digits), round(self.y, digits))
    def __eq__(self, other): return (self.x, self.y) == ((other.x, other.y) if isinstance(other, Vector) else other)
    def __hash__(self): return hash((self.x, self.y))
    def __lt__(self, other): return abs(self.x) + abs(self.y) < (other if isinstance(other, int) else abs(other.x) + abs(other.y))
    def __format__(self, spec): return f"<{self.x:{spec}}>"
    def __complex__(self): return complex(self.x, self.y)
    def __bytes__(self): return bytes([self.x, self.y])
    def __index__(self): return self.x
    def __divmod__(self, k): return self // k, self % k
    def __reversed__(self): return iter([self.y, self.x])
"""
TABLE = """
class Table:
    "Keeps things."
    def __init__(self, **start): self.__dict__["kept"] = dict(start)
    def __getitem__(self, key): return self.kept[key] if not isinstance(key, slice) else sorted(self.kept)[key]
    def __setitem__(self, key, value): self.kept[key] = value
    def __delitem__(self, key): del self.kept[key]
    def __delattr__(self, name): self.kept.pop(name)
    def __contains__(self, key): return key in self.kept
    def __len__(self): return len(self.kept)
    def view(self): return self.kept.keys()
"""
CARRIED = {
    "operators": (
        [
            "v = Vector(6, 4)\nassert (v * 2).x == 12 and (3 * v).y == 12 and (v / 2).x == 3.0 and (v // 4).y == 1 and (v % 4).x == 2",
            "assert (Vector(2, 3) ** 2).y == 9 and Vector(1, 2) @ Vector(3, 4) == 11 and (10 - Vector(1, 2)).x == 9",
            "v = Vector(6, 4)\nw = v\nv += Vector(1, 1)\nassert w is v and w.x == 7",
            "v = Vector(6, 4)\nassert (v & 2).x == 2 and (v | 1).y == 5 and (v ^ 4).x == 2 and (v << 1).y == 8",
            "v = Vector(6, 4)\nassert (~v).x == -7 and (+v).y == 4 and round(v / 4, 1).x == 1.5 and [q.x for q in divmod(v, 4)] == [1, 2]",
            "assert Vector(2, 4) / 2 == Vector(1, 2) and Vector(1, 2) != (2, 2) and not Vector(1, 1) == None",
            "v = Vector(6, 4)\nassert f'{v:.1f}' == '<6.0>' and complex(v) == 6 + 4j and bytes(v) == b'\\x06\\x04' and 'abcdefg'[v] == 'g'",
            "assert list(reversed(Vector(6, 4))) == [4, 6] and max(Vector(1, 2), Vector(3, 4)).x == 3",
        ],
        VECTOR,
    ),
    "items and attributes that are deleted": (
        [
            "t = Table(a=1, b=2)\ndel t['a']\nassert 'a' not in t.view() and len(t) == 1",
            "t = Table(a=1, b=2)\ndel t.b\nassert 'b' not in t.view() and t['a'] == 1 and t[0:1] == ['a'] and t.view() == {'a'}",
        ],
        TABLE,
    ),
    "what objects tell of themselves": (
        [
            "t = Table()\nassert type(t).__name__ == 'Table' and t.__class__.__name__ == 'Table' and t.__class__ is type(t)",
            "assert type(Table()) is Table and Table.__doc__ == 'Keeps things.' and Table(a=1).__dict__ == {'kept': {'a': 1}}",
            "assert type(Table().view()).__name__ == 'dict_keys' and issubclass(Table, object) and not issubclass(Table, dict)",
        ],
        TABLE,
    ),
    "copies": (
        [
            "import copy\nt = Table(a=[1])\nu, v = copy.copy(t), copy.deepcopy(t)\nt['a'].append(2)\nu['b'] = 3\n"
            "assert v['a'] == [1] and 'b' in t.view()"
        ],
        TABLE,
    ),
    "containers of the library": (
        [
            "from collections import deque, OrderedDict, Counter, defaultdict",
            "q = deque([1, 2])\nassert turned(q) == deque([2, 1]) and q == deque([2, 1]) and isinstance(turned(q), deque)",
            "assert counted('aab') == Counter('aab') and isinstance(counted('a'), Counter) and counted('a')['z'] == 0",
            "assert list(ordered({'b': 1, 'a': 2}).items()) == [('a', 2), ('b', 1)] and isinstance(ordered({}), OrderedDict)",
            "d = defaultdict(list)\nfilled(d, 'x')\nassert d == {'x': [1]} and d['y'] == []",
        ],
        (
            "from collections import *\n"
            "def turned(q):\n    q.rotate(1)\n    return q\n"
            "counted = Counter\n"
            "def ordered(d): return OrderedDict(sorted(d.items()))\n"
            "def filled(d, key): d[key].append(1)\n"
        ),
    ),
    "an argument by keyword": (["xs = [3, 1]\nput(xs=xs)\nassert xs == [1, 3]"], "def put(xs): xs.sort()"),
    "an argument that is passed twice": (
        ["xs = [1]\njoin(xs, xs)\nassert xs == [1, 1, 9]", "xs = [1]\njoin(b=xs, a=xs)\nassert xs == [1, 1, 9]"],
        "def join(a, b):\n    a.extend(list(b))\n    b.append(9)",
    ),
    "one list in several places": (
        ["row = [0, 0]\ngrid = [row, row]\nmark(grid)\nassert row == [7, 0] and grid == [[7, 0], [7, 0]] and grid[0] is row"],
        "def mark(grid):\n    grid[0][0] = 7",
    ),
    "a list within": (
        [
            "a, b = [2, 1], {'k': [5, 4]}\nmark((a, b))\nassert a == [1, 2] and b['k'] == [4, 5]",
            "a = [2, 1]\nmark([a, {'k': a}])\nassert a == [1, 2]",
        ],
        "def mark(pair):\n    pair[0].sort()\n    pair[1]['k'].sort()",
    ),
    "the argument itself": (
        ["xs = [2, 1]\nassert mark(xs) is xs and xs == [1, 2]", "xs = [1]\nassert mark(xs) is not [1]"],
        "def mark(xs):\n    xs.sort()\n    return xs",
    ),
    "an argument that the program keeps": (
        ["xs = [1]\nt = Keeper(xs)\nt.add(2)\nassert xs == [1, 2]\nxs.append(3)\nassert t.last() == 3 and t.all() == [1, 2, 3]"],
        "class Keeper:\n    def __init__(s, xs): s.xs = xs\n    def add(s, x): s.xs.append(x)\n    def last(s): return s.xs[-1]\n"
        "    def all(s): return s.xs",
    ),
    "a list in itself": (["xs = [1]\nxs.append(xs)\nmark(xs)\nassert xs[0] == 2 and xs[1] is xs"], "def mark(xs):\n    xs[1][0] = 2"),
    "exceptions that are passed on": (
        [
            "try:\n    fail(3)\nexcept ValueError as error:\n    seen = error\nassert told(seen) == 'no 3' and told(error=seen) == 'no 3'",
            "assert told(KeyError('k')) == \"'k'\" and isinstance(made(4), ValueError) and str(made(4)) == 'no 4'",
        ],
        "def fail(n): raise made(n)\ndef made(n): return ValueError(f'no {n}')\ndef told(error): return str(error)",
    ),
    "coroutines": (
        [
            "import asyncio\nassert asyncio.run(later(3)) == 4",
            "import asyncio\nasync def main():\n    return [await later(1), *await asyncio.gather(later(5), later(6))]\n"
            "assert asyncio.run(main()) == [2, 6, 7]",
            "import asyncio\nasync def main():\n    async with Gate() as gate:\n        return [n async for n in gate.all()]\n"
            "assert asyncio.run(main()) == [0, 1]",
        ],
        (
            "import asyncio\n"
            "async def later(n):\n    await asyncio.sleep(0)\n    return n + 1\n"
            "class Gate:\n"
            "    async def __aenter__(s): return s\n"
            "    async def __aexit__(s, *_): pass\n"
            "    async def all(s):\n        for n in range(2): yield n\n"
        ),
    ),
    "typed input": (
        [
            "from unittest import mock\nwith mock.patch('builtins.input', side_effect=['4', '5']):\n    assert ask() == 9",
            "from unittest.mock import patch\nwith patch('builtins.input', return_value='3') as typed:\n"
            "    assert ask() == 6 and typed.call_count == 2",
            "import io, sys\nsys.stdin = io.StringIO('6\\n7\\n8')\nassert ask() == 13 and input() == '8'",
            "import builtins\nlines = iter(['1', '2', '3', '4'])\nbuiltins.input = lambda _='': next(lines)\n"
            "assert ask() == 3 and ask() == 7",
        ],
        "def ask(): return int(input('a? ')) + int(input('b? '))",
    ),
    "what it prints": (
        [
            "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    say(3)\n"
            "assert out.getvalue() == '3!\\n'",
            "import io, sys\nfrom unittest.mock import patch\nwith patch('sys.stdout', new_callable=io.StringIO) as out:\n    say(4)\n"
            "assert out.getvalue() == '4!\\n'",
        ],
        "def say(n): print(f'{n}!')",
    ),
    "prompts": (
        [
            "import io, contextlib, sys\nout, sys.stdin = io.StringIO(), io.StringIO('5\\n')\nwith contextlib.redirect_stdout(out):\n"
            "    assert ask() == 5\nassert out.getvalue() == 'n? '",
            "import io, contextlib\nfrom unittest.mock import patch\nout = io.StringIO()\n"
            "with patch('builtins.input', return_value='5'), contextlib.redirect_stdout(out):\n"
            "    assert ask() == 5\nassert out.getvalue() == ''",
        ],
        "def ask(): return int(input('n? '))",
    ),
    "functions of the library": (
        [
            "import operator, math\n"
            "assert apply(operator.add, 1, 2) == 3 and apply(math.gcd, 4, 6) == 2 and apply(len, [1]) == 1 and apply(int, '3') == 3"
        ],
        "def apply(function, *values): return function(*values)",
    ),
}


@pytest.mark.parametrize("name", CARRIED)
def test_what_is_carried(bench, name):
    lines, program = CARRIED[name]
    for row in ({"asserts": lines}, {"test_file": "\n".join(lines)}):
        score = bench.judge(row, program)
        assert score.outcome is Outcome.OK, score.reason


@pytest.mark.parametrize("name", CARRIED)
def test_another_program_is_wrong(bench, name):
    lines, _ = CARRIED[name]
    for other in (
        "class Vector:\n    def __init__(s, *_, **__): pass\n    def __getattr__(s, n): return lambda *_, **__: 7\n"
        "def f(*_, **__):\n    return 7\n"
        "Table = Keeper = Gate = Vector\n"
        "put = join = mark = turned = counted = ordered = filled = fail = made = told = later = ask = say = apply = f",
        "x = 1",
    ):
        score = bench.judge({"asserts": lines}, other)
        assert score.outcome is Outcome.WRONG, score.reason


PYTEST = """
import pytest
from solution import later, say


@pytest.mark.asyncio
async def test_later():
    assert await later(3) == 4


def test_typed(monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _="": "5")
    assert ask() == 10
"""
PROGRAM = "async def later(n): return n + 1\ndef say(n): print(f'{n}!')\ndef ask(): return int(input()) + int(input())"


def test_coroutines_and_input_in_a_file_for_pytest(bench):
    tests = {"test_file": PYTEST.replace("later, say", "later, ask")}
    assert bench.judge(tests, PROGRAM).outcome is Outcome.OK
    for old, new in (("n + 1", "n"), ("int(input()) +", "1 +")):
        assert bench.judge(tests, PROGRAM.replace(old, new)).outcome is Outcome.WRONG, old


def test_coroutines_in_a_file_for_unittest(bench):
    tests = {
        "test_file": (
            "import unittest\nfrom solution import later\nclass TestIt(unittest.IsolatedAsyncioTestCase):\n"
            "    async def asyncSetUp(self):\n        self.n = await later(1)\n"
            "    async def test_it(self):\n        self.assertEqual(await later(self.n), 3)\n"
        )
    }
    assert bench.judge(tests, PROGRAM).outcome is Outcome.OK
    assert bench.judge(tests, PROGRAM.replace("n + 1", "n")).outcome is Outcome.WRONG


NOT_CARRIED = {
    "a function of the tests": (["assert f(lambda n: n, 1) == 1"], "cannot be sent"),
    "one by keyword": (["assert f(key=lambda n: n) == 1"], "cannot be sent"),
    "a class of the tests": (["class Mine:\n    pass\nassert f(Mine()) == 1"], "Mine"),
    "an exception of the tests": (["class Mine(Exception):\n    pass\nassert f(Mine(1)) == 1"], "Mine"),
    "a print that is replaced": (
        ["from unittest.mock import patch\nwith patch('builtins.print') as said:\n    f(1)\nassert said.called"],
        "print",
    ),
    "a patched library": (["from unittest.mock import patch\nwith patch('time.sleep'):\n    assert f(1) == 1"], "time.sleep"),
    "a patched program": (["import solution\nsolution.g = lambda: 3\nassert f(1) == 1"], "replace g"),
    "a file that the tests write": (["open('x.txt', 'w').close()\nassert f('x.txt') == 1"], "x.txt"),
    "a file that the program writes": (["f('y.txt')\nassert open('y.txt').read() == 'a'"], "y.txt"),
    "a pickle": (["import pickle\nassert pickle.loads(pickle.dumps(Thing(1))).n == 1 and f(1) == 1"], "pickle"),
    "a signature": (["import inspect\nassert len(inspect.signature(f).parameters) == 1"], "inspect."),
    "catching everything": (["try:\n    f(lambda n: n)\nexcept Exception:\n    pass\nassert f(1) == 1"], "cannot be sent"),
}


@pytest.mark.parametrize("name", NOT_CARRIED)
def test_what_is_not_carried_is_no_verdict_whatever_the_program_does(bench, name):
    lines, word = NOT_CARRIED[name]
    for program in ("class Thing:\n    def __init__(s, n): s.n = n\ndef f(*_, **__): return 1", "def f(*_, **__): return 2\nThing = f"):
        score = bench.judge({"asserts": lines}, program)
        if name == "a pickle" and "class" not in program:
            continue  # there is no object to be pickled
        assert score.outcome is Outcome.INVALID, (program, score.outcome, score.reason)
        assert word in score.reason
        assert "\n" not in score.reason


ALWAYS = (
    "class Always:\n"
    "    def __getattr__(s, n): return lambda *_, **__: True\n"
    "    def same(s, *_): return True\n"
    "    def nothing(s, *_): return 0\n"
    "    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = same\n"
    "    __sub__ = __rsub__ = __truediv__ = __mod__ = __abs__ = __round__ = __float__ = __neg__ = nothing\n"
    "    def __hash__(s): return 0\n"
    "Found = Root = root = lambda *_: Always()\n"
)


@pytest.mark.parametrize(
    "lines",
    [
        ["assert abs(root(2) - 1.41) < 0.01"],
        ["assert abs(Root(2) - 1.41) < 0.01", "assert Root(9) == 3"],
        ["assert root(9) == 3"],
        ["assert Found('ab') == 'a'", "assert Found('cd').strip() == 'c'"],
        ["assert root(9) >= 3 and root(9) <= 3"],
        ["assert 3 in root(9)"],
        ["assert root(2) / 1.41 < 1.01"],
        ["import unittest\nunittest.TestCase().assertAlmostEqual(root(2), 1.41, 1)"],
        ["import pytest\nassert root(2) == pytest.approx(1.41, 0.1)"],
    ],
)
@pytest.mark.parametrize(
    "program",
    [
        ALWAYS,
        ALWAYS.replace("Found = Root = root = lambda *_: Always()", "Found = Root = root = Always\nAlways.__init__ = lambda *_: None"),
    ],
)
def test_an_object_that_agrees_with_everything_is_wrong(bench, lines, program):
    score = bench.judge({"asserts": lines}, program)
    assert score.outcome is Outcome.WRONG, score.reason


KNOWS = """
known = [None]
class R:
    def learn(s, o):
        known[0] = o
        return True
    __eq__ = __lt__ = __gt__ = __contains__ = learn
    def __sub__(s, o):
        known[0] = o
        return 0
    __rsub__ = __abs__ = lambda s, *o: R()
class Vector(R):
    def __init__(s, x, y): s.x, s.y = x, y
    __mul__ = __neg__ = __round__ = __abs__ = __copy__ = lambda s, *o: R()
    def norm(s): return known[0]
def norm_of(x, y): return known[0]
"""


@pytest.mark.parametrize(
    "compared",
    [
        *("abs(v) == 5", "v * Vector(1, 2) == 11", "-v == 77", "round(v, 2) == 77", "abs(v) in (5, 5.0)", "4.9 < abs(v) < 5.1"),
        *("v == 77", "abs(abs(v) - 5) < 1e-9", "9 in v", "v < 5", "(v * 2) - 5 == 1"),
    ],
)
def test_no_operator_of_the_program_is_told_what_is_expected(level_bench, compared):
    tests = {"asserts": [f"v = Vector(3, 4)\nassert v.x == 3\nassert {compared}\nassert v.norm() == 5", "assert norm_of(3, 4) == 5"]}
    assert level_bench.judge(tests, KNOWS).outcome is not Outcome.OK


def test_an_object_of_a_class_beside_a_plain_value_is_no_verdict(bench):
    for line in ("assert v == (1, 2)", "assert v < 5", "assert (1, 2) == v"):
        assert bench.judge({"asserts": [f"v = Vector(1, 2)\nassert v.x == 1\n{line}"]}, VECTOR).outcome is Outcome.INVALID
        assert bench.judge({"asserts": ["v = Vector(1, 2)\nassert v != 'x'\nassert v.x == 2"]}, VECTOR).outcome is Outcome.WRONG


GROWS = """
import json
asked = len(json.load(open("calls.json")))
def f(x):
    return "x" * min(asked * 300_000, 3_900_000)
"""


def test_answers_that_grow_from_round_to_round_are_wrong(bench):
    tests = {"test_file": "x = f(0)\nfor n in range(150):\n    x = f(len(x) + n)\nassert x == 3"}
    score = bench.judge(tests, GROWS, cpu_seconds=20)
    assert score.outcome is Outcome.WRONG
    assert score.reason.startswith("limit: ")


def test_time_that_the_judge_spends_counts_as_the_program_s(scripted):
    reward, sandbox = scripted(lambda job: None)
    from rlcore_plugin_code import runs

    judged = runs.Runs(sandbox, reward.options)
    judged._since -= 1000.0  # as if this thread had worked for a thousand seconds since
    with pytest.raises(runs.OutOfTime):
        judged.run(source=b"")
