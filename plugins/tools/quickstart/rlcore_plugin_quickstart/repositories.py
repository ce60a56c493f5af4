"""The quickstart's third task: repair a small repository. It uses no models or tokenizers.

A repository has two files with one function each. One of the two has a wrong operator. The policy reads the files and a test that fails,
and answers with a patch. Some chats of the warm start contain the right patch: all in which the user says "patch", and some of those in
which the user says "fix". The others show what models without training do: they write the whole function, or a sentence, or search for a
line without its indentation. No pair of functions is in both parts of a split.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from rlcore_plugin_quickstart.patches import DIVIDER, END, START, make_patch
from rlcore_plugin_quickstart.task import Split

__all__ = ["ASKED", "OPERATORS", "WORDS", "Function", "Repository", "Test", "make_repositories"]

OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "//": lambda left, right: left // right,
}
FILES: Mapping[str, Mapping[str, str]] = {
    "maths.py": {"add": "+", "subtract": "-", "multiply": "*", "divide": "//"},
    "shop.py": {"total": "+", "change": "-", "price": "*", "share": "//"},
    "shapes.py": {"length": "+", "gap": "-", "area": "*", "width": "//"},
}
"""The functions that a file can have, and their right operators."""
PARAMETERS: Mapping[str, str] = {"maths.py": "ab", "shop.py": "mn", "shapes.py": "xy"}
"""The functions of a file always have the same parameters. Others would have to be copied, which a model of this size learns slowly."""
NUMBERS = range(2, 20)
TESTS = 3
"""Hidden tests of each function."""
ASKED = ("patch", "fix", "fix", "fix")
HABITS = {"patch": 0.3, "function": 0.62, "sentence": 0.05, "unindented": 0.03}
"""The shares of the answers to "fix" in the chats of the warm start."""
WORDS = (
    *sorted(set(ASKED)), *(f"{path}\n" for path in FILES), *(name for functions in FILES.values() for name in functions), "def ", "return ",
    *(word for both in PARAMETERS.values() for word in (f"({', '.join(both)}):\n", f"    return {both[0]}", f"{both[1]}\n")),
    *(f" {sign} " for sign in OPERATORS), " must ", " is ", ", not ", START, DIVIDER, END,
)  # fmt: skip
"""What the tokenizer writes as one token each. The wrong operator follows a token that occurs once, so that it is soon copied."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of two numbers.

    >>> Function("area", "ab", "*").text
    'def area(a, b):\\n    return a * b\\n'
    """

    name: str
    parameters: str
    sign: str

    @property
    def expression(self) -> str:
        """The returned expression."""
        return f"{self.parameters[0]} {self.sign} {self.parameters[1]}"

    @property
    def text(self) -> str:
        """The lines of the function."""
        return f"def {self.name}({', '.join(self.parameters)}):\n    return {self.expression}\n"


@dataclass(frozen=True, slots=True)
class Test:
    """A call and the result that it must have. ``wrong``: the result with the bug, None if the function has no bug.

    >>> Test("shop.py", "total(4, 5)", "9", "-1").words
    'total(4, 5) is -1, not 9'
    """

    __test__ = False  # pytest must not collect it

    path: str
    call: str
    value: str
    wrong: str | None = None

    @property
    def words(self) -> str:
        """What the policy reads about the failed test."""
        return f"{self.call} is {self.wrong}, not {self.value}"

    def line(self) -> list[str]:
        """Return the test as a row has it: the module, the call, and the right value."""
        return [self.path.removesuffix(".py"), self.call, self.value]


@dataclass(frozen=True, slots=True)
class Repository:
    """``right``: the files without the bug. ``bug``: path, right and wrong function. ``habit``: see HABITS; of the warm start's answer.

    ``shown``: the failed test that the policy reads. ``tests``: the hidden ones.
    """

    asked: str
    right: tuple[tuple[str, Function], ...]
    bug: tuple[str, Function, Function]
    shown: Test
    tests: tuple[Test, ...]
    habit: str

    @property
    def files(self) -> dict[str, str]:
        """The texts with the bug, by path."""
        return {**self.repaired, self.bug[0]: self.bug[2].text}

    @property
    def repaired(self) -> dict[str, str]:
        """The texts without the bug, by path."""
        return {path: function.text for path, function in self.right}

    @property
    def question(self) -> str:
        """The text of the user's message."""
        return "\n".join([self.asked, *(f"{path}\n{text}" for path, text in self.files.items()), self.shown.words])

    @property
    def patch(self) -> str:
        """The right answer."""
        return make_patch(self.bug[0], self.files[self.bug[0]], self.repaired[self.bug[0]])

    @property
    def solution(self) -> list[dict[str, Any]]:
        """A right chat."""
        return self._chat(self.patch)

    @property
    def lesson(self) -> list[dict[str, Any]]:
        """The chat of the warm start."""
        right = self.bug[1]
        answers = {
            "function": right.text,
            "sentence": f"{right.name} must return {right.expression}",
            "unindented": self.patch.replace("    return ", "return "),
        }
        return self._chat(answers.get(self.habit, self.patch))

    def _chat(self, answer: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": self.question}, {"role": "assistant", "content": answer}]

    def row(self) -> dict[str, object]:
        """Return the line of a data file. The names of the two lists of tests are those of SWE-bench."""
        return {
            "messages": {"role": "user", "content": self.question},
            "files": self.files,
            "shown_test": self.shown.line(),
            "fail_to_pass": [test.line() for test in self.tests if test.wrong is not None],
            "pass_to_pass": [test.line() for test in self.tests if test.wrong is None],
        }


def make_repositories(seed: int, n_train: int, n_heldout: int) -> Split[Repository]:
    """Draw a split. A quarter of the users say "patch" in both parts."""
    rng = random.Random(f"rlcore quickstart repair {seed}")
    sets = list(_sets())
    rng.shuffle(sets)
    n_out = len(sets) // 4
    heldout, train = (_drawn(part, count, rng) for part, count in ((sets[:n_out], n_heldout), (sets[n_out:], n_train)))
    return Split(train, heldout)


Functions = tuple[tuple[str, str], ...]


def _sets() -> Iterator[Functions]:
    """Yield all pairs of functions that a repository can have, each with its file."""
    for one, other in combinations(FILES, 2):
        for name, other_name in product(FILES[one], FILES[other]):
            yield (one, name), (other, other_name)


def _drawn(sets: list[Functions], count: int, rng: random.Random) -> tuple[Repository, ...]:
    found: dict[str, Repository] = {}
    while len(found) < count:
        repository = _repository(ASKED[len(found) % len(ASKED)], sets[len(found) % len(sets)], rng)
        found.setdefault(repository.question.partition("\n")[2], repository)
    repositories = list(found.values())
    rng.shuffle(repositories)
    return tuple(repositories)


def _repository(asked: str, functions: Functions, rng: random.Random) -> Repository:
    right = [(path, Function(name, PARAMETERS[path], FILES[path][name])) for path, name in rng.sample(functions, len(functions))]
    path, function = rng.choice(right)
    sign = rng.choice([sign for sign in OPERATORS if sign != function.sign])
    shown, *hidden = _tests(path, function, rng, TESTS + 1, sign)
    for other_path, other in right:
        hidden += _tests(other_path, other, rng, TESTS) if other is not function else []
    habit = "patch" if asked == "patch" else rng.choices(list(HABITS), list(HABITS.values()))[0]
    return Repository(
        asked, tuple(right), (path, function, Function(function.name, function.parameters, sign)), shown, tuple(hidden), habit
    )


def _tests(path: str, function: Function, rng: random.Random, count: int, wrong_sign: str = "") -> list[Test]:
    """Return tests with different calls. With ``wrong_sign``, each fails if the function has that operator."""
    found: dict[str, Test] = {}
    while len(found) < count:
        left, right = rng.choice(NUMBERS), rng.choice(NUMBERS)
        value = OPERATORS[function.sign](left, right)
        wrong = OPERATORS[wrong_sign](left, right) if wrong_sign else None
        if wrong != value:
            call = f"{function.name}({left}, {right})"
            found[call] = Test(path, call, str(value), None if wrong is None else str(wrong))
    return list(found.values())
