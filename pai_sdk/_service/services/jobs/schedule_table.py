"""The table of schedules: owners, requests and due times.

Times of a cron expression in a time zone are seconds since 1970, UTC.
"""

from __future__ import annotations

import re
import secrets
import string
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from sqlalchemy import ColumnElement, delete, exists, func, or_, select, true
from sqlalchemy.orm import Session, defer

from pai_sdk._service.identity.principal import Principal, Right
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import ScheduleRow
from pai_sdk._service.wire_errors import WireError, invalid_parameter

_MAX_SCHEDULES_PER_USER = 100  # each has a request of up to some MiB
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_ID_ALPHABET = string.ascii_lowercase + string.digits
_FIELDS = 5
_MAX_CRON_LENGTH = 200
_MAX_ZONE_LENGTH = 100


def schedule_problems(name: str, cron: str, zone: str) -> Iterator[str]:
    """Yields the problems of a new schedule, except for those of its job."""
    if not _NAME.fullmatch(name):
        yield f"Name: {name[:60]!r} is not 1 to 100 letters, digits, '_', '-' and '.', the first no '-' or '.'"
    yield from cron_problems(cron, zone)


class ScheduleTable:
    """All schedules. Thread-safe; `now` returns seconds since 1970."""

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now
        # Called after the commit of a change that may make a schedule due earlier.
        self.on_change: Callable[[], None] = lambda: None

    # ---- of a user ----------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        *,
        owner: str,
        workspace_id: str,
        cron: str,
        zone: str,
        request: Mapping[str, Any],
        in_transaction: Callable[[Session, str], None] = lambda session, schedule_id: None,
    ) -> ScheduleRow:
        """Adds an enabled schedule; raises WireError if the owner has one of this name, or too many."""
        now = self._now()
        row = ScheduleRow(
            id="schedule" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(12)),
            owner=owner,
            workspace_id=workspace_id,
            name=name,
            cron=cron,
            zone=zone,
            request=dict(request),
            next_time=next_time(cron, zone, now),
            created_at=now,
            modified_at=now,
        )
        mine = ScheduleRow.owner == owner
        with self._database.write() as session:
            if session.scalar(select(exists().where(mine, ScheduleRow.name == name))):
                raise WireError(409, "SCHEDULE_ALREADY_EXISTS", f"You have a schedule {name!r} already.")
            if (session.scalar(select(func.count()).where(mine)) or 0) >= _MAX_SCHEDULES_PER_USER:
                message = (
                    f"You have {_MAX_SCHEDULES_PER_USER} schedules, and more are not allowed; delete one first."
                )
                raise WireError(400, "TOO_MANY_SCHEDULES", message)
            session.add(row)
            session.flush()  # the rows that `in_transaction` adds refer to it
            in_transaction(session, row.id)
        self.on_change()
        return row

    def get(self, schedule_id: str) -> ScheduleRow:
        """Returns a schedule with the body of its job; raises WireError if there is none."""
        with self._database.read() as session:
            return _existing(session, schedule_id)

    def require_visible(self, schedule_id: str, principal: Principal, right: Right) -> None:
        """Raises 404 unless the user is the owner of the schedule or an administrator."""
        with self._database.read() as session:
            _existing(session, schedule_id, _visible(principal))

    def find(self, principal: Principal, *, page_number: int, page_size: int) -> tuple[Sequence[ScheduleRow], int]:
        """Returns a page of a user's visible schedules, the newest first, and the total number."""
        mine = _visible(principal)
        # Without the bodies of the jobs, which may have some MiB each.
        page = (
            select(ScheduleRow).where(mine).order_by(ScheduleRow.number.desc()).options(defer(ScheduleRow.request))
        )
        with self._database.read() as session:
            total = session.scalar(select(func.count()).select_from(ScheduleRow).where(mine)) or 0
            return session.scalars(page.limit(page_size).offset((page_number - 1) * page_size)).all(), total

    def change(
        self, schedule_id: str, *, cron: str | None = None, zone: str | None = None, enabled: bool | None = None
    ) -> ScheduleRow:
        """Changes a schedule; None keeps a value. Due times before the change are not caught up."""
        now = self._now()
        with self._database.write() as session:
            row = _existing(session, schedule_id)
            row.cron, row.zone = cron or row.cron, zone or row.zone
            if problems := list(cron_problems(row.cron, row.zone)):
                raise invalid_parameter("; ".join(problems))
            is_enabled = row.next_time is not None if enabled is None else enabled
            # From now on: a disabled time must not create a job when the schedule is enabled again.
            row.next_time = next_time(row.cron, row.zone, now) if is_enabled else None
            row.modified_at = now
        self.on_change()
        return row

    def delete(self, schedule_id: str) -> None:
        """Deletes a schedule, but not its jobs."""
        with self._database.write() as session:
            _existing(session, schedule_id)
            session.execute(delete(ScheduleRow).where(ScheduleRow.id == schedule_id))
        self.on_change()

    # ---- of the service -----------------------------------------------------------------------------------

    def due(self, now: float) -> list[str]:
        """Returns the ids of the schedules that are due, the earliest first."""
        due = select(ScheduleRow.id).where(ScheduleRow.next_time <= now)
        with self._database.read() as session:
            return list(session.scalars(due.order_by(ScheduleRow.next_time, ScheduleRow.number)))

    def next_time(self) -> float | None:
        """Returns when the next schedule is due; None if none is enabled."""
        with self._database.read() as session:
            return session.scalar(select(func.min(ScheduleRow.next_time)))

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Opens a transaction that records the outcome of a due time."""
        with self._database.write() as session:
            yield session


def _visible(principal: Principal) -> ColumnElement[bool]:
    """Returns the condition that a user may see a schedule, as for private jobs."""
    if principal.has_right("admin"):
        return true()
    administered = [workspace_id for workspace_id, right in principal.workspaces.items() if right == "admin"]
    return or_(ScheduleRow.owner == principal.user, ScheduleRow.workspace_id.in_(administered))


def _existing(session: Session, schedule_id: str, condition: ColumnElement[bool] | None = None) -> ScheduleRow:
    query = select(ScheduleRow).where(ScheduleRow.id == schedule_id)
    row = session.scalar(query if condition is None else query.where(condition))
    if row is None:
        message = f"There is no schedule {schedule_id[:60]!r} here; `pai-sdk schedule list` lists them."
        raise WireError(404, "SCHEDULE_NOT_FOUND", message)
    return row


def cron_problems(cron: str, zone: str) -> Iterator[str]:
    """Yields the problems of a cron expression and of a time zone's name."""
    is_valid_zone = _zone(zone) is not None
    if not is_valid_zone:
        yield f"TimeZone: {zone[:60]!r} is not the name of a time zone, such as UTC or Europe/Berlin"
    if (count := len(cron.split())) != _FIELDS:
        fields = f"{count} field{'' if count == 1 else 's'}"
        yield f"Cron: {cron[:60]!r} has {fields}; give 5: minute, hour, day of month, month, day of week"
    elif len(cron) > _MAX_CRON_LENGTH:
        yield f"Cron: has {len(cron)} characters; {_MAX_CRON_LENGTH} are allowed"
    else:
        try:
            next(CronSim(cron, datetime.now(timezone.utc)))
        except CronSimError as error:
            yield f"Cron: {cron[:60]!r} cannot be read: {error}"
        except StopIteration:
            yield f"Cron: {cron[:60]!r} names a time that never comes"


def next_time(cron: str, zone: str, now: float) -> float:
    """Returns the first time after `now`; raises WireError if the expression or the zone is invalid."""
    # As in Debian's cron: a time that a change of the clocks skips is moved to right after the change, and a
    # repeated time counts once.
    moments = CronSim(cron, _moment(cron, zone, now))
    # In a repeated hour, cronsim's first result can be a time of the first pass.
    return next(seconds for each in moments if (seconds := each.timestamp()) > now)


def newest_time(cron: str, zone: str, now: float, *, since: float) -> float:
    """Returns the last time up to `now`, but not before `since`, which is a time of the expression."""
    moments = CronSim(cron, _moment(cron, zone, now + 1), reverse=True)
    return max(since, next(moments).timestamp())


def _moment(cron: str, zone: str, seconds: float) -> datetime:
    if problems := list(cron_problems(cron, zone)):
        raise invalid_parameter("; ".join(problems))
    return datetime.fromtimestamp(int(seconds), tz=_zone(zone))


def _zone(name: str) -> ZoneInfo | None:
    """Returns the time zone of this name; None if there is none."""
    try:
        return ZoneInfo(name) if 0 < len(name) <= _MAX_ZONE_LENGTH else None
    # Unknown name (KeyError), folder of zones (OSError), invalid file name (ValueError).
    except (KeyError, OSError, ValueError):
        return None
