"""The resources and terms of a job: hardware, network, limits, keys. Plain data, named as on the wire."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from pai_sdk._wire.pai.numbers import Integer, Number
from pai_sdk._wire.pai.wire import Sent


class ResourceType(str, Enum):
    """The kinds of resources."""

    General = "General"
    Lingjun = "Lingjun"


class SpotStrategy(str, Enum):
    """The kinds of price limits for preemptible instances."""

    SpotWithPriceLimit = "SpotWithPriceLimit"
    SpotAsPriceGo = "SpotAsPriceGo"


class InstanceSpec(Sent):
    """The size of an instance in a dedicated resource group. Amounts are strings, as in the API."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    cpu: str | None = Field(default=None, alias="CPU")
    gpu: str | None = Field(default=None, alias="GPU")
    gpu_type: str | None = Field(default=None, alias="GPUType")
    memory: str | None = None
    shared_memory: str | None = None


class SpotSpec(Sent):
    """The terms of preemptible instances.

    Example:
        >>> SpotSpec(spot_strategy="SpotWithPriceLimit", spot_discount_limit=0.5).spot_discount_limit
        0.5
    """

    spot_strategy: SpotStrategy
    spot_discount_limit: Annotated[Number, Field(ge=0)] | None = None


class ComputeResource(Sent):
    """Either public instances (`ecs_spec`, `ecs_count`) or instances of a quota (`resource_id`, `instance_*`)."""

    ecs_spec: str | None = None
    ecs_count: Integer | None = None
    resource_id: str | None = None
    instance_spec: InstanceSpec | None = None
    instance_count: Integer | None = None
    spot_spec: SpotSpec | None = None
    use_spot_instance: bool | None = None


class UserVpcConfig(Sent):
    """The VPC that a job's instances are attached to."""

    vpc_id: str
    security_group_id: str
    switch_id: str | None = None
    extended_cidrs: list[str] | None = Field(default=None, alias="ExtendedCIDRs")
    default_route: Literal["eth0", "eth1"] | None = None


class ExperimentConfig(Sent):
    """The experiment a job belongs to."""

    experiment_id: str


class SchedulerConfig(Sent):
    """The time limit of a job. 0 means without limit."""

    max_running_time_in_seconds: Integer | None = None
    max_running_time_in_minutes: Integer | None = None


class AssignNodeSpec(Sent):
    """The nodes a job must or must not run on."""

    enable_assign_node: bool | None = None
    node_names: str | None = None
    anti_affinity_node_names: str | None = None


class AssumeUserInfo(Sent):
    """The user whose key assumes a role. Shown in no repr: it may hold a temporary key."""

    type: str | None = None
    id: str | None = None
    access_key_id: str | None = Field(default=None, repr=False)
    security_token: str | None = Field(default=None, repr=False)


class CredentialRole(Sent):
    """A role whose temporary key is put into a job."""

    assume_role_for: str | None = None
    assume_user_info: AssumeUserInfo | None = None
    role_arn: str | None = None
    role_type: str | None = None
    policy: str | None = None


class CredentialConfigItem(Sent):
    """One key that is put into a job."""

    key: str | None = None
    type: str | None = None
    roles: list[CredentialRole] | None = None


class CredentialConfig(Sent):
    """Which temporary keys the service puts into a job."""

    enable_credential_inject: bool | None = None
    aliyun_env_role_key: str | None = None
    credential_config_items: list[CredentialConfigItem] | None = None


class Settings(Sent):
    """The finer settings of a job. Fields as the public client 2.6.2 and the build in alipai have them."""

    advanced_settings: dict[str, Any] | None = None
    aimaster_type: str | None = Field(default=None, alias="AIMasterType")
    business_user_id: str | None = None
    caller: str | None = None
    driver: str | None = None
    enable_error_monitoring_in_aimaster: bool | None = Field(default=None, alias="EnableErrorMonitoringInAIMaster")
    error_monitoring_args: str | None = None
    enable_oss_append: bool | None = None
    enable_rdma: bool | None = Field(default=None, alias="EnableRDMA")
    enable_sanity_check: bool | None = None
    sanity_check_args: str | None = None
    enable_tide_resource: bool | None = None
    job_reserved_minutes: Integer | None = None
    job_reserved_policy: str | None = None
    oversold_type: str | None = None
    pipeline_id: str | None = None
    priority: Integer | None = None
    tags: dict[str, str] | None = None
