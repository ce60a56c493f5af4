"""A Slurm cluster of stubs: bash programs on PATH that say what they were called with, and behave as far as a batch file sees."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rlcore_plugin_ray.launch import SlurmJob, sbatch_text

SCRATCH = r"/tmp/rlcore-4711-\w{6}"
STUBS = {
    "scontrol": r"""
case "$2" in
  hostnames) printf '%s\n' $STUB_HOSTS ;;
  job) echo "JobId=$3 JobState=${STUB_STATE:-RUNNING} Reason=None PreemptTime=${STUB_PREEMPTED:-None}" ;;
  node) echo "NodeName=$3 NodeAddr=${STUB_ADDRESS:-} NodeHostName=vm" ;;
esac
""",
    "getent": r"""[ -z "${STUB_ADDRESS+x}" ]""",
    # Runs the command once a task. At SIGTERM it kills every process of it by SIGKILL, as Slurm's own does ("forcing job termination").
    # It stops each before it lists the children: one that still forks would have a child that nobody kills.
    "srun": r"""
tasks=1
while [ "${1#--}" != "$1" ]; do
  [ "${1#--ntasks=}" = "$1" ] || tasks=${1#--ntasks=}
  [ "${1#--nodelist=}" = "$1" ] || export STUB_NODE=${1#--nodelist=}
  shift
done
everyone() {
  kill -STOP "$1" && echo "$1"
  for child in $(cat /proc/"$1"/task/*/children); do everyone "$child"; done
} 2>/dev/null
pids=()
trap 'kill -KILL $(for pid in "${pids[@]}"; do everyone "$pid"; done) ; wait; exit 137' TERM
for ((task = 0; task < tasks; task++)); do "$@" & pids+=("$!"); done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done 2>/dev/null # bash tells of each child that is killed
exit "$status"
""",
    "ray": r"""
if [ "$1" = status ]; then
  echo "Active:"
  for node in "$STUB_LOG".joined.*; do ! grep -q . "/proc/${node##*.}/cmdline" 2>/dev/null || echo " 1 node_${node##*.}"; done
  exit 0
fi
case "$*" in
  *--head*) [ -z "$STUB_HEAD_FAILS" ] || { echo "ray: port in use" >&2; exit 1; } ;;
  *) [ -z "$STUB_WORKERS_FAIL" ] || { echo "ray: no route to head" >&2; exit 1; }
     [ "$STUB_NODE" != "$STUB_FAILS_ON" ] || { echo "ray: no route to head" >&2; exit 1; }
     [ -z "$STUB_WORKERS_HANG" ] || exec sleep 600 ;;
esac
touch "$STUB_LOG.joined.$$"
trap 'rm "$STUB_LOG.joined.$$"; kill "$!" 2>/dev/null; exit 143' TERM
sleep 600 & wait
""",
    "rlcore": r"""
echo "output of the run"
[ -z "$STUB_EXIT" ] || exit "$STUB_EXIT"
if [ -n "$STUB_EXIT_AFTER" ]; then # once the test has done its worst
  echo "training" >>"$STUB_LOG"
  until [ -e "$STUB_LOG.go" ]; do sleep 0.1; done
  exit "$STUB_EXIT_AFTER"
fi
trap 'kill "$!"; sleep 0.3; echo "saved" >>"$STUB_LOG"; exit 130' TERM
sleep 600 & echo "training" >>"$STUB_LOG"; wait
""",
    "python3": r"""
case "$*" in
  *pthread_sigmask*) exec "$STUB_DEAF" -I -S "$@" ;; # which needs no packages
  *grpc*) [ -n "$STUB_GRPC" ] || exit 1 ;;
  "-m pip --version") [ -z "$STUB_NO_PIP" ] || exit 1 ;;
  "-m pip"*) [ -z "$STUB_PIP_FAILS" ] || exit 1 ;;
  *rlcore*==*) [ -z "$STUB_PYTHON" ] || exec "$STUB_PYTHON" "$@" ;; # what is installed is looked at
esac
""",
    "pip": "",
    "scancel": "",
    # The half second between two looks at Ray, which is there at once here.
    "sleep": r"""
[ "$1" != 0.5 ] || set -- 0.05
exec /bin/sleep "$@"
""",
    # Passes no signal on to the driver, which is a child of its own; sees no folder but those that it is told to bind.
    "apptainer": r"""
shift
bound=
while [ "${1#--}" != "$1" ]; do
  case "$1" in
    --bind) [ -e "$2" ] || { echo "FATAL: mount source $2 does not exist" >&2; exit 255; }; bound+=":$2:"; shift 2 ;;
    --pwd) shift 2 ;;
    *) shift ;;
  esac
done
shift
[ "$1" = bash ] || exec "$@"
case "$bound" in *":${4%/*}:"*) ;; *) echo "bash: $4: no such file or directory" >&2; exit 1 ;; esac
"$@" & wait "$!"
""",
}
SAID = r"""#!/bin/bash
line=${0##*/}; for word in "$@"; do printf -v word '%q' "$word"; line+=" $word"; done
case "$line" in "ray status"* | getent* | sleep* | python3*pthread_sigmask*) ;; *) echo "$line" >>"$STUB_LOG" ;; esac
"""


class StubCluster:
    """Programs in a folder, and the log of what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.bin.mkdir()
        self.processes: list[subprocess.Popen[str]] = []
        for name, body in STUBS.items():
            (self.bin / name).write_text(SAID + body.lstrip("\n"))
            (self.bin / name).chmod(0o755)

    @property
    def said(self) -> list[str]:
        """Every call, in order; ``ray status`` and ``sleep``, which come again and again, aside. The job's own folder reads SCRATCH; what
        stands before Ray on a node, bash and Python, reads ON-NODE, the process that it tells of SIGTERM ("" for none) and its two
        folders."""
        text = self.log.read_text() if self.log.exists() else ""
        text = re.sub(r"-c \$'\\nimport socket(?:\\.|[^'\\])+'", "-c LOOK", text)
        text = re.sub(r"python3 -c (?:\\.|[^\\\s])*pthread_sigmask(?:\\.|[^\\\s])* ", "", text)
        text = re.sub(r"bash -c \$'(?:\\.|[^\\'])*' (\S+) (\d+|'') (\S+) (?=ray|apptainer)", self._on_node, text)
        return re.sub(SCRATCH, "SCRATCH", text).splitlines()

    @staticmethod
    def _on_node(found: re.Match[str]) -> str:
        scratch, told, ray_dir = found.groups()
        return f"ON-NODE {scratch} {'JOB' if told.isdecimal() else told} {ray_dir} "

    @property
    def nodes(self) -> list[int]:
        """The processes of the Ray nodes that live; of one that was killed and that nobody has waited for, nothing is left in /proc."""
        pids = [int(file.suffix[1:]) for file in self.folder.glob("log.joined.*")]
        return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()]

    @property
    def scratch(self) -> set[Path]:
        """The folders of its own that the job named to somebody."""
        return {Path(found) for found in re.findall(SCRATCH, self.log.read_text())}

    def start(self, job: SlurmJob, hosts: str = "n1 n2 n3", **env: str) -> subprocess.Popen[str]:
        """Run the batch file of ``job`` as Slurm would, in another folder than the one it was made in."""
        script = self.folder / "job.sbatch"
        script.write_text(sbatch_text(job))
        environment = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "n[1-3]",
            "STUB_HOSTS": hosts,
            "STUB_LOG": str(self.log),
            "STUB_DEAF": sys.executable,
            **env,
        }
        # Files, not pipes: a stub that outlives the script must not keep the test.
        with (self.folder / "out").open("w") as out, (self.folder / "err").open("w") as err:
            process = subprocess.Popen(
                ["bash", str(script)], cwd="/", env=environment, stdout=out, stderr=err, text=True, start_new_session=True
            )
        self.processes.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        """(exit code, standard output, standard error), when the script has ended by itself."""
        process.wait(timeout=120)
        return process.returncode, (self.folder / "out").read_text(), (self.folder / "err").read_text()

    def run(self, job: SlurmJob, hosts: str = "n1 n2 n3", **env: str) -> tuple[int, str, str]:
        """Start it and wait for its end."""
        return self.end(self.start(job, hosts, **env))

    def close(self) -> None:
        """End whatever is left of what was started, stubs included."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)

    def wait_until(self, happened: Callable[[list[str]], bool]) -> None:
        """Until the log says so, for at most two minutes."""
        end = time.monotonic() + 120
        while not happened(self.said):
            assert time.monotonic() < end, self.said
            time.sleep(0.02)
