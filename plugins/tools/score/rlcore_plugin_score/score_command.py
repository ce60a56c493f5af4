"""``rlcore score FILE.jsonl --reward NAME``: judge a file of completions as a run would, without a model and without training."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from rlcore.api import DataError, UsageError
from rlcore.api.commands import Command, ExampleFormatter, Parser, Registry
from rlcore.api.data import Routes
from rlcore_plugin_score.choice import RewardChoice, choose_rewards
from rlcore_plugin_score.items import Item, RowsToJudge, TextVerdict, read_items
from rlcore_plugin_score.results import ResultFile
from rlcore_plugin_score.score_progress import progress, rows_of
from rlcore_plugin_score.score_summary import ScoreSummary
from rlcore_plugin_score.score_table import show_choice, show_summary
from rlcore_plugin_score.scorer import Scorer

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
  rlcore score samples.jsonl --config run.toml        # the rewards, weights and options of a run

A row that cannot be judged is counted as invalid and stands in the result file with its reason; --strict refuses the file instead.
Exit codes: 0 the file was scored, whatever the verdicts; 1 the reward failed on every row, or its workers cannot run;
2 what was typed, or with --strict a row, cannot work; 130 interrupted (with --out, what was judged is kept in FILE.partial).
"""


class ScoreCommand(Command):
    """``rlcore score``."""

    def add_arguments(self, parser: Parser) -> None:
        """What to judge, by which rewards, and where the verdicts go."""
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
            "--out", type=Path, metavar="FILE", help="write one row a completion, in order, as JSONL [none: print the table only]"
        )
        parser.add_argument(
            "--strict", action="store_true", help="refuse the file (exit code 2) where a row cannot be judged; check it first"
        )
        parser.add_argument("--limit", metavar="N", help="judge the first N rows only [all]")
        parser.add_argument(
            "--dry-run", "--dry_run", action="store_true", help="read the file and say what would run; judge and write nothing"
        )
        parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Choose the rewards, read the first row, judge, report."""
        choice, limit = _choice(args), _whole(args.limit)
        routes, file = Routes(choice.specs), rows_to_judge(args.file, choice, args.registry)
        if next(read_items(file, routes), None) is None:
            raise DataError(f'{args.file}: the file is empty; it needs rows like {{"messages": …, "gt_answer": "3", "completion": "…"}}')

        def items() -> Iterator[Item]:
            return read_items(file, routes, limit)

        if args.dry_run:
            return _show_plan(args, choice, items())
        with ExitStack() as closing:
            results = _results(args)
            scorer = open_scorer(choice, closing)
            if args.strict:
                _check(scorer, items())
            summary = _score(args, scorer, items(), choice.workers, results)
        return _report(args, summary)


def add_reward_options(parser: argparse.ArgumentParser) -> None:
    """The flags that choose rewards and how they are run; ``rlcore audit`` has them too."""
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
    """The flags that say how the rows of a data set are read; ``rlcore train`` has them too."""
    parser.add_argument(
        "--data-format",
        "--data_format",
        metavar="NAME",
        help="row format of the file: a name, none: rows as they are [auto: by its first row]",
    )
    parser.add_argument("--columns", metavar="JSON", help='columns by their names in the file: {"gt_answer": "reward_model.ground_truth"}')


def rows_to_judge(path: str, choice: RewardChoice, registry: Registry) -> RowsToJudge:
    """The data set that was typed; which row format was found goes to standard error, once."""
    said: list[str] = []

    def say(line: str) -> None:
        if line not in said:
            said.append(line)
            print(line, file=sys.stderr)

    return RowsToJudge(path=path, registry=registry, config=choice.config, say=say)


def _choice(args: argparse.Namespace) -> RewardChoice:
    if len(args.reward) > 1:
        raise UsageError(
            f"--reward {args.reward[1]}: several rewards have weights, so write them as [[rewards]] of a file: --config run.toml"
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


def _results(args: argparse.Namespace) -> ResultFile | None:
    return None if args.out is None else ResultFile(args.out, Path(args.file))


def open_scorer(choice: RewardChoice, closing: ExitStack) -> Scorer:
    """The workers, started; what the rewards say of this machine goes to standard error."""
    scorer = closing.enter_context(Scorer(choice.entries, workers=choice.workers))
    for notice in scorer.notices:
        print(notice, file=sys.stderr)
    return scorer


def _check(scorer: Scorer, items: Iterable[Item]) -> None:
    """``--strict``: every row, before the first is scored."""
    found = ScoreSummary(0)
    for verdict in scorer.run(items, scores=False):
        found.add(verdict)
    _refuse_invalid(found)


def _refuse_invalid(found: ScoreSummary) -> None:
    if found.invalid:
        more = found.invalid - len(found.invalid_reasons)
        raise DataError("; ".join(found.invalid_reasons) + (f"; and {more} more rows" if more else ""))


def _score(args: argparse.Namespace, scorer: Scorer, items: Iterable[Item], workers: int, results: ResultFile | None) -> ScoreSummary:
    summary = ScoreSummary(workers)

    def keep(verdicts: Iterable[TextVerdict]) -> None:
        for verdict in verdicts:
            summary.add(verdict)
            if results is not None:
                results.add(verdict)
            shown.update(summary.rows)

    with ExitStack() as closing:
        if results is not None:
            closing.enter_context(results)
        shown = closing.enter_context(progress(lambda: rows_of(Path(args.file), _whole(args.limit))))
        try:
            keep(scorer.run(items))
        except KeyboardInterrupt:
            keep(scorer.finished())
            kept = f"; what was judged is in {results.partial}" if results is not None else ""
            print(f"{summary.rows} completions were judged{kept}", file=sys.stderr)
            raise
        summary.stop()
        if args.strict:
            _refuse_invalid(summary)
    return summary


def _report(args: argparse.Namespace, summary: ScoreSummary) -> int:
    broken = summary.all_failed
    if args.json:
        out = None if args.out is None else str(args.out)
        print(json.dumps({"file": str(args.file), "out": out, **summary.as_json()}, ensure_ascii=False, allow_nan=False))
    else:
        show_summary(summary, args.out)
    if broken:
        print(f"error: the reward failed on every row; the first: {summary.first_failure}", file=sys.stderr)
    return 1 if broken else 0


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
