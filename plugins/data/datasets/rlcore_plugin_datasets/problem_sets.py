"""Rows of problems with their answers: OpenR1, GSM8K, MATH, Nemotron.

Sources: the cards of open-r1/OpenR1-Math-220k, AI-MO/NuminaMath-1.5, openai/gsm8k, HuggingFaceH4/MATH-500, nvidia/OpenMathReasoning,
nvidia/Nemotron-Math-HumanReasoning and nvidia/Nemotron-RL-Math-v2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow, RowFormat
from rlcore_plugin_datasets.row_parts import answer_of, boxed_in, is_chat, is_text, kept, messages_of, row_of

__all__ = ["Gsm8kRows", "MathRows", "NemotronRows", "OpenR1Rows"]

_MARK = "####"
_LONG = (
    *("generations", "is_reasoning_complete", "correctness_math_verify", "correctness_llama", "finish_reasons"),
    *("generated_solution", "conversations", "responses_create_params"),
)
"""Columns with the answers of other models, thousands of words a row."""


class OpenR1Rows(RowFormat):
    """``problem``, ``solution``, ``answer``, ``problem_type``, ``question_type``, with or without ``generations``."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        typed = "generations" in row or ("problem_type" in row and "question_type" in row)
        return typed and is_text(row.get("problem")) and "answer" in row and "expected_answer" not in row

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat. The answer "proof" means that there is none."""
        answer = answer_of(row.get("answer"), "answer")
        if answer.lower() == "proof":
            raise BadRow('"answer" is "proof", so there is no answer to compare with; leave such rows out')
        return row_of(messages_of(row, "problem"), answer, kept(row, "problem", *_LONG))


class Gsm8kRows(RowFormat):
    """``question``, and ``answer``: a solution, ``####``, the number."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        answer = row.get("answer")
        return is_text(row.get("question")) and isinstance(answer, str) and _MARK in answer and "prompt" not in row

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat."""
        answer = row.get("answer")
        if not isinstance(answer, str) or _MARK not in answer:
            raise BadRow(f'"answer" has no {_MARK}, after which the number should be')
        number = answer_of(answer.rpartition(_MARK)[2], "answer")
        return row_of(messages_of(row, "question"), number, kept(row, "question"))


class MathRows(RowFormat):
    """``problem``, ``solution`` with a box, ``level``, ``type``; MATH-500, DeepScaleR, AIME have ``answer``, and may lack ``solution``."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat. Data sets with more columns about a problem have their own formats."""
        others = {"generations", "problem_type", "question_type", "expected_answer", "prompt", "reward_model"}
        solution, answer = row.get("solution"), row.get("answer")
        boxed = isinstance(solution, str) and bool(boxed_in(solution))
        return is_text(row.get("problem")) and others.isdisjoint(row) and (boxed or is_text(answer) or type(answer) is int)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat."""
        solution = row.get("solution")
        answer = answer_of(row["answer"], "answer") if row.get("answer") is not None else boxed_in(str(solution or ""))
        if not answer:
            raise BadRow('"solution" has no \\boxed{…}, which should contain the answer')
        return row_of(messages_of(row, "problem"), answer, kept(row, "problem", *_LONG))


class NemotronRows(RowFormat):
    """``expected_answer``, and a prompt: ``responses_create_params.input`` (messages), else ``problem``, else ``question``."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        asked = any(is_text(row.get(name)) for name in ("problem", "question")) or is_chat(_request(row))
        return asked and "expected_answer" in row and "reward_model" not in row

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat."""
        answer = answer_of(row.get("expected_answer"), "expected_answer")
        request = _request(row)
        if request is not None:
            messages = messages_of({"responses_create_params.input": request}, "responses_create_params.input")
        else:
            messages = messages_of(row, "problem" if row.get("problem") is not None else "question")
        return row_of(messages, answer, kept(row, "problem", "question", "expected_answer", *_LONG))


def _request(row: Mapping[str, Any]) -> Any:
    request = row.get("responses_create_params")
    return request.get("input") if isinstance(request, Mapping) else None
