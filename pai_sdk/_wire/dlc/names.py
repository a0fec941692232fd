"""Names of DLC: ids, types of jobs and of roles, pods. Standard library only."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "JOB_PREFIX",
    "JOB_TYPES",
    "ROLE_TYPES",
    "PodName",
    "canonical_role",
    "display_name_problem",
    "is_code_source_id",
    "is_dataset_id",
    "is_job_id",
    "is_new_job",
    "job_type_for",
    "new_code_source_id",
    "new_dataset_id",
    "new_job_id",
    "new_pod_uid",
    "new_request_id",
    "new_template_id",
    "new_tensorboard_id",
    "parse_pod",
    "pods_of",
]

JOB_PREFIX: Final = "dlc"
"""What the id of every job begins with, and that of no training job."""

JOB_TYPES: Final = (
    "TFJob",
    "PyTorchJob",
    "MPIJob",
    "XGBoostJob",
    "OneFlowJob",
    "ElasticBatchJob",
    "SlurmJob",
    "RayJob",
    "DataJuicerJob",
    "FlinkBatchJob",
)
"""The types of jobs; the API compares them with case. The last one is in the vendor's command line only."""

_LIKE_PYTORCH = ("Master", "Worker")
ROLE_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "TFJob": ("Chief", "Master", "PS", "Worker", "Evaluator", "GraphLearn"),
    "PyTorchJob": _LIKE_PYTORCH,
    "XGBoostJob": _LIKE_PYTORCH,
    "OneFlowJob": _LIKE_PYTORCH,
    "ElasticBatchJob": _LIKE_PYTORCH,
    "RayJob": ("Head", "Worker"),
}
"""Roles in the order of their pods, by type of the job; the roles of missing types are not public.

A RayJob also has roles such as `Worker-gpu`.
"""

_HAS_A_MASTER = frozenset(name for name, roles in ROLE_TYPES.items() if roles is _LIKE_PYTORCH)
SINGLE_ROLES: Final = frozenset({"Master", "Chief", "Head"})
"""Roles that have one pod at most."""

_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_JOB_ID = re.compile(r"dlc(?:[0-9a-z]{8,}|-\d{14}-[0-9a-z]+)")
_POD = re.compile(r"(dlc(?:-\d{14}-)?[0-9a-z]+)-([a-z][a-z0-9-]*)-(\d+)")
_DISPLAY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_DATASET_ID = re.compile(r"d-[0-9a-z]{4,}")
_CODE_SOURCE_ID = re.compile(r"code-[0-9a-z-]{4,}")


# ---- ids ----------------------------------------------------------------------------------------------------


def new_job_id() -> str:
    """Returns a random id of a job: `dlc` and 13 characters."""
    return f"{JOB_PREFIX}{_random(13)}"


def new_dataset_id() -> str:
    """Returns a random id of a data set."""
    return f"d-{_random(18)}"


def new_code_source_id() -> str:
    """Returns a random id of a code source."""
    return f"code-{_random(18)}"


def new_tensorboard_id() -> str:
    """Returns a random id of a TensorBoard."""
    return f"tb{_random(13)}"


def new_template_id() -> str:
    """Returns a random id of a template of jobs."""
    return f"template-{_random(16)}"


def new_pod_uid() -> str:
    """Returns a random uid of a pod: a restarted pod keeps its id, and has another uid."""
    return _uuid()


def new_request_id() -> str:
    """Returns a random id of a request, in upper case."""
    return _uuid().upper()


def _random(length: int) -> str:
    return "".join(secrets.choice(_CHARACTERS) for _ in range(length))


def _uuid() -> str:
    digits = secrets.token_hex(16)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def is_new_job(content: object) -> bool:
    """Returns True for a body of CreateJob, False for that of a training job."""
    return isinstance(content, Mapping) and "DisplayName" in content and "TrainingJobName" not in content


def is_job_id(text: str) -> bool:
    """Returns True for the id of a job, also in its former form with a date."""
    return _JOB_ID.fullmatch(text) is not None


def is_dataset_id(text: str) -> bool:
    """Returns True for the id of a data set."""
    return _DATASET_ID.fullmatch(text) is not None


def is_code_source_id(text: str) -> bool:
    """Returns True for the id of a code source."""
    return _CODE_SOURCE_ID.fullmatch(text) is not None


def display_name_problem(name: str) -> str | None:
    """Returns what is wrong with the name of a job; None for a name that the cloud accepts."""
    if _DISPLAY_NAME.fullmatch(name):
        return None
    if len(name) > 256:
        return f"has {len(name)} characters; 256 are allowed"
    wrong = sorted({character for character in name if not _DISPLAY_NAME.fullmatch(character)})
    return f"has {' '.join(map(repr, wrong[:5]))}; use letters, digits, '_', '.' and '-'" if wrong else "is empty"


# ---- types --------------------------------------------------------------------------------------------------


def job_type_for(text: str) -> str | None:
    """Returns the type of job for text in any case, with or without `Job` at its end; None for no type."""
    stem = text.lower().removesuffix("job")
    return next((name for name in JOB_TYPES if name.lower().removesuffix("job") == stem), None)


def canonical_role(job_type: str, role: str) -> str | None:
    """Returns a role as the documents spell it; None if this type of job is known not to have it."""
    roles = ROLE_TYPES.get(job_type)
    if roles is None:
        return role or None
    for name in roles:
        if name.lower() == role.lower():
            return name
    is_group = job_type == "RayJob" and re.fullmatch(r"worker-[a-z0-9-]+", role.lower())
    return f"Worker{role[len('Worker') :]}" if is_group else None


# ---- pods ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PodName:
    """The name of a pod.

    Attributes:
        name: `{job}-{type}-{index}`, which is its id.
        type: the role in lower case; `master` for the first worker of a PyTorchJob without a master.
        index: among the pods of this type, from 0.
        spec: the index of its role among those that were passed, which keeps their order.
        rank: among all pods of the job, from 0: masters and chiefs first.
    """

    name: str
    type: str
    index: int
    spec: int
    rank: int


def pods_of(job_id: str, job_type: str, roles: Sequence[tuple[str, int]]) -> list[PodName]:
    """Returns the pods of a job in the order of their ranks, of roles and their counts.

    Example:
        >>> [pod.name for pod in pods_of("dlc1", "PyTorchJob", [("Worker", 3)])]
        ['dlc1-master-0', 'dlc1-worker-0', 'dlc1-worker-1']
        >>> [pod.name for pod in pods_of("dlc1", "TFJob", [("Worker", 1), ("PS", 1), ("Chief", 1)])]
        ['dlc1-chief-0', 'dlc1-ps-0', 'dlc1-worker-0']
    """
    types = [role.lower() for role, _ in roles]
    order = [name.lower() for name in ROLE_TYPES.get(job_type, ())]
    # Sorting keeps the order of roles that are not public.
    specs = sorted(range(len(roles)), key=lambda spec: _position(types[spec], order))
    sequence = [(types[spec], spec) for spec in specs for _ in range(roles[spec][1])]
    if job_type in _HAS_A_MASTER and sequence and "master" not in (name for name, _ in sequence):
        sequence[0] = ("master", sequence[0][1])
    return _numbered(job_id, sequence)


def _position(role: str, order: Sequence[str]) -> int:
    return order.index(role) if role in order else len(order)


def _numbered(job_id: str, sequence: Iterable[tuple[str, int]]) -> list[PodName]:
    counts: dict[str, int] = {}
    pods = []
    for rank, (name, spec) in enumerate(sequence):
        index = counts.get(name, 0)
        counts[name] = index + 1
        pods.append(PodName(f"{job_id}-{name}-{index}", name, index, spec, rank))
    return pods


def parse_pod(pod_id: str) -> tuple[str, str, int] | None:
    """Returns the job, the type and the index of a pod; None for text that is no id of a pod.

    Example:
        >>> parse_pod("dlc1xjcumbfm7aai-worker-gpu-3")
        ('dlc1xjcumbfm7aai', 'worker-gpu', 3)
    """
    match = _POD.fullmatch(pod_id)
    return (match[1], match[2], int(match[3])) if match else None
