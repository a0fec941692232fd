"""Users of a service of this package: keys, quotas, requests, links that sign a browser in, tokens; its state.

Alibaba Cloud's API has no such actions, except the one for tokens.
"""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.base import Received, Sent
from pai_sdk._wire.pai.wire import NullableList
from pai_sdk._wire.runs import ExtensionBody


class NewUser(Sent):
    """The body of CreateUser."""

    name: str
    right: str
    workspace_id: str | None = None


class UserChanges(Sent):
    """The body of UpdateUser."""

    right: str


class NewAccessKey(Sent):
    """The body of CreateAccessKey."""

    expiration: str | None = None


class WorkspaceRight(Received):
    """The right of a user in one workspace."""

    workspace_id: str | None = None
    right: str | None = None


class UserKey(Received):
    """An access key of a user, without its secret; one without `expiration` does not expire."""

    access_key_id: str | None = None
    gmt_create_time: str | None = None
    expiration: str | None = None


class ServiceUser(Received):
    """A user of a service, as the service describes them."""

    name: str | None = None
    right: str | None = None
    gmt_create_time: str | None = None
    access_key_ids: list[str] = Field(default_factory=list)
    access_keys: NullableList[UserKey] = Field(default_factory=list)
    bucket: str | None = None
    workspaces: NullableList[WorkspaceRight] = Field(default_factory=list)


class UserList(Received):
    """The response of ListUsers."""

    users: NullableList[ServiceUser]
    total_count: int | None = None


class AccessKey(Received):
    """A new key. Its secret is shown once; without `expiration` it does not expire."""

    access_key_id: str | None = None
    access_key_secret: str | None = Field(default=None, repr=False)
    expiration: str | None = None


class AuditRecord(Received):
    """A request that changed something or was refused for a lack of rights, or a failed sign-in (user `-`).

    `created_id` is what the request has created, such as the id of a job; `expiration` is when that expires.
    """

    number: int | None = None
    time: str | None = None
    user: str | None = None
    access_key_id: str | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    client: str | None = None
    created_id: str | None = None
    expiration: str | None = None


class AuditList(Received):
    """A page of ListAuditEntries."""

    entries: list[AuditRecord]


class QuotaAmounts(Received):
    """CPUs, GPUs and jobs of one user; None is no limit."""

    cpus: float | None = Field(default=None, alias="CPUs")
    gpus: int | None = Field(default=None, alias="GPUs")
    running: int | None = Field(default=None, alias="RunningJobs")
    queued: int | None = Field(default=None, alias="QueuedJobs")


class QuotaState(Received):
    """The quota of a user, and how much of it is used now."""

    quota: QuotaAmounts = Field(default_factory=QuotaAmounts)
    used: QuotaAmounts = Field(default_factory=QuotaAmounts)


class NewPageLink(Sent):
    """The body of CreatePageLink."""

    job_id: str | None = Field(default=None, description="A job; the list without it.")


class PageLink(Received):
    """A link for one browser."""

    url: str = Field(description="Signs one browser in, within a minute.")


class JobToken(Received):
    """The response of GetToken."""

    token: str


class KeyOfUser(ExtensionBody):
    """An access key; `changed_at` is the time of its last entry in the audit log."""

    id: str
    created_at: float
    changed_at: float | None
    expires_at: float | None = Field(description="Null for a key that does not expire.")


class Amounts(ExtensionBody):
    """Resources and jobs of a user; null is no limit."""

    cpus: float | None
    gpus: int | None
    running: int | None
    queued: int | None


class UserInService(ExtensionBody):
    """A user with their right, keys, quota and use."""

    name: str
    right: str
    created_at: float
    keys: list[KeyOfUser]
    quota: Amounts
    used: Amounts


class WorkspaceInService(ExtensionBody):
    """A workspace, with the right of each member."""

    id: str
    name: str
    created_at: float
    members: dict[str, str]


class LeaseOfDatabase(ExtensionBody):
    """The process that may use the database until a time; another service stands by."""

    host: str
    pid: int | None
    number: int = Field(description="Counts the holders.")
    expires_at: float


class ServiceProcess(ExtensionBody):
    """The process of the service; `database` is without its password."""

    host: str
    pid: int
    version: str
    executor: str
    started_at: float
    memory_bytes: int
    database: str
    lease: LeaseOfDatabase | None


class DiskOfService(ExtensionBody):
    """The disk of the data folder."""

    folder: str
    total_bytes: int
    free_bytes: int


class Administration(ExtensionBody):
    """The state of a service, for its administrators. Times are in seconds since 1970."""

    users: list[UserInService]
    workspaces: list[WorkspaceInService]
    process: ServiceProcess
    disk: DiskOfService


class DiskPart(ExtensionBody):
    """The disk space of one kind of files; `count` is null where files are not counted."""

    kind: str
    size_bytes: int
    count: int | None


class DiskParts(ExtensionBody):
    """What uses the disk of the data folder."""

    parts: list[DiskPart]
