"""Reads the state of a service for its administrators: users, workspaces, the process, the disk."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable

import psutil
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pai_sdk._core.version import __version__
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.inventory import holdings
from pai_sdk._service.services.jobs.queueing.quota_checks import NO_QUOTA, NO_USE, all_quotas, all_uses
from pai_sdk._service.state.lease import lease_in
from pai_sdk._service.state.models import AccessKeyRow, AuditRow, MemberRow, UserRow, WorkspaceRow
from pai_sdk._service.state.sql_engine import display_url, postgres_url
from pai_sdk._wire.users import (
    Administration,
    Amounts,
    DiskOfService,
    DiskPart,
    DiskParts,
    KeyOfUser,
    LeaseOfDatabase,
    ServiceProcess,
    UserInService,
    WorkspaceInService,
)


def read_administration(context: ServiceContext) -> Administration:
    """Returns the state of the service; a constant number of queries, however many users it has."""
    disk = shutil.disk_usage(context.info.data_dir)
    with context.jobs.database.read() as session:
        return Administration(
            users=_users(session),
            workspaces=_workspaces(session),
            process=_process(context, session),
            disk=DiskOfService(folder=str(context.info.data_dir), total_bytes=disk.total, free_bytes=disk.free),
        )


def read_disk_parts(context: ServiceContext, check: Callable[[], None]) -> DiskParts:
    """Returns what uses the disk; counts all files, so `check` is called often and may raise."""
    parts = holdings(context.info.data_dir, check)
    return DiskParts(
        parts=[DiskPart(kind=part.kind, size_bytes=part.size_bytes, count=part.count) for part in parts]
    )


def _users(session: Session) -> list[UserInService]:
    used_at = select(AuditRow.key_id, func.max(AuditRow.at)).where(AuditRow.key_id != "").group_by(AuditRow.key_id)
    changed_at = {row[0]: row[1] for row in session.execute(used_at)}
    keys: dict[str, list[KeyOfUser]] = {}
    for key in session.scalars(select(AccessKeyRow).order_by(AccessKeyRow.created_at)):
        row = KeyOfUser(
            id=key.id,
            created_at=key.created_at,
            changed_at=changed_at.get(key.id),
            expires_at=key.expires_at,
        )
        keys.setdefault(key.user, []).append(row)
    quotas, uses = all_quotas(session), all_uses(session)
    return [
        UserInService(
            name=user.name,
            right=user.right,
            created_at=user.created_at,
            keys=keys.get(user.name, []),
            quota=Amounts(**vars(quotas.get(user.name, NO_QUOTA))),
            used=Amounts(**vars(uses.get(user.name, NO_USE))),
        )
        for user in session.scalars(select(UserRow).order_by(UserRow.name))
    ]


def _workspaces(session: Session) -> list[WorkspaceInService]:
    members: dict[str, dict[str, str]] = {}
    for member in session.scalars(select(MemberRow).order_by(MemberRow.user)):
        members.setdefault(member.workspace_id, {})[member.user] = member.right
    return [
        WorkspaceInService(id=row.id, name=row.name, created_at=row.created_at, members=members.get(row.id, {}))
        for row in session.scalars(select(WorkspaceRow).order_by(WorkspaceRow.created_at))
    ]


def _process(context: ServiceContext, session: Session) -> ServiceProcess:
    process, url = psutil.Process(), context.settings.database_url
    lease = None if url is None else lease_in(session)
    return ServiceProcess(
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        executor=context.info.executor,
        started_at=process.create_time(),
        memory_bytes=process.memory_info().rss,
        database="SQLite" if url is None else display_url(postgres_url(url)),
        lease=None
        if lease is None
        else LeaseOfDatabase(
            host=lease.holder.host if lease.holder else "",
            pid=lease.holder.pid if lease.holder else None,
            number=lease.number,
            expires_at=lease.expires_at,
        ),
    )
