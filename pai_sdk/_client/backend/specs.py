"""The kinds of backends, as values: code checks capabilities, never which kind it is.

Imports no backend and no pydantic model, so that submitters can check before a job is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
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
    # False: a create without a response is never sent again, since a second job could not be found with certainty.
    repeats_creates: bool = True
    api: str = "trainingjob"  # how jobs are described to the service
    roles: bool = True  # False: all instances of a job are alike
    updates_jobs: bool = False  # it has `update`: the priority of an existing job
    notifies: bool = False  # the service itself sends the messages about jobs (`notify`)
    on_interrupt: Literal["detach", "stop"] = "detach"  # effect of Ctrl-C on a job that is waited for


@dataclass(frozen=True)
class BackendSpec:
    """A kind of backend: how it is selected, and its capabilities."""

    name: str  # the key in `BACKENDS`
    backend: str  # its class, as `module:name`; `Backends` calls the class's `open`
    capabilities: Capabilities = Capabilities()  # of its backends; `backend.capabilities` is exact
    reader: str = ""  # reads a body of its API that a file has, as `module:name`
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

DLC = BackendSpec(
    "dlc",
    "pai_sdk._client.backend.dlc.backend:DlcBackend",
    Capabilities(repeats_creates=False, api="dlc", updates_jobs=True),
    job_prefix="dlc",
    list_option="--api dlc",
    reader="pai_sdk._client.backend.dlc.existing:read_job",
)

APIS = ("trainingjob", "dlc")
"""The values of `api`: how a service is asked for jobs."""

BACKENDS: Mapping[str, BackendSpec] = {spec.name: spec for spec in (LOCAL, DLC, SERVICE)}
"""The kinds of backends by name; a new one is added in this dictionary only."""


def backend_for_type(instance_type: Any, api: str | None = None) -> BackendSpec:
    """Returns the backend of an instance type and an API; None is a type of the service, and its training jobs."""
    of_service = DLC if api == DLC.capabilities.api else SERVICE
    return next((spec for spec in BACKENDS.values() if instance_type in spec.instance_types), of_service)


def checked_api(api: Any) -> str | None:
    """Returns the argument `api`; refuses one that does not exist."""
    if api is None or api in APIS:
        return str(api) if api else None
    raise InvalidInputError([Problem("api", f"unknown value {api!r}", f"available: {', '.join(APIS)}")])


def backend_for_job(job_id: Any) -> BackendSpec:
    """Returns the backend of a job, by the prefix of its id."""
    matches = (spec for spec in BACKENDS.values() if spec.job_prefix and str(job_id).startswith(spec.job_prefix))
    return next(matches, SERVICE)


def read_body(spec: BackendSpec, content: Mapping[str, Any], where: str) -> Any:
    """Returns the request that describes a body of the API of a backend, and what renders it."""
    module, _, name = spec.reader.partition(":")
    return getattr(import_module(module), name)(content, where)  # by name: backends are above this module
