"""The kinds of backends, as values: code checks capabilities, never which kind it is.

Imports no backend and no pydantic model, so that submitters can check before a job is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pai_sdk._host.execution.base import Hosts


@dataclass(frozen=True)
class Capabilities:
    """The abilities of a backend."""

    uses_images: bool = True  # False: a job runs with the packages of its host
    shares_files: bool = False  # True: jobs access local files directly, so nothing is uploaded
    # `here`: jobs run on this machine. `elsewhere`: on hosts of a service, which needs settings and keys, has
    # algorithms, datasets and experiments with ids, and whose instance types may have a price and lack capacity.
    hosts: Hosts = "elsewhere"
    retries: bool = False  # a job can be restarted after an interruption (`max_retries`)
    on_interrupt: Literal["detach", "stop"] = "detach"  # effect of Ctrl-C on a job that is waited for


@dataclass(frozen=True)
class BackendSpec:
    """A kind of backend: how it is selected, and its capabilities."""

    name: str  # the key in `BACKENDS`
    backend: str  # its class, as `module:name`; `Backends` calls the class's `open`
    capabilities: Capabilities = Capabilities()  # of its backends; `backend.capabilities` is exact
    instance_types: tuple[str, ...] = ()  # that select it; empty for the backend of all other types
    job_prefix: str = ""  # of its job ids; empty for the backend of all other jobs
    list_option: str = ""  # with which `pai-sdk ps` lists its jobs
    not_on: Mapping[str, str] = field(default_factory=dict)  # platform (`sys.platform`) to error message

    @property
    def is_local(self) -> bool:
        """Returns True if jobs run on this machine, without a service."""
        return self.capabilities.hosts == "here"


SERVICE = BackendSpec("service", "pai_sdk._client.backend.service:ServiceBackend")

LOCAL = BackendSpec(
    "local",
    "pai_sdk._client.backend.local:LocalBackend",
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
"""The kinds of backends by name; a new one is added in this dictionary only."""


def backend_for_type(instance_type: Any) -> BackendSpec:
    """Returns the backend of an instance type; None is a type of the service."""
    return next((spec for spec in BACKENDS.values() if instance_type in spec.instance_types), SERVICE)


def backend_for_job(job_id: Any) -> BackendSpec:
    """Returns the backend of a job, by the prefix of its id."""
    matches = (spec for spec in BACKENDS.values() if spec.job_prefix and str(job_id).startswith(spec.job_prefix))
    return next(matches, SERVICE)
