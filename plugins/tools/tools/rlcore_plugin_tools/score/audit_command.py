"""``rlcore audit --reward NAME``: how a reward judges hostile completions and honest ones, and how long it takes."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.table import Table

from rlcore.api import DataError, UsageError
from rlcore.api.commands import Command, ExampleFormatter, escape_control, plain_console
from rlcore_plugin_tools.score.auditing import Material, Tried, audit_reward, fails_without_row, material_of, no_cases
from rlcore_plugin_tools.score.choice import choose_rewards
from rlcore_plugin_tools.score.score_command import add_reward_options, add_row_options, open_scorer, rows_to_judge
from rlcore_plugin_tools.score.score_progress import progress
from rlcore_plugin_tools.score.score_table import duration
from rlcore_plugin_tools.score.scorer import Scorer
from rlcore_plugin_tools.score.verdict_kinds import Answer

__all__ = ["AuditCommand"]

_SLOWEST = 5
_LONGEST_REASON = 100
_TEXT = """\
Test a reward with hostile completions (empty, huge, deeply nested, odd Unicode, format without an answer, every candidate listed,
instructions to the judge, ...) and honest ones, and report what it accepts, what it refuses, where it fails, and the slowest.
It runs the cases of the reward's plugin, and generic ones made from its honest cases or from the rows of --data.
"""
_EPILOG = """\
examples:
  rlcore audit --reward boxed
  rlcore audit --reward ./my_reward.py:score --data samples.jsonl
  rlcore audit --reward boxed --option format_score=1 --all

A row of --data is a row of training data; a completion in it, if there is one, must be a right answer (each of them, in a list).
It also tries near misses of a right answer (one more, another sign, unit or order, a digit), and dumps that contain it among others.
Exit codes: 0 no finding; 1 a hostile text was accepted, an honest one refused, one had no verdict in time, or none
was judged at all; 2 usage.
"""


class AuditCommand(Command):
    """The command ``rlcore audit``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the reward, the rows, and the output format."""
        parser.usage = "rlcore audit --reward NAME [--data FILE] [--option KEY=VALUE …] [--all] [--json] …"
        parser.description = _TEXT
        parser.epilog = _EPILOG
        parser.formatter_class = ExampleFormatter
        add_reward_options(parser)
        add_row_options(parser)
        parser.add_argument("--data", metavar="FILE", help="rows to make cases from [the plugin's own honest cases]")
        parser.add_argument("--all", action="store_true", help="list every case, not only the findings")
        parser.add_argument("--json", action="store_true", help="print one JSON object with every case")

    def run(self, args: argparse.Namespace) -> int:
        """Choose the reward, collect the cases, run them, and report."""
        if len(args.reward) > 1:
            raise UsageError(f"--reward {args.reward[1]}: one reward is audited at a time; run the command again for the other")
        choice = choose_rewards(
            args.reward[0] if args.reward else None,
            args.registry,
            options=args.option,
            deadline=args.deadline,
            workers=args.workers,
            data_format=args.data_format,
            columns=args.columns,
        )
        material = material_of(choice.specs[0], None if args.data is None else rows_to_judge(args.data, choice, args.registry))
        started = time.perf_counter()
        with ExitStack() as closing:
            scorer = open_scorer(choice, closing)
            if scorer.group_level:
                raise UsageError(
                    f"reward {choice.entries[0].name} judges the responses of a prompt together (group_level), so single texts cannot test"
                    " it and audit does not apply; judge groups with rlcore score FILE.jsonl, where completion is a list"
                )
            if material.rowless and (why := fails_without_row(scorer)):
                raise DataError(
                    f"reward {choice.entries[0].name} {no_cases(choice.specs[0])} and cannot judge a text without a data row ({why});"
                    " name rows with --data FILE.jsonl"
                )
            tried = _tried(scorer, material)
        report = _report(choice.as_json(), material, tried, time.perf_counter() - started)
        if args.json:
            print(json.dumps(report, ensure_ascii=False, allow_nan=False))
        else:
            _show(report, args.all)
        judged = any(one.answer in (Answer.ACCEPTED, Answer.REFUSED) for one in tried)
        if not judged:
            print(f"error: no case could be judged; the first: {escape_control(tried[0].verdict.score.reason)}", file=sys.stderr)
        return 0 if judged and not report["findings"] else 1


def _tried(scorer: Scorer, material: Material) -> list[Tried]:
    tried: list[Tried] = []
    with progress(lambda: len(material.cases)) as shown:
        for one in audit_reward(scorer, material):
            tried.append(one)
            shown.update(len(tried), len(tried))
    return tried


def _report(choice: dict[str, Any], material: Material, tried: Sequence[Tried], seconds: float) -> dict[str, Any]:
    cases = [one.as_json() for one in tried]
    by_time = sorted((case for case in cases if case["seconds"] is not None), key=lambda case: -float(case["seconds"]))
    return {
        "reward": choice["rewards"][0]["name"],
        **choice["rewards"][0],
        "workers": choice["workers"],
        "seconds": seconds,
        "note": material.note or None,
        "counts": dict(Counter(one.answer.value for one in tried)),
        "findings": [case for case in cases if case["finding"] is not None],
        "slowest": by_time[:_SLOWEST],
        "cases": cases,
    }


def _show(report: dict[str, Any], everything: bool) -> None:
    console = plain_console()
    cases = report["cases"]
    own = sum(case["origin"] == "plugin" for case in cases)
    if report["note"]:
        console.print(f"note: {escape_control(report['note'])}", soft_wrap=True)
    console.print(
        f"reward {report['reward']}: {own} cases from its plugin, {len(cases) - own} generic, {report['seconds']:.1f} s\n", soft_wrap=True
    )
    _show_counts(cases, console)
    if everything:
        console.print("\nevery case")
        _show_cases(cases, console)
    console.print(f"\nfindings: {len(report['findings']) or 'none'}", style="bold")
    if report["findings"]:
        _show_cases(report["findings"], console)
    console.print("\nslowest")
    for case in report["slowest"]:
        console.print(f"  {duration(case['seconds']):>8}  {escape_control(case['name'])}  ({case['outcome']})", soft_wrap=True)


_EXPECTED = {True: "to accept", False: "to refuse", None: "either"}


def _show_counts(cases: Iterable[dict[str, Any]], console: Console) -> None:
    counts = Counter((case["expected"], case["answer"]) for case in cases)
    answers = ("accepted", "refused", "invalid", "failed")
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("cases")
    for answer in answers:
        table.add_column(answer, justify="right")
    for expected, label in _EXPECTED.items():
        table.add_row(label, *(str(counts[expected, answer]) for answer in answers))
    console.print(table)


def _show_cases(cases: Iterable[dict[str, Any]], console: Console) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("case", "from", "expected", "verdict", "time", "what is wrong, or the reward's reason"):
        table.add_column(heading, overflow="fold")
    for case in cases:
        said = ": ".join(filter(None, (case["finding"], case["reason"])))[:_LONGEST_REASON]
        expected = _EXPECTED[case["expected"]]
        table.add_row(
            escape_control(case["name"]),
            case["origin"],
            expected,
            _verdict(case),
            duration(case["seconds"]),
            escape_control(said, lines=True),
        )
    console.print(table)


def _verdict(case: dict[str, Any]) -> str:
    """Return the outcome, and the number that decides whether a text counts as accepted."""
    number = "value" if case["accuracy"] is None else "accuracy"
    return str(case["outcome"]) if case["value"] is None else f"{case['outcome']}, {number} {case[number]:g}"
