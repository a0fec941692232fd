"""TrainingJob: what its instances use, terminals into them, and tokens."""

from __future__ import annotations

import re
import socket
import time
from typing import Annotated

from fastapi import APIRouter, Query

from pai_sdk._service.http.tokens import new_token
from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.parameters import TimeWindow
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.usage import MEASURED, read_usage
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.pai.record import InstanceMetrics, InstancePoint
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk._wire.training_jobs import InstanceMetricsList
from pai_sdk._wire.users import JobToken

router = APIRouter(prefix="/api/v1", route_class=ActionRoute)

_METRICS = (*MEASURED, "NetworkInputRate", "NetworkOutputRate")
_STEP = re.compile(r"([1-9][0-9]{0,5})([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_NO_TERMINALS = (
    "This service has no web terminals: its jobs are processes of the machine it runs on. "
    "Read the instance's log, or check its processes there."
)


@router.get("/trainingjobs/{job_id}/instancemetrics")
def list_training_job_instance_metrics(
    context: ContextOf,
    job_id: str,
    window: TimeWindow,
    metric: Annotated[str, Query(alias="MetricType")],
    instance: Annotated[str | None, Query(alias="InstanceId")] = None,
    step: Annotated[str, Query(alias="TimeStep")] = "10s",
) -> InstanceMetricsList:
    """ListTrainingJobInstanceMetrics: the mean of each step, in percent of the machine or bytes per second.

    GPUs are measured where the service has `nvidia-smi`; the network is not, and has no values.
    """
    job = context.jobs.get(job_id)
    logs = context.logs.instance_logs(job, instance)
    if metric not in _METRICS:
        raise invalid_parameter(f"MetricType: {metric[:60]!r} is not one of {', '.join(_METRICS)}.")
    length = _STEP.fullmatch(step)
    if length is None:
        raise invalid_parameter(f"TimeStep: {step[:60]!r} is not a length of time such as 10s, 5m, 30m or 1h.")

    usage = {
        log.name: read_usage(
            log.path,
            metric,
            start=job.created_at if window.started_at is None else window.started_at,
            end=time.time() if window.ended_at is None else window.ended_at,
            step_s=int(length[1]) * _SECONDS[length[2]],
        )
        for log in logs
    }
    metrics = [
        InstanceMetrics(
            instance_id=name,
            node_name=socket.gethostname(),
            metrics=[InstancePoint(time=wire_time(time_s), value=round(value, 4)) for time_s, value in values],
        )
        for name, values in usage.items()
    ]
    return InstanceMetricsList(instance_metrics=metrics)


@router.post("/trainingjobs/{job_id}/instances/{instance}/webterminals")
def create_instance_web_terminal(context: ContextOf, job_id: str, instance: str) -> None:
    """CreateInstanceWebTerminal, which this service does not have."""
    context.logs.instance_logs(context.jobs.get(job_id), instance)
    raise WireError(400, "NotSupported", _NO_TERMINALS)


@router.post("/trainingjobs/{job_id}/instances/{instance}/webterminals/action/check")
def check_instance_web_terminal(context: ContextOf, job_id: str, instance: str) -> None:
    """CheckInstanceWebTerminal, which this service does not have."""
    context.logs.instance_logs(context.jobs.get(job_id), instance)
    raise WireError(400, "NotSupported", _NO_TERMINALS)


@router.get("/tokens")
def get_token(
    context: ContextOf,
    job_id: Annotated[str | None, Query(alias="TrainingJobId")] = None,
    expire_time_s: Annotated[int, Query(alias="ExpireTime", ge=1, le=604_800)] = 3600,
) -> JobToken:
    """GetToken: for one job, or for all."""
    if job_id is not None:
        context.jobs.version(job_id)
    return JobToken(token=new_token(context, job_id, time.time() + expire_time_s))
