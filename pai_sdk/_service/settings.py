"""Settings of a service, and the information that clients need to reach it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pai_sdk._core.paths import EMBEDDED_SERVICE_DIR
from pai_sdk._data.storage.base import Store

__all__ = ["DEFAULT_DATA_DIR", "ConnectionLimits", "ForeignCloud", "ServiceInfo", "ServiceSettings"]

DEFAULT_DATA_DIR = EMBEDDED_SERVICE_DIR


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections.

    Attributes:
        max_connections: open connections; beyond that, the one with the longest time since its last request is
            closed.
        head_bytes: the maximum size of a request's head, including its URL.
        head_s: the time limit for a head to arrive.
        stall_s: a body must bring `min_bytes` in this many seconds, and a response be read within twice as many.
        min_bytes: see `stall_s`.
    """

    max_connections: int = 1000
    head_bytes: int = 64 << 10
    head_s: float = 15.0
    stall_s: float = 30.0
    min_bytes: int = 4 << 10


@dataclass(frozen=True)
class ForeignCloud:
    """Simulates a cloud of another operator: a test mode, which only tests set.

    A create is not recognised by the label of its submission: sent twice, it creates two jobs.

    Attributes:
        list_lag_s: seconds for which lists leave out a new job.
        create_late_s: seconds after which a late create is carried out.
        response_delay_s: seconds by which its response is delayed after that.
        late: the share of late creates, from 0 to 1.
        doubled: the share of creates that are delivered twice, as a gateway may do; the client gets the response
            to the second delivery.
    """

    list_lag_s: float = 0.0
    create_late_s: float = 0.0
    response_delay_s: float = 0.0
    late: float = 1.0
    doubled: float = 0.0


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of a service. A value of None comes from the data folder, or is created on the first start.

    Attributes:
        data_dir: the folder with all data of the service.
        host: the address to listen on; loopback, unless the machine's network must reach it.
        names: names of this machine under which browsers may request the page, besides those of loopback and
            `host`; `https://NAME` for one behind a proxy that adds TLS.
        port: the port; None keeps that of the last start, 0 selects a free one.
        region_id: the region that clients sign for.
        workspace_id: the default workspace.
        bucket: the bucket that exists from the start.
        access_key_id, access_key_secret: the service's own key.
        database_url: PostgreSQL for the jobs; without it, SQLite in the data folder.
        standby: with a `database_url`, wait while another service has the database, and take over when it ends.
        executor: runs the jobs; one of `pai_sdk._host.execution.registry.executor_names`.
        executor_options: options of that executor only, such as the `address` of a cluster.
        embedded: whether a client started it for itself; such a service is replaced after an upgrade.
        idle_timeout_s: stop after so long without a request or a job; None for never.
        slots: the maximum of running instances.
        cpus: the maximum of requested CPUs of all running instances together; None for no limit.
        memory_gib: the maximum of requested memory of all running instances together, in GiB; None for no limit.
        requests_per_s: the request rate of each access key; None for no limit.
        connections: limits of connections.
        max_body_bytes: the maximum size of an API request's body (objects have no such limit).
        max_hold_s: the maximum wait of a long poll for a change.
        max_stream_s: the maximum duration of an event stream; its client reconnects.
        upload_life_s: a multipart upload without a new part for this time is removed.
        objects: an external store for the large contents of objects; without it they are files in the data folder.
        tls_cert, tls_key: files of a certificate and its private key in PEM, for TLS; both or neither.
        metrics_token: opens `/metrics` for programs, besides signed requests of administrators.
        access_log: whether each request is logged.
        log_format: `json` for logs as JSON objects, one per line.
        foreign: for tests, how the simulated cloud behaves.

    Example:
        >>> ServiceSettings(data_dir=Path("/srv/pai")).slots
        16
    """

    data_dir: Path
    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    port: int | None = None
    region_id: str = "local"
    workspace_id: str = "1"
    bucket: str = "pai-local"
    access_key_id: str | None = None
    access_key_secret: str | None = field(default=None, repr=False)
    database_url: str | None = field(default=None, repr=False)
    standby: bool = False
    executor: str = "process"
    executor_options: Mapping[str, str] = field(default_factory=dict)
    embedded: bool = False
    idle_timeout_s: float | None = None
    slots: int = 16
    cpus: float | None = None
    memory_gib: float | None = None
    requests_per_s: float | None = None
    connections: ConnectionLimits = ConnectionLimits()
    max_body_bytes: int = 1 << 20
    max_hold_s: float = 30.0
    max_stream_s: float = 3600.0
    upload_life_s: float = 7 * 24 * 3600.0
    objects: Store | None = field(default=None, repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    metrics_token: str | None = field(default=None, repr=False)
    access_log: bool = False
    log_format: Literal["text", "json"] = "text"
    foreign: ForeignCloud | None = None


@dataclass(frozen=True)
class ServiceInfo:
    """A running service, from the view of its clients.

    Attributes:
        endpoint: the API's URL.
        oss_endpoint: the object store's URL.
        region_id, workspace_id, bucket: for the setup of a session.
        access_key_id, access_key_secret: the key.
        pid: the serving process.
        data_dir: its data folder.
        version: the release of pai-sdk that serves; empty if unknown.
        embedded: whether a client started it for itself.
        executor: runs the jobs, such as `process` or `docker`.
        uses_images: whether jobs run in their images.
        certificate: the file of its TLS certificate, which clients on this machine trust; empty without TLS.
    """

    endpoint: str
    oss_endpoint: str
    region_id: str
    workspace_id: str
    bucket: str
    access_key_id: str
    access_key_secret: str = field(repr=False)
    pid: int = 0
    data_dir: Path = Path()
    version: str = ""
    embedded: bool = False
    executor: str = "process"
    uses_images: bool = True
    certificate: str = ""

    def to_json(self) -> str:
        """Returns one line of JSON with all that a client needs, including the secret."""
        fields = asdict(self)
        del fields["data_dir"]
        return json.dumps(fields)
