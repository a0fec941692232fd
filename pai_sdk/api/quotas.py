"""Quotas of users as a service of this package describes them."""

from __future__ import annotations

from pydantic import Field

from pai_sdk.schemas.wire import Received

__all__ = ["QuotaAmounts", "QuotaState"]


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
