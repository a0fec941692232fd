"""The actions of DLC: method and path of each. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

__all__ = ["ACTIONS", "API_VERSION", "Action"]

API_VERSION: Final = "2020-12-03"
"""The header `x-acs-version`: it separates actions from those of paistudio with the same path."""


@dataclass(frozen=True)
class Action:
    """An action; `path` has the names of ids in braces."""

    name: str
    method: str
    path: str

    def path_of(self, **ids: str) -> str:
        """Returns the path with quoted ids, such as `path_of(job_id="dlc1")`."""
        return self.path.format(**{name: quote(value, safe="~") for name, value in ids.items()})


ACTIONS: Final = {
    name: Action(name, method, path)
    for name, method, path in (
        ("CreateJob", "POST", "/api/v1/jobs"),
        ("CreateJobTemplate", "POST", "/api/v1/jobtemplates"),
        ("CreateRayHistoryServer", "POST", "/api/v1/rayhistoryservers"),
        ("CreateSignal", "POST", "/api/v1/jobs/{job_id}/signals"),
        ("CreateTensorboard", "POST", "/api/v1/tensorboards"),
        ("DeleteJob", "DELETE", "/api/v1/jobs/{job_id}"),
        ("DeleteJobTemplate", "DELETE", "/api/v1/jobtemplates/{template_id}"),
        ("DeleteRayHistoryServer", "DELETE", "/api/v1/rayhistoryservers/{ray_history_server_id}"),
        ("DeleteTensorboard", "DELETE", "/api/v1/tensorboards/{tensorboard_id}"),
        ("GetDashboard", "GET", "/api/v1/jobs/{job_id}/dashboard"),
        ("GetJob", "GET", "/api/v1/jobs/{job_id}"),
        ("GetJobEvents", "GET", "/api/v1/jobs/{job_id}/events"),
        ("GetJobMetrics", "GET", "/api/v1/jobs/{job_id}/metrics"),
        ("GetJobSanityCheckResult", "GET", "/api/v1/jobs/{job_id}/sanitycheckresult"),
        ("GetJobTemplate", "GET", "/api/v1/jobtemplates/{template_id}"),
        ("GetMetrics", "GET", "/api/v1/cms/metrics"),
        ("GetPodEvents", "GET", "/api/v1/jobs/{job_id}/pods/{pod_id}/events"),
        ("GetPodLogs", "GET", "/api/v1/jobs/{job_id}/pods/{pod_id}/logs"),
        ("GetRayDashboard", "GET", "/api/v1/jobs/{job_id}/rayDashboard"),
        ("GetRayHistoryServer", "GET", "/api/v1/rayhistoryservers/{ray_history_server_id}"),
        ("GetSignal", "GET", "/api/v1/jobs/{job_id}/signals/{signal_id}"),
        ("GetTensorboard", "GET", "/api/v1/tensorboards/{tensorboard_id}"),
        ("GetTensorboardSharedUrl", "GET", "/api/v1/tensorboards/{tensorboard_id}/sharedurl"),
        ("GetToken", "GET", "/api/v1/tokens"),
        ("GetWebTerminal", "GET", "/api/v1/jobs/{job_id}/pods/{pod_id}/webterminal"),
        ("ListEcsSpecs", "GET", "/api/v1/ecsspecs"),
        ("ListJobSanityCheckResults", "GET", "/api/v1/jobs/{job_id}/sanitycheckresults"),
        ("ListJobTemplates", "GET", "/api/v1/jobtemplates"),
        ("ListJobs", "GET", "/api/v1/jobs"),
        ("ListRayHistoryServers", "GET", "/api/v1/rayhistoryservers"),
        ("ListSignals", "GET", "/api/v1/jobs/{job_id}/signals"),
        ("ListTensorboards", "GET", "/api/v1/tensorboards"),
        ("SetJobTemplateDefaultVersion", "PUT", "/api/v1/jobtemplates/{template_id}/defaultversion"),
        ("StartRayHistoryServer", "POST", "/api/v1/rayhistoryservers/{ray_history_server_id}/start"),
        ("StartTensorboard", "PUT", "/api/v1/tensorboards/{tensorboard_id}/start"),
        ("StopJob", "POST", "/api/v1/jobs/{job_id}/stop"),
        ("StopRayHistoryServer", "POST", "/api/v1/rayhistoryservers/{ray_history_server_id}/stop"),
        ("StopTensorboard", "PUT", "/api/v1/tensorboards/{tensorboard_id}/stop"),
        ("TagResources", "POST", "/api/v1/tags"),
        ("UntagResources", "DELETE", "/api/v1/tags"),
        ("UpdateJob", "PUT", "/api/v1/jobs/{job_id}"),
        ("UpdateJobTemplate", "PUT", "/api/v1/jobtemplates/{template_id}"),
        ("UpdateTensorboard", "PUT", "/api/v1/tensorboards/{tensorboard_id}"),
    )
}
"""Name to action, in the order of names: all that the public client 1.11.6 has."""
