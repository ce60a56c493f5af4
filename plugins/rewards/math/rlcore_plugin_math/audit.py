"""The cases for ``rlcore audit``: the corpora of this package, as completions. Imported by that command and by tests.

``math_cases`` and ``math_hostile`` were collected. ``math_kinds`` and ``math_bombs`` were written for this package and judged by hand; they
are more of the same kinds. Hostile rows must terminate, with any verdict except a right one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any

from rlcore.api import AuditCase, FinishReason

__all__ = ["boxed_cases", "hostile_rows", "read_corpus", "think_answer_cases"]


def boxed_cases() -> list[AuditCase]:
    r"""Return every corpus row with its answer in a ``\boxed{}``, and invalid formats."""
    return [*_corpora(lambda answer: rf"so \boxed{{{answer}}}"), *_formats(_BOXED_FORMATS)]


def think_answer_cases() -> list[AuditCase]:
    """Return every corpus row with its answer between the tags, and invalid formats."""
    return [*_corpora(lambda answer: f"<think>so</think><answer>{answer}</answer>"), *_formats(_TAG_FORMATS)]


def read_corpus(name: str) -> list[dict[str, Any]]:
    """Return the rows of a corpus of this package: ``math_cases``, ``math_kinds``, ``math_hostile`` or ``math_bombs``."""
    text = files("rlcore_plugin_math").joinpath("corpus", f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def hostile_rows() -> list[tuple[str, str, str]]:
    """Return (name, gold answer, answer) of every hostile row, with long ones expanded."""
    rows = [(row["name"], row["gold"], row["answer"]) for row in read_corpus("math_hostile")]
    for row in read_corpus("math_bombs"):
        answer = row["before"] + row["unit"] * row["times"] + row["middle"] + row["closing"] * row["times"] + row["after"]
        rows.append((row["name"], row["gold"], answer))
    return rows


def _corpora(mark: Callable[[str], str]) -> Iterator[AuditCase]:
    for corpus in ("math_cases", "math_kinds"):
        for number, row in enumerate(read_corpus(corpus), 1):
            yield AuditCase(
                name=f"{corpus}:{number}",
                columns={"gt_answer": row["gold"]},
                text=mark(row["answer"]),
                accept=row["expected"],
                note=row["note"],
            )
    for number, (name, gold, answer) in enumerate(hostile_rows(), 1):
        yield AuditCase(name=f"hostile:{number} {name}", columns={"gt_answer": gold}, text=mark(answer), accept=False)


_BOXED_FORMATS = {
    "empty": "",
    "no box": "the answer is 5",
    "open box": r"\boxed{5",
    "empty box": r"\boxed{}",
    "answer before another box": r"\boxed{5} no, \boxed{6}",
    "prompt echoed": r"Give your final answer within \boxed{}. 5",
    "box in the reasoning": r"<think>\boxed{5}</think> I do not know",
    "box before another reasoning": r"<think>a</think>\boxed{5}<think>no: 6</think>",
    "reasoning without end": r"<think>\boxed{5}",
    "tags instead of a box": "<think>a</think><answer>5</answer>",
}
_TAG_FORMATS = {
    "empty": "",
    "no tags": "the answer is 5",
    "no think": "<answer>5</answer>",
    "two answers": "<think>a</think><answer>4</answer><answer>5</answer>",
    "text after": "<think>a</think><answer>5</answer> I hope",
    "open tag": "<think>a</think><answer>5",
    "wrong order": "<answer>5</answer><think>a</think>",
    "box instead of tags": r"\boxed{5}",
}


def _formats(texts: Mapping[str, str]) -> Iterator[AuditCase]:
    for name, text in texts.items():
        yield AuditCase(name=f"format: {name}", columns={"gt_answer": "5"}, text=text, accept=False)
    for name, text in (("boxed", r"\boxed{5}"), ("tags", "<think>a</think><answer>5</answer>")):
        yield AuditCase(name=f"truncated: {name}", columns={"gt_answer": "5"}, text=text, accept=False, finish=FinishReason.LENGTH)
