"""Tests one reward with cases whose right verdict is known: the plugin's own, and hostile ones made from them or from a data file.

A finding is a verdict that contradicts the right one, or a missing verdict. A text counts as accepted if it earns as much as a right
answer: outcome ``ok``, and an accuracy above 0, or a value above 0 if the reward gives no accuracy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rlcore.api import AuditCase, DataError, PluginError, RewardSpec
from rlcore.api.commands import load_target, reason
from rlcore.api.data import Routes
from rlcore_plugin_tools.score.adversarial_cases import WHOLE, corrupted_cases, golds_of, plain_cases
from rlcore_plugin_tools.score.items import Item, RowsToJudge, TextVerdict, read_items
from rlcore_plugin_tools.score.scorer import Scorer
from rlcore_plugin_tools.score.verdict_kinds import Answer, answer_of

__all__ = ["Answer", "Finding", "Material", "Tried", "audit_reward", "cases_of", "fails_without_row", "material_of", "no_cases"]

_SEEDS = 3
"""Rows that generic cases are made from: different kinds of answer fail in different ways, and each costs seconds."""


class Finding(StrEnum):
    """The reason why a verdict is wrong, in words."""

    FALSE_ACCEPT = "accepted, and must not be"
    FALSE_REJECT = "refused, and must not be"
    NO_VERDICT = "no verdict"
    UNUSABLE = "its data row cannot be judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The input of an audit. ``cases`` with their origin (``plugin``, ``generic``); ``note`` says what is missing, "" if nothing;
    ``rowless``: the generic cases have no data row."""

    cases: tuple[tuple[str, AuditCase], ...]
    note: str = ""
    rowless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A case and its verdict; ``finding`` is None if the verdict is right."""

    origin: str
    case: AuditCase
    verdict: TextVerdict
    answer: Answer
    finding: Finding | None

    def as_json(self) -> dict[str, Any]:
        """Return plain values without the text, which may have megabytes."""
        score = self.verdict.score
        return {
            "name": self.case.name,
            "origin": self.origin,
            "note": self.case.note,
            "expected": self.case.accept,
            "answer": self.answer.value,
            "finding": None if self.finding is None else self.finding.value,
            "outcome": score.outcome.value,
            "value": score.value if self.verdict.counts else None,
            "accuracy": score.accuracy,
            "reason": score.reason,
            "parsed": score.parsed,
            "seconds": self.verdict.seconds,
            "characters": len(self.case.text),
        }


def cases_of(spec: RewardSpec) -> list[AuditCase]:
    """Return the plugin's own cases, [] if it has none; PluginError if its declaration is not a function that returns them."""
    if not spec.audit:
        return []
    label = f"reward {spec.name!r}: its audit {spec.audit!r}"
    make = load_target(spec.audit, label)
    try:
        cases = list(make())
    except (Exception, SystemExit) as error:
        raise PluginError(f"{label} cannot be read: {reason(error)}") from error
    if wrong := [case for case in cases if not isinstance(case, AuditCase)]:
        raise PluginError(f"{label} returned a {type(wrong[0]).__name__} among its cases; it must return a list of AuditCase")
    return cases


def material_of(spec: RewardSpec, data: RowsToJudge | None = None) -> Material:
    """Return the plugin's cases and generic ones, which are made from its honest cases, from the rows of ``data``, or from text alone.

    Rows of ``data`` are data rows. A ``completion`` in one must be a right answer, and so must each in a list; the first of a list is
    spoiled.

    :raises DataError: no row of ``data`` can be used, or there is no row at all and the reward declares columns.
    """
    own = cases_of(spec)
    honest = _spread([case for case in own if case.accept is True])
    rows = [] if data is None else list(_rows(data, spec))
    seeds = [*honest, *(row[0] for row in rows)]
    note, rowless = "", not seeds
    if rowless and spec.requires:
        raise DataError(
            f"reward {spec.name} {no_cases(spec)} and judges rows with {', '.join(spec.requires)}; name rows with --data FILE.jsonl"
        )
    if rowless:
        seeds = [AuditCase(name="no row", columns={}, text="", accept=None)]
        note = f"reward {spec.name} {no_cases(spec)}: only texts without a data row are tried; --data FILE.jsonl gives it rows"
    elif not any(seed.accept for seed in seeds):
        note = "no right completion is known, so none is spoiled: put right ones into --data, as completion"
    generic = [case for row in rows for case in row if case.accept]
    for number, seed in enumerate(seeds):
        generic += _lenient(plain_cases(seed, spec.system_prompt), seed) if number == 0 else []
        generic += _lenient(corrupted_cases(seed), seed) if seed.accept else []
    return Material(cases=(*(("plugin", case) for case in own), *(("generic", case) for case in generic)), note=note, rowless=rowless)


def no_cases(spec: RewardSpec) -> str:
    """Return the words for a plugin without usable cases."""
    return f"comes with no cases (its audit {spec.audit} returned none that is right)" if spec.audit else "comes with no cases"


def _spread(cases: Sequence[AuditCase]) -> list[AuditCase]:
    """Return a few of the cases, spread over the whole list; those whose gold answer can be found in the text take precedence."""
    spoilable = [case for case in cases if any(gold in case.text for gold in golds_of(case.columns))] or list(cases)
    whole = [case for case in spoilable if any(re.fullmatch(r"-?\d{1,15}", gold) for gold in golds_of(case.columns))]
    count = min(_SEEDS, len(spoilable))
    spread = [spoilable[place * len(spoilable) // count] for place in range(count)]
    return [*whole[:1], *(case for case in spread if case not in whole[:1])][:_SEEDS]


def _rows(data: RowsToJudge, spec: RewardSpec) -> Iterator[tuple[AuditCase, ...]]:
    """Yield the first usable rows, with a case for each completion. A row without a completion gets an empty text whose verdict is not
    checked."""
    found, first = 0, ""
    for item in read_items(data, Routes((spec,)), needs_completion=False):
        if item.refused:
            first = first or item.refused
            continue
        accept = True if item.texts else None
        yield tuple(
            AuditCase(
                name=f"row {item.line}, completion {place}" if item.several else f"row {item.line}",
                columns=item.columns,
                text=text,
                accept=accept,
                messages=item.messages,
                finish=item.finish,
                note=item.source,
            )
            for place, text in enumerate(item.texts or ("",), start=1)
        )
        found += 1
        if found == _SEEDS:
            return
    if not found:
        raise DataError(first or f"{data.path}: the data is empty; it needs at least one row")


def _lenient(cases: Iterable[AuditCase], seed: AuditCase) -> Iterator[AuditCase]:
    """Yield the cases without an expectation for hostile texts that contain the right answer by chance, such as "10"."""
    golds = golds_of(seed.columns)
    for case in cases:
        chance = case.accept is False and not case.name.startswith(WHOLE) and any(_holds(case.text, gold) for gold in golds)
        yield replace(case, accept=None) if chance else case


def _holds(text: str, gold: str) -> bool:
    return re.search(rf"(?<![^\W_]){re.escape(gold)}(?![^\W_])", text) is not None


def audit_reward(scorer: Scorer, material: Material) -> Iterator[Tried]:
    """Run every case, in order."""
    items = (
        Item(line=number, messages=case.messages, columns=case.columns, texts=(case.text,), finish=case.finish)
        for number, (_, case) in enumerate(material.cases, start=1)
    )
    for (origin, case), verdict in zip(material.cases, scorer.run(items), strict=True):
        answer = answer_of(verdict.score)
        masked = verdict.score.outcome.judged and not verdict.counts
        finding = None if masked and not case.accept else _finding(case.accept, answer)  # a masked text earns nothing
        yield Tried(origin=origin, case=case, verdict=verdict, answer=answer, finding=finding)


def fails_without_row(scorer: Scorer) -> str:
    """Return why the reward cannot judge even a plain text without a data row, "" if it can."""
    (verdict,) = scorer.run([Item(line=1, texts=("I do not know.",))])
    return "" if verdict.score.outcome.judged else verdict.score.reason


def _finding(expected: bool | None, answer: Answer) -> Finding | None:
    if answer is Answer.FAILED:
        return Finding.NO_VERDICT
    if answer is Answer.INVALID:
        return Finding.UNUSABLE if expected else None  # training refuses such a row, so nothing can be earned on it
    if expected is None or expected == (answer is Answer.ACCEPTED):
        return None
    return Finding.FALSE_REJECT if expected else Finding.FALSE_ACCEPT
