"""The job, instance and folder of a training, read from the variables of the job contract.

This module is shipped with jobs: standard library only, syntax of Python 3.8.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Context:
    """The job, instance and folder of a training.

    Attributes:
        job_id: empty outside a job.
        instance: the name of the instance within the job.
        rank: the number of this process among all processes of the job, from 0.
        world_size: the number of processes of the job.
        local_rank: the number of this process on its instance.
        folder: the run's folder, with `checkpoints`, `tensorboard` and the other outputs.
        hyperparameters: maps names to values, as strings.
    """

    job_id: str = ""
    instance: str = ""
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    folder: Path | None = None
    hyperparameters: Mapping[str, str] = field(default_factory=dict)

    def get_world_rank(self) -> int:
        """Returns `rank`."""
        return self.rank

    def get_world_size(self) -> int:
        """Returns `world_size`."""
        return self.world_size

    def get_local_rank(self) -> int:
        """Returns `local_rank`."""
        return self.local_rank

    def get_trial_id(self) -> str:
        """Returns `job_id`."""
        return self.job_id

    def get_trial_name(self) -> str:
        """Returns `job_id`."""
        return self.job_id

    def get_trial_dir(self) -> Path | None:
        """Returns `folder`."""
        return self.folder

    def get_trial_logdir(self) -> Path | None:
        """Returns `folder`."""
        return self.folder

    @classmethod
    def of_environment(cls, variables: Mapping[str, str]) -> Context | None:
        """Returns the context that the variables of the job contract describe; None outside a job."""
        outputs = variables.get("PAI_OUTPUT_TENSORBOARD") or variables.get("PAI_OUTPUT_CHECKPOINTS")
        working_dir = variables.get("PAI_WORKING_DIR")
        if outputs:
            folder = Path(outputs).parent
        elif working_dir:
            folder = Path(working_dir).parent / "output"
        else:
            return None
        return cls(
            variables.get("PAI_TRAINING_JOB_ID", ""),
            variables.get("PAI_INSTANCE_NAME", ""),
            *_ranks(variables),
            folder,
            _hyperparameters(variables.get("PAI_HPS", "")),
        )


def _ranks(variables: Mapping[str, str]) -> tuple[int, int, int]:
    """Returns rank, number of processes and local rank, which launchers such as torchrun set for each process."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    rank, size, local = (int(value) if (value := variables.get(name, "")).isdecimal() else None for name in names)
    if rank is None and "TF_CONFIG" in variables:
        rank, size = _tensorflow_rank(variables["TF_CONFIG"])
    return rank or 0, size or 1, local or 0


def _tensorflow_rank(content: str) -> tuple[int, int]:
    """Returns rank and number of processes from TF_CONFIG: chief first, then other roles by name and number."""
    try:
        described = json.loads(content)
        cluster, task = described["cluster"], described["task"]
        roles = sorted(cluster, key=lambda role: (role not in ("chief", "master"), role))
        before = sum(len(cluster[role]) for role in roles[: roles.index(task["type"])])
        return before + int(task["index"]), sum(map(len, cluster.values()))
    except (ValueError, KeyError, TypeError):
        return 0, 1


def _hyperparameters(content: str) -> Mapping[str, str]:
    try:
        values = json.loads(content or "{}")
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}
