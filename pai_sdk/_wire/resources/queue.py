"""The queue of a service and what its jobs hold, for `pai-sdk top` and the page. PAI's API has no such action."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.runs import ExtensionBody


class ResourceAmounts(ExtensionBody):
    """Resources of all instances together."""

    instances: int = 0
    cpus: float = 0.0
    memory_gib: float = 0.0
    gpus: int = 0


class ResourceUse(ExtensionBody):
    """One resource of the service: `instances`, `cpus`, `memory_gib` or `gpus`.

    `total` is null without a limit. `used` counts the jobs that the user can see.
    """

    resource: str
    total: float | None
    used: float


class QuotaLimits(ExtensionBody):
    """The limits of a user; null is no limit."""

    cpus: float | None = None
    gpus: int | None = None
    running: int | None = None
    queued: int | None = None


class UserInQueue(ExtensionBody):
    """A user's share of the service, from 0 to 1 and more, and what their jobs hold.

    `share` decides who is next: what the jobs hold now, and the decayed use of the past, which alone is `past`.
    """

    user: str
    share: float
    past: float
    running: int
    queued: int
    allocated: ResourceAmounts
    quota: QuotaLimits


class QueuedJob(ExtensionBody):
    """A job that waits. `position` counts from 1 in the queue of its owner."""

    id: str
    name: str
    owner: str
    position: int
    priority: int
    created_at: float
    needs: ResourceAmounts
    code: str
    reason: str


class InstanceInQueue(ExtensionBody):
    """An instance of a started job; null stands for what is not measured, or a node that is not known."""

    name: str
    status: str
    node: str | None = None
    cpu_percent: float | None = None
    memory_percent: float | None = None
    memory_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_percent: float | None = None


class StartedJob(ExtensionBody):
    """A job that holds resources."""

    id: str
    name: str
    owner: str
    status: str
    since: float
    resources: ResourceAmounts
    instances: list[InstanceInQueue]


class QueueState(ExtensionBody):
    """Capacity, users, and the jobs that run and wait, as far as the user can see them.

    Users other than administrators see their own row of `users`. `more` counts jobs beyond the limit of the lists.
    """

    user: str
    capacity: list[ResourceUse]
    nodes: int | None = Field(description="The nodes of the cluster; null without one.")
    users: list[UserInQueue]
    started: list[StartedJob]
    queued: list[QueuedJob]
    more: int
