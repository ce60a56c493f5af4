"""LiveCodeBench (`livecodebench/code_generation`, `code_generation_lite`): ``public_test_cases`` as JSON, ``private_test_cases`` as JSON
or, in the lite version, as base64 of zlib of a pickle of that JSON text.

A pickle is a program. This one is never run: its bytes are searched for the one text that it may contain, and anything else is refused.

https://huggingface.co/datasets/livecodebench/code_generation_lite
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib
from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.digits import read_json
from rlcore_plugin_code.rows.apps import tests_of
from rlcore_plugin_code.rows.reading import function_prompt, has, stdin_prompt, table_in, text_in, whole

__all__ = ["is_livecodebench", "livecodebench_row", "pickled_text"]

_LARGEST = 256 << 20
_AROUND = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}
_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}


def is_livecodebench(row: Mapping[Any, Any]) -> bool:
    """Return whether the row has its two columns of tests."""
    return has(row, "question_content", "public_test_cases", "private_test_cases")


def livecodebench_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row with public and private tests; a function is tested if the tests say so."""
    tests = [*_tests(table_in(row, "public_test_cases"), "public_test_cases"), *_private(row)]
    kinds = {test.get("testtype", "stdin") for test in tests}
    if len(kinds) != 1 or not kinds <= {"stdin", "functional"}:
        raise BadRow(
            f"the tests of this row are of the types {', '.join(sorted(map(str, kinds))) or 'none'}; only stdin and functional are known"
        )
    table: dict[str, Any] = {"inputs": [test["input"] for test in tests], "outputs": [test["output"] for test in tests]}
    problem, start = text_in(row, "question_content"), row.get("starter_code") or ""
    if kinds == {"stdin"}:
        return whole(row, stdin_prompt(problem), tests_of(table), row.get("question_id"))
    name = _function(row)
    return whole(row, function_prompt(problem, start), {"fn_name": name, **table}, row.get("question_id"))


def _function(row: Mapping[Any, Any]) -> str:
    metadata = table_in(row, "metadata")
    name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        raise BadRow('"metadata" has no func_name, which the tests of this row call')
    return name


def _tests(value: Any, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(test, Mapping) and {"input", "output"} <= set(test) for test in value):
        raise BadRow(f'"{name}" must be a list of tests with input and output')
    return value


def _private(row: Mapping[Any, Any]) -> list[Mapping[str, Any]]:
    value = row.get("private_test_cases")
    if not value:
        return []
    if isinstance(value, str) and not value.lstrip().startswith("["):
        value = _unpacked(value)
    return _tests(table_in({"private_test_cases": value}, "private_test_cases"), "private_test_cases")


def _unpacked(text: str) -> str:
    try:
        packed = zlib.decompressobj()
        data = packed.decompress(base64.b64decode(text, validate=True), _LARGEST)
        if packed.unconsumed_tail or not packed.eof:
            raise BadRow(f'"private_test_cases" has more than {_LARGEST >> 20} MiB, or is truncated')
    except (binascii.Error, ValueError, zlib.error) as error:
        raise BadRow(f'"private_test_cases" is neither JSON nor base64 of zlib of a pickle ({error})') from None
    found = pickled_text(data)
    try:
        read_json(found)
    except (ValueError, RecursionError):
        raise BadRow('"private_test_cases" contains text that is not JSON') from None
    return found


def pickled_text(data: bytes) -> str:
    """Return the text in a pickle, found without running it; BadRow if it contains anything except one text."""
    texts: list[str] = []
    try:
        for operation, argument, _ in pickletools.genops(data):
            if operation.name in _TEXTS:
                texts.append(str(argument))
            elif operation.name not in _AROUND:
                raise BadRow(f'"private_test_cases" is a pickle that contains more than a text ({operation.name}); it is not run')
    except ValueError as error:
        raise BadRow(f'"private_test_cases" is not a pickle ({str(error)[:80]})') from None
    if len(texts) != 1:
        raise BadRow(f'"private_test_cases" is a pickle of {len(texts)} texts instead of one')
    return texts[0]
