"""`make bench-generation`: tokens a second of the backend transformers, of its plain path, and of ``generate``, on one model.

Groups of 8 rows of one prompt each, with a fixed number of new tokens, drawn at temperature 1 by every one of them. The ways alternate; the
figures are medians over the rounds, of CPU seconds, which another program on the machine disturbs less than the clock. Two shapes: the
quickstart's model with its prompts of 16 tokens and 32 new ones, and one of 12.6 million weights with 200 and 64. ``generate`` gets every
row's prompt, as it must; the backend gets one a group. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from rlcore_plugin_quickstart.assets import prepare
from rlcore_plugin_transformers.engine import TransformersBackend
from rlcore_plugin_transformers.options import TransformersOptions
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.processes import enlarge
from rlcore.api import InferenceContext, Request, Sampling
from rlcore.testing import ChatTokenizer

GROUP = 8
LENGTHS = {"quickstart": (16, 32), "12.6 M": (200, 64)}
"""Tokens of a prompt, and new tokens of a row."""


def main() -> None:
    """Measure every shape, then print the table and the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=128, help="rows side by side (128)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each way, alternating (5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (1)")
    parser.add_argument("--shape", choices=LENGTHS, action="append", help="one shape alone; again for more")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="rlcore-bench-") as name:
        base = prepare(Path(name) / "quickstart", 0, lambda line: console.print(line)).folder / "base"
        folders = {"quickstart": base, "12.6 M": base.parent.parent / "large"}
        enlarge(base, folders["12.6 M"])
        shapes = arguments.shape or list(LENGTHS)
        found = {shape: measured(folders[shape], *LENGTHS[shape], arguments.rows, arguments.rounds) for shape in shapes}
    console.print(table(found))
    print(json.dumps({"rows": arguments.rows, "rounds": arguments.rounds, "threads": arguments.threads, "shapes": found}))


def measured(folder: Path, prompt: int, new: int, rows: int, rounds: int) -> dict[str, float]:
    """CPU seconds of each way for the same work, and how many times as many tokens a second the backend makes as ``generate``."""
    ways = ways_of(folder, prompt, new, rows)
    for way in ways.values():
        way()
    seen: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.process_time()
            way()
            seen[name].append(time.process_time() - started)
    tokens = {f"{name}_tokens_per_cpu_second": round(rows * new / statistics.median(of)) for name, of in seen.items()}
    peer = statistics.median(seen["generate"])
    return {**tokens, **{f"{name}_ratio": round(peer / statistics.median(of), 2) for name, of in seen.items() if name != "generate"}}


def ways_of(folder: Path, prompt: int, new: int, rows: int) -> dict[str, Callable[[], None]]:
    """What generates ``rows`` x ``new`` tokens after prompts of ``prompt`` tokens, by name."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokens = np.random.default_rng(0).integers(3, model.config.vocab_size, (rows // GROUP, prompt)).astype(np.int32)
    inputs = torch.from_numpy(np.repeat(tokens, GROUP, axis=0).astype(np.int64))

    def generate() -> None:
        with torch.inference_mode():
            made = model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                min_new_tokens=new,
                max_new_tokens=new,
                eos_token_id=None,
                pad_token_id=0,
            )
        assert made.shape == (rows, prompt + new)

    context = InferenceContext(
        model=str(folder), tokenizer=endless(folder), prompts_per_forward=rows // GROUP, max_tokens=prompt + new, device="cpu"
    )
    engines = {
        "plain": TransformersBackend(context, TransformersOptions(fused=False)),
        "rlcore": TransformersBackend(context, TransformersOptions()),
    }
    return {"generate": generate, **{name: by_engine(engine, tokens, new) for name, engine in engines.items()}}


def endless(folder: Path) -> ChatTokenizer:
    """The tokenizer without stop tokens, so that every row is as long as asked."""
    made = ChatTokenizer(AutoTokenizer.from_pretrained(folder))
    made.stop_ids = frozenset()
    return made


def by_engine(engine: TransformersBackend, tokens: np.ndarray, new: int) -> Callable[[], None]:
    """Answer every group by this engine."""

    def answer() -> None:
        sampling = Sampling(max_new_tokens=new)
        engine.submit(
            [
                Request(request_id=f"{group}.{row}", group=str(group), token_ids=prompt, sampling=sampling, noise=(0, group, row, 0))
                for group, prompt in enumerate(tokens)
                for row in range(GROUP)
            ]
        )
        done = 0
        while done < len(tokens) * GROUP:
            done += len(engine.poll(60.0))

    return answer


def table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """A row a shape."""
    made = Table("model", *next(iter(found.values())))
    for shape, figures in found.items():
        made.add_row(shape, *(f"{value:,}" for value in figures.values()))
    return made


if __name__ == "__main__":
    main()
