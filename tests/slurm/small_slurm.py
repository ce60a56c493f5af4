"""A Slurm on this machine: slurmctld and two slurmd, which are two nodes of one host, with all their files in one folder.

Nothing of the machine's own Slurm is read or changed, and no daemon of it need run. Nodes and users trust each other (auth/none), so there
is no munge. A partition each for the ways in which Slurm takes nodes from a job: ``graceful`` warns it and waits, ``abrupt`` does not wait,
and jobs of ``urgent`` are what preempts both.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["NODES", "PATIENCE", "SmallSlurm", "small_slurm", "until"]

NODES = ("n1", "n2")
PATIENCE = 400.0
"""Seconds for what takes some: Ray starts twice, and a run on it."""
_CPUS = 8
_CONFIG = """\
ClusterName=rlcore
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=6
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SlurmdParameters=config_overrides
SlurmctldParameters={parameters}
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=3600
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=graceful Nodes=ALL Default=YES PriorityTier=1 GraceTime=60
PartitionName=abrupt Nodes=ALL PriorityTier=1 GraceTime=0
PartitionName=urgent Nodes=ALL PriorityTier=9
"""


def until(true: Callable[[], object], say: Callable[[], str], seconds: float = PATIENCE) -> None:
    """Wait until ``true()``; fail with what ``say()`` gives if it is not in time. Each look may be a program of Slurm's."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited {seconds:g} s in vain\n{say()}"
        time.sleep(0.3)


@contextmanager
def small_slurm(folder: Path, parameters: str = "idle_on_node_suspend") -> Iterator[SmallSlurm]:
    """A Slurm with its files in ``folder``, a short path; at the end nothing of it lives, jobs included. ``parameters``: of slurmctld."""
    made = SmallSlurm(folder, parameters)
    try:
        made.start()
        yield made
    finally:
        made.end()


class SmallSlurm:
    """What a user and an administrator do with Slurm; every wait ends with a failure that shows what Slurm knows."""

    def __init__(self, folder: Path, parameters: str) -> None:
        self.folder = folder
        self.config = folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.config)}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        ports = _free_ports(1 + len(NODES))
        host = socket.gethostname().partition(".")[0]
        nodes = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={_CPUS} RealMemory=1000 State=UNKNOWN"
            for name, port in zip(NODES, ports[1:], strict=True)
        ]
        text = _CONFIG.format(host=host, port=ports[0], user=getpass.getuser(), folder=folder, parameters=parameters)
        self.config.write_text("\n".join([*nodes, text]))
        (folder / "state").mkdir()

    def start(self) -> None:
        """Start the daemons; return when both nodes are idle."""
        self._daemon("slurmctld", "slurmctld", "-D", "-f", str(self.config))
        for name in NODES:
            self.start_node(name)

    def start_node(self, name: str) -> None:
        """A node joins, or joins again; return when Slurm gives it work."""
        self._daemon(name, "slurmd", "-D", "-N", name, "-f", str(self.config))
        until(lambda: self._node_state(name) in ("idle", "mixed", "allocated"), self.state, 60.0)

    def kill_node(self, name: str) -> None:
        """SIGKILL to everything that runs on a node, as if its power were gone."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()
        self._kill(lambda environment, title: f"SLURMD_NODENAME={name}" in environment or f"slurmd -D -N {name}" in title)

    def submit(self, *words: str, environment: Mapping[str, str] | None = None) -> int:
        """The number of a job that was handed to sbatch, options first, with this environment or that of the tests."""
        return int(self.ask("sbatch", "--parsable", *words, environment=environment))

    def job(self, number: int) -> dict[str, str]:
        """What ``scontrol show job`` says, key by key."""
        return dict(word.split("=", 1) for word in self.ask("scontrol", "show", "job", "--oneliner", str(number)).split() if "=" in word)

    def preempt(self, number: int) -> None:
        """A job of ``urgent`` takes both nodes from this one, and ends; return when this one waits to be started again."""
        self.submit("--partition=urgent", f"--nodes={len(NODES)}", "--exclusive", "--output=/dev/null", "--wrap=true")
        self.reach(number, "PENDING")

    def reach(self, number: int, *states: str) -> dict[str, str]:
        """Wait until the job is in one of these states; return what is then known of it."""
        until(lambda: self.job(number)["JobState"] in states, self.state, PATIENCE)
        return self.job(number)

    def nearly_over(self, number: int) -> None:
        """Set the time limit so that one or two minutes are left: less than the warning that the job asks for, which then comes at once."""
        hours, minutes, _ = map(int, self.job(number)["RunTime"].split(":"))
        self.ask("scontrol", "update", f"JobId={number}", f"TimeLimit={hours * 60 + minutes + 2}")

    def start_now(self, number: int) -> None:
        """Start a job now that was queued again. By itself Slurm waits until credentials of its first life have run out: two minutes. After
        the failure of a node it does not, and has perhaps started the job."""
        until(lambda: self.job(number)["Reason"] == "BeginTime" or self.job(number)["JobState"] == "RUNNING", self.state, 60.0)
        if self.job(number)["JobState"] == "RUNNING":
            return
        time.sleep(2.0)  # its new credential must be of a later second than the order that revoked the old one
        self.ask("scontrol", "update", f"JobId={number}", "StartTime=now")

    def ask(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """The output of one of Slurm's programs."""
        whole = {**(environment or os.environ), **self.environment}
        done = subprocess.run(words, env=whole, capture_output=True, text=True, timeout=60.0, check=False)
        return done.stdout.strip() if done.returncode == 0 else done.stdout + done.stderr

    def state(self) -> str:
        """What Slurm knows, for a message."""
        logs = [f"{path.name}: " + "\n".join(path.read_text().splitlines()[-10:]) for path in sorted(self.folder.glob("*.log"))]
        return "\n".join([self.ask("sinfo"), self.ask("squeue"), self.ask("scontrol", "show", "job"), *logs])

    def end(self) -> None:
        """Cancel all jobs, end the daemons, kill what is left."""
        if "slurmctld" in self._daemons:
            self.ask("scancel", "--user", getpass.getuser())
            with suppress(AssertionError):  # what is left is killed below
                until(lambda: not self.ask("squeue", "--noheader"), "the jobs to end", 30.0)
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(timeout=20.0)
        self._kill(lambda environment, title: True)

    def _node_state(self, name: str) -> str:
        return " ".join(self.ask("sinfo", "--noheader", "--Node", f"--nodes={name}", "--format=%T").split()[:1])

    def _daemon(self, name: str, program: str, *words: str) -> None:
        path = shutil.which(program) or f"/usr/sbin/{program}"
        environment = {**os.environ, **self.environment}
        with (self.folder / f"{name}.err").open("ab") as err:
            self._daemons[name] = subprocess.Popen(
                [path, *words], env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=err, stderr=err, start_new_session=True
            )

    def _kill(self, chosen: Callable[[list[str], str], bool]) -> None:
        """SIGKILL to the processes of this Slurm, its jobs' included, that are chosen by their environment and command line."""
        mark = f"SLURM_CONF={self.config}"
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                environment = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                title = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                if mark in environment and int(entry.name) != os.getpid() and chosen(environment, title):
                    os.kill(int(entry.name), signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
