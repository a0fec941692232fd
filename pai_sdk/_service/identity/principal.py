"""The principal of a request: the user whose key has signed it, with their rights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.wire import wire_time

Right: TypeAlias = Literal["read", "submit", "admin"]
"""`read`: read jobs and files. `submit`: also start, stop and delete jobs. `admin`: also manage users and keys."""

RIGHTS: tuple[Right, ...] = ("read", "submit", "admin")
"""All rights in ascending order; each includes those before it."""

LOCAL_USER = "local"
"""The owner in responses for what belongs to the service's own key."""

OPERATOR = ""
"""The user of the service's own key, who owns everything from before there were users."""


@dataclass(frozen=True)
class Principal:
    """A user with the rights of one request."""

    user: str  # `OPERATOR` for the service's own key
    key_id: str  # of the key that signed
    right: Right  # the highest right of this key
    workspaces: Mapping[str, Right] = field(default_factory=dict)  # by id; only those the user is a member of
    expires_at: float | None = None  # of the key, in seconds since 1970
    page_session: str = ""  # the id of the sign-in of a browser; empty for a client with an access key

    @classmethod
    def operator(cls, key_id: str) -> Principal:
        """Returns the principal of the service's own key, with all rights."""
        return cls(OPERATOR, key_id, "admin")

    @property
    def view_key(self) -> tuple[str, Right, tuple[tuple[str, Right], ...]]:
        """Returns a value that is equal for principals with the same view of the service."""
        return self.user, self.right, tuple(sorted(self.workspaces.items()))

    def has_right(self, right: Right) -> bool:
        """Returns whether the key has this right."""
        return RIGHTS.index(self.right) >= RIGHTS.index(right)

    def has_right_in(self, workspace_id: str, right: Right) -> bool:
        """Returns whether the user has this right in a workspace; service administrators are members of all."""
        if self.right == "admin":
            return True
        role_right = self.workspaces.get(workspace_id)
        # An administrator of a workspace needs a key with the right `submit`, not `admin`.
        allowed = self.has_right("submit" if right == "admin" else right)
        return allowed and role_right is not None and RIGHTS.index(role_right) >= RIGHTS.index(right)

    def require(self, right: Right) -> None:
        """Checks a right of the key."""
        if not self.has_right(right):
            message = f"The access key may {_describe(self.right)}; this needs the right {right!r}."
            raise WireError(403, "Forbidden.NoPermission", message)

    def require_in(self, workspace_id: str, right: Right) -> None:
        """Checks a right in a workspace."""
        if not self.has_right_in(workspace_id, right):
            message = f"This needs the right {right!r} in workspace {workspace_id}; its administrators give it."
            raise WireError(403, "Forbidden.NoPermission", message)

    @property
    def readable_workspaces(self) -> list[str] | None:
        """Returns the workspaces whose content the user may read; None for all of them."""
        if self.right == "admin":
            return None
        return [workspace_id for workspace_id in self.workspaces if self.has_right_in(workspace_id, "read")]


NOT_SIGNED_IN = Principal("-", "", "read")
"""The principal of a request without a sign-in. No user has this name, so it has no jobs and no workspaces."""


def _describe(right: Right) -> str:
    return {"read": "only read", "submit": "read and submit", "admin": "do everything"}[right]


class KeyRing(Protocol):
    """Returns the secret and the user of each key. Safe to use from several threads."""

    def secret(self, key_id: str) -> str | None:
        """Returns the secret of a key; None if there is no such key, or it has expired."""
        ...

    def principal(self, key_id: str) -> Principal | None:
        """Returns the user of a key with their rights; None if there is no such key, or it has expired."""
        ...

    def expired_at(self, key_id: str) -> float | None:
        """Returns when a key has expired, in seconds since 1970; None for a valid or unknown one."""
        ...


def key_refusal(keys: KeyRing, key_id: str) -> WireError:
    """Returns the error for a key that has expired or does not exist."""
    expired_at = keys.expired_at(key_id)
    if expired_at is None:
        message = "The access key id does not exist on this service; check it."
        return WireError(403, "InvalidAccessKeyId.NotFound", message)
    # Alibaba Cloud's code for a key that exists and may not be used. At most 123 bytes: it is also the reason of a
    # closed WebSocket.
    remedy = "ask an administrator for a new one (pai-sdk service user key)."
    return WireError(
        403, "InvalidAccessKeyId.Inactive", f"The access key expired at {wire_time(expired_at)}; {remedy}"
    )
