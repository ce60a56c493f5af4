"""The two rewards: they find the answer, compare it (``compare.py``), and return the verdict."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from rlcore_plugin_extraction import Found, last_answer

from rlcore.api import FinishReason, Outcome, Reward, RewardInput, Score
from rlcore_plugin_math import BOXED, THINK_ANSWER
from rlcore_plugin_math.compare import Equality, LimitExceeded, compare, gold_problem
from rlcore_plugin_math.extract import tags_in_order
from rlcore_plugin_math.options import BoxedOptions, MathOptions, ThinkAnswerOptions
from rlcore_plugin_math.tolerance import Tolerance

__all__ = ["BoxedReward", "ThinkAnswerReward"]


class _MathReward(Reward):
    def __init__(self, options: MathOptions) -> None:
        self.options = options
        self.unit_omitted = None if options.missing_unit == "auto" else options.missing_unit == "accept"
        self.tolerance = Tolerance(
            absolute=Fraction(str(options.absolute_tolerance)),
            relative=Fraction(str(options.relative_tolerance)),
            stated_digits=options.stated_digits,
        )

    @abstractmethod
    def find(self, text: str) -> Found:
        """Return the answer that the text marks, none if its format is not valid."""

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """Return why the row's gold answer cannot be used, None if it can."""
        gold = columns["gt_answer"]
        if isinstance(gold, bool) or not isinstance(gold, str | int | float):
            return f"gt_answer is a {type(gold).__name__}; it must be a string or a number"
        return gold_problem(str(gold), text_allowed=self.options.unparseable_gold == "text", seconds=self.options.time_limit)

    def score(self, item: RewardInput) -> Score:
        """Return a verdict with the value ``correct_score``, half of it, ``format_score`` or ``malformed_score``."""
        found = self.find(item.text)
        return replace(self._judge(item, found), parsed=found.answer)

    def _judge(self, item: RewardInput, found: Found) -> Score:
        options, answer = self.options, found.answer
        if item.finish is FinishReason.LENGTH and options.require_eos:
            valid = answer is not None
            return Score(value=options.malformed_score, accuracy=0.0, format_ok=valid, outcome=Outcome.WRONG, reason="truncated")
        if answer is None:
            return Score(value=options.malformed_score, accuracy=0.0, format_ok=False, outcome=Outcome.MALFORMED, reason=found.reason)
        if len(answer) > options.max_chars:
            return self._wrong(Outcome.WRONG, f"limit: the answer has {len(answer)} characters, more than {options.max_chars}")
        strict = options.strictness == "strict"
        try:
            equality = compare(
                str(item.columns["gt_answer"]),
                answer,
                seconds=options.time_limit,
                strict=strict,
                tolerance=self.tolerance,
                unit_omitted=self.unit_omitted,
            )
        except LimitExceeded as limit:
            return self._wrong(Outcome.WRONG, f"limit: {limit}")
        if equality is Equality.UNPARSEABLE:
            return self._wrong(Outcome.UNPARSEABLE, "the answer is neither the expected text nor a formula")
        if equality is Equality.DIFFERENT:
            return self._wrong(Outcome.WRONG, "")
        if equality is Equality.AS_TEXT:
            return Score(value=options.correct_score / 2, accuracy=1.0, format_ok=True, reason="correct as text, not a formula")
        return Score(value=options.correct_score, accuracy=1.0, format_ok=True)

    def _wrong(self, outcome: Outcome, reason: str) -> Score:
        return Score(value=self.options.format_score, accuracy=0.0, format_ok=True, outcome=outcome, reason=reason)


class BoxedReward(_MathReward, spec=BOXED):
    r"""The answer is what ``extract`` finds, by default the content of the last ``\boxed{…}`` after the reasoning."""

    def __init__(self, options: BoxedOptions | None = None) -> None:
        super().__init__(options or BoxedOptions())
        self._extract = (options or BoxedOptions()).extract

    def find(self, text: str) -> Found:
        return self._extract.find(text)


class ThinkAnswerReward(_MathReward, spec=THINK_ANSWER):
    """The answer is in ``<answer>…</answer>``, found there by ``extract``; it counts only if the four tags are right."""

    rule = "<think>, </think>, <answer>, </answer> must each occur once, in this order, with nothing after"

    def __init__(self, options: ThinkAnswerOptions | None = None) -> None:
        super().__init__(options or ThinkAnswerOptions())
        self._extract = (options or ThinkAnswerOptions()).extract

    def find(self, text: str) -> Found:
        content = last_answer(text) if tags_in_order(text) else None
        if content is None:
            return Found(None, self.rule)
        return self._extract.find(content)
