"""The converters as row formats of rlcore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import RowFormat
from rlcore_plugin_code.rows import (
    apps,
    code_contests,
    codeforces,
    deepcoder,
    dolci,
    functions,
    intellect3,
    kodcode,
    leetcode,
    livecodebench,
    prime,
)

__all__ = [
    "Apps",
    "CodeContests",
    "Codeforces",
    "DeepCoder",
    "DolciCode",
    "Eurus",
    "HumanEval",
    "Intellect3Code",
    "KodCode",
    "LeetCode",
    "LiveCodeBench",
    "Mbpp",
    "PrimeIntellect",
    "RllmCode",
    "Taco",
]


class Apps(RowFormat):
    """APPS."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return apps.is_apps(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return apps.apps_row(row)


class Taco(RowFormat):
    """TACO."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return apps.is_taco(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return apps.apps_row(row)


class CodeContests(RowFormat):
    """CodeContests."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return code_contests.is_code_contests(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return code_contests.code_contests_row(row)


class LiveCodeBench(RowFormat):
    """LiveCodeBench."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return livecodebench.is_livecodebench(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return livecodebench.livecodebench_row(row)


class HumanEval(RowFormat):
    """HumanEval and HumanEval+."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return functions.is_humaneval(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return functions.humaneval_row(row)


class Mbpp(RowFormat):
    """MBPP and MBPP+."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return functions.is_mbpp(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return functions.mbpp_row(row)


class Eurus(RowFormat):
    """PRIME's rows of code."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return prime.is_eurus(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return prime.eurus_row(row)


class PrimeIntellect(RowFormat):
    """Rows of code of Prime Intellect: verifiable-coding-problems, SYNTHETIC-1 and 2, INTELLECT-2."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return prime.is_prime_intellect(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return prime.prime_intellect_row(row)


class DeepCoder(RowFormat):
    """DeepCoder."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return deepcoder.is_deepcoder(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return deepcoder.deepcoder_row(row)


class RllmCode(RowFormat):
    """Rows of rllm whose ground truth consists of tests."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return deepcoder.is_rllm_code(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return deepcoder.rllm_code_row(row)


class Intellect3Code(RowFormat):
    """Rows of code of INTELLECT-3."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return intellect3.is_intellect3(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return intellect3.intellect3_row(row)


class Codeforces(RowFormat):
    """open-r1's Codeforces."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return codeforces.is_codeforces(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return codeforces.codeforces_row(row)


class KodCode(RowFormat):
    """KodCode."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return kodcode.is_kodcode(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return kodcode.kodcode_row(row)


class LeetCode(RowFormat):
    """LeetCodeDataset."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return leetcode.is_leetcode(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return leetcode.leetcode_row(row)


class DolciCode(RowFormat):
    """Rows of code of Dolci."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return dolci.is_dolci_code(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return dolci.dolci_code_row(row)
