"""`make bench`: the quickstart task for 60 steps, and where the seconds of a step go. The last line is one JSON object."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from rich.console import Console
from rlcore_plugin_quickstart.assets import prepare

from rlcore.cli.line_display import LinesDisplay
from rlcore.config import plan_run
from rlcore.registry.plugin_registry import Registry
from rlcore.runtime import Summary, run

_PARTS = {
    "generation": ("producer/generation",),
    "scoring": ("producer/scoring",),
    "log_probabilities": ("trainer/log probabilities", "trainer/training/forward"),
    "backward": ("trainer/training/backward",),
    "optimizer": ("trainer/training/optimizer",),
    "weights": ("producer/weights", "trainer/weights"),
    "evaluation": ("producer/evaluation",),
}


def main() -> None:
    """Train, then print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as folder:
        assets = prepare(Path(folder) / "quickstart", arguments.seed, lambda line: console.print(line))
        steps = {"run": {"max_steps": arguments.steps}, "schedule": {"max_staleness": 0}}  # in one process, whose time it splits
        plan = plan_run([assets.run_toml], {}, Registry.discover(), overrides=steps)
        print(json.dumps(figures(run(plan, LinesDisplay(console)))))


def figures(summary: Summary) -> dict[str, object]:
    """Seconds a step by part (``other`` is what no part claims: batches, metrics, files), and the peak memory of the process."""
    split = {part: sum(summary.time.get(name, 0.0) for name in names) / summary.steps for part, names in _PARTS.items()}
    total = summary.train_seconds / summary.steps
    split["other"] = total - sum(split.values())
    return {
        "steps": summary.steps,
        "seconds_per_step": round(total, 4),
        "split": {part: round(seconds, 4) for part, seconds in split.items()},
        "tokens_per_second": summary.tokens_per_second,
        "peak_memory_mb": round(summary.peak_memory_bytes / 2**20),
        "accuracy_before": summary.accuracy_before,
        "accuracy_after": summary.accuracy_after,
    }


if __name__ == "__main__":
    main()
