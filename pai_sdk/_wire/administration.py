"""What administrators see on the page of a service: users, workspaces, the process, the disk. No secrets."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.runs import ExtensionBody


class KeyOfUser(ExtensionBody):
    """An access key; keys do not expire. `changed_at` is the time of its last entry in the audit log."""

    id: str
    created_at: float
    changed_at: float | None


class Amounts(ExtensionBody):
    """Resources and jobs of a user; null is no limit."""

    cpus: float | None
    gpus: int | None
    running: int | None
    queued: int | None


class UserInService(ExtensionBody):
    """A user with keys, rights by workspace, quota and use."""

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
