"""Options of a Slurm cluster, and names of its jobs."""

from __future__ import annotations

from pai_sdk._host.execution.slurm.options import SlurmOptions
from pai_sdk._host.execution.slurm.queue import slurm_job_name


def test_an_instance_has_one_cpu_by_default() -> None:
    assert SlurmOptions.parse({"partition": "gpu"}).cpus_per_instance == "1"


def test_the_name_of_a_slurm_job_has_the_attempt() -> None:
    names = [slurm_job_name("train1", attempt) for attempt in (1, 2)]
    assert names == ["pai-train1", "pai-train1.2"]
