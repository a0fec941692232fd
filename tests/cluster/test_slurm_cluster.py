"""The Slurm cluster of these tests runs jobs, loses its controller and nodes as asked, and preempts."""

from __future__ import annotations

import time

import pytest

from tests.cluster.slurm_cluster import SlurmCluster
from tests.support.waiting import until


def submit(cluster: SlurmCluster, script: str, *options: str) -> str:
    """Submit a job; returns its id."""
    log = str(cluster.folder / "job-%j.log")
    return cluster.command("sbatch", "--parsable", "-o", log, "-D", "/", *options, "--wrap", script).strip()


def states(cluster: SlurmCluster, job: str) -> list[str]:
    """The state of a job."""
    return cluster.command("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").split()


def test_a_gang_runs_on_every_worker(slurm_cluster: SlurmCluster) -> None:
    assert sorted(slurm_cluster.command("srun", "-N3", "hostname").split()) == ["node1", "node2", "node3"]
    job = submit(slurm_cluster, "srun hostname", "-N3")
    until(lambda: states(slurm_cluster, job) == ["COMPLETED"], "the end of the job")
    printed = (slurm_cluster.folder / f"job-{job}.log").read_text()
    assert sorted(printed.split()) == ["node1", "node2", "node3"]


@pytest.mark.slow
def test_a_job_goes_on_while_the_controller_is_dead(slurm_cluster: SlurmCluster) -> None:
    go = slurm_cluster.folder / "go"
    job = submit(slurm_cluster, f"while [ ! -e {go} ]; do sleep 0.1; done; echo end")
    until(lambda: states(slurm_cluster, job) == ["RUNNING"], "the start of the job")
    time.sleep(6)  # the controller saves its state every five seconds, and forgets what is newer
    slurm_cluster.kill_controller()
    go.touch()
    log = slurm_cluster.folder / f"job-{job}.log"
    until(lambda: log.read_text() == "end\n", "the end of the job")
    slurm_cluster.start_controller()
    until(lambda: states(slurm_cluster, job) == ["COMPLETED"], "news of the end")


@pytest.mark.slow
def test_a_worker_without_power_is_noticed_and_comes_back(slurm_cluster: SlurmCluster) -> None:
    job = submit(slurm_cluster, "sleep 1000", "-w", "node2", "--no-requeue")
    until(lambda: states(slurm_cluster, job) == ["RUNNING"], "the start of the job")
    slurm_cluster.nodes[2].power_off()
    until(lambda: states(slurm_cluster, job) == ["NODE_FAIL"], "news of the lost node")
    slurm_cluster.repair()
    assert sorted(slurm_cluster.command("srun", "-N3", "hostname").split()) == ["node1", "node2", "node3"]


def test_a_preemptible_job_is_told_and_makes_room(slurm_cluster: SlurmCluster) -> None:
    told = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    job = submit(slurm_cluster, f'srun sh -c "{told}"', "-p", "preemptible", "-N3", "--exclusive", "--requeue")
    log = slurm_cluster.folder / f"job-{job}.log"
    until(lambda: log.exists() and log.read_text().count("up") == 3, "the start of the job")
    other = submit(slurm_cluster, "true", "-N3", "--exclusive")
    until(lambda: log.read_text().count("told") == 3, "a notice to each instance")
    until(lambda: states(slurm_cluster, other) == ["COMPLETED"], "the end of the other job")
