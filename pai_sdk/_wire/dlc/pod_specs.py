"""The finer description of the pods of a role: containers, security, life cycle."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, String, StringMap, Strings

__all__ = [
    "Capabilities",
    "ContainerSpec",
    "EnvVar",
    "ExecAction",
    "ExtraPodSpec",
    "Lifecycle",
    "LifecycleHook",
    "ResourceRequirements",
    "SeccompProfile",
    "SecurityContext",
]


class EnvVar(Body):
    """A variable of a container."""

    keeps_empty = frozenset({"Value", "value"})

    name: String = None
    value: String = Field(default=None, repr=False)


class ResourceRequirements(Body):
    """What a container needs, and the most that it gets."""

    limits: StringMap = Field(default_factory=dict)
    requests: StringMap = Field(default_factory=dict)


class Capabilities(Body):
    """Capabilities of Linux that a container has more or less."""

    add: Strings = Field(default_factory=list)
    drop: Strings = Field(default_factory=list)


class SeccompProfile(Body):
    """A filter of system calls."""

    type: String = None
    localhost_profile: String = None


class SecurityContext(Body):
    """The rights of a container."""

    capabilities: Capabilities | None = None
    privileged: Boolean = None
    run_as_group: Integer = None
    run_as_user: Integer = None
    seccomp_profile: SeccompProfile | None = None


class ContainerSpec(Body):
    """A container beside that of the job."""

    name: String = None
    image: String = None
    command: Strings = Field(default_factory=list)
    args: Strings = Field(default_factory=list)
    env: list[EnvVar] = Field(default_factory=list)
    resources: ResourceRequirements | None = None
    security_context: SecurityContext | None = None
    working_dir: String = None


class ExecAction(Body):
    """A command that is run in a container."""

    command: Strings = Field(default_factory=list)


class LifecycleHook(Body):
    """What happens at a point of the life of a container."""

    exec: ExecAction | None = None


class Lifecycle(Body):
    """What happens after the start and before the stop of a container."""

    post_start: LifecycleHook | None = None
    pre_stop: LifecycleHook | None = None


class ExtraPodSpec(Body):
    """What a pod has beside the container of the job."""

    init_containers: list[ContainerSpec] = Field(default_factory=list)
    lifecycle: Lifecycle | None = None
    main_container_security_context: SecurityContext | None = None
    pod_annotations: StringMap = Field(default_factory=dict)
    pod_labels: StringMap = Field(default_factory=dict)
    shared_volume_mount_paths: Strings = Field(default_factory=list)
    side_car_containers: list[ContainerSpec] = Field(default_factory=list)
