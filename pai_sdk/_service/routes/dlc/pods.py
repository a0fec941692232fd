"""DLC: logs, events and metrics of jobs and pods."""

from __future__ import annotations

from fastapi import APIRouter, Request

from pai_sdk._service.routes.dlc.dlc_route import DlcRoute
from pai_sdk._service.services.budgets import LISTS, WorkOf, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.dlc import pods
from pai_sdk._service.services.dlc.problems import not_supported
from pai_sdk._wire.dlc.logs import EventQuery, JobEvents, PodEvents, PodLogQuery, PodLogs
from pai_sdk._wire.dlc.metrics import JobMetrics, JobMetricsQuery
from pai_sdk._wire.dlc.resources.access import WebTerminal

router = APIRouter(prefix="/api/v1/jobs/{job_id}", route_class=DlcRoute)

_NO_TERMINALS = (
    "This service has no web terminals: its jobs are processes of the machine it runs on. "
    "Read the pod's log, or check its processes there."
)


@router.get("/pods/{pod_id}/logs")
@within(LISTS)
def get_pod_logs(
    request: Request, context: ContextOf, work: WorkOf, job_id: str, pod_id: str, query: PodLogQuery
) -> PodLogs:
    """GetPodLogs: the last `MaxLines` lines of a window, whose last second is in it, the oldest first.

    With a `PodUid`, those of one attempt. The header `x-pai-log-complete: true` means that no line will follow.
    """
    logs, is_final = pods.read_logs(context, job_id, pod_id, query, work.spend)
    if is_final:
        request.state.response_headers = {"x-pai-log-complete": "true"}
    return logs


@router.get("/pods/{pod_id}/events")
@within(LISTS)
def get_pod_events(context: ContextOf, job_id: str, pod_id: str, query: EventQuery) -> PodEvents:
    """GetPodEvents: the last `MaxEventsNum` events of a pod, the oldest first."""
    events = pods.read_events(context, job_id, pod_id, query)
    uid = query.pod_uid or pods.current_uid(context, job_id, pod_id)
    return PodEvents(job_id=job_id, pod_id=pod_id, pod_uid=uid, events=events)


@router.get("/events")
@within(LISTS)
def get_job_events(context: ContextOf, job_id: str, query: EventQuery) -> JobEvents:
    """GetJobEvents: the last `MaxEventsNum` events of a job, the oldest first."""
    return JobEvents(job_id=job_id, events=pods.read_events(context, job_id, None, query))


@router.get("/metrics")
@within(LISTS)
def get_job_metrics(context: ContextOf, job_id: str, query: JobMetricsQuery) -> JobMetrics:
    """GetJobMetrics: the mean of each step, in percent of the machine or bytes per second.

    GPU and network are not measured: they have no values.
    """
    return JobMetrics(job_id=job_id, pod_metrics=pods.read_metrics(context, job_id, query))


@router.get("/pods/{pod_id}/webterminal")
def get_web_terminal(context: ContextOf, job_id: str, pod_id: str) -> WebTerminal:
    """GetWebTerminal, which this service does not have."""
    pods.current_uid(context, job_id, pod_id)
    raise not_supported(_NO_TERMINALS)
