"""`make bench-packing`: tokens a second of one update, packed with shared prompts, against padded rows and against the commit before.

A model of about 10 million weights on one CPU thread; groups of 8 completions of log-normal length (sigma 1) behind prompts of 200 tokens.
Each way is a process of its own with the same weights and the same batch; they take turns, one update each, so that a machine that slows
down does so for all. A rate is policy tokens over seconds of CPU time, medians over the rounds; ``wall`` is by the clock. ``before`` runs
the code of a commit that had no packed forwards. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "3513e0c"
SIZES = {
    "vocab_size": 4096,
    "hidden_size": 320,
    "intermediate_size": 960,
    "num_hidden_layers": 7,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "max_position_embeddings": 2048,
}
PROMPT, GROUP = 200, 8
OPTIONS: Mapping[str, dict[str, Any]] = {"packed": {"packing": "on"}, "padded": {"packing": "off"}, "before": {}}


def main() -> None:
    """Start the ways, let them take turns, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--median", type=float, default=120.0, help="tokens of a completion, before it is cut at 1000")
    parser.add_argument("--before", default=BEFORE, help="commit to compare with")
    parser.add_argument("--worker", nargs=2, metavar=("WAY", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(*arguments.worker, arguments.groups, arguments.median)
        return
    with tempfile.TemporaryDirectory(prefix="rlcore-bench-") as name:
        folder = Path(name)
        weights = write_model(folder / "model")
        checkout(arguments.before, folder / "before")
        ways = {way: start(way, folder, arguments) for way in OPTIONS}
        try:
            seen = measure(ways, arguments.rounds)
        finally:
            for process in ways.values():
                process.communicate("", timeout=60)
    print(json.dumps({"weights": weights, "before_commit": arguments.before, "groups": arguments.groups, **figures(seen)}))


def write_model(folder: Path) -> int:
    """A Qwen2 with random weights; their number."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=None))
    model.save_pretrained(folder)
    return sum(weight.numel() for weight in model.parameters())


def checkout(commit: str, folder: Path) -> None:
    """The trainer's code of a commit."""
    words = ["git", "-C", str(ROOT), "archive", commit, "rlcore", "plugins/backends/torch"]
    packed = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def start(way: str, folder: Path, arguments: argparse.Namespace) -> subprocess.Popen[str]:
    """A process that makes one update for each line it is sent."""
    code = folder / "before" if way == "before" else ROOT
    path = os.pathsep.join([str(code), str(code / "plugins" / "backends" / "torch")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    sizes = ["--groups", str(arguments.groups), "--median", str(arguments.median)]
    words = [sys.executable, __file__, "--worker", way, str(folder / "model"), *sizes]
    return subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def measure(ways: Mapping[str, subprocess.Popen[str]], rounds: int) -> dict[str, list[dict[str, float]]]:
    """What each update said, the first of each way left out."""
    seen: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, process in ways.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("update\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"the process of {way!r} has ended")
            if number:
                seen[way].append(json.loads(line))
                print(f"round {number}, {way}: {line.strip()}", file=sys.stderr)
    return seen


def figures(seen: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians, and how many times faster the packed way is."""
    median = {way: {name: statistics.median(one[name] for one in updates) for name in updates[0]} for way, updates in seen.items()}
    rates = {way: {clock: one["tokens"] / one[clock] for clock in ("cpu", "wall")} for way, one in median.items()}
    return {
        "tokens": int(median["packed"]["tokens"]),
        "tokens_per_second": {way: round(rate["cpu"], 1) for way, rate in rates.items()},
        "wall_tokens_per_second": {way: round(rate["wall"], 1) for way, rate in rates.items()},
        "padding_share": {way: round(one["padding_share"], 4) for way, one in median.items() if "padding_share" in one},
        "faster_than_padded": round(rates["packed"]["cpu"] / rates["padded"]["cpu"], 2),
        "faster_than_before": round(rates["packed"]["cpu"] / rates["before"]["cpu"], 2),
    }


def work(way: str, model: str, groups: int, median: float) -> None:
    """One update a line of stdin, one line of figures each."""
    from rlcore_plugin_torch.backend import TorchBackend
    from rlcore_plugin_torch.options import TorchOptions

    from rlcore.api import OptimizerSettings, TrainingContext
    from rlcore.learning import ClippedSurrogate, PolicyObjective

    context = TrainingContext(
        model=model,
        optimizer=OptimizerSettings(learning_rate=1e-4, total_steps=1000),
        rollouts_per_forward=10_000,
        tokens_per_forward=16_384,
        prompts_per_slice=10_000,
        device="cpu",
    )
    backend = TorchBackend(context, TorchOptions(threads=1, **OPTIONS[way]))
    backend.setup(context)
    batch, objective = make_batch(groups, median), PolicyObjective(loss=ClippedSurrogate())
    for _ in sys.stdin:
        clock, cpu = time.perf_counter(), time.process_time()
        metrics = backend.update(batch, objective)
        spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - clock, "tokens": float(batch.offsets[-1])}
        share = {"padding_share": metrics["padding_share"]} if "padding_share" in metrics else {}
        print(json.dumps({**spent, **share}), flush=True)


def make_batch(groups: int, median: float) -> Any:
    """Random tokens; lengths of one seed, the same in every process."""
    import numpy as np

    from rlcore.testing import make_rollout, make_train_batch

    draws = np.random.default_rng(0)
    rollouts = []
    for number in range(groups):
        prompt = draws.integers(0, SIZES["vocab_size"], PROMPT)
        for index in range(GROUP):
            length = int(np.clip(draws.lognormal(np.log(median), 1.0), 1, 1000))
            tokens = draws.integers(0, SIZES["vocab_size"], length)
            rollouts.append(make_rollout(prompt, tokens, prompt_id=f"p{number}", index=index))
    advantages = draws.normal(size=len(rollouts)).tolist()
    return make_train_batch(rollouts, advantages, group=[number for number in range(groups) for _ in range(GROUP)])


if __name__ == "__main__":
    main()
