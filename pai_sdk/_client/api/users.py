"""Users of a service of this package on the wire: actions that Alibaba Cloud's API does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from pai_sdk._client.api.resource import Resource, call_service_action
from pai_sdk._client.api.responses import ApiResponse, read_model
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk._wire.users import (
    AccessKey,
    AuditList,
    AuditRecord,
    NewAccessKey,
    NewUser,
    QuotaAmounts,
    QuotaState,
    ServiceUser,
    UserChanges,
    UserList,
)
from pai_sdk.errors import InvalidInputError, Problem

_USERS = "/api/v1/users"
_USER = _USERS + "/{name}"
_KEYS = _USER + "/keys"
_QUOTA = _USER + "/quota"
_PAGE_SIZE = 100


class ServiceUsers(Resource):
    """Actions on users; `session.users`. They need the key of an administrator.

    Example:
        >>> users = Session.embedded().users  # doctest: +SKIP
        >>> users.add("alice", right="submit").bucket  # doctest: +SKIP
        'pai-local-alice'
        >>> users.new_key("alice").access_key_id  # doctest: +SKIP
        'LTAI3vR…'
    """

    def add(self, name: str, *, right: str = "submit", workspace_id: str | None = None) -> ServiceUser:
        """Adds a user with a bucket, who is a member of one workspace and has no key yet.

        Args:
            name: 1 to 32 of a-z, 0-9 and `-`, beginning with a letter.
            right: right of all keys of the user: `read`, `submit` or `admin`.
            workspace_id: id of the workspace; None for the default one.
        """
        body = NewUser(name=name, right=right, workspace_id=workspace_id).to_wire()
        return read_model(ServiceUser, self._call("CreateUser", "POST", _USERS, body=body))

    def list(self) -> list[ServiceUser]:
        """Returns all users, by name."""
        return read_model(UserList, self._call("ListUsers", "GET", _USERS)).users

    def set_right(self, name: str, right: str) -> None:
        """Changes the right of all keys of a user, at once."""
        self._call("UpdateUser", "PUT", _USER, {"name": name}, body=UserChanges(right=right).to_wire())

    def remove(self, name: str) -> None:
        """Removes a user with all keys. Jobs and bucket of the user stay."""
        self._call("DeleteUser", "DELETE", _USER, {"name": name})

    def quota(self, name: str) -> QuotaState:
        """Returns the quota of a user, and how much of it the jobs of the user use."""
        return read_model(QuotaState, self._call("GetUserQuota", "GET", _QUOTA, {"name": name}))

    def own_quota(self) -> QuotaState:
        """Returns quota and usage of the user whose key signs. It needs no administrator."""
        return read_model(QuotaState, self._call("GetOwnQuota", "GET", "/api/v1/quota"))

    def set_quota(
        self,
        name: str,
        *,
        cpus: float | None = None,
        gpus: int | None = None,
        running: int | None = None,
        queued: int | None = None,
    ) -> QuotaState:
        """Replaces the quota of a user; running jobs continue. None is no limit.

        Args:
            name: name of the user.
            cpus: maximum of CPUs of all running jobs.
            gpus: maximum of GPUs of all running jobs.
            running: maximum of running jobs.
            queued: maximum of jobs that wait in the queue.
        """
        body = QuotaAmounts(cpus=cpus, gpus=gpus, running=running, queued=queued).to_dict()
        return read_model(QuotaState, self._call("SetUserQuota", "PUT", _QUOTA, {"name": name}, body=body))

    def new_key(self, name: str, *, expires_at: datetime | None = None) -> AccessKey:
        """Creates a key. The service does not return its secret again.

        Args:
            name: name of the user.
            expires_at: when the service begins to refuse the key, with a time zone; None for never.

        Raises:
            InvalidInputError: the time has no time zone, or the service is of a release without expiries.
        """
        path_params = {"name": name}
        if expires_at is None:
            return read_model(AccessKey, self._call("CreateAccessKey", "POST", _KEYS, path_params))
        if expires_at.tzinfo is None:
            hint = "for example datetime.now(timezone.utc) + timedelta(days=90)"
            raise InvalidInputError([Problem("expires_at", f"is {expires_at!r}, without a time zone", hint)])
        body = NewAccessKey(expiration=wire_time(expires_at.timestamp())).to_wire()
        key = read_model(AccessKey, self._call("CreateAccessKey", "POST", _KEYS, path_params, body=body))
        if key.expiration is None:  # earlier releases ignore the body
            self.revoke(name, key.access_key_id or "")
            hint = "upgrade pai_sdk there and restart it; until then, users can only have keys without an expiry"
            raise InvalidInputError([Problem("expires_at", "the service knows no expiry of keys", hint)])
        return key

    def revoke(self, name: str, access_key_id: str) -> None:
        """Deletes a key; the service refuses it at once."""
        self._call("DeleteAccessKey", "DELETE", _KEYS + "/{key_id}", {"name": name, "key_id": access_key_id})

    def audit(self, *, user: str | None = None) -> Iterator[AuditRecord]:
        """Yields the requests (of a user) that changed something or lacked the right, the newest first."""
        before: int | None = None
        while True:
            query = wire_names(user=user, before=before, page_size=_PAGE_SIZE)
            response = self._call("ListAuditEntries", "GET", "/api/v1/audit", query=query)
            page = read_model(AuditList, response).entries
            yield from page
            if len(page) < _PAGE_SIZE:
                return
            before = page[-1].number

    def _call(
        self,
        action: str,
        method: str,
        path: str,
        path_params: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> ApiResponse:
        # An empty string or a '/' would lead to the path of another action.
        wrong = {name: value for name, value in (path_params or {}).items() if not value or "/" in value}
        if wrong:
            hint = "it is not empty and has no '/'"
            raise InvalidInputError([Problem(name, f"is {value!r}", hint) for name, value in wrong.items()])
        hint = "a `pai-sdk serve` of this release has them; Alibaba Cloud manages them in its console"
        request = action, method, path, path_params, query
        return call_service_action(self._transport, *request, feature="users", hint=hint, **options)
