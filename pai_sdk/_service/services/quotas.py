"""Reads and sets the quotas of users."""

from __future__ import annotations

from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.jobs.queueing.quota_checks import Quota, QuotaUse, quota_of, use_of
from pai_sdk._service.state.models import QuotaRow, UserRow
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.users import QuotaAmounts, QuotaState


def read_quota(context: ServiceContext, user: str) -> QuotaState:
    """Returns the quota of a user, and how much of it is used."""
    with context.jobs.database.read() as session:
        return QuotaState(quota=_amounts(quota_of(session, user)), used=_amounts(use_of(session, user)))


def set_quota(context: ServiceContext, user: str, limits: QuotaAmounts) -> QuotaState:
    """Replaces all limits of a user. Started jobs continue, whatever they use."""
    with context.jobs.database.write() as session:
        if session.get(UserRow, user) is None:
            raise WireError(404, "USER_NOT_FOUND", f"There is no user {user[:60]!r}.")
        session.merge(QuotaRow(user=user, **limits.model_dump()))
    context.runner.wake()
    return read_quota(context, user)


def _amounts(values: Quota | QuotaUse) -> QuotaAmounts:
    # Without a validation, which would write the whole number of CPUs 0 as 0.0.
    return QuotaAmounts.model_construct(
        cpus=values.cpus, gpus=values.gpus, running=values.running, queued=values.queued
    )
