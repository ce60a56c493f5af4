"""`make bench-processes`: the quickstart's task with producer and trainer in one process, in turns, and as processes that overlap.

Two shapes: the quickstart's own model, and one of 12.6 million weights. The two ways of a shape alternate inside one run of this program,
so a machine that slows down does so for both. ``idle``: the share of the trainer's time in which it waits for data. The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rlcore_plugin_quickstart.assets import prepare
from transformers import AutoConfig, AutoModelForCausalLM

from rlcore.config import plan_run
from rlcore.host.registry import Registry
from rlcore.runtime import run

WAYS = {"in turns, one process": 0, "overlapping, processes": 1}
"""max_staleness by what it makes of the runtime local."""
LARGE = {
    "hidden_size": 512,
    "intermediate_size": 1365,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
}


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
    print(json.dumps({"steps": arguments.steps, "rounds": arguments.rounds, "shapes": found}))


def enlarge(base: Path, large: Path) -> None:
    """A model of the same family with 12.6 million weights, not trained, and the tokenizer of the base."""
    shutil.copytree(base, large, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
    config = AutoConfig.from_pretrained(base)
    for key, value in LARGE.items():
        setattr(config, key, value)
    config.layer_types = None
    AutoModelForCausalLM.from_config(type(config)(**config.to_diff_dict())).save_pretrained(large)


def rounds_of(toml: Path, model: Path, folder: Path, arguments: argparse.Namespace, console: Console) -> dict[str, dict[str, float]]:
    """Seconds a step and idle shares, medians over the rounds, by way; ``ratio``: of overlapping to in turns."""
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
            idle = summary.time.get("trainer/waiting for data", 0.0) / summary.train_seconds
            seen[way].append((summary.train_seconds / summary.steps, idle))
            console.print(f"{model.name}, round {number + 1}, {way}: {seen[way][-1][0]:.3f} s a step, trainer idle {idle:.0%}")
    medians = {
        way: {"seconds_per_step": statistics.median(one[0] for one in of_way), "idle": statistics.median(one[1] for one in of_way)}
        for way, of_way in seen.items()
    }
    turns, overlapping = (medians[way]["seconds_per_step"] for way in WAYS)
    return {**medians, "ratio": {"seconds_per_step": overlapping / turns}}


def table(found: dict[str, dict[str, dict[str, float]]]) -> Table:
    """A row a shape and way."""
    made = Table("model", "way", "s/step", "trainer idle")
    for shape, ways in found.items():
        for way in WAYS:
            made.add_row(shape, way, f"{ways[way]['seconds_per_step']:.3f}", f"{ways[way]['idle']:.0%}")
    return made


if __name__ == "__main__":
    main()
