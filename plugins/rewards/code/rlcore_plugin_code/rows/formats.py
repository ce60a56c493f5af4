"""The converters as row formats of rlcore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import RowFormat
from rlcore_plugin_code.rows import apps, code_contests, functions, livecodebench, prime

__all__ = ["Apps", "CodeContests", "Eurus", "HumanEval", "LiveCodeBench", "Mbpp", "PrimeIntellect", "Taco"]


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
    """Rows of Prime Intellect's SYNTHETIC-1 and verifiable-coding-problems."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        return prime.is_prime_intellect(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return prime.prime_intellect_row(row)
