"""TensorBoards of the API of DLC."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, Query, String

__all__ = [
    "NewTensorboard",
    "SharedUrl",
    "SharedUrlQuery",
    "TensorboardChangeQuery",
    "TensorboardDataSource",
    "TensorboardDetailQuery",
    "TensorboardList",
    "TensorboardQuery",
    "TensorboardRecord",
    "TensorboardReference",
    "TensorboardSource",
    "TensorboardSpec",
    "TensorboardUpdateQuery",
]


class TensorboardSource(Body):
    """A data source of a TensorBoard."""

    data_source_id: String = None
    data_source_type: String = None
    description: String = None
    display_name: String = None
    endpoint: String = None
    file_system_id: String = None
    gmt_create_time: String = None
    gmt_modify_time: String = None
    mount_path: String = None
    options: String = None
    path: String = None
    user_id: String = None


class TensorboardDataSource(Body):
    """A folder that a TensorBoard reads."""

    id: String = None
    name: String = None
    data_source_type: String = None
    directory_name: String = None
    full_summary_path: String = None
    source_type: String = None
    summary_path: String = None
    uri: String = None


class TensorboardSpec(Body):
    """The paid resources of a TensorBoard."""

    ecs_type: String = None
    security_group_id: String = None
    switch_id: String = None
    vpc_id: String = None


class NewTensorboard(Body):
    """The body of CreateTensorboard: of a job, or of data sources, not both."""

    display_name: String = None
    workspace_id: String = None
    job_id: String = None
    accessibility: String = None
    cpu: Integer = None
    data_source_id: String = None
    data_source_type: String = None
    data_sources: list[TensorboardSource] = Field(default_factory=list)
    max_running_time_minutes: Integer = None
    memory: Integer = None
    options: String = None
    priority: String = None
    quota_id: String = None
    source_id: String = None
    source_type: String = None
    summary_path: String = None
    summary_relative_path: String = None
    tensorboard_data_sources: list[TensorboardDataSource] = Field(default_factory=list)
    tensorboard_spec: TensorboardSpec | None = None
    uri: String = None


class TensorboardRecord(Body):
    """A TensorBoard."""

    tensorboard_id: String = None
    display_name: String = None
    job_id: String = None
    status: String = None
    accessibility: String = None
    cpu: Integer = None
    data_source_id: String = None
    data_source_type: String = None
    duration: String = None
    gmt_create_time: String = None
    gmt_finish_time: String = None
    gmt_modify_time: String = None
    max_running_time_minutes: Integer = None
    memory: Integer = None
    options: String = None
    priority: String = None
    quota_id: String = None
    quota_name: String = None
    reason_code: String = None
    reason_message: String = None
    request_id: String = None
    summary_path: String = None
    summary_relative_path: String = None
    tensorboard_data_sources: list[TensorboardDataSource] = Field(default_factory=list)
    tensorboard_spec: TensorboardSpec | None = None
    tensorboard_url: String = None
    token: String = Field(default=None, repr=False)
    user_id: String = None
    username: String = None
    workspace_id: String = None


class TensorboardReference(Body):
    """The response of CreateTensorboard, and of its start, stop, update and deletion."""

    tensorboard_id: String = None
    data_source_id: String = None
    job_id: String = None
    request_id: String = None


class TensorboardDetailQuery(Query):
    """The parameters of GetTensorboard. The API misspells the id of the job."""

    jod_id: String = None
    token: String = Field(default=None, repr=False)
    workspace_id: String = None


class TensorboardChangeQuery(Query):
    """The parameters of StartTensorboard, StopTensorboard and DeleteTensorboard."""

    workspace_id: String = None


class TensorboardUpdateQuery(Query):
    """The parameters of UpdateTensorboard, which has no body."""

    accessibility: String = None
    max_running_time_minutes: Integer = None
    priority: String = None
    workspace_id: String = None


class TensorboardQuery(Query):
    """The parameters of ListTensorboards."""

    accessibility: String = None
    display_name: String = None
    end_time: String = None
    job_id: String = None
    order: String = None
    page_number: Integer = None
    page_size: Integer = None
    payment_type: String = None
    quota_id: String = None
    show_own: Boolean = None
    sort_by: String = None
    source_id: String = None
    source_type: String = None
    start_time: String = None
    status: String = None
    tensorboard_id: String = None
    user_id: String = None
    username: String = None
    verbose: Boolean = None
    workspace_id: String = None


class TensorboardList(Body):
    """A page of ListTensorboards."""

    keeps_empty = frozenset({"Tensorboards", "tensorboards"})

    tensorboards: list[TensorboardRecord] = Field(default_factory=list)
    total_count: Integer = None
    request_id: String = None


class SharedUrlQuery(Query):
    """The parameters of GetTensorboardSharedUrl."""

    expire_time_seconds: String = None


class SharedUrl(Body):
    """The response of GetTensorboardSharedUrl."""

    tensorboard_shared_url: String = Field(default=None, repr=False)
    request_id: String = None
