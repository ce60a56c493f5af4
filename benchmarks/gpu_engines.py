"""`make gpu-engines`: the backend vllm on CUDA GPUs: its suite, colocated runs, sleep, updates by CUDA IPC and by NCCL; and rlcore beside
TRL, both with vLLM on the device that they train on.

It makes an environment of its own by pip, with the ordinary vllm (`rlcore-plugin-vllm[engine]`), and one for TRL with a vllm that TRL names
(`trl[vllm]`), so it needs a package index. The last line is one JSON object; exit code 1 if a part failed, 2 if nothing could be run.
Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.refused import Refused
from benchmarks.gpu.setting import REPOSITORY
from benchmarks.gpu.wheels import LIST, pinned

ENGINE = "plugins/backends/vllm"
TESTS = f"{ENGINE}/tests"
CHECKOUT = (
    *(f"plugins/{name}" for name in ("algos/grpo", "rewards/math", "tools/quickstart", "tools/tools")),
    *(f"plugins/{name}" for name in ("runtimes/processes", "data/datasets", "backends/torch", "backends/transformers")),
)
"""What a run of the quickstart's task takes, besides the engine."""
RUNNERS = ("pytest", "pytest-timeout", "hypothesis")
PREPARE = "import sys; from pathlib import Path; from rlcore_plugin_quickstart.assets import prepare; prepare(Path(sys.argv[1]), 0, print)"
SHARE = "[inference.options]\nmax_num_seqs = 64\n\n[inference.options.engine]\ngpu_memory_utilization = 0.4\n"
"""A tiny model leaves most of a device free; the trainer needs some of it."""
LIMIT = 1800
"""Seconds after which a part is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePart:
    """``tests``: what pytest is given; or ``beside``: the words of ``benchmarks.peers.on_device``; or ``flags`` of `rlcore train` on the
    quickstart's task, and the accuracy that it must reach."""

    name: str
    what: str
    tests: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    devices: int = 1
    least: float = 0.0


_ONE, _FEW = ("--placement", "colocated", "--max-staleness", "0"), ("--max-steps", "10", "-ei", "0")
PARTS: tuple[EnginePart, ...] = (
    EnginePart(
        name="suite", what="the rules of every inference backend, sleep among them", tests=(f"{TESTS}/engine/test_vllm_conforms.py",)
    ),
    EnginePart(name="sleep", what="memory that is given back, and taken again", tests=(f"{TESTS}/engine/test_vllm_cuda.py",)),
    EnginePart(name="tests", what="the backend's other tests", tests=(TESTS, f"--ignore={TESTS}/engine/test_vllm_conforms.py")),
    EnginePart(name="colocated", what="the quickstart's task, trainer and engine on one device", flags=_ONE, least=0.9),
    EnginePart(name="ipc", what="the same for ten updates, weights by CUDA IPC", flags=(*_ONE, *_FEW, "--transport", "vllm_ipc")),
    EnginePart(
        name="nccl",
        what="ten updates on two devices, weights by NCCL",
        flags=("--placement", "split", "--max-staleness", "1", *_FEW, "--transport", "vllm_nccl"),
        devices=2,
    ),
    EnginePart(
        name="peers",
        what="rlcore beside TRL, each with vLLM on the device that it trains on; Qwen3 shapes",
        beside=("--device", "cuda", "--engine", "vllm", "--limit", "270"),
    ),
)


def main() -> None:
    """As a process."""
    raise SystemExit(command(sys.argv[1:]))


def command(words: Sequence[str]) -> int:
    """Make the environment, run the parts, print the JSON object."""
    args = _parser().parse_args(words)
    if args.list:
        print("\n".join(f"{part.name:10} {part.what}" for part in PARTS))
        return 0
    try:
        return _run(args)
    except Refused as refusal:
        print(f"make gpu-engines: {refusal}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_engines", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], choices=[part.name for part in PARTS], help="this part; may be given several times"
    )
    parser.add_argument("--list", action="store_true", help="show the parts and end")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".gpu" / "engines", help="the environment, and logs (.gpu/engines)")
    return parser


def _run(args: argparse.Namespace) -> int:
    devices = _devices()
    if not devices:
        raise Refused("this machine has no NVIDIA GPU (nvidia-smi names none), so nothing was run")
    folder = args.folder.resolve()
    checkout = [word for path in (".", *CHECKOUT) for word in ("-e", path)]
    python = _environment(folder, "venv", [*checkout, "-e", f"{ENGINE}[engine]", *RUNNERS])
    lines: dict[str, dict[str, Any]] = {}
    for part in PARTS:
        if args.only and part.name not in args.only:
            continue
        if len(devices) < part.devices:
            lines[part.name] = {
                "status": "not run",
                "said": f"it takes {part.devices} devices, and this machine has {len(devices)}",
                "seconds": 0.0,
            }
            continue
        print(f"{part.name}: {part.what} …", file=sys.stderr, flush=True)
        start = time.monotonic()
        status, said, figures = _outcome(part, python, folder)
        lines[part.name] = {"status": status, "said": said, "seconds": round(time.monotonic() - start, 1), "figures": figures}
        print(f"{part.name}: {status}: {said}", file=sys.stderr, flush=True)
    failed = [name for name, line in lines.items() if line["status"] == "failed"]
    idle = [name for name, line in lines.items() if line["status"] == "not run"]
    print(json.dumps({"failed": failed, "not_run": idle, "devices": devices, "parts": lines}, ensure_ascii=False), flush=True)
    return 1 if failed else 0


def _devices() -> list[str]:
    """The names of the GPUs here."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in said.splitlines() if line.strip()]


def _environment(folder: Path, name: str, packages: Sequence[str]) -> Path:
    """The Python of an environment with these packages, made once."""
    made, python = folder / f"{name}-installed", folder / name / "bin" / "python"
    if made.exists():
        return python
    folder.mkdir(parents=True, exist_ok=True)
    print(
        f"{folder / name}: installing vllm and {'this checkout' if '-e' in packages else packages[0]}, some GB …",
        file=sys.stderr,
        flush=True,
    )
    venv.create(folder / name, clear=True, with_pip=True)
    log = folder / f"{name}-install.log"
    with log.open("w", encoding="utf-8") as sink:
        code = subprocess.run(
            [str(python), "-m", "pip", "install", *packages], cwd=REPOSITORY, stdout=sink, stderr=sink, check=False
        ).returncode
    if code:
        raise Refused(f"pip could not install vllm, so nothing was run: it needs a package index; {log} ends: {_last(log)}")
    made.touch()
    return python


def _beside(part: EnginePart, python: Path, folder: Path) -> tuple[str, str, dict[str, Any]]:
    """Both sides, TRL's by an environment of its own."""
    log = folder / f"{part.name}.log"
    try:
        peer = _environment(folder, "trl", [f"trl[vllm]=={pinned(LIST.read_text(encoding='utf-8'))['trl']}"])
    except Refused as refusal:
        return "not run", str(refusal), {}
    code = _wait([str(python), "-W", "ignore", "-m", "benchmarks.peers.on_device", "--peer", str(peer), *part.beside], log)
    try:
        found = json.loads(log.read_text(encoding="utf-8", errors="replace").splitlines()[-1])
        said = "; ".join(f"{shape}: {of['said']}" for shape, of in found["shapes"].items())
    except (IndexError, ValueError):
        return "failed", f"{log} ends: {_last(log)}", {}
    return ("failed" if code else "done"), said, found["shapes"]


def _outcome(part: EnginePart, python: Path, folder: Path) -> tuple[str, str, dict[str, Any]]:
    log = folder / f"{part.name}.log"
    if part.tests:
        words = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "-q", *part.tests]
        code = _wait(words, log)
        return ("failed" if code else "done"), _last(log), {}
    if part.beside:
        return _beside(part, python, folder)
    project = folder / "project"
    share = folder / "share.toml"
    share.write_text(SHARE, encoding="utf-8")
    if not (project / "run.toml").exists() and _wait([str(python), "-c", PREPARE, str(project)], log):
        return "failed", f"the quickstart's files could not be made; {log} ends: {_last(log)}", {}
    places = ["--inference-device", "cuda", "--training-device", "cuda", "--json"]
    words = [str(python), "-m", "rlcore", "train", str(project / "run.toml"), str(share), "-b", "vllm", *places, *part.flags]
    if _wait(words, log, cwd=project):
        return "failed", f"{log} ends: {_last(log)}", {}
    found = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
    figures = {name: found.get(name) for name in ("steps", "train_seconds", "tokens_per_second", "accuracy_before", "accuracy_after")}
    after = figures["accuracy_after"]
    if part.least and not (after is not None and after >= part.least):
        return "failed", f"accuracy {after} after {figures['steps']} updates, {part.least} is expected", figures
    return "done", f"{figures['steps']} updates" + (f", accuracy {after}" if after is not None else ""), figures


def _wait(words: Sequence[str], log: Path, cwd: Path = REPOSITORY) -> int:
    """The exit code, with both streams in the log; whatever it started is ended with it."""
    with log.open("w", encoding="utf-8") as sink:
        process = subprocess.Popen(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
        try:
            return process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            sink.write(f"\nended after {LIMIT} s\n")
            return 124
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _last(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "(nothing)"


if __name__ == "__main__":
    main()
