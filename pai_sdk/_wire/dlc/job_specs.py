"""The roles of a job: how many pods of which image on which resources."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, Number, String, Strings
from pai_sdk._wire.dlc.pod_specs import ExtraPodSpec

__all__ = [
    "AssignNodeSpec",
    "AutoScalingSpec",
    "AutoscalingMetricSpec",
    "ElasticSpotSpec",
    "HyperNodeSchedulingConfig",
    "HyperNodeSpec",
    "ImageConfig",
    "JobSpec",
    "LocalMountSpec",
    "ResourceConfig",
    "ServiceSpec",
    "SpotSpec",
    "StartupDependency",
    "SystemDisk",
]


class HyperNodeSpec(Body):
    """A group of closely connected nodes."""

    hyper_node_name: String = None
    node_names: String = None


class AssignNodeSpec(Body):
    """The nodes that pods must or must not run on. Names are between commas."""

    enable_assign_node: Boolean = None
    node_names: String = None
    anti_affinity_node_names: String = None
    anti_affinity_hyper_nodes: list[HyperNodeSpec] = Field(default_factory=list)
    hyper_nodes: list[HyperNodeSpec] = Field(default_factory=list)


class HyperNodeSchedulingConfig(Body):
    """How pods are spread over groups of nodes."""

    min_available: Integer = None
    quality_policy: String = None


class AutoscalingMetricSpec(Body):
    """The metric that decides how many pods a role has."""

    metric_name: String = None
    stabilization_window_seconds: Integer = None
    target_value: Integer = None
    tolerance: String = None


class AutoScalingSpec(Body):
    """The limits of the number of pods of an elastic role."""

    min_replicas: Integer = None
    max_replicas: Integer = None
    autoscaling_metric_spec: AutoscalingMetricSpec | None = None
    pods_to_delete: Strings = Field(default_factory=list)
    scaling_strategy: String = None


class ElasticSpotSpec(Body):
    """A spot instance type that pods may use; discounts in percent, prices an hour."""

    instance_type: String = None
    spot_discount_limit: Number = None
    spot_price_limit: Number = None
    spot_strategy: String = None


class SpotSpec(Body):
    """The terms of spot instances: a discount from 0 to 1, or a price a minute."""

    spot_strategy: String = None
    spot_discount_limit: Number = None
    spot_price_limit: Number = None


class ImageConfig(Body):
    """The registry of a private image."""

    auth: String = Field(default=None, repr=False)
    docker_registry: String = None
    password: String = Field(default=None, repr=False)
    username: String = None


class LocalMountSpec(Body):
    """A folder of the node that pods see."""

    local_path: String = None
    mount_mode: String = None
    mount_path: String = None


class ResourceConfig(Body):
    """The size of a pod in a quota. All amounts are text: `8`, `32Gi`."""

    cpu: String = Field(default=None, alias="CPU")
    gpu: String = Field(default=None, alias="GPU")
    gpu_type: String = Field(default=None, alias="GPUType")
    memory: String = None
    shared_memory: String = None


class ServiceSpec(Body):
    """The ports of a role under a name of their own."""

    default_port: Integer = None
    extra_ports: list[int] = Field(default_factory=list)
    service_mode: String = None


class StartupDependency(Body):
    """A role that must be in a phase before another one starts."""

    type: String = None
    on_phase: String = None
    min_replicas: String = None


class SystemDisk(Body):
    """The system disk of a pod."""

    category: String = None
    performance_level: String = None
    size: Integer = None


class JobSpec(Body):
    """One role of a job: pods that are alike."""

    type: String = None
    pod_count: Integer = None
    image: String = None
    image_config: ImageConfig | None = None
    ecs_spec: String = None
    resource_config: ResourceConfig | None = None
    user_command: String = None
    restart_policy: String = None
    is_chief: Boolean = None
    consider_in_success_policy: Boolean = None
    startup_dependencies: list[StartupDependency] = Field(default_factory=list)
    assign_node_spec: AssignNodeSpec | None = None
    auto_scaling_spec: AutoScalingSpec | None = None
    driver: String = None
    elastic_spot_specs: list[ElasticSpotSpec] = Field(default_factory=list)
    extra_pod_spec: ExtraPodSpec | None = None
    hyper_node_scheduling_config: HyperNodeSchedulingConfig | None = None
    is_cheif: Boolean = None
    local_mount_specs: list[LocalMountSpec] = Field(default_factory=list)
    oversold_type: String = None
    quota_id: String = None
    service_spec: ServiceSpec | None = None
    spot_spec: SpotSpec | None = None
    system_disk: SystemDisk | None = None
    use_spot_instance: Boolean = None

    @property
    def is_chief_role(self) -> bool:
        """True for the chief; the API knows the flag by two spellings."""
        return bool(self.is_chief or self.is_cheif)
