"""Turns a job into the arguments and the script of `sbatch`. Neither has secrets: Slurm displays both."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import LaunchSpec
from pai_sdk._host.execution.contract import cpus, gpus, memory_limit_bytes
from pai_sdk._host.execution.slurm.commands import SlurmAway, run
from pai_sdk._host.execution.slurm.options import SlurmOptions
from pai_sdk._host.execution.slurm.queue import slurm_job_name

LOG = "slurm.log"
"""The output of Slurm's own commands, in the folder of the job's state."""

_BATCH = (
    "import sys; sys.path.append(sys.argv[1]); from pai_sdk._host.agent.slurm.batch import main; "
    "sys.exit(main(*sys.argv[1:]))"
)
_PACKAGE_PARENT = str(Path(__file__).parents[4])
_MIB = 1 << 20
_TIME_LIMIT_MARGIN_S = 300  # the supervisor enforces the limit; Slurm only if the supervisor fails
_DOWN_STATE = re.compile("down|drain|fail|inval|maint|unk")


def instance_resources(spec: LaunchSpec, options: SlurmOptions) -> dict[str, Any]:
    """Returns the resources of each instance: those of the largest role, since tasks of a Slurm job are alike."""
    roles = spec.request.role_requests
    requested_cpus = [cpus(role) for role in roles]
    return {
        "cpus": max(
            int(options.cpus_per_instance) if number is None else max(1, math.ceil(number))
            for number in requested_cpus
        ),
        "memory_mib": math.ceil(max(memory_limit_bytes(role) or 0 for role in roles) / _MIB),
        "gpus": max(map(gpus, roles)),
    }


def submit(root: Path, job: Mapping[str, Any], options: SlurmOptions) -> str:
    """Submits a job and returns the number of its Slurm job; after SlurmAway, it may have been submitted."""
    count, needed = len(job["instances"]), job["resources"]
    nodes = _count_nodes(options.partition) if count > 1 else 1
    arguments = [
        f"--job-name={slurm_job_name(job['job_id'], Sandbox(root).attempt)}",
        f"--chdir={root}",
        f"--output=state/{LOG}",
        "--open-mode=append",
        "--export=NONE",
        "--no-requeue",
        f"--ntasks={count}",
        f"--cpus-per-task={needed['cpus']}",
        *_placement(count, nodes, needed, options.gpu_type),
        *options.arguments(),
    ]
    if job["max_running_s"]:
        arguments.append(
            f"--time={math.ceil((job['max_running_s'] + job['grace_s'] + _TIME_LIMIT_MARGIN_S) / 60)}"
        )
    argv = [options.python, "-I", "-S", "-c", _BATCH, _PACKAGE_PARENT, str(root)]
    printed = run(["sbatch", "--parsable", *arguments], stdin=f"#!/bin/sh\nexec {shlex.join(argv)}\n")
    number = printed.strip().partition(";")[0]
    if not number.isdecimal():
        raise SlurmAway(f"the output of sbatch cannot be parsed: {printed[:200]!r}")
    return number


def _placement(count: int, nodes: int, needed: Mapping[str, Any], gpu_type: str) -> list[str]:
    """Returns the node arguments: one instance per node if there are enough nodes, else as many as fit."""
    kind = f"{gpu_type}:" if gpu_type else ""
    memory, gpus_each = needed["memory_mib"], needed["gpus"]
    if nodes >= count:
        arguments = [f"--nodes={count}", "--ntasks-per-node=1"]
        arguments += [f"--mem={memory}M"] if memory else []
        return arguments + ([f"--gres=gpu:{kind}{gpus_each}"] if gpus_each else [])
    arguments = [f"--nodes=1-{nodes}"]
    arguments += [f"--mem-per-cpu={math.ceil(memory / needed['cpus'])}M"] if memory else []
    return arguments + ([f"--gpus-per-task={kind}{gpus_each}"] if gpus_each else [])


def _count_nodes(partition: str) -> int:
    """Returns how many nodes a job can use; at least 1."""
    printed = run(["sinfo", "--noheader", "--format=%P|%D|%T"])
    names, counts = set(partition.split(",")) if partition else set(), dict[str, int]()
    for line in printed.splitlines():
        name, _, columns = line.partition("|")
        nodes, _, state = columns.partition("|")
        is_selected = name in names or name.rstrip("*") in names if names else name.endswith("*")
        if is_selected and nodes.isdecimal() and not _DOWN_STATE.match(state):
            counts[name] = counts.get(name, 0) + int(nodes)
    return max(1, *counts.values()) if counts else 1
