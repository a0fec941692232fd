"""What the list of runs shows of jobs of DLC beside what it shows of training jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pai_sdk._service.state.models import Job
from pai_sdk._wire.dlc.names import is_job_id
from pai_sdk._wire.dlc.status import dlc_status
from pai_sdk._wire.requests import RecordedRequest

_HYPERPARAMETERS = "PAI_SDK_HPS"  # DLC has no field for them: the client sends them in this variable


def dlc_labels(job: Job) -> dict[str, str]:
    """Returns the labels by which the list can be filtered: the API, and the status in its words."""
    return {"api": "dlc", "dlc_status": dlc_status(job.status)} if is_job_id(job.id) else {}


def hyperparameters_of(job: Job) -> Mapping[str, str | None]:
    """Returns the hyperparameters of a job; of one of DLC those that its client has sent."""
    request = RecordedRequest.model_validate(job.request)
    if not is_job_id(job.id):
        return request.hyperparameter_values
    try:
        values = json.loads((request.environments or {}).get(_HYPERPARAMETERS) or "{}")
    except (ValueError, RecursionError):  # the variable is any user's
        return {}
    return {name: str(value) for name, value in values.items()} if isinstance(values, dict) else {}
