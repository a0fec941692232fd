"""The places where jobs run, as values: code asks what a place can do, and never which place it is.

Loads no backend and no model, so that submitters can ask before anything is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pai_sdk.execution.base import Hosts

__all__ = ["BACKENDS", "LOCAL", "SERVICE", "BackendSpec", "Capabilities", "backend_for_job", "backend_for_type"]


@dataclass(frozen=True)
class Capabilities:
    """The abilities of a backend.

    Attributes:
        uses_images: a job runs in the image that it names; otherwise with the packages of its host.
        shares_files: jobs see the files of this machine where they are, so nothing is uploaded.
        hosts: `here`: jobs run on this machine. `elsewhere`: a service has the hosts. It needs settings and keys,
            knows algorithms, datasets and experiments by their ids, and an instance type may have a price and
            no capacity.
        retries: a job can be started again after an interruption (`max_retries`).
        on_interrupt: what a Ctrl-C means for a job that is waited for in the foreground.
    """

    uses_images: bool = True
    shares_files: bool = False
    hosts: Hosts = "elsewhere"
    retries: bool = False
    on_interrupt: Literal["detach", "stop"] = "detach"


@dataclass(frozen=True)
class BackendSpec:
    """A kind of backend: what leads to it, and what it can do.

    Attributes:
        name: the key in `BACKENDS`.
        backend: its class, as `module:name`; `Backends` calls the class's `open`.
        capabilities: of its backends. A service may lack some of them: `backend.capabilities` has the exact ones.
        instance_types: the instance types that mean this place; empty for the place of all others.
        job_prefix: what the ids of its jobs begin with; empty for the place of all others.
        list_option: the option with which `pai-sdk ps` lists its jobs.
        not_on: platform (`sys.platform`) to the error message for a user there.
    """

    name: str
    backend: str
    capabilities: Capabilities = Capabilities()
    instance_types: tuple[str, ...] = ()
    job_prefix: str = ""
    list_option: str = ""
    not_on: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Return whether jobs run on this machine, without a service."""
        return self.capabilities.hosts == "here"


SERVICE = BackendSpec("service", "pai_sdk.backend.service:ServiceBackend")

LOCAL = BackendSpec(
    "local",
    "pai_sdk.backend.local:LocalBackend",
    Capabilities(shares_files=True, hosts="here", retries=True, on_interrupt="stop"),
    instance_types=("local", "local_gpu"),
    job_prefix="local-",
    list_option="--local",
    not_on={
        "win32": "local jobs do not run on Windows; submit them in WSL or on a Linux machine,"
        " or give another instance_type"
    },
)

BACKENDS: Mapping[str, BackendSpec] = {spec.name: spec for spec in (LOCAL, SERVICE)}
"""The places by name; a new one is added here, and nowhere else."""


def backend_for_type(instance_type: Any) -> BackendSpec:
    """The place whose instances have that type; None is a type of the service.

    Example:
        >>> backend_for_type("local_gpu").name, backend_for_type("ecs.c6.large").name
        ('local', 'service')
    """
    return next((spec for spec in BACKENDS.values() if instance_type in spec.instance_types), SERVICE)


def backend_for_job(job_id: Any) -> BackendSpec:
    """The place of a job.

    Example:
        >>> backend_for_job("local-08655612a521").name, backend_for_job("train129f212o89d").name
        ('local', 'service')
    """
    matches = (spec for spec in BACKENDS.values() if spec.job_prefix and str(job_id).startswith(spec.job_prefix))
    return next(matches, SERVICE)
