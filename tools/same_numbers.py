"""Does this checkout train to the same bits as another commit? ``python tools/same_numbers.py COMMIT [--steps 20]``.

Both codes train the quickstart's model on the quickstart's data at staleness 0, from one folder of assets. Every figure of metrics.jsonl
that is no time, every evaluation and every tensor of the last checkpoint must be equal, to the bit. The last line is one JSON object;
exit code 1 if anything differs, 2 if a run could not be made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TIMES = ("time/", "reward/latency", "seconds")
"""Beginnings of the names of figures that are seconds."""
RUN = """
import pathlib, sys, rlcore
from rlcore.cli import main
if pathlib.Path(rlcore.__file__).parents[1] != pathlib.Path.cwd():
    sys.exit(f"{rlcore.__file__} is not the code of {pathlib.Path.cwd()}")
sys.exit(main(sys.argv[1:]))
"""


def main() -> int:
    """Run both, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--steps", type=int, default=20, help="updates of each run [20]")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlcore-same-") as name:
        folder = Path(name)
        other = folder / "other"
        _git("clone", "--quiet", "--no-checkout", str(ROOT), str(other))
        _git("-C", str(other), "checkout", "--quiet", args.commit)
        demo = folder / "demo"
        _rlcore(ROOT, "quickstart", str(demo), "--max-steps", "1", "--max-staleness", "0")
        runs = [_trained(checkout, demo, folder / label, args.steps) for checkout, label in ((other, "before"), (ROOT, "after"))]
        different = list(_differences(*runs))
        figures = {"commit": args.commit, "steps": args.steps, "figures_compared": _count(runs[0]), "weights": _weights(runs[0])}
    for line in different:
        print(line)
    print(json.dumps({**figures, "equal": not different, "different": len(different)}))
    return 1 if different else 0


def _git(*words: str) -> None:
    if subprocess.run(["git", *words], check=False).returncode:
        raise SystemExit(2)


def _rlcore(checkout: Path, *words: str) -> None:
    """Run the command line of a checkout with its plugins, whichever are installed."""
    path = [str(checkout), *(str(folder) for folder in sorted(checkout.glob("plugins/*/*")))]
    later = [
        entry.dist.name for entry in entry_points(group="rlcore") if entry.dist and not [*checkout.glob(f"plugins/*/*/{entry.value}*")]
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["RLCORE_DISABLE"] = ",".join(later)  # what is installed and in this checkout alone
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words], cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        print(f"{checkout}: rlcore {' '.join(words)} ended with exit code {done.returncode}\n{done.stdout}", file=sys.stderr)
        raise SystemExit(2)


def _trained(checkout: Path, demo: Path, runs: Path, steps: int) -> Path:
    """The run folder of a run with the code of ``checkout``. Paths are typed, because
    older codes look for those of a file in the working folder."""
    held_out = json.dumps({"sort": str(demo / "heldout.jsonl")})
    paths = ("-m", str(demo / "base"), "-d", str(demo / "train.jsonl"), "-ed", held_out, "--run-dir", str(runs))
    _rlcore(checkout, "train", str(demo / "run.toml"), "--max-steps", str(steps), "--eval-interval", "5", "--max-staleness", "0", *paths)
    return next(runs.glob("*/*"))


def _rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(TIMES)}


def _count(run: Path) -> int:
    return sum(len(_plain(row)) for row in _rows(run))


def _tensors(run: Path) -> dict[str, str]:
    """Tensor -> digest of dtype, shape and bytes, of the last checkpoint."""
    from safetensors.numpy import load_file

    [file] = (run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip() / "model").glob("*.safetensors")
    return {
        name: hashlib.sha256(f"{value.dtype} {value.shape} ".encode() + value.tobytes()).hexdigest()
        for name, value in load_file(file).items()
    }


def _weights(run: Path) -> str:
    return hashlib.sha256(json.dumps(_tensors(run), sort_keys=True).encode()).hexdigest()


def _differences(before: Path, after: Path) -> Iterator[str]:
    rows, ours = _rows(before), _rows(after)
    if len(rows) != len(ours):
        yield f"metrics.jsonl has {len(rows)} lines before, {len(ours)} after"
    for first, second in zip(map(_plain, rows), map(_plain, ours), strict=False):
        for name in sorted(first.keys() | second.keys()):
            if first.get(name) != second.get(name):
                yield f"step {first.get('step')}: {name} is {first.get(name)} before, {second.get(name)} after"
    tensors, our_tensors = _tensors(before), _tensors(after)
    for name in sorted(tensors.keys() | our_tensors.keys()):
        if tensors.get(name) != our_tensors.get(name):
            yield f"tensor {name} differs"


if __name__ == "__main__":
    sys.exit(main())
