"""Many queued jobs on a Ray cluster of three nodes: those of a service, beside those by Ray's REST interface."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pai_sdk import Estimator, Session
from tests.benchmarks.ray_jobs import RayJobs
from tests.cluster import ray_cluster
from tests.cluster.ray_cluster import RayCluster
from tests.support.service_process import end_service
from tests.support.waiting import until

__all__ = ["main"]

_CLIENTS = 4
_LONGEST_S = 3 * 3600


def by_rest(cluster: RayCluster, jobs: int) -> tuple[float, int]:
    """Seconds until the last end, and how many jobs failed: Ray gives some up under load."""
    ray, begun = RayJobs(cluster.dashboard_url), time.monotonic()
    with ThreadPoolExecutor(_CLIENTS) as clients:
        submitted = list(clients.map(lambda _: ray.submit("true", cpus=1), range(jobs)))
    until(lambda: ray.ended() == jobs, "the end of all jobs", within_s=_LONGEST_S, pause_s=0.5)
    took_s = time.monotonic() - begun
    return took_s, sum(ray.status(job) != "SUCCEEDED" for job in submitted)


def by_service(cluster: RayCluster, data: Path, jobs: int) -> tuple[float, int]:
    """The same."""
    session = Session.ray(cluster.client_address, data_dir=data)
    begun = time.monotonic()

    def submit(number: int) -> None:
        Estimator("unused", "true", instance_type="any", base_job_name=f"drain-{number}", session=session).fit(
            wait=False, show_logs=False
        )

    with ThreadPoolExecutor(_CLIENTS) as clients:
        list(clients.map(submit, range(jobs)))

    def ended() -> bool:
        return all(job.status.is_terminal for job in session.list_jobs())

    until(ended, "the end of all jobs", within_s=_LONGEST_S, pause_s=0.5)
    took_s = time.monotonic() - begun
    failed = sum(job.status != "Succeed" for job in session.list_jobs())
    end_service(data)
    return took_s, failed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials drain", description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    given = parser.parse_args(arguments)
    if reason := ray_cluster.why_not():
        sys.stdout.write(f"not run: {reason}\n")
        return 0
    code = 0
    with tempfile.TemporaryDirectory(prefix="drain-") as folder, RayCluster(Path(folder, "ray")) as cluster:
        for name, measure in (
            ("a service on Ray", lambda: by_service(cluster, Path(folder, "data"), given.jobs)),
            ("Ray Jobs by REST", lambda: by_rest(cluster, given.jobs)),
        ):
            took_s, failed = measure()
            rate = f"{(given.jobs - failed) / took_s:.2f} succeeded a second"
            sys.stdout.write(f"{given.jobs} jobs, {name}: {took_s:.0f} s, {rate}, {failed} failed\n")
            sys.stdout.flush()
            code = code or int(failed > 0 and name.startswith("a service"))
    return code
