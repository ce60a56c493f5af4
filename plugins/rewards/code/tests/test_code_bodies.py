"""Completions of HumanEval's prompts that are only the body of the function."""

import textwrap

import pytest
from rlcore_plugin_code.bodies import completed, unfenced_body
from rlcore_plugin_code.extract import fenced

from rlcore.api import Outcome

STUB = '''from typing import List


def halved(n):
    return n // 2


def grown(xs: List[int]) -> List[int]:
    """Each number with the one before it.

    >>> grown([1, 5])
    [1, 6]
    """
'''
CHECK = "def check(candidate):\n    assert list(candidate([4, 6, 1])) == [4, 10, 7]\n    assert list(candidate([])) == []\n"
BODY = "    last, out = 0, []\n    for x in xs:\n        out.append(x + last)\n        last = x\n    return out"
LEFT = textwrap.dedent(BODY)
HELPER = "    def pair(i):\n        return xs[i] + (xs[i - 1] if i else 0)\n\n    return [pair(i) for i in range(len(xs))]"


def row(stub=STUB, name="grown", check=CHECK):
    return {"check": check, "entry_point": name, "before": stub}


BODIES = {
    "as the prompt goes on": BODY,
    "at the left edge": LEFT,
    "two columns": textwrap.indent(LEFT, "  "),
    "a tab": LEFT.replace("    ", "\t").replace("\n", "\n\t").join(["\t", ""]),
    "deeper": textwrap.indent(BODY, "    "),
    "stripped": BODY.strip(),
    "a column lost from its first line": BODY[1:],
    "comments first": f"# adds them up\n\n{BODY}",
    "the documentation again": f'    """Each number\n    with another.\n    """\n{BODY}',
    "a function inside": HELPER,
    "a function inside, at the left edge": textwrap.dedent(HELPER),
    "a function inside, stripped": HELPER.strip(),
    "a function before loops that return, at the left edge": (
        "def pair(x, y):\n    return x + y\nwhile True:\n    out = list(map(pair, xs, [0] + xs))\n    if True:\n        return out"
    ),
    "a table first, stripped": "    names = {\n        1: 'one',\n    }\n    return [x + y for x, y in zip(xs, [0] + xs)]".strip(),
    "a table first, at the left edge": "names = {\n        1: 'one',\n    }\nreturn [x + y for x, y in zip(xs, [0] + xs)]",
    "a condition in one line": "if not xs: return []\nelse: return [x + y for x, y in zip(xs, [0] + xs)]",
    "a function inside, stripped, and an example": f"{HELPER}\n\n\nprint(grown([1]))".strip(),
    "an import": f"    import math\n{BODY}",
    "a helper of the stub": "    return [x + halved(2 * y) for x, y in zip(xs, [0] + xs)]",
    "one line": "return [x + y for x, y in zip(xs, [0] + xs)]",
    "one line over several": "return [\n    x + y\n    for x, y in zip(xs, [0] + xs)\n]",
    "a generator": "    for x, y in zip(xs, [0] + xs):\n        yield x + y",
    "a generator, at the left edge": "for x, y in zip(xs, [0] + xs):\n    yield x + y",
    "a loop that returns, at the left edge": "while True:\n    return [x + y for x, y in zip(xs, [0] + xs)]",
    "a name like the function's": "    grown = [x + y for x, y in zip(xs, [0] + xs)]\n    return grown",
    "an example after it": f"{BODY}\n\n\nprint(grown([1, 2]))",
    "an example after it, stripped": f"{BODY}\n\nif __name__ == '__main__':\n    print(grown([1, 2]))".strip(),
    "another function after it": f"{BODY}\n\n\ndef other(n):\n    return grown([n])",
    "a long string": f'    text = """\nat the edge\n"""\n{BODY}',
    "line ends of Windows": BODY.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_alone_is_completed(bench, name):
    score = bench.judge(row(), BODIES[name])
    assert score.outcome is Outcome.OK, score.reason
    assert score.parsed == fenced(BODIES[name])[len("```python\n") : -len("```\n")][:500]


STUBS = {
    "without documentation": "def grown(xs):\n",
    "without an end of line": "def grown(xs):",
    "over several lines": "def grown(\n  xs: list[int],\n) -> list[int]:  # all\n    '''Grow them.'''\n",
    "two columns": "def grown(xs):\n  '''Grow them.'''\n",
    "with margin at its end": "def grown(xs):\n    '''Grow them.'''\n    ",
}


@pytest.mark.parametrize("name", STUBS)
@pytest.mark.parametrize("body", [BODY, LEFT])
def test_stubs_of_other_shapes(bench, name, body):
    score = bench.judge(row(STUBS[name]), body)
    assert score.outcome is Outcome.OK, score.reason


def test_a_stub_of_a_coroutine(bench):
    check = "def check(candidate):\n    assert candidate(2) == 3\n"
    stub = "import asyncio\n\n\ndef plus(n):\n    return asyncio.run(plus_later(n))\n\n\nasync def plus_later(n):\n    '''Wait.'''\n"
    assert completed("    return n", stub, "plus_later").endswith("Wait.'''\n    return n\n")
    whole = "    await asyncio.sleep(0)\n    return n + 1\n\n\ndef plus(n):\n    return asyncio.run(plus_later(n))"
    assert bench.judge(row(stub, "plus_later", check), whole).outcome is not Outcome.OK  # the test awaits nothing


WRONG = {
    "nothing": "",
    "the stub": STUB,
    "a body that is wrong": "    return xs",
    "a body that only passes": "    pass",
    "a body with an error": f"{BODY}\n    return (",
    "another function": "def shrunk(xs):\n    return [x + y for x, y in zip(xs, [0] + xs)]",
    "a program": "print([4, 10, 7])",
    "an end": "    import os\n    os._exit(0)",
}


@pytest.mark.parametrize("name", WRONG)
def test_other_text_is_wrong(bench, name):
    assert bench.judge(row(), WRONG[name]).outcome is Outcome.WRONG


@pytest.mark.parametrize("text", [BODY, f"\n\n{BODY}\n\n\n", f"Let me think.\n```python\n</think>\n{BODY}", HELPER, f"  {BODY.strip()}"])
def test_a_response_without_a_fence_that_is_a_body(level_bench, text):
    score = level_bench.judge(row(), "", text=text)
    assert (score.outcome, score.format_ok) == (Outcome.OK, True), score.reason


@pytest.mark.parametrize(
    "text", [LEFT, f"Here it is:\n{BODY}", f"```python\n{BODY}", f" {LEFT}", "    I return nothing.", f"{STUB}{BODY}", f"{BODY}\n```\n"]
)
def test_other_responses_without_a_fence_hold_no_program(bench, text):
    assert bench.judge(row(), "", text=text).outcome is Outcome.MALFORMED


def test_rows_without_a_stub_ask_for_a_program_in_a_fence(bench):
    assert bench.judge({"check": CHECK, "entry_point": "grown"}, "", text=BODY).outcome is Outcome.MALFORMED
    assert bench.judge({"check": CHECK, "entry_point": "grown"}, BODY).outcome is Outcome.WRONG


PROGRAMS = (
    f"{STUB}{BODY}\n",
    "grown = lambda xs: xs",
    "exec('def grown(xs): return xs')",
    '"""Grow them.\n    With care.\n"""\nglobals()["grown"] = lambda xs: xs',
    "for name in ['grown']:\n    globals()[name] = lambda xs: xs",
    "def same(xs):\n    return xs\nglobals()['grown'] = same",
    "    def grown(xs):\n        return xs",
    "",
    "# nothing",
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_may_be_a_program_stays_as_it_is(program):
    assert completed(program, STUB, "grown") == program


def test_only_the_last_function_of_a_stub_is_completed():
    assert completed(BODY, STUB, "halved") == BODY
    assert completed(BODY, "", "grown") == BODY
    assert completed(BODY, STUB, "grown") == f"{STUB}{BODY}\n"


@pytest.mark.parametrize("text", [" " * 200_000, " :" * 100_000, "\n" * 200_000, " " * 99 + "\n  \t" * 50_000, "    if x: (\n" * 20_000])
def test_long_text_is_read_once(text):
    unfenced_body(text)
    completed(text, STUB, "grown")
