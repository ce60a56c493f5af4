"""``rlcore score FILE.jsonl --reward NAME``: judges a file of completions as a run would, without a model and without training."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rlcore.api import DataError, UsageError
from rlcore.api.commands import Command, ExampleFormatter, Registry, escape_control
from rlcore.api.data import Routes
from rlcore_plugin_tools.score.agreement import Agreement
from rlcore_plugin_tools.score.choice import RewardChoice, choose_rewards
from rlcore_plugin_tools.score.items import Item, RowsToJudge, read_items
from rlcore_plugin_tools.score.results import ResultFile
from rlcore_plugin_tools.score.score_progress import rows_of
from rlcore_plugin_tools.score.score_summary import ScoreSummary
from rlcore_plugin_tools.score.score_table import show_agreement, show_choice, show_summary
from rlcore_plugin_tools.score.scorer import Scorer
from rlcore_plugin_tools.score.scoring import Scoring, identity_of, refuse_invalid

__all__ = ["ScoreCommand", "add_reward_options", "add_row_options", "open_scorer", "rows_to_judge"]

_TEXT = """\
Judge a file of completions as a training run would, without a model. A row is a row of training data with a completion:
  {"messages": {"role": "user", "content": "1 + 2?"}, "gt_answer": "3", "completion": "so \\\\boxed{3}"}
completion may be a list of texts: a group, for rewards that judge groups. finish may be stop (the default) or length (truncated).
"""
_EPILOG = """\
examples:
  rlcore score samples.jsonl --reward boxed
  rlcore score samples.jsonl --reward boxed --option format_score=1 --out scores.jsonl
  rlcore score samples.jsonl --reward ./my_reward.py:score --limit 100
  rlcore score samples.parquet --reward boxed --columns '{"completion": "response"}'
  rlcore score samples.jsonl --reward boxed --against ./my_reward.py:score
  rlcore score samples.jsonl --config run.toml        # the rewards, weights and options of a run

A row that cannot be judged counts as invalid and is in the result file with its reason; --strict refuses the file instead.
Groups (a list as completion, or rows of one id) get avg, pass@k and maj@k. Rows of other shapes: --data-format and --columns.
Exit codes: 0 rows were judged, whatever the verdicts; 1 no row could be judged, the reward failed on every row, or its workers cannot run;
2 the arguments, or with --strict a row, cannot work; 130 interrupted (with --out, judged rows are kept in FILE.partial: --resume).
"""


_OF_THE_RIVAL = {"option": "--against-option", "reward": "--against"}


class ScoreCommand(Command):
    """The command ``rlcore score``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the file, the rewards, and the output of the verdicts."""
        parser.usage = (
            "rlcore score FILE.jsonl (--reward NAME | --config run.toml) [--option KEY=VALUE …] [--out FILE] [--strict] [--json] …"
        )
        parser.description = _TEXT
        parser.epilog = _EPILOG
        parser.formatter_class = ExampleFormatter
        parser.add_argument("file", metavar="FILE", help="completions to judge: JSONL, JSON, CSV, Parquet, or hf:NAME")
        add_reward_options(parser)
        add_row_options(parser)
        parser.add_argument("--config", type=Path, metavar="FILE.toml", help="take [[rewards]] from this run file; --reward overrides it")
        parser.add_argument(
            "--against", metavar="NAME", help="a second reward for the same rows: report how often both agree, and where they do not"
        )
        parser.add_argument(
            "--against-option",
            "--against_option",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="an option of --against; repeatable",
        )
        parser.add_argument(
            "--out", type=Path, metavar="FILE", help="write one row per completion, in order, as JSONL [none: print only the table]"
        )
        parser.add_argument("--strict", action="store_true", help="refuse the file (exit code 2) if a row cannot be judged; check it first")
        parser.add_argument("--resume", action="store_true", help="continue the result file of --out, if it was interrupted")
        parser.add_argument("-n", "--limit", metavar="N", help="judge the first N rows only [all]")
        parser.add_argument("--dry-run", "--dry_run", action="store_true", help="read the file and print the plan; judge and write nothing")
        parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Choose the rewards, read the first row, judge, and report."""
        choice, limit = _choice(args), _whole(args.limit)
        rival = _rival(args, choice)
        if rival is not None:
            choice, rival = (replace(each, workers=max(1, each.workers // 2)) for each in (choice, rival))
        file = rows_to_judge(args.file, choice, args.registry)
        if next(read_items(file, Routes(choice.specs)), None) is None:
            raise DataError(f'{args.file}: the file is empty; it needs rows like {{"messages": …, "gt_answer": "3", "completion": "…"}}')

        def items(judge: RewardChoice = choice) -> Iterator[Item]:
            return read_items(file, Routes(judge.specs), limit)

        if args.dry_run:
            return _show_plan(args, choice, items())
        with ExitStack() as closing:
            results = _results(args, choice, rival, limit)
            scorer = open_scorer(choice, closing)
            if args.strict:
                _check(scorer, items())
            scoring = Scoring(choice=choice, scorer=scorer, results=results, path=args.file, strict=args.strict)
            if rival is not None:
                scoring.against(rival, open_scorer(rival, closing), items(rival))
            if args.resume:
                scoring.resume()
            summary = scoring.run(items(), lambda: rows_of(args.file, args.registry, limit))
        return _report(args, summary, scoring.agreement)


def add_reward_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose rewards and how they run; ``rlcore audit`` has them too."""
    parser.add_argument(
        "--reward", action="append", default=[], metavar="NAME", help="a name from `rlcore plugins`, ./my.py:fn or package.module:Name"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the reward (rlcore show reward NAME); repeatable"
    )
    parser.add_argument("--workers", metavar="N", help="worker processes [one less than there are cores]")
    parser.add_argument(
        "--deadline",
        "--reward-deadline",
        metavar="SECONDS",
        help="longest time for one completion; then its worker is killed [the reward's]",
    )


def add_row_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how to read the rows of a data set; ``rlcore train`` has them too."""
    parser.add_argument(
        "--data-format",
        "--data_format",
        metavar="NAME",
        help="row format of the file: a name, none: rows as they are [auto: by its first row]",
    )
    parser.add_argument("--columns", metavar="JSON", help='columns by their names in the file: {"gt_answer": "reward_model.ground_truth"}')


def rows_to_judge(path: str, choice: RewardChoice, registry: Registry) -> RowsToJudge:
    """Return the data set that was typed; the row format that was found is printed on standard error once."""
    if not path:
        raise UsageError("the name of the data set is empty; name a file, for example samples.jsonl")
    said: list[str] = []

    def say(line: str) -> None:
        if line not in said:
            said.append(line)
            print(escape_control(line), file=sys.stderr)

    return RowsToJudge(path=path, registry=registry, config=choice.config, say=say)


def _choice(args: argparse.Namespace) -> RewardChoice:
    if len(args.reward) > 1:
        raise UsageError(
            f"--reward {args.reward[1]}: several rewards need weights, so write them as [[rewards]] in a file: --config run.toml"
        )
    name = args.reward[0] if args.reward else None
    return choose_rewards(
        name,
        args.registry,
        config=args.config,
        options=args.option,
        deadline=args.deadline,
        workers=args.workers,
        data_format=args.data_format,
        columns=args.columns,
    )


def _whole(word: str | None) -> int | None:
    if word is None:
        return None
    if not word.isascii() or not word.isdigit() or int(word[:18]) < 1:
        raise UsageError(f"--limit {word}: must be a whole number of at least 1; for example --limit 100")
    return int(word[:18])


def _rival(args: argparse.Namespace, choice: RewardChoice) -> RewardChoice | None:
    """Return the reward of ``--against``."""
    if args.against is None:
        if args.against_option:
            raise UsageError(f"--against-option {args.against_option[0]}: it is an option of --against; name that reward too")
        return None
    if args.resume:
        raise UsageError("--resume: it continues with only one reward; leave out --against, or judge all rows again")
    try:
        rival = choose_rewards(args.against, args.registry, options=args.against_option, deadline=args.deadline, workers=args.workers)
    except UsageError as error:  # quote the flags that were typed for this reward
        said = re.sub(r"--(option|reward)(?![\w-])", lambda flag: _OF_THE_RIVAL[flag[1]], str(error))
        raise type(error)(said) from error
    if rival.names == choice.names:
        return replace(rival, label=f"{rival.names} (the other)")
    return rival


def _results(args: argparse.Namespace, choice: RewardChoice, rival: RewardChoice | None, limit: int | None) -> ResultFile | None:
    if args.out is None:
        if args.resume:
            raise UsageError("--resume: it continues a result file; name it by --out FILE")
        return None
    return ResultFile(args.out, Path(args.file), identity_of(args.file, choice, rival, limit))


def open_scorer(choice: RewardChoice, closing: ExitStack) -> Scorer:
    """Return the scorer with its workers started; the rewards' notices about this machine are printed on standard error."""
    scorer = closing.enter_context(Scorer(choice.entries, workers=choice.workers))
    for notice in scorer.notices:
        print(escape_control(notice, lines=True), file=sys.stderr)
    return scorer


def _check(scorer: Scorer, items: Iterable[Item]) -> None:
    """Check every row before the first is scored (``--strict``)."""
    found = ScoreSummary(0)
    for verdict in scorer.run(items, scores=False):
        found.add(verdict)
    refuse_invalid(found)


def _report(args: argparse.Namespace, summary: ScoreSummary, agreement: Agreement | None) -> int:
    compared = None if agreement is None else agreement.as_json()
    if args.json:
        out = None if args.out is None else str(args.out)
        more = {} if compared is None else {"agreement": compared}
        print(json.dumps({"file": str(args.file), "out": out, **summary.as_json(), **more}, ensure_ascii=False, allow_nan=False))
    else:
        show_summary(summary, args.out)
        if compared is not None:
            show_agreement(compared)
    if summary.all_failed:
        first = escape_control(f"{summary.first_failure or summary.first_masked}")
        print(f"error: the reward failed on every row; the first: {first}", file=sys.stderr)
    elif not summary.judged:
        print(f"error: no row could be judged; the first: {escape_control(summary.invalid_reasons[0])}", file=sys.stderr)
    return 0 if summary.judged else 1


def _show_plan(args: argparse.Namespace, choice: RewardChoice, items: Iterable[Item]) -> int:
    rows = texts = invalid = 0
    first = ""
    for item in items:
        rows, texts, invalid = rows + 1, texts + len(item.texts), invalid + bool(item.refused)
        first = first or item.refused
    plan = {
        "file": str(args.file),
        **choice.as_json(),
        "rows": rows,
        "completions": texts,
        "invalid": invalid,
        "first_invalid": first or None,
    }
    if args.json:
        print(json.dumps(plan, ensure_ascii=False))
    else:
        show_choice(plan)
    return 0
