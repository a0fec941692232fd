"""The users of a service, their access keys, and the members of workspaces.

A key's secret is not stored: it is derived from the service's own secret and the key's id, so a copy of the
database gives no access.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from pai_sdk._service.identity.page_sessions import EndedPageSessions
from pai_sdk._service.identity.principal import LOCAL_USER, OPERATOR, RIGHTS, Principal, Right, key_refusal
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.folder import Keys
from pai_sdk._service.state.models import (
    AccessKeyRow,
    JobStar,
    MemberRow,
    RemovedUserRow,
    SavedViewRow,
    UserRow,
)
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.pai.wire import wire_time

_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?")  # also the suffix of a bucket's name
_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True)
class NewKey:
    """A new key with its secret, which is displayed only once."""

    key_id: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class KeyInfo:
    """A key of a user, without its secret; times are in seconds since 1970, UTC."""

    id: str
    created_at: float
    expires_at: float | None  # None: it does not expire


@dataclass(frozen=True)
class UserInfo:
    """A user."""

    name: str
    right: Right  # the highest right of their keys
    created_at: float  # seconds since 1970, UTC
    keys: tuple[KeyInfo, ...]  # the oldest first
    workspaces: dict[str, Right]  # by id; only those they are a member of


class Users:
    """Users, keys, members and ended sign-ins of browsers. Safe to use from several threads.

    All data for the admission of requests is in memory: requests are admitted on the event loop, which must not
    wait for a database. A change reads it again before the change is confirmed. Only one process changes users at
    a time.
    """

    def __init__(self, database: Database, service_keys: Keys, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._service_keys = service_keys
        self._now = now
        self.ended_page_sessions = EndedPageSessions(database, now=now)
        # Locked while users are read: otherwise a slow reader could replace a later result by an older one.
        self._lock = threading.Lock()
        # Replaced and never modified, so readers need no lock. None after a change that could not be read again:
        # no key may keep a revoked right.
        self._principals: dict[str, Principal] | None = self._read()

    # ---- of a request -------------------------------------------------------------------------------------

    def secret(self, key_id: str) -> str | None:
        """Returns the secret of a key; None if there is no such key, or it was revoked or has expired."""
        if key_id == self._service_keys.access_key_id:
            return self._service_keys.access_key_secret
        return self._derive_secret(key_id) if self.principal(key_id) is not None else None

    def principal(self, key_id: str) -> Principal | None:
        """Returns the user of a key with their rights; None if there is none, or it was revoked or has expired."""
        if key_id == self._service_keys.access_key_id:
            return Principal.operator(key_id)
        principal = self._all_principals().get(key_id)
        return None if principal is None or self._has_expired(principal) else principal

    def expired_at(self, key_id: str) -> float | None:
        """Returns when a key has expired, in seconds since 1970; None for a valid or unknown one."""
        principal = self._all_principals().get(key_id)
        return principal.expires_at if principal is not None and self._has_expired(principal) else None

    def refusal(self, principal: Principal) -> WireError | None:
        """Returns why a request may not continue; None if it has the rights that it had when it was admitted."""
        if (refusal := self.ended_page_sessions.refusal(principal)) is not None:
            return refusal
        if not principal.key_id or principal.user == OPERATOR:
            return None
        now = self.principal(principal.key_id)
        if now is None:
            return key_refusal(self, principal.key_id)
        if now.view_key == principal.view_key:
            return None
        return WireError(
            403, "InvalidAccessKeyId.NotFound", "The rights of the access key have changed meanwhile."
        )

    def with_key(self, name: str) -> Principal | None:
        """Returns a user by name with their rights; None if there is no such user, or they have no valid key."""
        if name == OPERATOR:
            return Principal.operator("")
        valid = (each for each in self._all_principals().values() if not self._has_expired(each))
        match = next((principal for principal in valid if principal.user == name), None)
        return None if match is None else replace(match, key_id="", expires_at=None)

    def submitter(self, name: str) -> Principal:
        """Returns a job's user, with the right to submit; administrators and the service keep their right."""
        if name == OPERATOR:
            return Principal.operator("")
        with self._database.read() as session:
            row = session.get(UserRow, name)
        return Principal(name, "", "admin" if row is not None and row.right == "admin" else "submit")

    # ---- users --------------------------------------------------------------------------------------------

    def add(self, name: str, right: Right, *, workspace_id: str | None = None) -> None:
        """Adds a user, optionally as a member of a workspace, with the right to submit if their key has it."""
        if not _NAME.fullmatch(name) or name == LOCAL_USER:
            message = f"Name: {name[:60]!r} is not 1 to 32 of a-z, 0-9 and '-', a letter first and no '-' last."
            raise invalid_parameter(message)
        _check_right(right)
        with self.changing() as session:
            _check_free(session, name)
            session.add(UserRow(name=name, right=right, created_at=time.time()))
            session.flush()
            if workspace_id is not None:
                session.add(MemberRow(workspace_id=workspace_id, user=name, right="submit"))

    def check_free(self, name: str) -> None:
        """Checks that no current or removed user has the name."""
        with self._database.read() as session:
            _check_free(session, name)

    def remove(self, name: str) -> None:
        """Removes a user with all keys. Their jobs stay for administrators, and the name is never reused."""
        with self.changing() as session:
            session.delete(_existing(session, name))
            session.merge(RemovedUserRow(name=name))
            session.execute(delete(SavedViewRow).where(SavedViewRow.owner == name))
            session.execute(delete(JobStar).where(JobStar.user == name))

    def set_right(self, name: str, right: Right) -> None:
        """Changes the highest right of a user's keys."""
        _check_right(right)
        with self.changing() as session:
            _existing(session, name).right = right

    def list(self) -> list[UserInfo]:
        """Returns all users, sorted by name."""
        with self._database.read() as session:
            return [_info(session, row) for row in session.scalars(select(UserRow).order_by(UserRow.name))]

    def get(self, name: str) -> UserInfo:
        """Returns a user."""
        with self._database.read() as session:
            return _info(session, _existing(session, name))

    # ---- keys ---------------------------------------------------------------------------------------------

    def new_key(self, name: str, *, expires_at: float | None = None) -> NewKey:
        """Creates a key, which may expire; only the result contains its secret."""
        now = self._now()
        if expires_at is not None and expires_at <= now:
            raise invalid_parameter(f"Expiration: {wire_time(expires_at)} is not in the future.")
        key_id = "LTAI" + "".join(secrets.choice(_ALPHABET) for _ in range(20))
        with self.changing() as session:
            _existing(session, name)
            session.add(AccessKeyRow(id=key_id, user=name, created_at=now, expires_at=expires_at))
        return NewKey(key_id, self._derive_secret(key_id))

    def revoke(self, name: str, key_id: str) -> None:
        """Revokes a key, with immediate effect."""
        with self.changing() as session:
            row = session.get(AccessKeyRow, key_id)
            if row is None or row.user != name:
                raise WireError(404, "KEY_NOT_FOUND", f"The user {name!r} has no key {key_id[:60]!r}.")
            session.delete(row)

    @contextmanager
    def changing(self) -> Iterator[Session]:
        """A transaction that changes rights; they take effect at its end."""
        try:
            with self._database.write() as session:
                yield session
        finally:
            # Also after an error: the commit may have succeeded although its response was lost.
            self._refresh()

    # ---- inside -------------------------------------------------------------------------------------------

    def _has_expired(self, principal: Principal) -> bool:
        return principal.expires_at is not None and principal.expires_at <= self._now()

    def _all_principals(self) -> dict[str, Principal]:
        principals = self._principals
        return self._refresh() if principals is None else principals

    def _derive_secret(self, key_id: str) -> str:
        text = f"access key {key_id}".encode()
        # 40 hexadecimal digits are 160 bits.
        return hmac.new(self._service_keys.access_key_secret.encode(), text, hashlib.sha256).hexdigest()[:40]

    def _refresh(self) -> dict[str, Principal]:
        with self._lock:
            try:
                self._principals = principals = self._read()
            except BaseException:
                # Until a read succeeds, each request reads again instead of using old rights.
                self._principals = None
                raise
        return principals

    def _read(self) -> dict[str, Principal]:
        with self._database.read() as session:
            rights: dict[str, Right] = {row.name: _right(row.right) for row in session.scalars(select(UserRow))}
            workspaces: dict[str, dict[str, Right]] = {}
            for member in session.scalars(select(MemberRow)):
                workspaces.setdefault(member.user, {})[member.workspace_id] = _right(member.right)
            return {
                key.id: Principal(
                    key.user, key.id, rights[key.user], workspaces.get(key.user, {}), expires_at=key.expires_at
                )
                for key in session.scalars(select(AccessKeyRow))
                if key.user in rights and key.user != OPERATOR
            }


def _right(text: str) -> Right:
    """Returns a right of the database; one that this release does not know counts as the lowest."""
    return next((right for right in RIGHTS if right == text), RIGHTS[0])


def _check_right(right: str) -> None:
    if right not in RIGHTS:
        raise invalid_parameter(f"Right: {right[:60]!r} is not one of {', '.join(RIGHTS)}.")


def _check_free(session: Session, name: str) -> None:
    if session.get(UserRow, name) is not None:
        raise WireError(409, "USER_EXISTS", f"The user {name!r} already exists.")
    if session.get(RemovedUserRow, name) is not None:
        message = f"The jobs and files of a removed user have the name {name!r}; choose another one."
        raise WireError(409, "USER_REMOVED", message)


def _existing(session: Session, name: str) -> UserRow:
    row = session.get(UserRow, name)
    if row is None:
        raise WireError(404, "USER_NOT_FOUND", f"There is no user {name[:60]!r}.")
    return row


def _info(session: Session, row: UserRow) -> UserInfo:
    rows = session.scalars(
        select(AccessKeyRow).where(AccessKeyRow.user == row.name).order_by(AccessKeyRow.created_at)
    )
    keys = tuple(KeyInfo(key.id, key.created_at, key.expires_at) for key in rows)
    members = session.scalars(select(MemberRow).where(MemberRow.user == row.name))
    workspaces = {member.workspace_id: _right(member.right) for member in members}
    return UserInfo(row.name, _right(row.right), row.created_at, keys, workspaces)
