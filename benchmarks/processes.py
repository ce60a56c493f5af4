"""`make bench-processes`: the quickstart's task with producer and trainer in one process, alternating, and as processes that overlap.

Two shapes: the quickstart's own model, and one of 12.6 million weights. The two ways of a shape alternate inside one run of this program,
so a machine that slows down does so for both. ``idle``: the share of the trainer's time in which it waits for data.

While alternating, nothing else runs beside generation (g seconds a step, verdicts included) or training (t): so each is measured alone,
with the one core that it has when they overlap. Overlapping can gain (g + t) / max(g, t) at the most; ``overlap`` is the share of that
which is gained. ``beside``: what two bare processes, which share nothing, keep of the speed that each has alone on this machine: with no
more cores than processes, ``overlap`` cannot be much above it. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rlcore_plugin_quickstart.assets import prepare
from transformers import AutoConfig, AutoModelForCausalLM

from rlcore.config import plan_run
from rlcore.registry.plugin_registry import Registry
from rlcore.runtime import run

WAYS = {"alternating, one process": 0, "overlapping, processes": 1}
"""max_staleness by what it makes of the runtime local."""
LARGE = {
    "hidden_size": 512,
    "intermediate_size": 1365,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
}
_BARE = """
import time, torch
torch.set_num_threads(1)
left, right, wide = torch.randn(512, 512), torch.randn(512, 512), torch.randn(1_000_000)
done, end = 0, time.perf_counter() + 4.0
while time.perf_counter() < end:
    left @ right
    wide.mul(1.5).add_(wide)
    done += 1
print(done)
"""
"""Products, and element-wise operations on more than a cache holds, for four seconds; prints how many."""


def main() -> None:
    """Run every shape both ways, then print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assets = prepare(folder / "quickstart", 0, lambda line: console.print(line))
        shapes = {"quickstart": assets.folder / "base", "12.6 M": folder / "large"}
        enlarge(shapes["quickstart"], shapes["12.6 M"])
        found = {shape: rounds_of(assets.run_toml, model, folder, arguments, console) for shape, model in shapes.items()}
    console.print(table(found))
    beside = statistics.median(bare_pair() for _ in range(arguments.rounds))
    console.print(f"two bare processes beside each other: {beside:.0%} of the speed of each alone")
    print(json.dumps({"steps": arguments.steps, "rounds": arguments.rounds, "beside": beside, "shapes": found}))


def enlarge(base: Path, large: Path) -> None:
    """A model of the same family with 12.6 million weights, not trained, and the tokenizer of the base."""
    shutil.copytree(base, large, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
    config = AutoConfig.from_pretrained(base)
    for key, value in LARGE.items():
        setattr(config, key, value)
    config.layer_types = None
    AutoModelForCausalLM.from_config(type(config)(**config.to_diff_dict())).save_pretrained(large)


def rounds_of(toml: Path, model: Path, folder: Path, arguments: argparse.Namespace, console: Console) -> dict[str, dict[str, float]]:
    """Medians over the rounds, by way: seconds a step, of which the trainer waits for data, and that as a share (``idle``). ``ratio``: of
    overlapping to alternating, and ``overlap``."""
    seen: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number in range(arguments.rounds):
        for way, staleness in WAYS.items():
            values = {
                "model": {"model": str(model)},
                "run": {"max_steps": arguments.steps, "run_dir": str(folder / "runs")},
                "schedule": {"max_staleness": staleness},
                "eval": {"eval_dataset": {}, "eval_interval": 0},
            }
            summary = run(plan_run([toml], {}, Registry.discover(), overrides=values))
            waiting = summary.time.get("trainer/waiting for data", 0.0) / summary.steps
            seen[way].append((summary.train_seconds / summary.steps, waiting))
            console.print(f"{model.name}, round {number + 1}, {way}: {seen[way][-1][0]:.3f} s a step, {waiting:.3f} of them without data")
    medians = {}
    for way, of_way in seen.items():
        seconds, waiting = (statistics.median(column) for column in zip(*of_way, strict=True))
        medians[way] = {"seconds_per_step": seconds, "waiting": waiting, "idle": waiting / seconds}
    turns, overlapping = (medians[way] for way in WAYS)
    longer = max(turns["waiting"], turns["seconds_per_step"] - turns["waiting"])
    ratio = overlapping["seconds_per_step"] / turns["seconds_per_step"]
    return {**medians, "ratio": {"seconds_per_step": ratio, "overlap": longer / overlapping["seconds_per_step"]}}


def bare_pair() -> float:
    """What each of two processes does beside the other, over what one does alone."""
    alone, *together = (int(count) for pair in (1, 2) for count in _counts(pair))
    return statistics.mean(together) / alone


def _counts(processes: int) -> list[str]:
    started = [subprocess.Popen([sys.executable, "-c", _BARE], stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return [process.communicate()[0] for process in started]


def table(found: dict[str, dict[str, dict[str, float]]]) -> Table:
    """A row a shape and way."""
    made = Table("model", "way", "s/step", "trainer idle", "overlap")
    for shape, ways in found.items():
        for way, staleness in WAYS.items():
            overlap = f"{ways['ratio']['overlap']:.0%}" if staleness else ""
            made.add_row(shape, way, f"{ways[way]['seconds_per_step']:.3f}", f"{ways[way]['idle']:.0%}", overlap)
    return made


if __name__ == "__main__":
    main()
