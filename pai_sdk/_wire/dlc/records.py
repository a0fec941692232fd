"""Jobs as GetJob and ListJobs describe them."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import AnyMap, Body, Boolean, Integer, Number, String, StringMap, Strings
from pai_sdk._wire.dlc.job_specs import AutoScalingSpec, JobSpec, ResourceConfig
from pai_sdk._wire.dlc.settings import JobElasticSpec, JobSettings
from pai_sdk._wire.dlc.sources import CodeSource, CredentialConfig, CustomEnv, DataSource, RecordedVpc

__all__ = [
    "JobDetail",
    "JobItem",
    "JobList",
    "JobReplicaStatus",
    "Pod",
    "PodNetworkInterface",
    "RestartError",
    "RestartRecord",
    "StatusEntry",
]


class StatusEntry(Body):
    """A status that a job was in."""

    status: String = None
    start_time: String = None
    end_time: String = None
    reason_code: String = None
    reason_message: String = None


class PodNetworkInterface(Body):
    """An address of a pod."""

    interface_name: String = None
    ip: String = None


class Pod(Body):
    """A pod. Restarted ones keep their id, and have another uid."""

    pod_id: String = None
    pod_uid: String = None
    type: String = None
    status: String = None
    sub_status: String = None
    ip: String = None
    pod_ip: String = None
    pod_ips: list[PodNetworkInterface] = Field(default_factory=list)
    node_name: String = None
    resource_type: String = None
    duration: Number = None
    gmt_create_time: String = None
    gmt_start_time: String = None
    gmt_finish_time: String = None
    history_pods: list[Pod] = Field(default_factory=list)
    supported_profiling_types: String = Field(default=None, alias="supportedProfilingTypes")


class RestartError(Body):
    """An error that has led to a restart."""

    add_job_level_blacklist: Boolean = None
    add_node_to_blacklist: Boolean = None
    detail_error_msg: String = None
    error_code: String = None
    error_msg: String = None
    error_source: String = None
    node: String = None
    pod: String = None
    trigger_restart: Boolean = None


class RestartRecord(Body):
    """A restart of a job by the service."""

    detail_error_info_list: list[RestartError] = Field(default_factory=list)
    job_restart_count: Integer = None
    occur_phase: String = None
    occur_time: String = None
    reason: String = None
    restart_duration_in_sec: Integer = None
    restart_fail_reason: String = None
    restart_level_type: String = None
    restart_status: String = None
    trigger_id: String = Field(default=None, alias="TriggerID")


class JobReplicaStatus(Body):
    """How many pods of a role are active or queued."""

    type: String = None
    active: Integer = None
    queuing: Integer = None
    dequeued: Integer = None
    current_spot_instance_type: String = None
    estimated_auto_scaling_spec: AutoScalingSpec | None = None
    estimated_pod_count: Integer = None
    estimated_resource_config: ResourceConfig | None = None


class _JobFields(Body):
    """The fields that both descriptions of a job have."""

    job_id: String = None
    display_name: String = None
    job_type: String = None
    status: String = None
    sub_status: String = None
    reason_code: String = None
    reason_message: String = None
    status_history: list[StatusEntry] = Field(default_factory=list)
    pods: list[Pod] = Field(default_factory=list)
    duration: Integer = None
    gmt_create_time: String = None
    gmt_submitted_time: String = None
    gmt_running_time: String = None
    gmt_finish_time: String = None
    gmt_successed_time: String = None
    gmt_failed_time: String = None
    gmt_stopped_time: String = None
    accessibility: String = None
    cluster_id: String = None
    code_source: CodeSource | None = None
    credential_config: CredentialConfig | None = None
    custom_envs: list[CustomEnv] = Field(default_factory=list)
    data_sources: list[DataSource] = Field(default_factory=list)
    description: String = None
    elastic_spec: JobElasticSpec | None = None
    enabled_debugger: Boolean = None
    envs: StringMap = Field(default_factory=dict, repr=False)
    job_replica_statuses: list[JobReplicaStatus] = Field(default_factory=list)
    job_specs: list[JobSpec] = Field(default_factory=list)
    priority: Integer = None
    request_cpu: Integer = Field(default=None, alias="RequestCPU")
    resource_id: String = None
    resource_level: String = None
    resource_type: String = None
    restart_record: list[RestartRecord] = Field(default_factory=list)
    restart_times: String = None
    role_system_envs: AnyMap = Field(default_factory=dict, repr=False)
    scheduling_strategy: String = None
    settings: JobSettings | None = None
    tenant_id: String = None
    thirdparty_lib_dir: String = None
    thirdparty_libs: Strings = Field(default_factory=list)
    user_command: String = None
    user_id: String = None
    user_vpc: RecordedVpc | None = None
    workspace_id: String = None
    workspace_name: String = None
    supported_profiling_types: String = Field(default=None, alias="supportedProfilingTypes")
    job_max_running_time_minutes: Integer = None
    options: String = None
    success_policy: String = None
    template_id: String = None
    template_version: Integer = None


class JobDetail(_JobFields):
    """The response of GetJob: the job as it was sent, and its state. Numbers are numbers."""

    keeps_empty = frozenset({"Pods", "pods", "StatusHistory", "status_history"})

    request_gpu: Number = Field(default=None, alias="RequestGPU")
    request_id: String = None
    request_memory: Number = None
    debugger_config_content: String = None


class JobItem(_JobFields):
    """A job in a list. Some numbers are text, and most details can be absent."""

    enable_preemptible_job: Boolean = None
    gmt_modified_time: String = None
    is_deleted: Boolean = None
    node_count: String = None
    node_names: Strings = Field(default_factory=list)
    request_gpu: String = Field(default=None, alias="RequestGPU")
    request_memory: String = None
    resource_name: String = None
    resource_quota_name: String = None
    retry_count: Integer = None
    system_envs: StringMap = Field(default_factory=dict, repr=False)
    template_name: String = None
    use_oversold_resource: Boolean = None
    user_script: String = None
    username: String = None
    working_dir: String = None


class JobList(Body):
    """A page of ListJobs."""

    keeps_empty = frozenset({"Jobs", "jobs"})

    jobs: list[JobItem] = Field(default_factory=list)
    total_count: Integer = None
    request_id: String = None
