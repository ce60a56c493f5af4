"""Rows in the formats of other trainers: verl's files, DAPO-Math, TRL.

Sources: verl's documentation ("Prepare Data for Post-Training"), the cards of BytedTsinghua-SIA/DAPO-Math-17k and
open-r1/DAPO-Math-17k-Processed, TRL's page on dataset formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow, RowFormat
from rlcore_plugin_datasets.row_parts import answer_of, boxed_in, holds_tests, is_chat, is_text, kept, messages_of, row_of

__all__ = ["DapoRows", "TrlRows", "VerlRows"]


class VerlRows(RowFormat):
    """``prompt`` (messages), ``data_source``, ``ability``, ``reward_model`` = {style, ground_truth}, ``extra_info``.

    ``ground_truth`` becomes a column, unchanged. ``gt_answer`` is there if it is text, a number, or a list of one, and not tests of a
    program.
    """

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat. DAPO-Math has its own format, and programs are not answers."""
        truth = _truth(row)
        return is_chat(row.get("prompt")) and truth is not None and not _is_dapo(row) and not _is_code(row, truth)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat."""
        return _converted(row)


class DapoRows(RowFormat):
    """DAPO-Math-17k: verl's columns with ``data_source`` "math_dapo"; in the processed version the prompt may also be text."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        return _is_dapo(row) and _truth(row) is not None and (is_chat(row.get("prompt")) or is_text(row.get("prompt")))

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat."""
        return _converted(row, "source_prompt", "solution")


class TrlRows(RowFormat):
    """``prompt`` (text or messages) and ``solution``, whose last box is the answer; without a box, the whole solution is."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat. A row for verl has its ground truth elsewhere; beside a ground truth, the solution may be a program."""
        prompt = row.get("prompt")
        others = {"reward_model", "problem", "ground_truth"}
        return (is_text(prompt) or is_chat(prompt)) and is_text(row.get("solution")) and others.isdisjoint(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat. A CSV file already has its prompt as messages."""
        solution = answer_of(row.get("solution"), "solution")
        messages = messages_of(row, "prompt" if row.get("prompt") is not None else "messages")
        return row_of(messages, boxed_in(solution) or solution, kept(row, "prompt"))


def _converted(row: Mapping[str, Any], *dropped: str) -> dict[str, Any]:
    truth = _truth(row)
    if truth is None:
        raise BadRow('the row has no "ground_truth" in its "reward_model"')
    others = kept(row, "prompt", "reward_model", *dropped)
    messages = messages_of(row, "prompt")
    if _is_answer(truth) and not _is_code(row, truth):
        others["gt_answer"] = answer_of(truth, "reward_model.ground_truth")
    return {**others, "ground_truth": truth, "messages": messages}


def _is_answer(truth: object) -> bool:
    """Return whether the ground truth is text, a number, or a list of one."""
    return isinstance(truth, str | int | float) or (isinstance(truth, list | tuple) and len(truth) == 1)


def _truth(row: Mapping[str, Any]) -> Any:
    model = row.get("reward_model")
    return model.get("ground_truth") if isinstance(model, Mapping) else None


def _is_dapo(row: Mapping[str, Any]) -> bool:
    source = row.get("data_source")
    if {"dataset", "ground_truth"} <= set(row):  # Dolci keeps the columns of its sources
        return False
    return isinstance(source, str) and source.startswith("math_dapo")


def _is_code(row: Mapping[str, Any], truth: object) -> bool:
    """Return whether the ground truth consists of tests of a program, or the row says that it asks for a program."""
    return row.get("ability") in ("code", "coding") or holds_tests(truth)
