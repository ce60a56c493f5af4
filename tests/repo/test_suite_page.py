"""The page of the kit says of each suite which rules it checks, in sentences that the suites themselves hold."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

import rlcore.testing
from rlcore.api import Reward, RewardInput, Score
from tools import suite_page

TEXT = suite_page.PAGE.read_text(encoding="utf-8")
PACKAGES = sorted(folder for folder in suite_page.KIT.iterdir() if (folder / "__init__.py").is_file())
RULES = [
    pytest.param(text, id=f"{name}.{rule}")
    for folder in PACKAGES
    for name, one in suite_page.rule_classes(folder).items()
    for rule, text in one.rules.items()
]


def test_the_page_is_fresh() -> None:
    assert suite_page.with_suites(TEXT) == TEXT, "docs/authors/kit.md is stale: type .venv/bin/python -m tools.suite_page"


def test_a_page_without_the_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks"):
        suite_page.with_suites("no marks")


def test_every_public_suite_has_a_place_on_the_page() -> None:
    suites = {name for name in rlcore.testing.__all__ if name.endswith("Suite")}
    assert suites == {name for name in suites if re.search(rf"^(### `|\*\*`){name}`", TEXT, re.MULTILINE)}
    assert len(suites) >= 17
    assert len(RULES) > 250


@pytest.mark.parametrize("text", RULES)
def test_a_rule_is_a_plain_sentence(text: str) -> None:
    sentences = re.split(r"(?<=\.) ", " ".join(text.split()))
    assert all(sentence.endswith(".") for sentence in sentences), text
    assert max(len(sentence.split()) for sentence in sentences) <= 25, f"a sentence has more than 25 words: {text}"


class Exact(Reward):
    """What the example of the page tests."""

    requires = ("gt_answer",)

    def score(self, item: RewardInput) -> Score:
        right = item.text.strip() == item.columns["gt_answer"]
        return Score(value=float(right), accuracy=float(right), format_ok=True)


def test_the_example_of_the_page_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(r"<!-- test: test_exact.py -->\n```python\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    module, found = ModuleType("my_rewards"), dict[str, type[rlcore.testing.RewardSuite]]()
    monkeypatch.setattr(module, "Exact", Exact, raising=False)
    monkeypatch.setitem(sys.modules, "my_rewards", module)
    exec(block[1], found)
    suite = found["TestExact"]()
    for rule in (name for name in dir(suite) if name.startswith("test_")):
        getattr(suite, rule)()
