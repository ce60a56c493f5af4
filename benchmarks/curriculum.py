"""`make bench-curriculum`: does a curriculum reach an accuracy in fewer updates? The last line is one JSON object.

The quickstart's task, mixed of three sources: ``learnable`` has problems to sort, the digits of ``solved`` are sorted as they stand, and
the gold answers of ``impossible`` are wrong. Of eight prompts, six are impossible and give no gradient. ``weighted`` draws the sources by
these weights; ``success_rate`` draws those more often whose success rate is near one half. Each seed has its own rows and base model, the
same for both samplers.

``updates``: those before the first evaluation of held-out problems with at least 90 % of them right; null: none within ``--updates``.
``shares``: of the prompts that were trained on, by source.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table
from rlcore_plugin_quickstart.assets import prepare
from rlcore_plugin_quickstart.recipe import run_toml

from rlcore.api import Controller, Decision
from rlcore.entry import make_plan
from rlcore.runtime import run

SAMPLERS = ("weighted", "success_rate")
KINDS = {"learnable": (1024, 1), "solved": (256, 1), "impossible": (768, 6)}
"""Source -> its number of rows and its weight."""
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
            sources = _write_sources(folder)
            for sampler in SAMPLERS:
                found[sampler].append(_measure(folder, sources, sampler, seed, args.updates))
                print(f"seed {seed}, {sampler}: {found[sampler][-1]}", file=sys.stderr, flush=True)
    _show(found)
    means = {sampler: _mean([of["updates"] for of in runs]) for sampler, runs in found.items()}
    both = all(means.values())
    ratio = round(means["success_rate"] / means["weighted"], 2) if both else None  # type: ignore[operator]
    print(json.dumps({"target": TARGET, "updates": args.updates, "runs": found, "means": means, "ratio": ratio}))


def _write_sources(folder: Path) -> list[dict[str, Any]]:
    """Write the rows of each source, and return the tables of the sources."""
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    made = {
        "learnable": lambda row: row,
        "solved": lambda row: _row(row["gt_answer"], row["gt_answer"]),
        "impossible": lambda row: {**row, "gt_answer": _other_answer(row["gt_answer"])},
    }
    sources = []
    for name, (count, weight) in KINDS.items():
        taken, rows = rows[:count], rows[count:]
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(made[name](row)) + "\n" for row in taken), encoding="utf-8")
        sources.append({"name": name, "weight": weight, "data": {"dataset": str(path)}})
    return sources


def _row(digits: str, answer: str) -> dict[str, Any]:
    return {"messages": {"role": "user", "content": f"sort {digits}"}, "gt_answer": answer}


def _other_answer(answer: str) -> str:
    """Return an answer that a policy does not give: one digit, again and again."""
    first = answer.split()[0]
    return " ".join([first] * len(answer.split()))


def _measure(folder: Path, sources: list[dict[str, Any]], sampler: str, seed: int, updates: int) -> dict[str, Any]:
    """Return the figures of one run, which ends at the target."""
    config = tomllib.loads(run_toml(folder, seed, aside=True))
    del config["data"]["dataset"]
    (learnable, *others), held_out = sources, {"eval_dataset": config["eval"].pop("eval_dataset")}
    config["run"] |= {"num_episodes": 1000, "max_steps": updates, "run_dir": str(folder / "runs" / sampler)}
    config["run"]["controllers"] = [f"{__file__}:AtTarget"]
    config["data"]["sampler"], config["eval"]["eval_interval"] = sampler, INTERVAL
    config["sources"] = [{**learnable, "eval": held_out}, *others]
    summary = run(make_plan(config))
    lines = [json.loads(line) for line in (summary.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    reached = [line["step"] for line in lines if line.get("eval/sort", 0.0) >= TARGET]
    return {"updates": min(reached, default=None), "shares": _shares(summary.run)}


def _shares(root: Path) -> dict[str, float]:
    """Return the share of each source in the rollout log."""
    kinds: Counter[str] = Counter()
    for path in (root / "rollouts").glob("*.jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            kinds.update(json.loads(line)["source"] for line in lines)
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
