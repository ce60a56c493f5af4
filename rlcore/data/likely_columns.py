"""Guesses which columns of an unknown data set hold the prompt and the gold answer, so that an error can give the line to type.

A guess never converts a row: a column may have the name of an answer and hold a solution in prose. The user decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rlcore.data.json_texts import place_in
from rlcore.data.row_sense import is_object_text

__all__ = ["columns_advice", "likely_place", "only_place"]

_PLACES: Mapping[str, tuple[str, ...]] = {
    "messages": (
        *("prompt", "problem", "question", "query", "instruction", "input", "problem_statement", "problem_description", "text"),
        *("extra_info.question", "responses_create_params.input"),
    ),
    "gt_answer": (
        *("gt_answer", "answer", "final_answer", "expected_answer", "ground_truth", "gold_answer", "gold", "reference_answer", "target"),
        *("label", "solution", "reward_model.ground_truth", "verification_info.ground_truth", "metadata.expected_answer"),
        *("extra_info.ground_truth", "extra_info.answer", "info.answer", "info.ground_truth"),
    ),
}


def likely_place(row: Mapping[Any, Any], target: str) -> str:
    """Return the first place that usually holds ``messages`` or ``gt_answer`` and is not empty in this row; "" if there is none."""
    return next(_places(row, target), "")


def only_place(row: Mapping[Any, Any], target: str) -> str:
    """Return the place that ``likely_place`` finds; "" if there are several."""
    found = list(_places(row, target))
    return found[0] if len(found) == 1 else ""


def _places(row: Mapping[Any, Any], target: str) -> Iterator[str]:
    folded = {name.lower(): name for name in row if isinstance(name, str)}
    for known in _PLACES.get(target, ()):
        first, _, rest = known.partition(".")
        path = ".".join(filter(None, (folded.get(first, first), rest)))
        _, value = place_in(row, path)
        if target == "gt_answer" and isinstance(value, str) and is_object_text(value):
            continue
        if _is_said(value) or (target == "messages" and _is_chat(value)):
            yield path
        elif isinstance(value, list | tuple) and len(value) == 1 and _is_said(value[0]):
            yield f"{path}.0"


def columns_advice(row: Mapping[Any, Any], *targets: str) -> str:
    """Return half a sentence with the ``--columns`` to type; "" if a target has no likely place."""
    found = {target: likely_place(row, target) for target in targets}
    if not found or not all(found.values()):
        return ""
    names = {"messages": "the prompt", "gt_answer": "the answer"}
    held = " and ".join(f'"{place}" holds {names[target]}' for target, place in found.items())
    return f"if {held}, type --columns '{json.dumps(found)}'"


def _is_said(value: object) -> bool:
    """Return whether the value is text that is not blank, or a number."""
    return bool(value.strip()) if isinstance(value, str) else isinstance(value, int | float) and not isinstance(value, bool)


def _is_chat(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) and "role" in item for item in value)
