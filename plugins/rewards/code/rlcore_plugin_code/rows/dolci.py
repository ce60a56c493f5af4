"""Dolci (`allenai/Dolci-Think-RL-7B`, `Dolci-Instruct-RL`, `Dolci-RL-Zero-Code-7B`), its rows of code: ``prompt`` begins with "user: ",
``dataset`` names the verifier of open-instruct (`Dolci-RL-Zero-Code-7B` has no such column), and ``ground_truth`` is a list of one JSON
text: assert statements (``code``), or a list of ``{"input", "output"}`` (``code_stdio``).

https://huggingface.co/datasets/allenai/Dolci-Think-RL-7B, https://huggingface.co/datasets/allenai/Dolci-RL-Zero-Code-7B; open-instruct,
`open_instruct/ground_truth_utils.py`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow
from rlcore_plugin_code.digits import read_json
from rlcore_plugin_code.rows.listed import listed_tests
from rlcore_plugin_code.rows.reading import has, said, table_in, text_in, whole

__all__ = ["dolci_code_row", "is_dolci_code"]

_KINDS = ("code", "code_stdio")
_USER = "user: "


def is_dolci_code(row: Mapping[Any, Any]) -> bool:
    """Return whether the row has its columns, and a verifier that runs programs."""
    return has(row, "ground_truth") and said(row.get("prompt")) and _kind(row) in _KINDS


def dolci_code_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row. Its prompt already says how to answer."""
    kind = _kind(row)
    if kind not in _KINDS:
        raise BadRow(f'the "dataset" of this row is {str(kind)[:40]!r}; the format reads "code" and "code_stdio"')
    truth = table_in({"ground_truth": _one(row.get("ground_truth"))}, "ground_truth")
    content = text_in(row, "prompt").removeprefix(_USER)
    return whole(row, [{"role": "user", "content": content}], _tests(truth, str(kind)), row.get("id") or row.get("custom_id"))


def _tests(truth: Any, kind: str) -> dict[str, Any]:
    if kind == "code_stdio":
        return listed_tests(truth, "ground_truth")
    if not isinstance(truth, list | tuple) or not truth or not all(said(one) for one in truth):
        raise BadRow('"ground_truth" must be a list of assert statements, or JSON of one')
    return {"asserts": list(truth)}


def _kind(row: Mapping[Any, Any]) -> Any:
    """Return the verifier: ``dataset``, or if the row has no such column, the one that fits its tests."""
    if row.get("dataset") is not None or not isinstance(row.get("ground_truth"), list | tuple):
        return _one(row.get("dataset"))
    text = _one(row["ground_truth"])
    try:
        truth = read_json(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return _kind_of_tests(truth) if isinstance(truth, list) and truth else None


def _kind_of_tests(tests: list[Any]) -> str | None:
    if all(isinstance(one, Mapping) and {"input", "output"} <= set(one) for one in tests):
        return "code_stdio"
    return "code" if all(said(one) and one.lstrip().startswith("assert") for one in tests) else None


def _one(value: Any) -> Any:
    """Return the only item of a list of one; a list of several asserts stays."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 and isinstance(value[0], str) else value
