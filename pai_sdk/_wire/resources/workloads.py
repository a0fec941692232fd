"""What runs and waits in a quota."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, Query, String

__all__ = ["Workload", "WorkloadList", "WorkloadQuery"]


class WorkloadQuery(Query):
    """The parameters of ListQuotaWorkloads. Lists of ids are between commas."""

    workload_ids: String = None
    workload_type: String = None
    workload_statuses: String = None
    workspace_ids: String = None
    user_ids: String = None
    before_workload_id: String = None
    status: String = None
    show_own: Boolean = None
    sort_by: String = None
    order: String = None
    page_number: Integer = None
    page_size: Integer = None


class Workload(Body):
    """A job, a notebook or a service in a quota, with its position in the queue."""

    workload_id: String = None
    workload_name: String = None
    workload_type: String = None
    workload_status: String = None
    status: String = None
    position: Integer = None
    priority: Integer = None
    reason: String = None
    code: String = None
    code_type: String = None
    queue_strategy: String = None
    quota_id: String = None
    use_oversold_resource: Boolean = None
    user_id: String = None
    user_name: String = None
    workspace_id: String = None
    workspace_name: String = None
    gmt_created_time: String = None
    gmt_enqueued_time: String = None
    gmt_dequeued_time: String = None
    gmt_position_modified_time: String = None


class WorkloadList(Body):
    """A page of ListQuotaWorkloads."""

    keeps_empty = frozenset({"Workloads", "workloads"})

    workloads: list[Workload] = Field(default_factory=list)
    total_count: Integer = None
    request_id: String = None
