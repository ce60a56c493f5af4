"""How long a newcomer waits for the first update: rlcore's first program, TRL's, and rlcore with TRL's names, on the same rows.

Each program runs in a process of its own, as a user would start it. Wall-clock time is that from the start to the line of the first update;
CPU time is that of the whole program with its processes, which makes one update and writes its model.

    python -m benchmarks.first_step --peer .peers/bin/python
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROWS = """rows = [{"prompt": f"sort {a} {b}", "answer": f"{min(a, b)} {max(a, b)}"} for a in range(8) for b in range(8)]
"""
OURS = f"""import rlcore

def right(item):
    return float(item.columns["answer"] in item.text)

{ROWS}rlcore.train(model="demo/base", dataset=rows, reward=right, max_new_tokens=16, max_steps=1)
"""
TRL = f"""from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

def right(completions, answer, **kwargs):
    return [float(one in text) for one, text in zip(answer, completions)]

{ROWS}size = dict(max_completion_length=16, max_steps=1, per_device_train_batch_size=256)
args = GRPOConfig(output_dir="trl", logging_steps=1, use_cpu=True, report_to=[], **size)
GRPOTrainer(model="demo/base", reward_funcs=right, args=args, train_dataset=Dataset.from_list(rows)).train()
"""
THEIR_NAMES = f"""import rlcore

def right(completions, answer, **kwargs):
    return [float(one in text) for one, text in zip(answer, completions)]

{ROWS}size = dict(max_completion_length=16, max_steps=1, per_device_train_batch_size=256)
rlcore.train(model="demo/base", reward_funcs=right, train_dataset=rows, **size)
"""
FIRST = re.compile(r"^step 1/|'loss':|'reward':", re.MULTILINE)


def measured(python: str, program: str, folder: Path) -> dict[str, float]:
    """Return seconds to the first update, of wall-clock time, and of CPU time for the whole program."""
    before = _cpu()
    begun = time.monotonic()
    (folder / "first.py").write_text(program)
    words = [python, "-W", "ignore", "first.py"]
    first = None
    said = ""
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if first is None and FIRST.search(line):
                first = time.monotonic() - begun
    if process.returncode or first is None:
        raise SystemExit(f"the program ended with {process.returncode}, first update {first}:\n{said}")
    return {"first_step_s": round(first, 1), "wall_s": round(time.monotonic() - begun, 1), "cpu_s": round(_cpu() - before, 1)}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Run the three programs in turns, and print a JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="Python of an environment that has TRL")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    programs = {"rlcore": (sys.executable, OURS), "trl": (str(Path(args.peer).absolute()), TRL), "trl_names": (sys.executable, THEIR_NAMES)}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
    with TemporaryDirectory() as place:
        folder = Path(place)
        quickstart = [sys.executable, "-m", "rlcore", "quickstart", "demo", "--max-steps", "1"]
        subprocess.run(quickstart, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for _ in range(args.rounds):
            for name, (python, program) in programs.items():
                found[name].append(measured(python, program, folder))
                print(name, found[name][-1], flush=True)
    figures = {name: {key: [one[key] for one in runs] for key in runs[0]} for name, runs in found.items()}
    ratios = [ours / theirs for ours, theirs in zip(figures["rlcore"]["first_step_s"], figures["trl"]["first_step_s"], strict=True)]
    print(json.dumps({**figures, "first_step_of_rlcore_over_trl": [round(ratio, 2) for ratio in ratios]}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
