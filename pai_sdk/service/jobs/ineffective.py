"""The notices about what of a request has no effect on this service."""

from __future__ import annotations

from pai_sdk.agent.reasons import image_unused_message
from pai_sdk.execution.unused_fields import unused_fields
from pai_sdk.schemas.request import TrainingJobRequest

__all__ = ["image_notice", "unused_notice"]

_USED = {"ExperimentConfig", "Priority", "AlgorithmName", "AlgorithmVersion", "AlgorithmProvider"}
_SHARED_MEMORY = "ComputeResource.InstanceSpec.SharedMemory"


def unused_notice(request: TrainingJobRequest, *, executor: str = "process") -> str:
    """A sentence that names the fields without effect; empty where there are none.

    Args:
        request: the job.
        executor: what runs it, `process` or `docker`; a process has no `/dev/shm` of its own.
    """
    names = unused_fields(request, used=_USED | ({_SHARED_MEMORY} if executor == "docker" else set()))
    return f"These have no effect on this service: {', '.join(names)}." if names else ""


def image_notice(request: TrainingJobRequest, *, executor: str) -> str:
    """A sentence that jobs are processes and use no image; empty where they run in containers.

    Args:
        request: the job.
        executor: what runs it, `process` or `docker`.
    """
    image = request.algorithm_spec.image if request.algorithm_spec else None
    return image_unused_message(image) if image and executor == "process" else ""
