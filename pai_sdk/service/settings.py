"""Settings of a service, and the facts with which a client reaches it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pai_sdk.base.paths import EMBEDDED_SERVICE_DIR
from pai_sdk.storage.base import Store

__all__ = ["DEFAULT_DATA_DIR", "ConnectionLimits", "ForeignCloud", "ServiceInfo", "ServiceSettings"]

DEFAULT_DATA_DIR = EMBEDDED_SERVICE_DIR


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits for connections.

    Attributes:
        most: connections at once; beyond, the one that has waited longest without a request is closed.
        head_bytes: the largest head of a request, its URL included.
        head_s: how long a head may take to arrive.
        stall_s: a body must bring `min_bytes` in this many seconds, and a response be read within twice as many.
        least_bytes: as said.
    """

    max_connections: int = 1000
    head_bytes: int = 64 << 10
    head_s: float = 15.0
    stall_s: float = 30.0
    min_bytes: int = 4 << 10


@dataclass(frozen=True)
class ForeignCloud:
    """Makes the service behave as a cloud may that is not ours: a test mode, which only tests set.

    A create is not recognised by the label of its submission: sent twice, it makes two jobs.

    Attributes:
        list_lag_s: seconds for which lists leave out a new job.
        create_late_s: seconds after which a late create is carried out.
        answer_late_s: seconds by which its response is delayed after that.
        late: the share of creates that are late, from 0 to 1.
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
    """The settings of a service. A value of None comes from the data folder, or is made on the first start.

    Attributes:
        data_dir: the folder with everything the service keeps.
        host: the address to listen on; loopback, unless the machine's network is to reach it.
        names: names of this machine by which browsers may ask for the page, besides those of loopback and `host`;
            `https://NAME` for one behind a proxy that adds TLS.
        port: the port; None keeps the one of the last start, 0 takes a free one.
        region_id: the region clients sign for.
        workspace_id: the only workspace there is.
        bucket: the bucket that exists from the start.
        access_key_id, access_key_secret: the key that clients sign with.
        database_url: PostgreSQL for the jobs; without it, SQLite in the data folder.
        standby: with a `database_url`, wait while another service has the database, and take over when it ends.
        executor: what runs the jobs; one of `pai_sdk.execution.registry.executor_names`.
        executor_options: what only that executor understands, such as the `address` of a cluster.
        embedded: whether a client started it for itself; such a service is replaced after an upgrade.
        idle_timeout_s: end by itself after so long without a request or a job; None for never.
        slots: how many instances may run at once.
        cpus: how many CPUs the instances that run may have asked for, all together; None: not counted.
        memory_gib: how much memory, likewise, in GiB.
        requests_per_s: how many requests a second the access key has; None for any number.
        connections: what a client may do to a connection.
        longest_body_bytes: the largest body of an API request (objects are not limited by it).
        longest_hold_s: the longest a response is held back for a change.
        longest_stream_s: the longest that one event stream lasts; its client connects again.
        upload_life_s: an upload in parts to the object store that gets no part for so long is removed.
        objects: a store elsewhere for the large contents of objects; without it they are files in the data folder.
        tls_cert, tls_key: files of a certificate and its private key in PEM, for TLS; both or neither.
        metrics_token: opens `/metrics` for programs, besides signed requests of administrators.
        access_log: whether each request makes a line in the log.
        log_format: `json` for logs as JSON objects, one a line.
        foreign: for tests, how unlike itself the service behaves.

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
    """A running service, as its clients see it.

    Attributes:
        endpoint: the API's URL.
        oss_endpoint: the object store's URL.
        region_id, workspace_id, bucket: what to set a session up with.
        access_key_id, access_key_secret: the key.
        pid: the process that serves.
        data_dir: its folder.
        version: the release of pai-sdk that serves; empty when it did not say.
        embedded: whether a client started it for itself.
        executor: what runs the jobs, such as `process` or `docker`.
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
        """One line of JSON with all a client needs; it holds the secret."""
        fields = asdict(self)
        del fields["data_dir"]
        return json.dumps(fields)
