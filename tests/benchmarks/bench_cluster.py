"""Jobs on Ray and Slurm beside those by Ray's REST interface and `srun`: what this SDK adds.

The clusters have three nodes each, made on this machine (as root). A job prints the time when its command begins.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pai_sdk import Estimator, Session
from tests.benchmarks.harness import Row
from tests.benchmarks.ray_jobs import RayJobs
from tests.cluster import ray_cluster, slurm_cluster
from tests.cluster.ray_cluster import RayCluster
from tests.cluster.slurm_cluster import SlurmCluster
from tests.support.service_process import end_service
from tests.support.waiting import until

JOBS = 5
LONGEST_JOB_S = 120
NOW = "date +%s.%N"

ROWS = [
    Row("a Ray job by REST, from its submission to its command"),
    Row("a job of a service on Ray"),
    Row("what the SDK adds to Ray", at_most=1.0),
    Row("srun, to its command"),
    Row("sbatch, to its script"),
    Row("a job of a service on Slurm"),
    Row("what the SDK adds to Slurm", at_most=0.2),
]
REPETITIONS = 2


def measure(cache: Path) -> dict[str, float | str]:
    if reason := ray_cluster.why_not() or slurm_cluster.why_not():
        return {row.name: reason for row in ROWS}
    folder = Path.cwd()
    with RayCluster(folder / "ray") as cluster:
        ray = _ray(cluster, folder / "on ray")
    with SlurmCluster(folder / "slurm") as other:
        slurm = _slurm(other, other.folder / "on slurm")  # all its nodes share this folder
    values = [*ray, ray[1] - ray[0], *slurm, slurm[-1] - slurm[0]]
    return dict(zip((row.name for row in ROWS), values, strict=True))


def _ray(cluster: RayCluster, data: Path) -> tuple[float, float]:
    jobs = RayJobs(cluster.dashboard_url)

    def by_rest() -> float:
        job = jobs.submit(NOW, cpus=1)
        jobs.wait(job, within_s=LONGEST_JOB_S)
        return until(lambda: _time_in(jobs.log(job)), "its output", within_s=LONGEST_JOB_S)

    bare_s = _median(by_rest)
    return bare_s, _by_service(Session.ray(cluster.client_address, data_dir=data), data)


def _time_in(log: str) -> float | None:
    """What the command has printed; Ray itself writes other lines to the log, and this one may come late."""
    found = re.findall(r"^\d+\.\d+$", log, re.MULTILINE)
    return float(found[-1]) if found else None


def _slurm(cluster: SlurmCluster, data: Path) -> tuple[float, float, float]:
    os.environ.update(cluster.environment)
    written = cluster.folder / "begun"

    def by_sbatch() -> float:
        written.unlink(missing_ok=True)
        cluster.command("sbatch", "-N1", "--output=/dev/null", f"--wrap={NOW} >{written}")
        return until(
            lambda: written.exists() and _time_in(written.read_text()), "its output", within_s=LONGEST_JOB_S
        )

    bare_s = _median(lambda: float(cluster.command("srun", "-N1", "date", "+%s.%N")))
    return bare_s, _median(by_sbatch), _by_service(Session.embedded(data, executor="slurm"), data)


def _by_service(session: Session, data: Path) -> float:
    def one() -> float:
        estimator = Estimator("unused", NOW, session=session, instance_type="any")
        job = estimator.fit(wait=False, show_logs=False)
        job.wait(LONGEST_JOB_S, show_logs=False)
        (line,) = job.logs()
        return float(line.text)

    try:
        return _median(one)
    finally:
        end_service(data)


def _median(begin: Callable[[], float]) -> float:
    """The seconds from a submission to the beginning of its command; `begin` submits and gives the latter."""
    found = []
    for _ in range(1 + JOBS):  # what is loaded once is not what is measured
        submitted = time.time()
        found.append(begin() - submitted)
        sys.stderr.write(f"{found[-1]:.2f} ")
    sys.stderr.write("\n")
    return statistics.median(found[1:])
