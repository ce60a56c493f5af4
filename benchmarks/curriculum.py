"""`make bench-curriculum`: does a curriculum reach an accuracy in fewer updates? The last line is one JSON object.

The quickstart's task, mixed: some of the training rows can be learned, the digits of some are sorted as they stand, and the others are
impossible, because their gold answer is wrong. Impossible rows give no gradient, so a sampler that issues them less often should need fewer
updates. Every seed has its own rows and base model, the same for each sampler.

``updates``: those before the first evaluation of held-out problems with at least 90 % of them right; null: none within
``--updates``. ``shares``: of the prompts that were trained on, by kind.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table
from rlcore_plugin_quickstart.assets import prepare

from rlcore.api import Controller, Decision
from rlcore.entry import make_plan
from rlcore.runtime import run

SAMPLERS: Mapping[str, Mapping[str, Any]] = {"shuffled": {}, "success_rate": {}}
KINDS = {"learnable": 96, "solved": 32, "impossible": 384}
INTERVAL, TARGET = 5, 0.9


class AtTarget(Controller):
    """Stops the run once the held-out accuracy is reached."""

    def __init__(self) -> None:
        self._reached = False

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """See the accuracy."""
        self._reached = figures["eval/sort"] >= TARGET

    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision | None:
        """Stop at the target."""
        return Decision(stop=f"the accuracy is {TARGET:g}") if self._reached else None


def main() -> None:
    """Run each sampler with each seed, print the table and the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=200, metavar="N", help="most updates of a run [200]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="seeds [0 1 2]")
    args = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {sampler: [] for sampler in SAMPLERS}
    with TemporaryDirectory(prefix="rlcore-bench-") as name:
        for seed in args.seeds:
            folder = prepare(Path(name) / f"seed-{seed}", seed, lambda line: print(line, file=sys.stderr, flush=True)).folder
            _mix(folder, seed)
            for sampler in SAMPLERS:
                found[sampler].append(_measure(folder, sampler, seed, args.updates))
                print(f"seed {seed}, {sampler}: {found[sampler][-1]}", file=sys.stderr, flush=True)
    _show(found)
    means = {sampler: _mean([of["updates"] for of in runs]) for sampler, runs in found.items()}
    both = all(means.values())
    ratio = round(means["success_rate"] / means["shuffled"], 2) if both else None  # type: ignore[operator]
    print(json.dumps({"target": TARGET, "updates": args.updates, "runs": found, "means": means, "ratio": ratio}))


def _mix(folder: Path, seed: int) -> None:
    """Write ``mixed.jsonl``: rows of each kind in a random order. An id tells the kind."""
    rng = random.Random(f"rlcore curriculum {seed}")
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    learnable, others = rows[: KINDS["learnable"]], rows[KINDS["learnable"] :]
    solved = [_row(row["gt_answer"], row["gt_answer"]) for row in others[: KINDS["solved"]]]
    left = others[-KINDS["impossible"] :]
    impossible = [{**row, "gt_answer": _other_answer(row["gt_answer"])} for row in left]
    kinds = {"learnable": learnable, "solved": solved, "impossible": impossible}
    mixed = [{**row, "id": f"{kind}-{number}"} for kind, of_kind in kinds.items() for number, row in enumerate(of_kind)]
    rng.shuffle(mixed)
    (folder / "mixed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mixed), encoding="utf-8")


def _row(digits: str, answer: str) -> dict[str, Any]:
    return {"messages": {"role": "user", "content": f"sort {digits}"}, "gt_answer": answer}


def _other_answer(answer: str) -> str:
    """Return an answer that a policy does not give: one digit, again and again."""
    first = answer.split()[0]
    return " ".join([first] * len(answer.split()))


def _measure(folder: Path, sampler: str, seed: int, updates: int) -> dict[str, Any]:
    """Return the figures of one run, which ends at the target."""
    config = {
        "run.seed": seed,
        "run.num_episodes": 1000,
        "run.max_steps": updates,
        "run.run_dir": str(folder / "runs" / sampler),
        "data.dataset": str(folder / "mixed.jsonl"),
        "data.sampler": sampler,
        "data.sampler_options": dict(SAMPLERS[sampler]),
        "eval.eval_interval": INTERVAL,
        "run.controllers": [f"{__file__}:AtTarget"],
    }
    summary = run(make_plan(folder / "run.toml", **config))
    lines = [json.loads(line) for line in (summary.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    reached = [line["step"] for line in lines if line.get("eval/sort", 0.0) >= TARGET]
    return {"updates": min(reached, default=None), "shares": _shares(summary.run)}


def _shares(root: Path) -> dict[str, float]:
    """Return the share of each kind of row in the rollout log."""
    kinds: Counter[str] = Counter()
    for path in (root / "rollouts").glob("*.jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            kinds.update(json.loads(line)["prompt_id"].partition("-")[0] for line in lines)
    return {kind: round(kinds[kind] / kinds.total(), 3) for kind in KINDS}


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None


def _show(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    table = Table("sampler", f"updates to {TARGET:g}, by seed", "learnable", "solved", "impossible")
    for sampler, runs in found.items():
        shares = Counter[str]()
        for of in runs:
            shares.update(of["shares"])
        table.add_row(sampler, " ".join(str(of["updates"]) for of in runs), *(f"{shares[kind] / len(runs):.2f}" for kind in KINDS))
    Console(stderr=True).print(table)


if __name__ == "__main__":
    main()
