"""History servers of Ray."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, Query, String

__all__ = [
    "NewRayHistoryServer",
    "RayHistoryServer",
    "RayHistoryServerList",
    "RayHistoryServerQuery",
    "RayHistoryServerReference",
]


class NewRayHistoryServer(Body):
    """The body of CreateRayHistoryServer."""

    display_name: String = None
    accessibility: String = None
    ecs_spec: String = None
    max_runtime_minutes: Integer = None
    resource_id: String = None
    storage_path: String = None
    workspace_id: String = None


class RayHistoryServerReference(Body):
    """The response of CreateRayHistoryServer, and of its start, stop and deletion."""

    ray_history_server_id: String = None
    request_id: String = None


class RayHistoryServer(Body):
    """A history server."""

    ray_history_server_id: String = None
    display_name: String = None
    status: String = None
    accessibility: String = None
    ecs_spec: String = None
    gmt_create_time: String = None
    gmt_finish_time: String = None
    gmt_modify_time: String = None
    max_runtime_minutes: Integer = None
    ray_history_server_url: String = None
    reason_code: String = None
    reason_message: String = None
    resource_id: String = None
    resource_name: String = None
    storage_path: String = None
    tenant_id: String = None
    user_id: String = None
    username: String = None
    workspace_id: String = None


class RayHistoryServerQuery(Query):
    """The parameters of ListRayHistoryServers."""

    display_name: String = None
    end_time: String = None
    id_prefix: String = None
    modified_after: String = None
    order: String = None
    page_number: Integer = None
    page_size: Integer = None
    payment_type: String = None
    resource_id: String = None
    show_own: Boolean = None
    sort_by: String = None
    start_time: String = None
    status: String = None
    storage_path: String = None
    user_id_for_filter: String = None
    username: String = None
    workspace_id: String = None


class RayHistoryServerList(Body):
    """A page of ListRayHistoryServers."""

    keeps_empty = frozenset({"RayHistoryServers", "ray_history_servers"})

    ray_history_servers: list[RayHistoryServer] = Field(default_factory=list)
    total_count: Integer = None
    request_id: String = None
