"""Reads who holds what, who waits and why: the figures of `pai-sdk top` and of the page's view of the queue."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import psutil
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pai_sdk._data.logs.reader import InstanceLog
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.visibility import visible_jobs
from pai_sdk._service.services.budgets import Work
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.jobs.host_resources import Capacity, Need, need_or_instances
from pai_sdk._service.services.jobs.queueing.fair_share import Allocation, Use, all_uses, allocated_at, share_of
from pai_sdk._service.services.jobs.queueing.quota_checks import ACTIVE, NO_QUOTA, QUEUED, Quota, all_quotas
from pai_sdk._service.services.jobs.queueing.waiting import WaitingJob, queue_positions
from pai_sdk._service.services.usage import (
    CPU_USAGE,
    GPU_MEMORY_USAGE,
    GPU_USAGE,
    MEMORY_USAGE,
    last_sample,
)
from pai_sdk._service.state.models import Job
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.resources.queue import (
    InstanceInQueue,
    QueuedJob,
    QueueState,
    QuotaLimits,
    ResourceAmounts,
    ResourceUse,
    StartedJob,
    UserInQueue,
)

_MAX_JOBS = 500  # of each list
_MAX_SAMPLE_AGE_S = 600.0
_GIB = 1 << 30


def read_queue(context: ServiceContext, principal: Principal, work: Work) -> QueueState:
    """Returns the state of the queue, as far as a user can see it."""
    capacity = context.queue.capacity()
    with context.jobs.database.read() as session:
        started, more_started = _jobs(session, principal, ACTIVE)
        queued, more_queued = _jobs(session, principal, QUEUED)
        positions = queue_positions(session, principal)
        counts = _counts(session)
        uses, quotas = all_uses(session), all_quotas(session)
    needs = {job.id: _need(job).on(capacity.cluster) for job in (*started, *queued)}
    waiting = [job for job in queued if job.id in positions]  # others have started since
    is_admin = principal.has_right("admin")
    names = {*(name for name, _ in counts), *uses, *quotas} if is_admin else {principal.user}
    shares = {name: (uses.get(name, Use()), quotas.get(name, NO_QUOTA)) for name in names}
    allocations = context.queue.allocations()
    users = [_user(name, *share, counts, allocations, capacity) for name, share in shares.items()]
    return QueueState(
        user=principal.user,
        capacity=_capacity(capacity, [needs[job.id] for job in started]),
        nodes=None if capacity.cluster is None else capacity.cluster.nodes,
        users=sorted(users, key=lambda user: (-user.share, user.user)),
        started=[_started(context, work, job, needs[job.id]) for job in started],
        queued=[
            _queued(context, job, needs[job.id], positions[job.id])
            for job in sorted(waiting, key=lambda job: (positions[job.id].position, job.number))
        ],
        more=more_started + more_queued,
    )


def _jobs(session: Session, principal: Principal, statuses: Sequence[str]) -> tuple[list[Job], int]:
    """Returns the newest jobs in some statuses that a user can see, and how many more there are."""
    conditions = Job.status.in_(statuses), visible_jobs(principal)
    newest = select(Job).where(*conditions).order_by(Job.number.desc()).limit(_MAX_JOBS)
    jobs = [*session.scalars(newest)]
    if len(jobs) < _MAX_JOBS:
        return jobs, 0
    return jobs, (session.scalar(select(func.count()).select_from(Job).where(*conditions)) or 0) - len(jobs)


def _counts(session: Session) -> Mapping[tuple[str, bool], int]:
    """Returns the number of jobs of each user: by name, and whether they are queued."""
    counts: Counter[tuple[str, bool]] = Counter()
    columns = Job.owner, Job.status, func.count()
    rows = session.execute(
        select(*columns).where(Job.status.in_((*ACTIVE, *QUEUED))).group_by(Job.owner, Job.status)
    )
    for owner, status, count in rows:
        counts[owner, status in QUEUED] += count
    return counts


def _user(
    name: str,
    use: Use,
    quota: Quota,
    counts: Mapping[tuple[str, bool], int],
    allocations: Sequence[Allocation],
    capacity: Capacity,
) -> UserInQueue:
    of_user, now = [each for each in allocations if each.owner == name], time.time()
    return UserInQueue(
        user=name,
        share=round(share_of(use, of_user, capacity, now), 4),
        past=round(share_of(use, (), capacity, now), 4),
        running=counts.get((name, False), 0),
        queued=counts.get((name, True), 0),
        allocated=_amounts([each.need.on(capacity.cluster) for each in of_user]),
        quota=QuotaLimits(**asdict(quota)),
    )


def _capacity(capacity: Capacity, needs: Sequence[Need]) -> list[ResourceUse]:
    cluster, used = capacity.cluster, _amounts(needs)
    totals: dict[str, tuple[float | None, float | None]] = {
        "instances": (capacity.slots, None),
        "cpus": (capacity.cpus, cluster.cpus if cluster else None),
        "memory_gib": (capacity.memory_gib, cluster.memory_bytes / _GIB if cluster else None),
        "gpus": (capacity.gpus, cluster.gpus if cluster else None),
    }
    return [
        ResourceUse(
            resource=name,
            total=min((limit for limit in limits if limit is not None), default=None),
            used=getattr(used, name),
        )
        for name, limits in totals.items()
    ]


def _started(context: ServiceContext, work: Work, job: Job, need: Need) -> StartedJob:
    work.check()
    states = {each["name"]: each for each in job.instances}
    # Jobs of other hosts name their nodes, or none.
    this_node = socket.gethostname() if context.executor.hosts == "here" else None
    nodes = context.queue.nodes(job.id)
    return StartedJob(
        id=job.id,
        name=job.name,
        owner=job.owner,
        status=job.status,
        since=allocated_at(job),
        resources=_amounts([need]),
        instances=[
            _instance(log, states.get(log.name, {}), nodes.get(log.name, this_node))
            for log in context.logs.instance_logs(job, None)
        ],
    )


def _instance(log: InstanceLog, state: Mapping[str, Any], node: str | None) -> InstanceInQueue:
    used = last_sample(log.path, after=time.time() - _MAX_SAMPLE_AGE_S)
    memory = used.get(MEMORY_USAGE)
    return InstanceInQueue(
        name=log.name,
        status=state.get("status", "Pending"),
        node=node,
        cpu_percent=used.get(CPU_USAGE),
        memory_percent=memory,
        memory_bytes=None if memory is None else round(psutil.virtual_memory().total * memory / 100),
        gpu_percent=used.get(GPU_USAGE),
        gpu_memory_percent=used.get(GPU_MEMORY_USAGE),
    )


def _queued(context: ServiceContext, job: Job, need: Need, waiting: WaitingJob) -> QueuedJob:
    reason = context.queue.reason(waiting)
    return QueuedJob(
        id=job.id,
        name=job.name,
        owner=job.owner,
        position=waiting.position,
        priority=job.priority,
        created_at=job.created_at,
        needs=_amounts([need]),
        code=reason.code,
        reason=reason.text,
    )


def _need(job: Job) -> Need:
    return need_or_instances(TrainingJobRequest.model_validate(job.request))


def _amounts(needs: Sequence[Need]) -> ResourceAmounts:
    return ResourceAmounts(
        instances=sum(need.instances for need in needs),
        cpus=sum(need.cpus for need in needs),
        memory_gib=sum(need.memory_gib for need in needs),
        gpus=sum(need.gpus for need in needs),
    )
