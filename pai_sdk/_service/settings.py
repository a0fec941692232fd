"""Settings of a service, and the information that clients need to reach it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pai_sdk._core.paths import EMBEDDED_SERVICE_DIR
from pai_sdk._core.prices import PriceList
from pai_sdk._data.rules.codec import WatchConfig
from pai_sdk._data.storage.base import Store

DEFAULT_DATA_DIR = EMBEDDED_SERVICE_DIR


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections."""

    # Beyond it, the connection with the longest time since its last request is closed.
    max_connections: int = 1000
    head_bytes: int = 64 << 10  # including the URL
    head_s: float = 15.0
    # A body must bring `min_bytes` in `stall_s` seconds, and a response be read within twice as many.
    stall_s: float = 30.0
    min_bytes: int = 4 << 10
    check_interval_s: float = 1.0  # of slow connections, and of the preconditions of the service
    grace_s: float = 3  # after a stop was requested, for requests in progress
    last_grace_s: float = 2  # then for closing their connections


@dataclass(frozen=True)
class Pace:
    """Waits and intervals of a service, which only tests change."""

    health_timeout_s: float = 5.0  # of each check
    slot_timeout_s: float = 10.0  # of a request for a slot of its share
    last_port_wait_s: float = 3.0  # clients use the last port: another process may be about to free it
    batch_s: float = 0.25  # between two polls of the topics of an event stream
    comment_s: float = 15.0  # of a quiet event stream
    refresh_s: float = 0.5  # of the runs of jobs
    cost_s: float = 30.0  # between two updates of the costs of running jobs
    retry_after_error_s: float = 1.0  # of the scheduler
    upload_interval_s: float = 30.0  # of the live outputs of a job
    watch_interval_s: float = 10.0  # between two samples of running jobs, for rules
    first_retry_wait_s: float = 5.0  # between the first two attempts at a job


@dataclass(frozen=True)
class TunnelLimits:
    """Limits of tunnels into running jobs."""

    of_user: int = 128  # a job may have as many instances, and a command enters all of them
    total: int = 512
    connect_s: float = 15.0  # to an instance
    stall_s: float = 60.0  # a job that reads nothing for so long loses its tunnel
    idle_session_s: float = 60.0  # without a request, for clients without WebSockets
    check_rights_s: float = 1.0  # between two checks whether the key of an open tunnel is still valid
    check_job_s: float = 30.0  # besides each change of the job
    last_state_s: float = 3.0  # between the end of an instance's connection and the end of its job


@dataclass(frozen=True)
class ForeignCloud:
    """Simulates a cloud of another operator: a test mode, which only tests set."""

    # A create is not recognised by the label of its submission: sent twice, it creates two jobs.
    list_lag_s: float = 0.0  # lists leave out a new job for so long
    create_late_s: float = 0.0  # after which a late create is carried out
    response_delay_s: float = 0.0  # after the create
    late: float = 1.0  # share of late creates, 0 to 1
    # Share of creates that are delivered twice, as a gateway may do; the client gets the second response.
    doubled: float = 0.0


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of a service. A value of None comes from the data folder, or is created on the first start."""

    data_dir: Path
    host: str = "127.0.0.1"  # loopback, unless the machine's network must reach it
    # Names of this machine under which browsers may request the page, besides those of loopback and `host`;
    # `https://NAME` for one behind a proxy that adds TLS.
    names: tuple[str, ...] = ()
    port: int | None = None  # None keeps that of the last start, 0 selects a free one
    region_id: str = "local"  # that clients sign for
    workspace_id: str = "1"  # the default one
    bucket: str = "pai-local"  # exists from the start
    access_key_id: str | None = None  # the service's own key
    access_key_secret: str | None = field(default=None, repr=False)
    database_url: str | None = field(
        default=None, repr=False
    )  # PostgreSQL for the jobs; None: SQLite in the folder
    # With a `database_url`: waits while another service has the database, and takes over when it ends.
    standby: bool = False
    executor: str = "process"  # one of `pai_sdk._host.execution.registry.executor_names`
    executor_options: Mapping[str, str] = field(default_factory=dict)  # such as the `address` of a cluster
    embedded: bool = False  # a client started it for itself; such a service is replaced after an upgrade
    idle_timeout_s: float | None = None  # without a request or a job; None for never
    # Maxima of all running instances together, None for no limit: instances, requested CPUs and memory.
    slots: int = 16
    cpus: float | None = None
    memory_gib: float | None = None
    requests_per_s: float | None = None  # of each access key; None for no limit
    connections: ConnectionLimits = ConnectionLimits()
    max_body_bytes: int = 1 << 20  # of requests to the API; objects have no such limit
    log_page_bytes: int = 4 << 20  # read at once: a page of 10,000 long lines would fill the memory
    copy_threads: int = 4  # for each of: inputs, live outputs, final outputs
    max_hold_s: float = 30.0  # of a long poll for a change
    max_stream_s: float = 3600.0  # of an event stream; its client reconnects
    upload_life_s: float = 7 * 24 * 3600.0  # a multipart upload without a new part for so long is removed
    objects: Store | None = field(default=None, repr=False)  # for large contents; None: files in the data folder
    tls_cert: Path | None = None  # PEM; with `tls_key`, or neither
    tls_key: Path | None = None
    metrics_token: str | None = field(default=None, repr=False)  # opens `/metrics` for programs
    access_log: bool = False
    # Networks (`10.0.0.0/8`) and hosts to which messages about jobs may be sent, besides public addresses.
    notify_allow: tuple[str, ...] = ()
    log_format: Literal["text", "json"] = "text"  # `json`: one object per line
    watch: WatchConfig = field(default_factory=WatchConfig)  # rules about running jobs
    prices: PriceList | None = None  # of instances; None: the costs of new jobs are unknown
    foreign: ForeignCloud | None = None  # for tests
    pace: Pace = Pace()
    tunnels: TunnelLimits = TunnelLimits()


@dataclass(frozen=True)
class ServiceInfo:
    """A running service, from the view of its clients."""

    endpoint: str
    oss_endpoint: str
    region_id: str
    workspace_id: str
    bucket: str
    access_key_id: str
    access_key_secret: str = field(repr=False)
    pid: int = 0
    data_dir: Path = Path()
    version: str = ""  # the release of pai-sdk that serves; empty if unknown
    embedded: bool = False  # a client started it for itself
    executor: str = "process"
    uses_images: bool = True  # jobs run in their images
    certificate: str = ""  # the file that clients on this machine trust; empty without TLS

    def to_json(self) -> str:
        """Returns one line of JSON with all that a client needs, including the secret."""
        fields = asdict(self)
        del fields["data_dir"]
        return json.dumps(fields)
