"""Jobs of one to three instances on a Ray cluster of three nodes; the service is killed: each runs and ends once.

Some threads submit all jobs at once, as root on a machine that can make nodes. The service is killed as the share
of the ended jobs grows. Each instance notes its start on its node, outside of everything that belongs to its job.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk import Estimator, Session, TrainingJob
from pai_sdk._service.embedded import ensure_running
from tests.cluster import ray_cluster
from tests.cluster.ray_cluster import RayCluster
from tests.support import ml
from tests.support.service_process import end_service, wait_until_gone
from tests.support.waiting import PATIENCE_S

__all__ = ["Report", "main", "run"]

_CLIENTS = 4
_LINES = 20
_COMMAND = (
    'echo "$PAI_INSTANCE_NAME" >>/tmp/starts; '
    f'i=0; while [ $i -lt {_LINES} ]; do i=$((i+1)); echo "rank $RANK line $i"; sleep 0.1; done'
)


@dataclass
class Report:
    """What was seen. `faults` is empty when all is well."""

    seed: int
    jobs: int = 0
    instances: int = 0
    lines: int = 0
    kills: int = 0
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed}: {self.jobs} jobs with {self.instances} instances in {self.took_s:.0f} s, "
                f"{self.lines} log lines, the service killed {self.kills} times",
                *(f"FAULT: {fault}" for fault in self.faults),
                f"{len(self.faults)} faults"
                if self.faults
                else "each ran once and ended once, no line is lost or doubled",
            ]
        )


def run(cluster: RayCluster, data: Path, *, jobs: int, kills: int, seed: int, longest_s: float = 3600) -> Report:
    """Do it, and tell what was seen.

    Args:
        cluster: with all its nodes.
        data: the data folder of the service, which is started and ended.
        jobs: how many.
        kills: how often the service is killed.
        seed: of the sizes of the jobs.
        longest_s: how long all of it may take.
    """
    begun, chance, report = time.monotonic(), random.Random(seed), Report(seed)
    counts = [chance.randint(1, 3) for _ in range(jobs)]
    session = Session.ray(cluster.client_address, data_dir=data)
    with ThreadPoolExecutor(_CLIENTS) as clients:
        submitted = [clients.submit(_submit, session, number, count) for number, count in enumerate(counts)]
        _kill(session, data, report, jobs, kills, begun + longest_s)
        for count, one in zip(counts, submitted, strict=True):
            _check(one.result(), count, report)
    listed = list(session.list_jobs())
    names = Counter(job.name for job in listed)
    if set(names.values()) != {1} or names.total() != jobs:
        report.faults.append(f"{names.total()} jobs are listed: {names.most_common(3)}")
    ids = {job.id for job in listed}
    notes = (name for node in cluster.nodes for name in _starts(node.pid))
    started = Counter(name for name in notes if name.rsplit("-", 2)[0] in ids)
    if set(started.values()) != {1} or started.total() != report.instances:
        report.faults.append(f"{started.total()} starts: {started.most_common(3)}")
    end_service(data)
    cluster.wait_until_free()
    report.took_s = time.monotonic() - begun
    return report


def _submit(session: Session, number: int, count: int) -> TrainingJob:
    estimator = Estimator(
        "unused",
        _COMMAND,
        instance_count=count,
        instance_type="any",
        base_job_name=f"trial-{number}",
        session=session,
    )
    return estimator.fit(wait=False, show_logs=False)


def _kill(session: Session, data: Path, report: Report, jobs: int, kills: int, deadline: float) -> None:
    """Kill the service whenever another share of the jobs has ended; return when all have."""
    while time.monotonic() < deadline:
        ended = sum(job.status.is_terminal for job in session.list_jobs())
        if report.kills < kills and ended >= report.kills * jobs // kills:
            pid = ensure_running(data, timeout_s=PATIENCE_S).pid
            os.kill(pid, signal.SIGKILL)
            wait_until_gone(pid)
            report.kills += 1
        elif ended == jobs:
            return
        time.sleep(0.5)
    report.faults.append("the jobs did not end in time")


def _check(job: TrainingJob, count: int, report: Report) -> None:
    report.jobs += 1
    report.instances += count
    statuses = [transition.status for transition in job.refresh().status_transitions]
    if job.status != "Succeed" or len(set(statuses)) != len(statuses):
        report.faults.append(f"{job.name} is {job.status}, after {statuses}: {job.record.reason_message}")
    lines: dict[str, list[str]] = {}
    for line in job.logs():
        if not line.text.startswith(ml.NOTICE):
            lines.setdefault(line.instance or "", []).append(line.text)
    report.lines += sum(map(len, lines.values()))
    wanted = [[f"rank {rank} line {number}" for number in range(1, _LINES + 1)] for rank in range(count)]
    if sorted(lines.values()) != wanted:
        report.faults.append(f"{job.name}: { ({name: len(found) for name, found in lines.items()}) } lines")


def _starts(node: int) -> list[str]:
    """What instances have noted on a node, which is known by its first process."""
    file = Path("/proc", str(node), "root", "tmp", "starts")
    return file.read_text().split() if file.exists() else []


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials cluster", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    if reason := ray_cluster.why_not():
        sys.stdout.write(f"not run: {reason}\n")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    with RayCluster(folder / "ray") as cluster:
        report = run(cluster, folder / "data", jobs=given.jobs, kills=given.kills, seed=given.seed)
    sys.stdout.write(f"{report}\nthe data folder is {folder / 'data'}\n")
    return 1 if report.faults else 0
