"""rlcore and TRL's ``GRPOTrainer`` on one device: what the parts ``peers-…`` of `make gpu` run, and ``peers`` of `make gpu-engines`.

Both sides get the same folder, as in `make bench-peers`: a model of a known shape with random weights, rows, hyperparameters, rollouts in a
forward (halved for a side that the card's memory does not hold), bfloat16 over weights and moments in float32. TRL also runs in other ways
that may be faster; what they compute differs, and the fastest that works is shown. Each way is a process of its own; the step after the
warm-up counts. By itself, the last line is one JSON object:

    python -m benchmarks.peers.on_device --device cpu --shape 0.6b
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from benchmarks.gpu.device import card, free
from benchmarks.gpu.flops import Shape, generation_flops, mfu, update_flops
from benchmarks.gpu.models import SHAPES, TINY, write_model
from benchmarks.peers.runs import RunBroke, one_run
from benchmarks.peers.work import Work

__all__ = ["RLCORE", "WAYS", "compare", "device_folder", "device_work", "main", "summary"]

RLCORE, TRL = "rlcore", "TRL"
"""The way of each side that all others are compared with."""
_SHARE = 0.4
"""Of the card's memory, for vLLM, on both sides."""
_BRIEF = {"weights": "bfloat16"}
WAYS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "transformers": {
        RLCORE: {},
        TRL: {},
        "TRL, bfloat16 weights": _BRIEF,
        "TRL, bfloat16 weights, static cache": {**_BRIEF, "cache_implementation": "static"},
        "TRL, continuous batching": {**_BRIEF, "use_transformers_continuous_batching": True},
    },
    "vllm": {
        RLCORE: {
            "run": {"placement": "colocated"},
            "inference": {"name": "vllm", "options": {"enforce_eager": False, "engine": {"gpu_memory_utilization": _SHARE}}},
        },
        TRL: {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": _SHARE, "vllm_enable_sleep_mode": True},
        "TRL, never sleeping": {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": _SHARE},
    },
}
"""Engine -> way -> what changes for it: sections of rlcore's configuration, or what ``trl_side`` takes. rlcore's own first."""
_TAILED = "heavy-tailed"
_RULED = (RLCORE, TRL, "TRL, bfloat16 weights")
"""Those whose rows a stop rule of the benchmark can end: TRL's other ways take none."""
NAMES = (*SHAPES, _TAILED)
_STEPS = 20
"""That the rows of a folder are enough for."""


def main(words: Sequence[str] | None = None) -> int:
    """Run every way of the shapes, print the JSON object; 1 if a side has no way that works."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: with tiny models, to try it (cuda)")
    parser.add_argument("--engine", choices=WAYS, default="transformers", help="of both sides (transformers)")
    parser.add_argument("--shape", choices=NAMES, action="append", help="one shape alone; again for more")
    parser.add_argument("--peer", type=Path, default=Path(sys.executable), help="the Python that TRL is installed for (this one)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a run is ended (300)")
    args = parser.parse_args(words)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="rlcore-bench-") as name:
        for shape in args.shape or [one for one in NAMES if args.engine == "transformers" or one != _TAILED]:
            folder = device_folder(Path(name) / shape, shape, args.device, tiny=args.device == "cpu")
            tried = compare(folder, shape, args.engine, args.peer, args.limit)
            works, said = summary(tried)
            print(f"{shape}: {said}", file=sys.stderr, flush=True)
            found[shape] = {"works": works, "said": said, "ways": tried}
    broken = [shape for shape, of in found.items() if not of["works"]]
    print(json.dumps({"device": args.device, "engine": args.engine, "failed": broken, "shapes": found}, ensure_ascii=False))
    return 1 if broken else 0


def device_work(name: str, device: str, *, tiny: bool) -> Work:
    """The shape so named: 128 rollouts of 256 + 512 tokens a step, the heavy-tailed one of 256 + at most 1024; ``tiny``: 4 of 12 + 8."""
    work = Work(
        name=name,
        prompts=2 if tiny else 16,
        group=2 if tiny else 8,
        prompt_tokens=12 if tiny else 256,
        new_tokens=8 if tiny else 512,
        reward="parity",
        forward_rollouts=2 if tiny else 32,
        steps=1,
        warmup=1,
        learning_rate=1e-6,
        device=device,
        dtype="bfloat16",
    )
    return replace(work, new_tokens=2 * work.new_tokens, sigma=1.0) if name == _TAILED else work


def device_folder(folder: Path, name: str, device: str, *, tiny: bool) -> Path:
    """``model``, ``train.jsonl`` and ``work.json`` of a shape, without a download: random weights, a tokenizer of numbered words."""
    work, shape = device_work(name, device, tiny=tiny), shape_of(name, tiny=tiny)
    write_model(shape, folder / "model", device)
    free(device)
    numbered_words(shape.vocabulary).save_pretrained(folder / "model")
    draw = np.random.default_rng(0)
    words = draw.integers(3, shape.vocabulary, (_STEPS * work.prompts, work.prompt_tokens - 2))
    texts = (" ".join(f"w{word}" for word in row) for row in words)
    rows = ({"messages": {"role": "user", "content": text}, "gt_answer": "0"} for text in texts)
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    work.write(folder)
    return folder


def shape_of(name: str, *, tiny: bool) -> Shape:
    """Of the model; the heavy tail is of the smallest one."""
    return TINY if tiny else SHAPES[next(iter(SHAPES)) if name == _TAILED else name]


def numbered_words(size: int) -> PreTrainedTokenizerFast:
    """A word a token, as many as the model has; 0 ends, 1 pads, 2 stands before a message and where the answer begins."""
    words = {"<eos>": 0, "<pad>": 1, "<turn>": 2} | {f"w{number}": number for number in range(3, size)}
    fast = Tokenizer(models.WordLevel(vocab=words, unk_token="<pad>"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<eos>", pad_token="<pad>", unk_token="<pad>")
    made.chat_template = (
        "{% for message in messages %}<turn> {{ message['content'] }} {% endfor %}{% if add_generation_prompt %}<turn>{% endif %}"
    )
    return made


def compare(
    folder: Path,
    name: str,
    engine: str,
    peer: Path,
    longest: float,
    until: float | None = None,
    report: Callable[[dict[str, dict[str, Any]]], None] = lambda tried: None,
) -> dict[str, dict[str, Any]]:
    """Way -> its row of figures, or ``error``: another library's failure is a result of this comparison, not its end.

    ``longest``: seconds of a run. ``until``: the monotonic time after which none goes on. ``report`` takes what there is after each.
    """
    work, tried = Work.read(folder), {}
    for label, changes in ways_of(engine, work).items():
        left = longest if until is None else min(longest, until - time.monotonic())
        try:
            if left < longest / 2:
                raise RunBroke("not begun: out of time")
            tried[label] = row_of(fitting_run(folder, work, label, changes, peer, left), name, label, work)
        except RunBroke as broke:
            tried[label] = {"error": " ".join(str(broke).strip().splitlines()[-1:])[:300]}
        report(tried)
    return tried


def ways_of(engine: str, work: Work) -> dict[str, dict[str, Any]]:
    """Those of ``WAYS`` that the work can be done in."""
    ways = {label: dict(changes) for label, changes in WAYS[engine].items() if work.sigma is None or label in _RULED}
    for changes in ways.values():
        if work.device == "cpu" and "use_transformers_continuous_batching" in changes:
            changes["transformers_continuous_batching_config"] = {"max_memory_percent": 0.01}  # TRL's half is of the machine's memory there
    return ways


def fitting_run(folder: Path, work: Work, label: str, changes: Mapping[str, Any], peer: Path, left: float) -> dict[str, Any]:
    """Its figures, with so many rollouts in a forward that the card holds them: as ``work`` has it, or half of them, and so on."""
    began, rows = time.monotonic(), work.forward_rollouts
    threads = str(min(8, os.cpu_count() or 1)) if work.device == "cuda" else "1"
    while True:
        replace(work, forward_rollouts=rows).write(folder)
        tokens = {"training": {"tokens_per_forward": max(16384, rows * (work.prompt_tokens + work.new_tokens))}}
        way = ("rlcore", threads, "0", json.dumps(tokens | dict(changes))) if label == RLCORE else ("trl", threads, json.dumps(changes))
        try:
            return {**one_run(folder, way, peer, left - (time.monotonic() - began)), "rows": rows}
        except RunBroke as broke:
            if rows == 1 or "out of memory" not in str(broke):
                raise
        rows //= 2


def row_of(figures: Mapping[str, Any], name: str, label: str, work: Work) -> dict[str, Any]:
    """Of the table. ``generation_seconds``: of rlcore what its producer computed, of TRL its generation."""
    shape, rollouts, length = shape_of(name, tiny=work.prompt_tokens < 64), work.prompts * work.group, round(figures["mean_length"])
    split, seconds = figures["split"], figures["seconds"]
    generation = split["time/producers/compute"] if label == RLCORE else split["generation"]
    flops = generation_flops(shape, work.prompts, rollouts, work.prompt_tokens, length)
    flops += update_flops(shape, rollouts, work.prompt_tokens + length)
    return {
        "shape": name,
        "who": label,
        "step_seconds": round(seconds, 4),
        "generation_seconds": round(generation, 4),
        "generated_tokens_per_second": round(rollouts * figures["mean_length"] / generation, 1),
        "step_mfu": mfu(flops, seconds, card(work.device)),
        "step_peak_gb": round(figures["peak_bytes"] / 2**30, 2),
        "rows_per_forward": figures["rows"],
        "mean_length": round(figures["mean_length"], 1),
    }


def summary(tried: Mapping[str, Mapping[str, Any]]) -> tuple[bool, str]:
    """(whether both sides have a way that works, one sentence)."""
    worked = {label: row["step_seconds"] for label, row in tried.items() if "error" not in row}
    peers = {label: seconds for label, seconds in worked.items() if label != RLCORE}
    if RLCORE not in worked or not peers:
        label = TRL if RLCORE in worked else RLCORE
        return False, f"{label} does not work: {tried.get(label, {}).get('error', 'not begun')}"
    best = min(peers, key=lambda label: peers[label])
    said = f"a step {worked[RLCORE]:.2f} s with rlcore, {peers[best]:.2f} s with {best}, its fastest: {peers[best] / worked[RLCORE]:.2f}x"
    if best != TRL and TRL in peers:
        said += f"; {peers[TRL]:.2f} s where it computes as rlcore does: {peers[TRL] / worked[RLCORE]:.2f}x"
    return True, said


if __name__ == "__main__":
    raise SystemExit(main())
