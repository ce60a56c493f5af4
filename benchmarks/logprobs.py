"""`make bench-logprobs`: peak memory and time of loss and backward, our log probabilities against a plain log-softmax of all logits.

Vocabulary 151 936, 2 048 tokens, hidden 896, float32, one thread. Every run is a process of its own, and both ways take turns. Memory is
resident memory at the peak of forward, loss and backward, above what was there before; time is CPU time, since others may use the machine.
Gradients of the first round are compared. ``--sweep`` tries sizes of the block of logits instead. The last line is one JSON object; exit
code 1 if a bound is broken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

MOST_MEMORY, MOST_TIME, MOST_GAP = 0.30, 1.40, 1e-5
"""Bounds: memory and time as shares of the naive way's, and the norm of the difference of gradients over the gradient's."""
SWEEP = (2**18, 2**19, 2**20, 2**21, 2**22, 2**23, 2**24, 2**25)
"""Logits in a block."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run: MB above the start at the peak, CPU seconds and seconds of forward, loss and backward."""

    megabytes: float
    seconds: float
    wall: float


def main() -> int:
    """Measure, print, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=896)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sweep", action="store_true", help="try sizes of the block of logits")
    parser.add_argument("--child", nargs=3, metavar=("WAY", "CHUNK", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        way, chunk, folder = args.child
        print(json.dumps(asdict(_measure(way, int(chunk) or None, Path(folder) if folder != "-" else None, args))))
        return 0
    return _sweep(args) if args.sweep else _compare(args)


def _compare(args: argparse.Namespace) -> int:
    runs: dict[str, list[Measured]] = {"naive": [], "chunked": []}
    gaps: dict[str, float] = {}
    for number in range(args.rounds):
        with tempfile.TemporaryDirectory() as scratch:
            for way, found in runs.items():
                found.append(_child(args, way, 0, f"{scratch}/{way}" if number == 0 else "-"))
                print(f"{way:8} {found[-1].megabytes:7.0f} MB {found[-1].seconds:6.1f} s", flush=True)
            gaps = gaps or _gaps(Path(scratch))
    middle = {way: _median(found) for way, found in runs.items()}
    ratios = {name: getattr(middle["chunked"], name) / getattr(middle["naive"], name) for name in ("megabytes", "seconds", "wall")}
    fine = ratios["megabytes"] <= MOST_MEMORY and ratios["seconds"] <= MOST_TIME and max(gaps.values()) <= MOST_GAP
    print(f"memory {ratios['megabytes']:.3f} x, time {ratios['seconds']:.2f} x the naive way; gradients differ by {max(gaps.values()):.1e}")
    medians = {way: asdict(found) for way, found in middle.items()}
    print(json.dumps({**medians, "ratios": ratios, "gradient_gaps": gaps, "rounds": args.rounds, "fine": fine}))
    return 0 if fine else 1


def _sweep(args: argparse.Namespace) -> int:
    found = {"naive": _child(args, "naive", 0, "-")}
    for elements in SWEEP:
        found[str(elements)] = _child(args, "chunked", max(1, elements // args.tokens), "-")
    for name, one in found.items():
        chunk = "all" if name == "naive" else f"{int(name) // args.tokens}"
        print(f"{name:>9} logits, {chunk:>6} entries: {one.megabytes:7.0f} MB {one.seconds:6.1f} s", flush=True)
    print(json.dumps({name: asdict(one) for name, one in found.items()}))
    return 0


def _child(args: argparse.Namespace, way: str, chunk: int, folder: str) -> Measured:
    sizes = [f"--{name}={getattr(args, name)}" for name in ("vocabulary", "tokens", "hidden")]
    command = [sys.executable, "-m", "benchmarks.logprobs", *sizes, "--child", way, str(chunk), folder]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def _median(runs: list[Measured]) -> Measured:
    return Measured(**{name: statistics.median(getattr(run, name) for run in runs) for name in ("megabytes", "seconds", "wall")})


def _gaps(scratch: Path) -> dict[str, float]:
    """Norm of the difference over the norm, of the gradients that both ways wrote."""
    gaps = {}
    for name in ("hidden", "weight"):
        own, naive = (np.load(scratch / f"{way}-{name}.npy", mmap_mode="r") for way in ("chunked", "naive"))
        gaps[name] = float(np.linalg.norm(own - naive) / np.linalg.norm(naive))
    return gaps


def _measure(way: str, chunk: int | None, gradients: Path | None, args: argparse.Namespace) -> Measured:
    import torch
    from rlcore_plugin_torch.projection import token_logprobs

    torch.manual_seed(0)
    torch.set_num_threads(1)
    weight = (torch.randn(args.vocabulary, args.hidden) / args.hidden**0.5).requires_grad_()

    def chunked(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return token_logprobs(hidden, weight, None, targets, chunk=chunk)[0]

    def naive(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(hidden @ weight.t(), -1).gather(1, targets[:, None]).squeeze(1)

    def step(tokens: int, project: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        hidden = torch.randn(tokens, args.hidden, generator=generator, requires_grad=True)
        targets = torch.randint(0, args.vocabulary, (tokens,), generator=generator)
        advantages = torch.randn(tokens, generator=generator)
        (-advantages * project(hidden, targets)).mean().backward()
        assert hidden.grad is not None
        return hidden.grad

    project = {"chunked": chunked, "naive": naive}[way]
    step(2, project)
    weight.grad = None
    Path("/proc/self/clear_refs").write_text("5")
    before, started, wall = _resident("VmRSS"), time.process_time(), time.perf_counter()
    grad_hidden = step(args.tokens, project)
    seconds, wall = time.process_time() - started, time.perf_counter() - wall
    measured = Measured(megabytes=_resident("VmHWM") - before, seconds=seconds, wall=wall)
    if gradients is not None:
        assert weight.grad is not None
        np.save(f"{gradients}-hidden.npy", grad_hidden.numpy())
        np.save(f"{gradients}-weight.npy", weight.grad.numpy())
    return measured


def _resident(which: str) -> float:
    """MB, of ``VmRSS`` (now) or ``VmHWM`` (at the peak)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
