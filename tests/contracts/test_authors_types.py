"""``mypy --strict`` accepts what the documentation tells authors to write, options above all."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- test: (\S+\.py) -->\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
UNTYPED = ("untyped_defs", "incomplete_defs", "untyped_calls", "untyped_decorators")
STRICT = "".join(f"disallow_{what} = True\n" for what in UNTYPED)
SETTINGS = f"""[mypy]
[mypy-torch.*,transformers.*,ray.*,cloudpickle.*]
follow_imports = skip
ignore_missing_imports = True
[mypy-rlcore.*,numpy.*,pydantic.*]
{STRICT}"""
"""What both tests import is checked alike, so that the second reads what the first has cached."""
"""Examples leave out the types of arguments; an author who writes them has ``TYPED`` for an example."""
TYPED = """
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import AdvantageEstimator, AdvantageSpec, Loss, LossBatch, Reward, RewardBatch, RewardInput, RewardSpec, Score, Tracker
from rlcore.api import RunInfo, hookimpl
from rlcore.api.data import RowSource
from rlcore.testing import RewardSuite

rlcore_api = "2.0"


class ShoutOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    right: float = Field(default=1.0, gt=0, description="value of a right answer")
    words: tuple[str, ...] = ()
    url: str


class Shout(Reward):
    Options = ShoutOptions
    requires = ("gt_answer",)
    gives_accuracy = True

    def __init__(self, options: ShoutOptions) -> None:
        self.options = options

    def score(self, item: RewardInput) -> Score:
        return Score(value=self.options.right * len(self.options.words), accuracy=1.0)


class Nested(Reward):
    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)
        right: float = Field(default=1.0, gt=0)

    def __init__(self, options: Options) -> None:
        self.right = options.right

    def score(self, item: RewardInput) -> Score:
        return Score(value=self.right)


class Median(AdvantageEstimator):
    per = "token"
    accepts_kl = True

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        return np.zeros(3)


@hookimpl
def rlcore_register_rewards() -> list[RewardSpec]:
    return [RewardSpec(name="shout", target="m:Shout", summary="s", config="m:ShoutOptions", requires=("gt_answer",))]


@hookimpl
def rlcore_register_advantage_estimators() -> Sequence[AdvantageSpec]:
    return [AdvantageSpec(name="median", target="m:Median", summary="s", per="token", accepts_kl=True), MEAN]


MEAN = AdvantageSpec(name="mean", target="m:Mean", summary="s", per="token")


class Mean(AdvantageEstimator, spec=MEAN):
    def estimate(self, batch: RewardBatch) -> np.ndarray:
        return np.zeros(3)


class TestShout(RewardSuite):
    spec = rlcore_register_rewards()[0]
    options = ShoutOptions(url="x")

    def make(self) -> Shout:
        return Shout(self.options)

    def honest(self) -> RewardInput:
        return RewardInput(messages=(), columns={"gt_answer": "yes"}, text="YES")

    def wrong(self) -> RewardInput:
        return RewardInput(messages=(), columns={"gt_answer": "yes"}, text="NO")
"""


def strict(folder: Path, cache: Path, *untyped: str) -> str:
    """What ``mypy --strict`` says of the modules of a folder, "" if nothing."""
    (folder / "mypy.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", "--config-file=mypy.ini"]
    command += [f"--cache-dir={cache}", *(f"--allow-{what.replace('_', '-')}" for what in untyped), "."]
    done = subprocess.run(command, cwd=folder, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The caches of the tests of this module are one."""
    return tmp_path_factory.mktemp("typed")


def test_strict_mypy_accepts_an_authors_file(folder: Path) -> None:
    (folder / "typed").mkdir()
    (folder / "typed" / "author.py").write_text(TYPED)
    assert strict(folder / "typed", folder / "cache") == ""
    (folder / "typed" / "author.py").write_text(TYPED.replace('per = "token"\n', 'per = "tokens"\n'))
    assert "author.py:48: error: Incompatible types in assignment" in strict(folder / "typed", folder / "cache")
    (folder / "typed" / "author.py").write_text(TYPED.replace("spec=MEAN", "spec=MEAN.name"))
    assert 'Argument "spec" to "__init_subclass__"' in strict(folder / "typed", folder / "cache")


def test_strict_mypy_accepts_the_examples_with_options(folder: Path) -> None:
    pages = {page: BLOCK.findall(page.read_text(encoding="utf-8")) for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
    written = 0
    for page, blocks in pages.items():
        home = folder / "pages" / page.parent.name / page.stem.lower()
        for name, text in blocks:
            if any("Options" in one for _, one in blocks):
                path = home / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(textwrap.dedent(text))
                written += "Options" in text
        if home.is_dir():
            # of an example; not installed here
            (home / "gymnasium.pyi").write_text("from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n")
            assert strict(home, folder / "cache", *UNTYPED) == "", page
    assert written >= 3
