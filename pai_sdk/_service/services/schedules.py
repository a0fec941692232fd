"""Creates schedules, with all checks of their jobs."""

from __future__ import annotations

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.jobs.queueing.quota_checks import refuse_larger_than_quota
from pai_sdk._service.services.jobs.reading import join_problems
from pai_sdk._service.services.jobs.resolution import Resolved
from pai_sdk._service.services.jobs.schedule_table import schedule_problems
from pai_sdk._service.services.training_jobs import check_job
from pai_sdk._service.state.models import ScheduleRow
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.schedules import NewSchedule


def create_schedule(context: ServiceContext, new: NewSchedule, principal: Principal) -> ScheduleRow:
    """Creates a schedule, whose request is checked as a job is."""
    targets = context.notifications.take_targets(new.request)
    job = _checked_job(context, new, principal)
    return context.schedules.create(
        new.name,
        owner=principal.user,
        workspace_id=job.workspace_id,
        cron=new.cron,
        zone=new.time_zone,
        request=job.request.to_wire(),
        in_transaction=lambda session, schedule_id: context.notifications.attach(
            session, targets, schedule_id=schedule_id
        ),
    )


def _checked_job(context: ServiceContext, new: NewSchedule, principal: Principal) -> Resolved:
    """Checks a new schedule and its job; WireError names every problem."""
    problems = list(schedule_problems(new.name, new.cron, new.time_zone))
    try:
        job = check_job(context, new.request, principal)
        with context.jobs.database.read() as session:
            refuse_larger_than_quota(session, principal.user, job.request)
    except WireError as error:
        if not problems:
            raise
        problems.append(error.message)
    if problems:
        raise invalid_parameter(join_problems(problems))
    return job
