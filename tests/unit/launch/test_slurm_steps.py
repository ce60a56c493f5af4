"""The sbatch file, really run by bash, on a cluster of stubs: order of its steps, SIGTERM, failures, what is left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kit_cluster import StubCluster

from rlcore.launch import Machines, Packages, SlurmJob

Make = Callable[..., SlurmJob]
SRUN = "srun --overlap --nodes={count} --ntasks={count} --ntasks-per-node=1 --nodelist={hosts} --cpus-per-task=16 --gpus-per-node=2 "
RUN = "rlcore train run.toml -t 4 --runtime ray --master_address n1:24711"


def test_plugins_then_the_head_then_the_others_then_the_run(cluster: StubCluster, job: Make) -> None:
    code, out, err = cluster.run(job(), STUB_EXIT="0")
    assert (code, err) == (0, "")
    assert "output of the run" in out
    head, others = SRUN.format(count=1, hosts="n1"), SRUN.format(count=2, hosts=r"n2\,n3")
    size = "--num-cpus=16 --num-gpus=2 --disable-usage-stats"
    assert cluster.said == [
        r"scontrol show hostnames n\[1-3\]",
        "pip install rlcore-plugin-x==1.0",
        others + "pip install rlcore-plugin-x==1.0",
        *["pip install rlcore-plugin-x==1.0"] * 2,
        f"{head}ray start --head --block --port=24711 {size}",
        f"ray start --head --block --port=24711 {size}",
        f"{others}ray start --address=n1:24711 --block {size}",
        *[f"ray start --address=n1:24711 --block {size}"] * 2,
        RUN,
    ]


def test_one_node_is_a_cluster_too(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(machines=Machines(nodes=1, gpus=0, cpus=8)), hosts="n1", STUB_EXIT="0")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in cluster.said] == ["scontrol", "pip", "srun", "ray", "rlcore"]
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


def nothing_is_left(cluster: StubCluster) -> None:
    """Ray has ended on every node, and the scratch folder is gone."""
    assert list(cluster.folder.glob("log.joined.*")) == []
    assert list(cluster.folder.glob("tmp.*")) == []


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
    assert [line for line in cluster.said if line.split()[0] not in ("srun", "pip", "ray", "apptainer")][1:] == [
        RUN,
        "training",
        "saved",
        "scontrol show job 4711",
        "scontrol requeue 4711",
    ]
    nothing_is_left(cluster)


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING"])
def test_a_cancelled_job_saves_and_is_not_queued_again(cluster: StubCluster, job: Make, state: str) -> None:
    code, out, _ = terminated(cluster, job(), STUB_STATE=state)
    assert code == 130
    assert "cancelled, so it is not queued again" in out
    assert cluster.said[-1] == "scontrol show job 4711"


@pytest.mark.full
def test_a_job_is_not_queued_again_for_ever(cluster: StubCluster, job: Make) -> None:
    assert terminated(cluster, job(), SLURM_RESTART_COUNT="2")[0] == 130
    assert cluster.said[-1] == "scontrol requeue 4711"
    cluster.log.unlink()
    code, out, _ = terminated(cluster, job(), SLURM_RESTART_COUNT="3")
    assert code == 130
    assert "3 times, which is the most (most_requeues in this file)" in out
    assert not any("requeue" in line for line in cluster.said)


def test_a_head_that_does_not_start_ends_the_job_with_its_words(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(), STUB_HEAD_FAILS="1")
    assert code == 1
    assert err.splitlines() == [
        "ray: port in use",
        "error: the Ray head on n1 ended before the cluster was whole; its last words are above",
    ]
    assert not any("rlcore" in line.split()[0] for line in cluster.said)
    nothing_is_left(cluster)


def test_a_node_that_does_not_join_ends_the_job(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(), STUB_WORKERS_FAIL="1")
    assert code == 1
    assert "error: a Ray node of n2,n3 ended before the cluster was whole" in err
    nothing_is_left(cluster)


@pytest.mark.full
def test_nodes_that_never_join_end_the_job_at_the_deadline(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(), STUB_WORKERS_HANG="1", RLCORE_JOIN_SECONDS="2")
    assert code == 1
    assert "error: 1 of 3 nodes joined Ray at n1:24711 within 2 s" in err
    nothing_is_left(cluster)


def test_sigterm_before_the_run_ends_what_was_started(cluster: StubCluster, job: Make) -> None:
    process = cluster.start(job(), STUB_WORKERS_HANG="1")
    cluster.wait_until(lambda said: any("--address" in line for line in said))
    process.send_signal(signal.SIGTERM)
    assert cluster.end(process)[0] == 143
    assert not any("requeue" in line or line.startswith("rlcore") for line in cluster.said)
    nothing_is_left(cluster)


def test_plugins_that_cannot_be_installed_end_the_job_before_ray(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(), STUB_PIP_FAILS="1")
    assert code == 1
    assert "error: the plugins could not be installed on n1" in err
    assert not any("ray" in line.split() for line in cluster.said)


def test_a_venv_comes_first_on_the_path_and_nothing_is_installed_without_plugins(cluster: StubCluster, job: Make) -> None:
    venv = cluster.folder / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "rlcore").write_text('#!/bin/bash\necho "the rlcore of $VIRTUAL_ENV"\n')
    (venv / "bin" / "rlcore").chmod(0o755)
    code, out, _ = cluster.run(job(venv=str(venv), packages=Packages(requirements=(), files=())))
    assert (code, out) == (0, f"the rlcore of {venv}\n")
    assert not any("pip" in line for line in cluster.said)


def test_a_folder_that_the_node_does_not_see_is_named(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(folder="/nowhere/at all"))
    assert code == 1
    assert "does not see /nowhere/at all; it must lie on a file system that every node sees" in err


def test_by_hand_it_says_what_it_is_for(cluster: StubCluster, job: Make) -> None:
    code, _, err = cluster.run(job(), SLURM_JOB_ID="")
    assert (code, err) == (1, "error: this file is for Slurm; type sbatch and its name\n")
    assert cluster.said == []


def test_in_an_image_every_command_runs_in_it(cluster: StubCluster, job: Make) -> None:
    made = job(container="image.sif")
    assert cluster.run(made, STUB_EXIT="0")[0] == 0
    inside = [line for line in cluster.said if line.startswith("apptainer exec --bind") and "--nv image.sif" in line]
    assert sum(" ray start" in line for line in inside) == 3
    assert sum(" rlcore train" in line for line in inside) == 1
    assert not any(line.startswith("pip") for line in cluster.said)
