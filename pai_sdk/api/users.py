"""Users of a service of this package on the wire: actions that Alibaba Cloud's API does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from pai_sdk.api.own_actions import call_own
from pai_sdk.api.quotas import QuotaState
from pai_sdk.api.responses import read_model
from pai_sdk.api.transport import ApiResponse, Transport
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.schemas.wire import Received

__all__ = ["AccessKey", "AuditRecord", "ServiceUser", "ServiceUsers"]

_USERS = "/api/v1/users"
_USER = _USERS + "/{name}"
_KEYS = _USER + "/keys"
_QUOTA = _USER + "/quota"
_PAGE = 100


class ServiceUser(Received):
    """A user of a service, as the service describes them."""

    name: str | None = None
    right: str | None = None
    access_key_ids: list[str] = Field(default_factory=list)
    bucket: str | None = None


class AccessKey(Received):
    """A new key. Its secret is shown once."""

    access_key_id: str | None = None
    access_key_secret: str | None = Field(default=None, repr=False)


class AuditRecord(Received):
    """A request that changed something or was refused for a lack of rights, or a failed sign-in (user `-`).

    `created_id` is what the request has created, such as the id of a job.
    """

    number: int | None = None
    time: str | None = None
    user: str | None = None
    access_key_id: str | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    client: str | None = None
    created_id: str | None = None


class ServiceUsers:
    """The actions on users, one method each. They need the key of an administrator.

    Args:
        transport: to the PAI API.

    Example:
        >>> users = Session.embedded().users  # doctest: +SKIP
        >>> users.add("alice", right="submit").bucket  # doctest: +SKIP
        'pai-local-alice'
        >>> users.new_key("alice").access_key_id  # doctest: +SKIP
        'LTAI3vR…'
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def add(self, name: str, *, right: str = "submit", workspace_id: str | None = None) -> ServiceUser:
        """Add a user, with a bucket of their own, who is a member of one workspace; they have no key yet.

        Args:
            name: 1 to 32 of a-z, 0-9 and `-`, beginning with a letter.
            right: `read`, `submit` or `admin`: the most that their keys allow.
            workspace_id: of the workspace; the default one when not given.

        Raises:
            InvalidInputError: the service has no users.
            ApiError: the name is not allowed or taken, or the key is no administrator's.
        """
        body = {"Name": name, "Right": right}
        if workspace_id is not None:
            body["WorkspaceId"] = workspace_id
        response = self._call("CreateUser", "POST", _USERS, body=body)
        return read_model(ServiceUser, response, "CreateUser")

    def list(self) -> list[ServiceUser]:
        """All users, by name."""
        response = self._call("ListUsers", "GET", _USERS)
        return [read_model(ServiceUser, response, "ListUsers", each) for each in response.json.get("Users") or []]

    def set_right(self, name: str, right: str) -> None:
        """Change the most that a user's keys allow, at once."""
        self._call("UpdateUser", "PUT", _USER, {"name": name}, body={"Right": right})

    def remove(self, name: str) -> None:
        """Remove a user with all keys. Their jobs and their bucket stay."""
        self._call("DeleteUser", "DELETE", _USER, {"name": name})

    def quota(self, name: str) -> QuotaState:
        """The quota of a user, and how much of it their jobs use."""
        response = self._call("GetUserQuota", "GET", _QUOTA, {"name": name})
        return read_model(QuotaState, response, "GetUserQuota")

    def own_quota(self) -> QuotaState:
        """The same, of the user whose key this is; it needs no administrator."""
        response = self._call("GetOwnQuota", "GET", "/api/v1/quota")
        return read_model(QuotaState, response, "GetOwnQuota")

    def set_quota(
        self,
        name: str,
        *,
        cpus: float | None = None,
        gpus: int | None = None,
        running: int | None = None,
        queued: int | None = None,
    ) -> QuotaState:
        """Replace the quota of a user. Jobs that have begun go on, whatever they use.

        Args:
            name: the user.
            cpus: the most CPUs of all their jobs that run; None is no limit, here and below.
            gpus: the most GPUs, likewise.
            running: the most jobs that run.
            queued: the most jobs that wait in the queue.

        Raises:
            InvalidRequestError: a limit is less than 0.
            ApiError: there is no such user, or the key is no administrator's.
        """
        body = {"CPUs": cpus, "GPUs": gpus, "RunningJobs": running, "QueuedJobs": queued}
        response = self._call("SetUserQuota", "PUT", _QUOTA, {"name": name}, body=body)
        return read_model(QuotaState, response, "SetUserQuota")

    def new_key(self, name: str) -> AccessKey:
        """Make a key. Its secret is in the result, and nowhere else."""
        response = self._call("CreateAccessKey", "POST", _KEYS, {"name": name})
        return read_model(AccessKey, response, "CreateAccessKey")

    def revoke(self, name: str, access_key_id: str) -> None:
        """Make a key worthless, at once."""
        self._call("DeleteAccessKey", "DELETE", _KEYS + "/{key_id}", {"name": name, "key_id": access_key_id})

    def audit(self, *, user: str | None = None) -> Iterator[AuditRecord]:
        """The requests that changed something, or were refused for a lack of rights, the newest first.

        Args:
            user: only those of this user.
        """
        before: int | None = None
        while True:
            query = {"User": user, "Before": before, "PageSize": _PAGE}
            response = self._call("ListAuditEntries", "GET", "/api/v1/audit", query=query)
            page = [
                read_model(AuditRecord, response, "ListAuditEntries", each) for each in response.json["Entries"]
            ]
            yield from page
            if len(page) < _PAGE:
                return
            before = page[-1].number

    def _call(
        self, action: str, method: str, path: str, names: dict[str, str] | None = None, **given: Any
    ) -> ApiResponse:
        wrong = [one for one in (names or {}).items() if not one[1] or "/" in one[1]]  # another path
        if wrong:
            hint = "it is not empty and has no '/'"
            raise InvalidInputError([Problem(what, f"is {name!r}", hint) for what, name in wrong])
        hint = "a `pai-sdk serve` of this release has them; Alibaba Cloud manages them in its console"
        return call_own(self._transport, action, method, path, names, lacks="users", hint=hint, **given)
