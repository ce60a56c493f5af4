"""Each row format keeps the rules of every row format."""

import json
import pkgutil
from pathlib import Path

from rlcore_plugin_code import rlcore_register_row_formats

from rlcore.testing import RowFormatSuite

FILES = Path(__file__).parent / "rows"
TARGETS = {spec.name: spec.target for spec in rlcore_register_row_formats()}


class _Format(RowFormatSuite):
    columns = ("test_cases",)
    name = ""
    file = ""

    def make(self):
        return pkgutil.resolve_name(TARGETS[self.name])()

    def rows(self):
        text = (FILES / f"{self.file or self.name}.jsonl").read_text(encoding="utf-8")
        return [
            {key: value for key, value in json.loads(line).items() if key not in ("completion", "expect")} for line in text.splitlines()
        ]


class TestApps(_Format):
    name = "apps"


class TestTaco(_Format):
    name = "taco"


class TestCodeContests(_Format):
    name = "code_contests"


class TestLiveCodeBench(_Format):
    name = "livecodebench"


class TestHumanEval(_Format):
    name = "humaneval"


class TestHumanEvalPlus(_Format):
    name, file = "humaneval", "humanevalplus"


class TestMbpp(_Format):
    name = "mbpp"


class TestMbppPlus(_Format):
    name, file = "mbpp", "mbppplus"


class TestPrimeCode(_Format):
    name = "prime_code"


class TestPrimeIntellect(_Format):
    name = "prime_intellect"


class TestIntellect2Code(_Format):
    name, file = "prime_intellect", "intellect2_code"


class TestIntellect3Code(_Format):
    name = "intellect3_code"


class TestDeepCoder(_Format):
    name = "deepcoder"


class TestRllmCode(_Format):
    name = "rllm_code"


class TestCodeforces(_Format):
    name = "codeforces"


class TestKodCode(_Format):
    name = "kodcode"


class TestLeetCode(_Format):
    name = "leetcode"


class TestDolciCode(_Format):
    name = "dolci_code"


def test_every_format_has_its_suite():
    assert {kind.name for kind in _Format.__subclasses__()} == set(TARGETS)
