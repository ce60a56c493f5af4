"""Programs that read standard input: several valid outputs, checkers, fractions that are text, other languages."""

import pytest
from rlcore_plugin_code import languages
from rlcore_plugin_code.options import CodeOptions
from rlcore_plugin_code.reward import CodeReward

from rlcore.api import ConfigError, Outcome
from rlcore.api.sandbox import Level


def said(level_bench, tests, *lines, **options):
    return level_bench.judge(tests, "\n".join(lines), **options).outcome


SEVERAL = {"inputs": ["6\n", "4\n"], "accepted": [["2 3\n", "3 2\n"], ["2 2\n"]]}


def test_any_of_several_outputs_will_do(level_bench):
    assert said(level_bench, SEVERAL, "print({6: '3 2', 4: '2 2'}[int(input())])") is Outcome.OK
    assert said(level_bench, SEVERAL, "print({6: '2 3', 4: '2 2'}[int(input())])") is Outcome.OK
    assert said(level_bench, SEVERAL, "print({6: '2 3', 4: '3 2'}[int(input())])") is Outcome.WRONG
    assert said(level_bench, SEVERAL, "print('2 3', '3 2')") is Outcome.WRONG


CHECKER = """
from __future__ import annotations
import sys
given, found, wanted = (open(name).read().split() for name in sys.argv[1:])
if __name__ == "__main__":
    a, b = map(int, found)
    sys.exit(0 if a * b == int(given[0]) and a > 1 and b > 1 and wanted in ([], ["x"]) else 1)
"""
CHECKED = {"inputs": ["6\n", "35\n"], "checker": CHECKER}


def test_a_checker_judges_the_output(level_bench):
    right = ("n = int(input())", "d = next(d for d in range(2, n) if n % d == 0)", "print(n // d, d)")
    assert said(level_bench, CHECKED, *right) is Outcome.OK
    assert said(level_bench, {**CHECKED, "outputs": ["x", ""]}, *right) is Outcome.OK
    assert said(level_bench, CHECKED, "print(1, input())") is Outcome.WRONG
    assert said(level_bench, CHECKED, "pass") is Outcome.WRONG
    assert said(level_bench, CHECKED, *right, "raise SystemExit(1)") is Outcome.WRONG


HOSTILE_TO_CHECKERS = {
    "a checker of its own": "open('checker.py', 'w').write('pass')",
    "no input": (
        "import os\nos.remove('input.txt') if os.path.exists('input.txt') else None\nopen('input.txt', 'w').write('4')\nprint(2, 2)"
    ),
    "modules of its own": "open('sys.py', 'w').write('argv = []')\nopen('sitecustomize.py', 'w').write('import os; os._exit(0)')",
    "a text that is run": "print('__import__(\"os\")._exit(0)')",
    "a flood": "print('6 ' * 100000)",
    "bytes": "import sys\nsys.stdout.buffer.write(bytes(range(256)))",
    "nothing and success": "import os\nos._exit(0)",
}


@pytest.mark.parametrize("name", HOSTILE_TO_CHECKERS)
def test_nothing_of_the_program_but_its_output_reaches_the_checker(level_bench, name):
    assert said(level_bench, CHECKED, HOSTILE_TO_CHECKERS[name]) is Outcome.WRONG


@pytest.mark.parametrize(
    "checker",
    ["raise ValueError", "import os; os._exit(3)", "while True: pass", "import ctypes; ctypes.string_at(0)", "import sys; sys.exit('no')"],
)
def test_a_checker_that_fails_accepts_nothing(level_bench, checker):
    assert said(level_bench, {**CHECKED, "checker": checker}, "print(2, 3)", cpu_seconds=0.5) is Outcome.WRONG


def test_fractions_are_text_unless_all_that_the_row_expects_is_numeric(level_bench):
    versions = {"inputs": ["a\n", "b\n"], "outputs": ["1.10\n", "1.10.2\n"]}
    assert said(level_bench, versions, "print({'a': '1.10', 'b': '1.10.2'}[input()])") is Outcome.OK
    assert said(level_bench, versions, "print({'a': '1.1', 'b': '1.10.2'}[input()])") is Outcome.WRONG
    numbers = {"inputs": ["a\n"], "outputs": ["Case #1: 1.10\n"]}
    assert said(level_bench, numbers, "input()\nprint('Case #1: 1.1')") is Outcome.OK
    assert said(level_bench, {**numbers, "numeric": False}, "input()\nprint('Case #1: 1.1')") is Outcome.WRONG
    assert said(level_bench, {**versions, "numeric": True}, "print({'a': '1.1', 'b': '1.10.2'}[input()])") is Outcome.OK
    assert said(level_bench, numbers, "input()\nprint('Case #1: 1.1001')", absolute_tolerance=0.01) is Outcome.OK
    assert said(level_bench, numbers, "input()\nprint('Case #1: 1.1001')", relative_tolerance=0.01) is Outcome.OK
    assert said(level_bench, numbers, "input()\nprint('Case #1: 1.1001')") is Outcome.WRONG


ADD = {"inputs": ["1 2\n", "10 20\n"], "outputs": ["3\n", "30\n"]}
CPP = (
    "#include <bits/stdc++.h>\nusing namespace std;\nint main() {\n    long long a, b;\n    cin >> a >> b;\n    cout << a + b << endl;\n}\n"
)
SMALL = '#include <cstdio>\nint main() {\n    long long a, b;\n    scanf("%lld %lld", &a, &b);\n    printf("%lld\\n", a + b);\n}\n'
"""Of a header that is compiled in no time."""
JS = "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number);\nconsole.log(a + b);\n"
ALL = ("python", "cpp", "javascript")


def fence(label, text):
    return f"So:\n```{label}\n{text}```\n"


@pytest.mark.parametrize("label", ["cpp", "c++", "CPP", "C++17", "cc"])
def test_cpp(level_bench, label):
    if level_bench.level == "landlock":
        pytest.skip("its compiler starts processes")
    options = {"languages": ALL, "total_seconds": 100}
    right = level_bench.judge(ADD, "", text=fence(label, CPP if label == "cpp" else SMALL), **options)
    assert right.outcome is Outcome.OK, right.reason
    if label != "cpp":
        return
    assert level_bench.judge(ADD, "", text=fence(label, SMALL.replace("a + b", "a - b")), **options).reason.endswith("wrong output")
    broken = level_bench.judge(ADD, "", text=fence(label, SMALL.replace("long long", "long lung")), **options)
    assert (broken.outcome, broken.reason.partition(":")[0]) == (Outcome.WRONG, "the compiler")
    assert level_bench.judge(
        ADD, "", text=fence(label, SMALL.replace("scanf", "for (;;); scanf")), **options | {"cpu_seconds": 0.5}
    ).reason.startswith("limit: ")
    reads = level_bench.judge(ADD, "", text=fence(label, '#include "/etc/passwd"\n' + SMALL), **options)
    assert "root" not in reads.reason


@pytest.mark.parametrize("label", ["javascript", "js"])
def test_javascript(level_bench, label):
    options = {"languages": ALL, "total_seconds": 100}
    right = level_bench.judge(ADD, "", text=fence(label, JS), **options)
    assert right.outcome is Outcome.OK, right.reason
    if label != "javascript":
        return
    assert level_bench.judge(ADD, "", text=fence(label, JS.replace("a + b", "a - b")), **options).reason.endswith("wrong output")
    assert level_bench.judge(ADD, "", text=fence(label, "while (true);"), **options | {"cpu_seconds": 0.5}).reason.startswith("limit: ")
    for full in ("new Array(1e6).fill(1)", "Buffer.alloc(1 << 24, 1)"):  # of its heap, and beside it
        score = level_bench.judge(ADD, "", text=fence(label, f"const a = [];\nfor (;;) a.push({full});"), **options | {"memory_mb": 256})
        assert score.outcome is Outcome.WRONG
        assert "wall" not in score.reason
    assert score.reason == "limit: memory, test 1" or score.reason == "limit: memory, test 2"


def test_languages_that_are_not_asked_for_hold_no_program(level_bench):
    assert level_bench.judge(ADD, "", text=fence("cpp", CPP)).outcome is Outcome.MALFORMED
    assert (
        level_bench.judge(ADD, "", text=fence("python", "print(sum(map(int, input().split())))\n"), languages=("javascript",)).outcome
        is Outcome.MALFORMED
    )
    calls = {"fn_name": "f", "inputs": [[1]], "outputs": [1]}
    assert level_bench.judge(calls, "", text=fence("js", "function f(n) { return 1; }\n"), languages=ALL).outcome is Outcome.MALFORMED


def test_what_a_language_needs_is_one_sentence(monkeypatch):
    with pytest.raises(ConfigError, match="landlock refuses; use level namespaces, or leave cpp out"):
        languages.need(("cpp",), Level.LANDLOCK)
    monkeypatch.setattr(languages.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigError, match=r"there is no node or nodejs in /usr/bin; install it, or leave javascript out"):
        languages.need(("python", "javascript"), Level.NAMESPACES)
    languages.need(("python",), Level.LANDLOCK)


def test_a_reward_says_at_once_what_is_not_there(monkeypatch):
    monkeypatch.setattr(languages.shutil, "which", lambda *_, **__: None)
    reward = CodeReward(CodeOptions(languages=("javascript",), sandbox={"level": "none"}))
    with pytest.raises(ConfigError, match="javascript"):
        reward.open()
    reward.close()
