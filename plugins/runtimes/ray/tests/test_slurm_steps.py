"""The sbatch file, really run by bash, on a cluster of stubs: order of its steps, SIGTERM, failures, what is left behind."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from kit_cluster import StubCluster
from rlcore_plugin_ray.launch import Machines, Packages, SlurmJob

RLCORE = version("rlcore")

Make = Callable[..., SlurmJob]
SRUN = "srun --overlap --nodes={count} --ntasks={count} --ntasks-per-node=1 --nodelist={hosts} --cpus-per-task=16 --gpus-per-node=2 "
LOOK = "python3 -c LOOK "
RUN = "rlcore train run.toml -t 4 --resume auto --runtime ray --master_address n1:29422"


def everywhere(command: str, others: str) -> list[str]:
    """What is called if the first node runs a command, then the two others."""
    return [command, others + command, command, command]


def test_versions_then_the_head_then_the_others_then_the_run(cluster: StubCluster, job: Make) -> None:
    code, out, err = cluster.run(job(), STUB_EXIT="0")
    assert (code, err) == (0, "")
    assert "output of the run" in out
    size = "--num-cpus=16 --num-gpus=2 --dashboard-agent-listen-port=0 --min-worker-port=0 --max-worker-port=0 --disable-usage-stats"
    head = f"ray start --head --block --port=29422 --dashboard-port=0 --temp-dir=SCRATCH {size}"
    other = f"ray start --address=n1:29422 --block {size}"
    head_node, node = (f"ON-NODE SCRATCH {told} SCRATCH " for told in ("JOB", "''"))
    n1, n2, n3, both = (SRUN.format(count=count, hosts=hosts) for count, hosts in ((1, "n1"), (1, "n2"), (1, "n3"), (2, r"n2\,n3")))
    said = cluster.said
    assert said[:8] == [
        r"scontrol show hostnames n\[1-3\]",
        *everywhere(LOOK + "rlcore==0.1.0 rlcore-plugin-x==1.0", both),
        r"python3 -c import\ grpc",
        n1 + head_node + head,
        head,
    ]
    assert sorted(said[8:-2]) == sorted([n2 + node + other, n3 + node + other, other, other])
    assert said[-2:] == [RUN, both + "rm -rf -- SCRATCH"]


def test_wheels_come_from_their_folder_and_what_was_typed_beside_the_rlcore_that_is_there(cluster: StubCluster, job: Make) -> None:
    packages = Packages(versions=("rlcore==0.1.0", "rlcore-plugin-x==1.0"), extra=("more>=2",))
    code, _, err = cluster.run(job(wheels="/the wheels", packages=packages), STUB_EXIT="0")
    assert (code, err) == (0, "")
    both = SRUN.format(count=2, hosts=r"n2\,n3")
    assert cluster.said[1:18] == [
        "python3 -m pip --version",
        *everywhere(r"python3 -m pip install --no-index --find-links /the\ wheels rlcore==0.1.0 rlcore-plugin-x==1.0", both),
        *everywhere(LOOK + "rlcore==0.1.0", both),
        *everywhere(r"python3 -m pip install rlcore==0.1.0 more\>=2", both),
        *everywhere(LOOK + "rlcore==0.1.0 rlcore-plugin-x==1.0", both),
    ]


def test_without_wheels_no_index_is_asked_for_rlcore(cluster: StubCluster, job: Make) -> None:
    assert cluster.run(job(), STUB_EXIT="0")[0] == 0
    assert not any("pip" in line.split() for line in cluster.said)


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        (("rlcore==9.9",), f"rlcore is {RLCORE}, not 9.9"),
        (("rlcore-plugin-nobodys==1.0",), "rlcore-plugin-nobodys is not installed, not 1.0"),
    ],
)
def test_another_version_than_the_run_was_checked_with_ends_the_job_before_ray(
    cluster: StubCluster, job: Make, versions: tuple[str, ...], said: str
) -> None:
    code, _, err = cluster.run(job(packages=Packages(versions=versions)), STUB_PYTHON=sys.executable)
    assert code == 1
    assert said in err
    assert "write this file with --wheels FOLDER) on n1; see above" in err
    assert not any("ray" in line.split() for line in cluster.said)


def test_the_versions_that_are_there_let_the_job_run(cluster: StubCluster, job: Make) -> None:
    packages = Packages(versions=(f"rlcore=={RLCORE}",))
    assert cluster.run(job(packages=packages), STUB_PYTHON=sys.executable, STUB_EXIT="0")[::2] == (0, "")


def test_one_node_is_a_cluster_too(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(machines=Machines(nodes=1, gpus=0, cpus=8)), hosts="n1", STUB_EXIT="0")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in cluster.said] == ["scontrol", *["python3"] * 2, "srun", "ray", "rlcore"]
    assert not any("--gpus-per-node" in line for line in cluster.said)


def test_the_run_sees_the_folder_and_the_words_that_were_typed(cluster: StubCluster, job: Make) -> None:
    words = ["my run.toml", "-s", "it's $HOME `id`\nand more"]
    (cluster.bin / "rlcore").write_text('#!/bin/bash\npwd >"$STUB_LOG.words"; printf "%s\\0" "$@" >>"$STUB_LOG.words"\n')
    made = job(train=words)
    assert cluster.run(made, STUB_EXIT="0")[0] == 0
    folder, _, said = Path(f"{cluster.log}.words").read_text().partition("\n")
    assert folder == made.folder
    assert said.split("\0")[1:4] == words


@pytest.mark.parametrize("status", [1, 2, 130, 139])
def test_the_exit_code_of_the_run_is_the_job_s(cluster: StubCluster, job: Make, status: int) -> None:
    assert cluster.run(job(), STUB_EXIT=str(status))[0] == status
    assert not any("requeue" in line for line in cluster.said)


def test_a_run_whose_driver_is_killed_is_queued_again(cluster: StubCluster, job: Make) -> None:
    code, out, _ = cluster.run(job(), STUB_EXIT="137")
    assert code == 137
    assert "the run was killed" in out
    assert cluster.said[-1] == "scontrol requeue 4711"


def nothing_is_left(cluster: StubCluster) -> None:
    """Ray has ended on every node, and the scratch folder is gone."""
    assert cluster.nodes == []
    assert not any(folder.exists() for folder in cluster.scratch)


def terminated(cluster: StubCluster, made: SlurmJob, **env: str) -> tuple[int, str, str]:
    """Run until it trains, send SIGTERM to the script alone, as Slurm does before the time limit."""
    process = cluster.start(made, **env)
    cluster.wait_until(lambda said: "training" in said)
    process.send_signal(signal.SIGTERM)
    return cluster.end(process)


@pytest.mark.parametrize("container", ["", "image.sif"])
def test_sigterm_saves_ends_ray_and_queues_the_job_again(cluster: StubCluster, job: Make, container: str) -> None:
    code, _, err = terminated(cluster, job(container=container))
    assert (code, err) == (130, "")
    assert [line for line in cluster.said if line.split()[0] not in ("srun", "python3", "ray", "apptainer")][1:] == [
        RUN,
        "training",
        "saved",
        "scontrol show job 4711",
        "scontrol requeue 4711",
    ]
    nothing_is_left(cluster)


def preempted(cluster: StubCluster, made: SlurmJob, **env: str) -> tuple[int, str, str]:
    """Run until it trains; send SIGTERM to every Ray node and the bash before it, as Slurm does to the steps of a job that it preempts."""
    process = cluster.start(made, STUB_PREEMPTED="2026-11-24T11:05:10", **env)
    cluster.wait_until(lambda said: "training" in said)
    for pid in cluster.nodes:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGTERM)
        os.kill(parent, signal.SIGTERM)
    return cluster.end(process)


def test_a_preempted_job_whose_nodes_are_told_saves_beside_a_living_ray_and_is_queued_again(cluster: StubCluster, job: Make) -> None:
    stub = cluster.bin / "rlcore"
    stub.write_text(stub.read_text().replace("sleep 0.3;", 'sleep 0.3; ray status | grep -c node_ >>"$STUB_LOG";'))
    code, _, err = preempted(cluster, job(), SLURM_RESTART_COUNT="3")
    assert (code, err) == (130, "")
    assert [line for line in cluster.said if line in ("training", "saved", "3") or line.startswith("scontrol")][1:] == [
        "training",
        "3",
        "saved",
        "scontrol show job 4711",
        "scontrol requeue 4711",
    ], "all three nodes of Ray must live while the run saves, and a preemption counts for no limit"
    nothing_is_left(cluster)


def test_a_second_sigterm_is_not_passed_on(cluster: StubCluster, job: Make) -> None:
    stub = cluster.bin / "rlcore"
    stub.write_text(stub.read_text().replace("trap 'kill", 'trap \'echo told >>"$STUB_LOG"; kill').replace("sleep 0.3", "sleep 0.8"))
    process = cluster.start(job())
    cluster.wait_until(lambda said: "training" in said)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        cluster.wait_until(lambda said: "told" in said)
    assert cluster.end(process)[0] == 130
    assert cluster.said.count("told") == 1, "rlcore train ends at once if it is told twice"


def test_a_run_that_fails_with_a_node_lost_is_queued_again(cluster: StubCluster, job: Make) -> None:
    process = cluster.start(job(), STUB_EXIT_AFTER="1")
    cluster.wait_until(lambda said: "training" in said)
    os.kill(cluster.nodes[-1], signal.SIGKILL)
    Path(f"{cluster.log}.go").touch()
    code, out, _ = cluster.end(process)
    assert code == 1
    assert "the run ended because a node, or Ray on it, was lost" in out
    assert cluster.said[-1] == "scontrol requeue 4711"
    nothing_is_left(cluster)


@pytest.mark.parametrize("address", ["10.0.0.3", ""])
def test_a_node_whose_name_the_network_does_not_know_is_called_by_its_address(cluster: StubCluster, job: Make, address: str) -> None:
    code, _, err = cluster.run(job(), STUB_EXIT="0", STUB_ADDRESS=address)
    if address:
        assert (code, err) == (0, "")
        assert sum(f"{address}:29422" in line for line in cluster.said) == 5, "two nodes, by srun each, and the run"
    else:
        assert (code, err) == (1, "error: the network does not know the name n1, and Slurm has no address for it\n")


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING"])
def test_a_cancelled_job_saves_and_is_not_queued_again(cluster: StubCluster, job: Make, state: str) -> None:
    code, out, _ = terminated(cluster, job(), STUB_STATE=state)
    assert code == 130
    assert "Slurm itself ends this job or queues it again" in out
    assert cluster.said[-1] == "scontrol show job 4711"


@pytest.mark.full
def test_a_job_is_not_queued_again_for_ever(cluster: StubCluster, job: Make) -> None:
    assert terminated(cluster, job(), SLURM_RESTART_COUNT="2")[0] == 130
    assert cluster.said[-1] == "scontrol requeue 4711"
    cluster.log.unlink()
    code, out, _ = terminated(cluster, job(), SLURM_RESTART_COUNT="3")
    assert code == 130
    assert "3 times, the limit of most_requeues in this file" in out
    assert not any("requeue" in line for line in cluster.said)


def test_a_head_that_does_not_start_ends_the_job_with_its_words(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(), STUB_HEAD_FAILS="1")
    assert code == 1
    assert err.splitlines() == [
        *["ray: port in use"] * 3,
        "error: Ray on n1 ended before the cluster was complete; its last output is above",
    ]
    assert not any("rlcore" in line.split()[0] for line in cluster.said)
    nothing_is_left(cluster)


def test_a_node_whose_ray_does_not_start_at_once_is_given_another_try(cluster: StubCluster, job: Make) -> None:
    stub = cluster.bin / "ray"
    once = 'if [ "$STUB_NODE" = n2 ] && mkdir "$STUB_LOG.once" 2>/dev/null; then echo "ray: timed out" >&2; exit 1; fi\n'
    stub.write_text(stub.read_text().replace('case "$*" in\n', f'{once}case "$*" in\n', 1))
    code, out, err = cluster.run(job(), STUB_EXIT="0")
    assert (code, err) == (0, "ray: timed out\n")
    assert "Ray on n2 ended before the cluster was complete, and is started again" in out
    nothing_is_left(cluster)


@pytest.mark.parametrize("host", ["n2", "n3"])
def test_one_node_that_does_not_join_ends_the_job_though_the_other_lives(cluster: StubCluster, job: Make, host: str) -> None:
    code, _, err = cluster.run(job(), STUB_FAILS_ON=host)
    assert code == 1
    assert err.splitlines() == [
        *["ray: no route to head"] * 3,
        f"error: Ray on {host} ended before the cluster was complete; its last output is above",
    ]
    nothing_is_left(cluster)


def test_jobs_that_share_a_node_meet_on_no_port_and_in_no_folder(cluster: StubCluster, job: Make) -> None:
    one = Machines(nodes=1, gpus=0, cpus=8)
    for number in ("4711", "4712", "9711"):
        assert cluster.run(job(machines=one), hosts="n1", STUB_EXIT="0", STUB_GRPC="1", SLURM_JOB_ID=number)[0] == 0
    heads = [line.split() for line in cluster.log.read_text().splitlines() if line.startswith("ray start --head")]
    ports = [word.rpartition("=")[2] for head in heads for word in head if word.startswith(("--port=", "--ray-client-server-port="))]
    assert ports == ["29422", "29423", "29424", "29425", "29422", "29423"], "the numbers of jobs that run together are rarely 5000 apart"
    folders = {word for head in heads for word in head if word.startswith("--temp-dir=/tmp/rlcore-")}
    assert len(folders) == 3
    assert max(map(len, folders)) <= len("--temp-dir=") + 40


def test_without_grpc_no_port_is_given_to_the_ray_client_server(cluster: StubCluster, job: Make) -> None:
    assert cluster.run(job(), STUB_EXIT="0")[0] == 0
    assert not any("client-server" in line for line in cluster.said)


def test_a_folder_for_ray_is_made_and_stays(cluster: StubCluster, job: Make) -> None:
    chosen = cluster.folder / "of ray" / "files"
    assert cluster.run(job(ray_dir=str(chosen)), STUB_EXIT="0")[0] == 0
    assert any(f"--temp-dir={str(chosen).replace(' ', chr(92) + ' ')} " in line for line in cluster.said)
    assert chosen.is_dir()
    nothing_is_left(cluster)


def test_every_node_makes_the_job_s_own_folder_and_removes_it(cluster: StubCluster, job: Make) -> None:
    for name in ("mkdir", "rm"):
        program = shutil.which(name)
        (cluster.bin / name).write_text(f'#!/bin/bash\necho "{name} $STUB_NODE: $*" >>"$STUB_LOG.folders"\nexec {program} "$@"\n')
        (cluster.bin / name).chmod(0o755)
    assert cluster.run(job(), STUB_EXIT="0")[0] == 0
    said = [line.split(": ") for line in Path(f"{cluster.log}.folders").read_text().splitlines()]
    on_nodes = {who for who, words in said if "/tmp/rlcore-4711-" in words and not who.endswith(" ")}
    assert on_nodes == {"mkdir n1", "mkdir n2", "mkdir n3", "rm n2,n3"}, "the first node's is removed by the batch file itself"


def test_a_folder_for_ray_that_cannot_be_made_is_named(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(ray_dir="/proc/nothing"))
    assert code == 1
    assert "error: n1 cannot make /proc/nothing, the folder for Ray's files; type another --ray_dir" in err


def test_ray_ends_at_once(cluster: StubCluster, job: Make) -> None:
    stub = cluster.bin / "ray"
    stub.write_text(stub.read_text().replace("\n", '\necho "$RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S" >>"$STUB_LOG.waits"\n', 1))
    assert cluster.run(job(), STUB_EXIT="0")[0] == 0
    assert set(Path(f"{cluster.log}.waits").read_text().split()) == {"0"}


def test_every_process_of_the_job_has_a_token_that_no_other_job_has(cluster: StubCluster, job: Make) -> None:
    for name in ("ray", "rlcore"):
        stub = cluster.bin / name
        stub.write_text(stub.read_text().replace("\n", '\necho "$RAY_AUTH_MODE:$RAY_AUTH_TOKEN" >>"$STUB_LOG.tokens"\n', 1))
    tokens = Path(f"{cluster.log}.tokens")
    assert cluster.run(job(), STUB_EXIT="0")[0] == 0
    (first,) = set(tokens.read_text().splitlines())
    tokens.unlink()
    assert cluster.run(job(), STUB_EXIT="0")[0] == 0
    (second,) = set(tokens.read_text().splitlines())
    assert re.fullmatch("token:[0-9a-f]{64}", first)
    assert first != second
    tokens.unlink()
    assert cluster.run(job(), STUB_EXIT="0", RAY_AUTH_MODE="disabled")[0] == 0
    assert set(tokens.read_text().splitlines()) == {"disabled:"}


@pytest.mark.full
def test_nodes_that_never_join_end_the_job_at_the_deadline(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(), STUB_WORKERS_HANG="1", RLCORE_JOIN_SECONDS="2")
    assert code == 1
    assert "error: 1 of 3 nodes joined Ray at n1:29422 within 2 s" in err
    nothing_is_left(cluster)


def test_sigterm_before_the_run_ends_what_was_started(cluster: StubCluster, job: Make) -> None:
    process = cluster.start(job(), STUB_WORKERS_HANG="1")
    cluster.wait_until(lambda said: sum("--address" in line for line in said) >= 2)
    process.send_signal(signal.SIGTERM)
    assert cluster.end(process)[0] == 143
    assert not any(line.startswith("rlcore") for line in cluster.said)
    assert cluster.said[-1] == "scontrol requeue 4711", "a job that is preempted while it starts has yet to run"
    nothing_is_left(cluster)


def test_plugins_that_cannot_be_installed_end_the_job_before_ray(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(wheels="/wheels"), STUB_PIP_FAILS="1")
    assert code == 1
    assert "error: rlcore and its plugins could not be installed from /wheels on n1; see above" in err
    assert not any("ray" in line.split() for line in cluster.said)


def test_a_venv_without_pip_is_refused_and_no_other_pip_is_asked(cluster: StubCluster, job: Make) -> None:
    venv = cluster.folder / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text("#!/bin/bash\nexit 1\n")
    (venv / "bin" / "python").chmod(0o755)
    code, _, err = cluster.run(job(venv=str(venv), wheels="/wheels"))
    assert code == 1
    assert f"error: there is no pip in {venv}; install there the packages of versions= and packages= above, and write wheels='' and" in err
    assert cluster.said == [r"scontrol show hostnames n\[1-3\]"]


def test_a_venv_comes_first_on_the_path_and_nothing_is_installed_without_plugins(cluster: StubCluster, job: Make) -> None:
    venv = cluster.folder / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "rlcore").write_text('#!/bin/bash\necho "the rlcore of $VIRTUAL_ENV"\n')
    (venv / "bin" / "rlcore").chmod(0o755)
    (venv / "bin" / "python").symlink_to(cluster.bin / "python3")
    code, out, _ = cluster.run(job(venv=str(venv), packages=Packages(versions=())))
    assert (code, out) == (0, f"the rlcore of {venv}\n")
    assert not any("pip" in line for line in cluster.said)


def test_a_folder_that_the_node_does_not_see_is_named(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(folder="/nowhere/at all"))
    assert code == 1
    assert "does not see /nowhere/at all; it must be on a file system that every node sees" in err


def test_by_hand_it_says_what_it_is_for(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(), SLURM_JOB_ID="")
    assert (code, err) == (1, "error: this file is for Slurm; type sbatch and its name\n")
    assert cluster.said == []


@pytest.mark.parametrize("ray_dir", ["", "files of ray"])
def test_in_an_image_every_command_runs_in_it_and_sees_the_folders(cluster: StubCluster, job: Make, ray_dir: str) -> None:
    chosen = ray_dir and str(cluster.folder / ray_dir)
    code, _, err = cluster.run(job(container="image.sif", ray_dir=chosen), STUB_EXIT="0")
    assert (code, err) == (0, "")
    bound = [shlex.split(line).count("--bind") for line in cluster.said if line.startswith("apptainer")]
    assert set(bound) == {3 if ray_dir else 2}
    inside = [line for line in cluster.said if line.startswith("apptainer exec --bind") and "--nv image.sif" in line]
    assert sum(" ray start" in line for line in inside) == 3
    assert sum(" rlcore train" in line for line in inside) == 1
    assert not any(" pip " in line for line in cluster.said)
