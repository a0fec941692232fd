"""A job as the arguments and the script of `sbatch`. No secret is in them: Slurm keeps and shows both."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution.base import LaunchSpec
from pai_sdk.execution.contract import cpus, gpus
from pai_sdk.execution.slurm.commands import SlurmAway, run
from pai_sdk.execution.slurm.options import SlurmOptions
from pai_sdk.execution.slurm.queue import name_of

__all__ = ["LOG", "resources_of", "submit"]

LOG = "slurm.log"
"""What Slurm's own commands print, in the folder of the job's state."""

_BATCH = (
    "import sys; sys.path.append(sys.argv[1]); from pai_sdk.agent.slurm.batch import main; "
    "sys.exit(main(*sys.argv[1:]))"
)
_PACKAGE_PARENT = str(Path(__file__).parents[3])
_MIB = 1 << 20
_SPARE_S = 300  # the supervisor ends a job at its limit; Slurm only should that fail
_DOWN = re.compile("down|drain|fail|inval|maint|unk")


def resources_of(spec: LaunchSpec, options: SlurmOptions) -> dict[str, Any]:
    """What each instance needs.

    Raises:
        InvalidInputError: an amount cannot be read.
    """
    named = cpus(spec.request)
    return {
        "cpus": max(1, math.ceil(named)) if named is not None else int(options.cpus_per_instance),
        "memory_mib": math.ceil((spec.limits.memory_bytes or 0) / _MIB),
        "gpus": gpus(spec.request),
    }


def submit(root: Path, job: Mapping[str, Any], options: SlurmOptions) -> str:
    """Submit a job; returns the number of its Slurm job.

    Args:
        root: the job's folder.
        job: its description, see `executor`.
        options: of the service.

    Raises:
        SlurmAway: it is not known whether it was submitted.
        SlurmRefused: it was not.
    """
    count, needed = len(job["instances"]), job["resources"]
    nodes = _nodes(options.partition) if count > 1 else 1
    arguments = [
        f"--job-name={name_of(job['job_id'], Sandbox(root).attempt)}",
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
        arguments.append(f"--time={math.ceil((job['max_running_s'] + job['grace_s'] + _SPARE_S) / 60)}")
    words = [options.python, "-I", "-S", "-c", _BATCH, _PACKAGE_PARENT, str(root)]
    printed = run(["sbatch", "--parsable", *arguments], text=f"#!/bin/sh\nexec {shlex.join(words)}\n")
    number = printed.strip().partition(";")[0]
    if not number.isdecimal():
        raise SlurmAway(f"sbatch printed what cannot be understood: {printed[:200]!r}")
    return number


def _placement(count: int, nodes: int, needed: Mapping[str, Any], gpu_type: str) -> list[str]:
    """A node for each instance where there are enough of them; else as many instances a node as fit."""
    kind = f"{gpu_type}:" if gpu_type else ""
    memory, gpus_each = needed["memory_mib"], needed["gpus"]
    if nodes >= count:
        arguments = [f"--nodes={count}", "--ntasks-per-node=1"]
        arguments += [f"--mem={memory}M"] if memory else []
        return arguments + ([f"--gres=gpu:{kind}{gpus_each}"] if gpus_each else [])
    arguments = [f"--nodes=1-{nodes}"]
    arguments += [f"--mem-per-cpu={math.ceil(memory / needed['cpus'])}M"] if memory else []
    return arguments + ([f"--gpus-per-task={kind}{gpus_each}"] if gpus_each else [])


def _nodes(partition: str) -> int:
    """How many nodes a job may be spread over; at least 1."""
    printed = run(["sinfo", "--noheader", "--format=%P|%D|%T"])
    names, found = set(partition.split(",")) if partition else set(), dict[str, int]()
    for line in printed.splitlines():
        name, _, rest = line.partition("|")
        nodes, _, state = rest.partition("|")
        is_wanted = name in names or name.rstrip("*") in names if names else name.endswith("*")
        if is_wanted and nodes.isdecimal() and not _DOWN.match(state):
            found[name] = found.get(name, 0) + int(nodes)
    return max(1, *found.values()) if found else 1
