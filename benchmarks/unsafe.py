"""`make bench-unsafe`: the hostile programs of the code plugin, judged without walls and with them. The last line is one JSON object.

Without walls they run inside a throw-away machine (bubblewrap, a writable root of its own), because some of them kill every process they
can reach: what they do there is what they would do to the grader's host.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlcore_plugin_code.audit import POLICY, REFUSED, corpus
from rlcore_plugin_code.compare import same_output
from rlcore_plugin_sandbox.local_sandbox import LocalSandbox

from benchmarks.unsafe_harness import files
from rlcore.api.sandbox import Job, Limits, SandboxError, SandboxOptions, open_sandbox

SECONDS = 1
STUCK = 6.0
LATE = SECONDS + 1.0
LIMITS = Limits(cpu_seconds=SECONDS, wall_seconds=SECONDS, memory_bytes=512 << 20, output_bytes=1 << 20)
HARNESS = Path(__file__).with_name("unsafe_harness.py")
WAYS = {
    "in_process": "`exec` in the grader, alarm",
    "subprocess": "`subprocess.run`, timeout",
    "landlock": "level landlock",
    "namespaces": "level namespaces",
}
IDLE = {"landlock": 0, "namespaces": 2}  # processes below the one we started, between two runs: bubblewrap has its init and the zygote
HARMS = {
    "fooled": "right by fraud",
    "late": f"a run longer than limit + {LATE - SECONDS:g} s",
    "dead": "grader dead or stuck",
    "left": "processes left",
    "wrote": "files written outside",
    "told": "secrets or host data told",
}


def main() -> None:
    """Run the corpus four ways and print the table."""
    rows = [row for row in corpus("code_hostile") if row["name"] != REFUSED]
    counts = {way: Counter(harm for row in rows for harm in set(_harms(row, way))) for way in ("in_process", "subprocess")}
    counts |= {level: _walled(rows, level) for level in ("landlock", "namespaces")}
    print(f"| {len(rows)} hostile programs | " + " | ".join(HARMS.values()) + " |")
    print("|---|" + "---|" * len(HARMS))
    for way, label in WAYS.items():
        print(f"| {label} | " + " | ".join(str(counts[way][harm]) for harm in HARMS) + " |")
    print(json.dumps({way: {harm: counts[way][harm] for harm in HARMS} for way in WAYS}))


def _must_fail(row: Mapping[str, Any]) -> bool:
    verdict = row["must"]["verdict"]
    return verdict == "fail" or (verdict == "policy" and not POLICY[row["name"]][0])


def _told(row: Mapping[str, Any], output: str) -> bool:
    """Whether the output holds what the program could not know by itself."""
    marks = (*row["must"].get("output_must_not_contain", ()), *(text.strip() for text in row["test_cases"]["outputs"] if "SECRET-" in text))
    return any(mark in output and mark not in row["program"] for mark in marks)


# --- without walls -------------------------------------------------------------------------------------------------------


def _harms(row: Mapping[str, Any], way: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "row.json").write_text(json.dumps(row), encoding="utf-8")
        try:
            done = subprocess.run(_throw_away(folder, way), capture_output=True, text=True, errors="replace", timeout=STUCK, check=False)
            said = done.stdout.rpartition("HARNESS ")[2]
            found = json.loads(said) if said.endswith("}\n") else None
        except subprocess.TimeoutExpired:
            found = None
    if found is None:
        yield "dead"
        return
    if found["passed"] and _must_fail(row):
        yield "fooled"
    if found["longest"] > LATE:
        yield "late"
    yield from (harm for harm in ("left", "wrote") if found[harm])
    if any(_told(row, output) for output in found["outputs"]):
        yield "told"


def _throw_away(folder: str, way: str) -> list[str]:
    base = str(Path(sys.base_prefix).resolve())
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--hostname", "grader", "--tmpfs", "/", "--dev", "/dev", "--proc", "/proc"]
    for path in ("/usr", base):
        words += ["--ro-bind", path, path]
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/", name).is_symlink():
            words += ["--symlink", str(Path("/", name).readlink()), f"/{name}"]
    for path in ("/tmp", "/etc", "/var/tmp", "/home", "/dev/shm"):
        words += ["--dir", path]
    words += ["--ro-bind", folder, "/grader", "--ro-bind", str(HARNESS), "/harness.py"]
    return [*words, getattr(sys, "_base_executable", sys.executable), "-I", "/harness.py", way, str(SECONDS)]


# --- with walls ----------------------------------------------------------------------------------------------------------


def _walled(rows: list[dict[str, Any]], level: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    with open_sandbox(SandboxOptions(level=level)) as sandbox:
        assert isinstance(sandbox, LocalSandbox)
        for row in rows:
            before, started = files(), time.monotonic()
            harms = _harms_walled(row, sandbox)
            if time.monotonic() - started > STUCK:
                harms.add("dead")
            if len(_below(sandbox.pid)) > IDLE[level]:
                harms.add("left")
            if new := files() - before:
                harms.add("wrote")
                print(f"{level}: {row['name']}: new files: {sorted(new)[:9]}", file=sys.stderr)
            counts.update(harms)
    return counts


def _harms_walled(row: Mapping[str, Any], sandbox: LocalSandbox) -> set[str]:
    """All but what is left behind; timed from here, not by what the sandbox says."""
    harms = set()
    for stdin, expected in zip(row["test_cases"]["inputs"], row["test_cases"]["outputs"], strict=True):
        started = time.monotonic()
        try:
            ran = sandbox.run(Job(source=row["program"], stdin=stdin.encode(), limits=LIMITS))
        except SandboxError as error:
            print(f"{sandbox.level}: {row['name']}: {error}", file=sys.stderr)
            return {*harms, "dead"}
        if time.monotonic() - started > LATE:
            harms.add("late")
        if _told(row, ran.stdout.decode(errors="replace")):
            harms.add("told")
        if not (ran.ok and same_output(expected.encode(), ran.stdout, tolerance=1e-6)):
            return harms
    return harms | {"fooled"} if _must_fail(row) else harms


def _below(pid: int | None) -> list[int]:
    """All processes that descend from this one."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [found for child in children for found in (int(child), *_below(int(child)))]


if __name__ == "__main__":
    main()
