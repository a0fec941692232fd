"""Settings of a job."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import AnyMap, Body, Boolean, Integer, String, StringMap

__all__ = ["DataJuicerConfig", "JobElasticSpec", "JobSettings", "ModelConfig", "ModelTemplate", "ResourceLimit"]


class ResourceLimit(Body):
    """The most that a DataJuicer job may use."""

    cpu: String = Field(default=None, alias="CPU")
    gpu: String = Field(default=None, alias="GPU")
    memory: String = None


class DataJuicerConfig(Body):
    """How a DataJuicer job is run."""

    command_type: String = None
    enable_resource_estimation: Boolean = None
    execution_mode: String = None
    resource_limit: ResourceLimit | None = None


class ModelTemplate(Body):
    """The model that a training starts from."""

    collections: String = None
    model_name: String = None
    provider: String = None


class ModelConfig(Body):
    """The model that a job creates."""

    model_name: String = None
    model_template: ModelTemplate | None = None


class JobSettings(Body):
    """The finer settings of a job."""

    advanced_settings: AnyMap = Field(default_factory=dict)
    allocate_all_rdma_devices: Boolean = Field(default=None, alias="AllocateAllRDMADevices")
    allow_unschedulable_nodes: Boolean = None
    business_user_id: String = None
    caller: String = None
    data_juicer_config: DataJuicerConfig | None = None
    disable_ecs_stock_check: Boolean = None
    driver: String = None
    elastic_spot_job_max_restart_times: Integer = None
    enable_cpu_affinity: Boolean = Field(default=None, alias="EnableCPUAffinity")
    enable_dsw_dev: Boolean = Field(default=None, alias="EnableDSWDev")
    enable_error_monitoring_in_aimaster: Boolean = Field(default=None, alias="EnableErrorMonitoringInAIMaster")
    enable_oss_append: Boolean = None
    enable_rdma: Boolean = Field(default=None, alias="EnableRDMA")
    enable_sanity_check: Boolean = None
    enable_tide_resource: Boolean = None
    error_monitoring_args: String = None
    job_reserved_minutes: Integer = None
    job_reserved_policy: String = None
    output_model: ModelConfig | None = Field(default=None, alias="ModelConfig")
    oversold_type: String = None
    pipeline_id: String = None
    sanity_check_args: String = None
    shell: String = None
    tags: StringMap = Field(default_factory=dict)
    termination_grace_period_seconds: Integer = None


class JobElasticSpec(Body):
    """Elastic training. The service accepts and ignores it."""

    aimaster_docker_image: String = Field(default=None, alias="AIMasterDockerImage")
    aimaster_type: String = Field(default=None, alias="AIMasterType")
    edp_max_parallelism: Integer = Field(default=None, alias="EDPMaxParallelism")
    edp_min_parallelism: Integer = Field(default=None, alias="EDPMinParallelism")
    elastic_strategy: String = None
    enable_aimaster: Boolean = Field(default=None, alias="EnableAIMaster")
    enable_edp: Boolean = Field(default=None, alias="EnableEDP")
    enable_elastic_training: Boolean = None
    enable_ps_job_elastic_ps: Boolean = Field(default=None, alias="EnablePsJobElasticPS")
    enable_ps_job_elastic_worker: Boolean = None
    enable_ps_resource_estimate: Boolean = None
    max_parallelism: Integer = None
    min_parallelism: Integer = None
    ps_max_parallelism: Integer = Field(default=None, alias="PSMaxParallelism")
    ps_min_parallelism: Integer = Field(default=None, alias="PSMinParallelism")
