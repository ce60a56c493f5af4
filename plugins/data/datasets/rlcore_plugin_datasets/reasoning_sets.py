"""Rows of problems whose answer is inside another column, and of sets for reasoning: INTELLECT-2 and 3, SYNTHETIC-2, DeepMath,
Open-Reasoner-Zero, Nemotron Post-Training, Dolci, rllm.

Sources: the cards of PrimeIntellect/INTELLECT-2-RL-Dataset, PrimeIntellect/SYNTHETIC-2-RL, PrimeIntellect/INTELLECT-3-RL,
zwhe99/DeepMath-103K, Open-Reasoner-Zero/orz_math_57k_collection, nvidia/Nemotron-Post-Training-Dataset-v1 and v2, allenai/Dolci-Think-RL-7B
and allenai/Dolci-RL-Zero-Math-7B; prime-rl and genesys (`verification_info`), Open-Reasoner-Zero's `data/orz_math_57k_collected.json`,
rllm's `rllm/data/dataset.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api.data import BadRow, RowFormat
from rlcore_plugin_datasets.row_parts import answer_of, holds_tests, is_chat, is_text, kept, messages_of, object_in, row_of

__all__ = ["DeepMathRows", "DolciRows", "Intellect2Rows", "Intellect3Rows", "NemotronPostRows", "OrzRows", "RllmRows"]

_CODE_TASKS = ("verifiable_code", "prime_rl_code")
_PLACEHOLDER = "placeholder"
_USER = "user: "
_LEFT_OUT = "-"


class Intellect2Rows(RowFormat):
    """``prompt``, ``task_type``, and ``verification_info``, JSON with ``ground_truth``: INTELLECT-2, SYNTHETIC-1, SYNTHETIC-2. Rows of
    programs have a format of rlcore-plugin-code."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        task = row.get("task_type")
        return is_text(row.get("prompt")) and is_text(task) and task not in _CODE_TASKS and "verification_info" in row

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat. Answers of other tasks (reasoning_gym, json, …) are not compared as mathematics is."""
        task = row.get("task_type")
        if not is_text(task) or "math" not in str(task):
            raise BadRow(f'"task_type" is {str(task)[:40]!r}; the format reads tasks of mathematics, such as "verifiable_math"')
        truth = object_in(row, "verification_info").get("ground_truth")
        answer = answer_of(truth, "verification_info.ground_truth")
        return row_of(messages_of(row, "prompt"), answer, kept(row, "prompt", "verification_info"))


class Intellect3Rows(RowFormat):
    """``question`` and ``answer``: mathematics of INTELLECT-3; and ``info``, an object or JSON of one: its science."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat. Tests in ``info`` are of a program; the share of solved attempts is in ``avg@8_…``."""
        info = row.get("info")
        published = any(str(name).startswith("avg@") for name in row)
        plain = isinstance(info, Mapping | str | None) and '"tests"' not in str(info).replace("'", '"')
        return is_text(row.get("question")) and is_text(row.get("answer")) and plain and published

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat."""
        return row_of(messages_of(row, "question"), answer_of(row.get("answer"), "answer"), kept(row, "question"))


class DeepMathRows(RowFormat):
    """``question``, ``final_answer``, ``difficulty``, ``topic``, ``r1_solution_1`` to 3: DeepMath-103K."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        return is_text(row.get("question")) and "final_answer" in row and {"difficulty", "topic"} <= set(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat."""
        solutions = [name for name in row if name.startswith("r1_solution")]
        answer = answer_of(row.get("final_answer"), "final_answer")
        return row_of(messages_of(row, "question"), answer, kept(row, "question", *solutions))


class OrzRows(RowFormat):
    """A list of two turns, read with the columns "0" and "1": ``value`` of the human, ``ground_truth.value`` of the assistant."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        asked, answered = row.get("0"), row.get("1")
        return _turn(asked) == "human" and _turn(answered) == "assistant" and isinstance(answered, Mapping) and "ground_truth" in answered

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat."""
        asked, answered = row.get("0"), row.get("1")
        if not isinstance(asked, Mapping) or not isinstance(answered, Mapping):
            raise BadRow('"0" and "1" must be turns: {"from": "human", "value": …} and {"from": "assistant", "ground_truth": …}')
        truth = answered.get("ground_truth")
        answer = answer_of(truth.get("value") if isinstance(truth, Mapping) else None, "1.ground_truth.value")
        return row_of(messages_of({"0.value": asked.get("value")}, "0.value"), answer, kept(row, "0", "1"))


class NemotronPostRows(RowFormat):
    """``messages`` that end with a model's answer, ``category``, ``generator``, and ``metadata``, JSON with ``expected_answer``: Nemotron
    Post-Training v1 and v2."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        return is_chat(row.get("messages")) and {"category", "generator", "metadata"} <= set(row) and "expected_answer" not in row

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat. The prompt is the conversation without the model's last answer; "-" stands for a prompt that is left out."""
        messages = messages_of(row, "messages")
        while messages and messages[-1]["role"] == "assistant":
            messages.pop()
        messages = [message for message in messages if message["role"] != "system" or message["content"].strip()]
        if not messages or messages[-1]["content"].strip() in ("", _LEFT_OUT):
            raise BadRow('"messages" has no prompt: the published row leaves it out')
        truth = object_in(row, "metadata").get("expected_answer")
        if truth is None:
            raise BadRow(f'"metadata" has no "expected_answer"; rows of the category {str(row.get("category"))[:20]!r} may have none')
        return row_of(messages, answer_of(truth, "metadata.expected_answer"), kept(row))


class DolciRows(RowFormat):
    """``prompt``, ``ground_truth``, and ``dataset``, the verifier of open-instruct: Dolci. Rows of programs have a format of
    rlcore-plugin-code."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        verifier = _only(row.get("dataset"))
        return is_text(row.get("prompt")) and "ground_truth" in row and is_text(verifier) and not str(verifier).startswith("code")

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat. The published prompt begins with "user: ", which is left out."""
        verifier = str(_only(row.get("dataset")))
        if "math" not in verifier and "gsm8k" not in verifier:
            raise BadRow(f'"dataset" is {verifier[:40]!r}: the verifier of this row compares no answer; the format reads "math"')
        answer = answer_of(row.get("ground_truth"), "ground_truth")
        prompt = messages_of({"prompt": str(row.get("prompt") or "").removeprefix(_USER)}, "prompt")
        return row_of(prompt, answer, kept(row, "prompt", "outputs"))


class RllmRows(RowFormat):
    """``question``, ``ground_truth``, ``data_source``: rows of rllm, also as it wraps them for verl (in ``extra_info``, with the prompt
    "placeholder"). Rows of programs have a format of rlcore-plugin-code."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        row = _unwrapped(row)
        return is_text(row.get("question")) and is_text(row.get("data_source")) and "ground_truth" in row and not _has_tests(row)

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat."""
        row = _unwrapped(row)
        if _has_tests(row):
            raise BadRow('"ground_truth" consists of tests of a program, not of an answer')
        answer = answer_of(row.get("ground_truth"), "ground_truth")
        return row_of(messages_of(row, "question"), answer, kept(row, "question"))


def _has_tests(row: Mapping[str, Any]) -> bool:
    return holds_tests(row.get("ground_truth"))


def _unwrapped(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row that rllm wraps for verl, or the row itself."""
    prompt, inner = row.get("prompt"), row.get("extra_info")
    wrapped = is_chat(prompt) and [message.get("content") for message in prompt or ()] == [_PLACEHOLDER]
    return inner if wrapped and isinstance(inner, Mapping) else row


def _turn(value: object) -> Any:
    return value.get("from") if isinstance(value, Mapping) else None


def _only(value: Any) -> Any:
    """Return the only item of a list of one."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
