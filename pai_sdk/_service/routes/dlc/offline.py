"""DLC: actions that need what only the cloud has. They are refused, or return what a job without it has."""

from __future__ import annotations

from fastapi import APIRouter

from pai_sdk._service.routes.dlc.dlc_route import DlcRoute
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.dlc.job_records import require_dlc_job
from pai_sdk._service.services.dlc.problems import missing_error, not_supported
from pai_sdk._wire.dlc.metrics import MetricsPage
from pai_sdk._wire.dlc.resources.access import Dashboard, RayDashboard
from pai_sdk._wire.dlc.resources.ray_history import (
    RayHistoryServer,
    RayHistoryServerList,
    RayHistoryServerReference,
)
from pai_sdk._wire.dlc.resources.sanity_checks import SanityCheck, SanityCheckList
from pai_sdk._wire.dlc.resources.signals import CreatedSignal, SignalList, SignalRecord

router = APIRouter(prefix="/api/v1", route_class=DlcRoute)

_NO_RAY = "This service has no history servers of Ray. Read the logs of the job's pods."
_NO_SIGNALS = "This service sends no signals to single pods. StopJob sends SIGTERM to all of them."
_NO_CLOUD_MONITOR = "This service has no CloudMonitor. GetJobMetrics returns the usage of its pods."


@router.post("/jobs/{job_id}/signals")
def create_signal(context: ContextOf, job_id: str) -> CreatedSignal:
    """CreateSignal, which this service does not have."""
    require_dlc_job(context, job_id)
    raise not_supported(_NO_SIGNALS)


@router.get("/jobs/{job_id}/signals")
def list_signals(context: ContextOf, job_id: str) -> SignalList:
    """ListSignals: none."""
    require_dlc_job(context, job_id)
    return SignalList(signals=[], total_count=0, job_id=job_id)


@router.get("/jobs/{job_id}/signals/{signal_id}")
def get_signal(context: ContextOf, job_id: str, signal_id: str) -> SignalRecord:
    """GetSignal: there is none."""
    require_dlc_job(context, job_id)
    raise missing_error("signal", signal_id)


@router.get("/jobs/{job_id}/dashboard")
def get_dashboard(context: ContextOf, job_id: str) -> Dashboard:
    """GetDashboard: without a link, as in the cloud for jobs that have none."""
    require_dlc_job(context, job_id)
    return Dashboard()


@router.get("/jobs/{job_id}/rayDashboard")
def get_ray_dashboard(context: ContextOf, job_id: str) -> RayDashboard:
    """GetRayDashboard: without a link, as in the cloud for jobs that have none."""
    require_dlc_job(context, job_id)
    return RayDashboard()


@router.get("/jobs/{job_id}/sanitycheckresults")
def list_job_sanity_check_results(context: ContextOf, job_id: str) -> SanityCheckList:
    """ListJobSanityCheckResults: none."""
    require_dlc_job(context, job_id)
    return SanityCheckList(sanity_check_results=[], total_count=0)


@router.get("/jobs/{job_id}/sanitycheckresult")
def get_job_sanity_check_result(context: ContextOf, job_id: str) -> SanityCheck:
    """GetJobSanityCheckResult: there is none."""
    require_dlc_job(context, job_id)
    raise missing_error("sanity check of job", job_id)


@router.get("/cms/metrics")
def get_metrics() -> MetricsPage:
    """GetMetrics, which this service does not have."""
    raise not_supported(_NO_CLOUD_MONITOR)


@router.post("/rayhistoryservers")
def create_ray_history_server() -> RayHistoryServerReference:
    """CreateRayHistoryServer, which this service does not have."""
    raise not_supported(_NO_RAY)


@router.get("/rayhistoryservers")
def list_ray_history_servers() -> RayHistoryServerList:
    """ListRayHistoryServers: none."""
    return RayHistoryServerList(ray_history_servers=[], total_count=0)


@router.get("/rayhistoryservers/{server_id}")
def get_ray_history_server(server_id: str) -> RayHistoryServer:
    """GetRayHistoryServer: there is none."""
    raise missing_error("Ray history server", server_id)


@router.delete("/rayhistoryservers/{server_id}")
def delete_ray_history_server(server_id: str) -> RayHistoryServerReference:
    """DeleteRayHistoryServer: there is none."""
    raise missing_error("Ray history server", server_id)


@router.post("/rayhistoryservers/{server_id}/start")
def start_ray_history_server(server_id: str) -> RayHistoryServerReference:
    """StartRayHistoryServer: there is none."""
    raise missing_error("Ray history server", server_id)


@router.post("/rayhistoryservers/{server_id}/stop")
def stop_ray_history_server(server_id: str) -> RayHistoryServerReference:
    """StopRayHistoryServer: there is none."""
    raise missing_error("Ray history server", server_id)
