"""Bodies that create, change and find jobs."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, Query, String, StringMap, Strings
from pai_sdk._wire.dlc.job_specs import JobSpec
from pai_sdk._wire.dlc.settings import JobElasticSpec, JobSettings
from pai_sdk._wire.dlc.sources import CodeSource, CredentialConfig, CustomEnv, DataSource, UserVpc

__all__ = ["JobDetailQuery", "JobQuery", "JobReference", "JobUpdate", "NewJob"]


class NewJob(Body):
    """The body of CreateJob."""

    display_name: String = None
    job_type: String = None
    job_specs: list[JobSpec] = Field(default_factory=list)
    user_command: String = None
    workspace_id: String = None
    resource_id: String = None
    priority: Integer = None
    description: String = None
    accessibility: String = None
    data_sources: list[DataSource] = Field(default_factory=list)
    code_source: CodeSource | None = None
    envs: StringMap = Field(default_factory=dict, repr=False)
    custom_envs: list[CustomEnv] = Field(default_factory=list)
    credential_config: CredentialConfig | None = None
    debugger_config_content: String = None
    elastic_spec: JobElasticSpec | None = None
    job_max_running_time_minutes: Integer = None
    options: String = None
    scheduling_strategy: String = None
    settings: JobSettings | None = None
    success_policy: String = None
    template_id: String = None
    template_version: Integer = None
    thirdparty_lib_dir: String = None
    thirdparty_libs: Strings = Field(default_factory=list)
    user_vpc: UserVpc | None = None


class JobReference(Body):
    """The response of CreateJob, UpdateJob, StopJob and DeleteJob."""

    job_id: String = None
    request_id: String = None


class JobUpdate(Body):
    """The body of UpdateJob. An empty description removes it."""

    keeps_empty = frozenset({"Description", "description"})

    priority: Integer = None
    accessibility: String = None
    description: String = None
    job_specs: list[JobSpec] = Field(default_factory=list)
    user_command: String = None


class JobDetailQuery(Query):
    """The parameters of GetJob; `NeedDetail` is true unless it is given."""

    need_detail: Boolean = None


class JobQuery(Query):
    """The parameters of ListJobs."""

    workspace_id: String = None
    display_name: String = None
    job_id: String = None
    job_ids: String = None
    job_type: String = None
    status: String = None
    tags: StringMap = Field(default_factory=dict)
    show_own: Boolean = None
    from_all_workspaces: Boolean = None
    start_time: String = None
    end_time: String = None
    sort_by: String = None
    order: String = None
    page_number: Integer = None
    page_size: Integer = None
    accessibility: String = None
    business_user_id: String = None
    caller: String = None
    description: String = None
    display_name_search_mode: String = None
    enable_assign_node: String = None
    image_search: String = None
    numeric_range_field: String = None
    numeric_range_max: Integer = None
    numeric_range_min: Integer = None
    oversold_info: String = None
    payment_type: String = None
    pipeline_id: String = None
    reason_search: String = None
    resource_id: String = None
    resource_ids: String = None
    resource_quota_name: String = None
    template_id: String = None
    time_range_field: String = None
    user_command_search: String = None
    user_id_for_filter: String = None
    username: String = None
